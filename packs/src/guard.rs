//! What engines compare by themselves before they share KV, and so what they would notice.
//!
//! A guard is on for a worker when its version and its facts say so. Invariant: an unknown version has no guard, for a guard
//! that may not be there guards nothing.

use crate::fact::hold;
use crate::load::Packs;
use crate::version::{Version, VersionRange};
use std::collections::BTreeMap;

/// One `[[guard]]`, checked.
#[derive(Debug, Clone, PartialEq)]
pub struct Guard {
    /// Unique over all packs.
    pub id: String,
    /// The engine that has it.
    pub engine: String,
    /// What it is, in words.
    pub name: String,
    /// Factors and facts that it compares.
    pub covers: Vec<String>,
    /// Factors in which the two sides may differ, because they are converted or looked at when KV moves.
    pub converts: Vec<String>,
    /// What becomes of the KV where it notices something, in words.
    pub outcome: String,
    pub(crate) versions: VersionRange,
    pub(crate) when: BTreeMap<String, String>,
    pub(crate) off_when: BTreeMap<String, String>,
}

/// Whether a worker has a guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardState {
    /// It compares.
    On,
    /// It is there and switched off.
    Off,
}

// === impl Guard ===

impl Guard {
    fn state(&self, version: Option<&Version>, facts: &BTreeMap<String, String>) -> Option<GuardState> {
        let is_there = version.is_some_and(|version| self.versions.contains(Some(version)));
        if !is_there || !hold(&self.when, facts) {
            return None;
        }
        let is_off = !self.off_when.is_empty() && hold(&self.off_when, facts);
        Some(if is_off { GuardState::Off } else { GuardState::On })
    }
}

impl Packs {
    /// The guards that a worker has.
    pub fn guards<'p>(
        &'p self,
        engine: &str,
        version: Option<&Version>,
        facts: &BTreeMap<String, String>,
    ) -> Vec<(&'p Guard, GuardState)> {
        let own = self.guards.iter().filter(|guard| guard.engine == engine);
        own.filter_map(|guard| Some((guard, guard.state(version, facts)?))).collect()
    }
}
