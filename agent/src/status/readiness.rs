//! Whether the agent sees what it was told to look at, part by part.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Most parts that are told apart.
const MAX_PARTS: usize = 64;

/// The state of a part: attached, or why not, in words for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// It does its work.
    Ready,
    /// It does not do it yet, or no more.
    NotReady(String),
    /// It cannot do it here; the others go on, and the agent is ready without it.
    Without(String),
}

/// All parts.
#[derive(Debug, Default)]
pub struct Readiness {
    parts: Mutex<BTreeMap<&'static str, Part>>,
}

// === impl Readiness ===

impl Readiness {
    /// Says how a part is. A part is known from the first time on.
    pub fn set(&self, name: &'static str, part: Part) {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        if parts.len() < MAX_PARTS || parts.contains_key(name) {
            parts.insert(name, part);
        }
    }

    /// Every part.
    pub fn parts(&self) -> BTreeMap<&'static str, Part> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// At least one part is ready and none is on its way.
    pub fn is_ready(&self) -> bool {
        let parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = parts.values().any(|part| matches!(part, Part::NotReady(_)));
        !waits && parts.values().any(|part| *part == Part::Ready)
    }

    /// `{"ready":…,"parts":[{"name":…,"state":…,"says":…}]}`.
    pub fn to_json(&self) -> serde_json::Value {
        let parts: Vec<serde_json::Value> = self
            .parts()
            .into_iter()
            .map(|(name, part)| {
                let (state, says) = match &part {
                    Part::Ready => ("ready", ""),
                    Part::NotReady(says) => ("not_ready", says.as_str()),
                    Part::Without(says) => ("without", says.as_str()),
                };
                serde_json::json!({"name": name, "state": state, "says": says})
            })
            .collect();
        serde_json::json!({"ready": self.is_ready(), "parts": parts})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_sees_nothing_is_not_ready() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready());
        readiness.set("kernel", Part::Without("no capability".to_owned()));
        assert!(!readiness.is_ready());
    }

    #[test]
    fn a_part_that_is_missing_for_good_does_not_keep_the_others_waiting() {
        let readiness = Readiness::default();
        readiness.set("kernel", Part::Without("no capability".to_owned()));
        readiness.set("logs", Part::NotReady("opening".to_owned()));
        assert!(!readiness.is_ready());
        readiness.set("logs", Part::Ready);
        assert!(readiness.is_ready());
    }
}
