//! Counts what a reader skipped, cut or dropped, by reason.
//!
//! Invariant: whatever a reader does not turn into an observation although it might have been one is counted here.

use std::collections::BTreeMap;

/// How many records were lost, by reason. Reasons are a closed set of words in the readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Losses(BTreeMap<&'static str, u64>);

// === impl Losses ===

impl Losses {
    /// Counts one.
    pub fn one(&mut self, reason: &'static str) {
        self.add(reason, 1);
    }

    /// Counts several; zero leaves no entry.
    pub fn add(&mut self, reason: &'static str, records: u64) {
        if records > 0 {
            let count = self.0.entry(reason).or_default();
            *count = count.saturating_add(records);
        }
    }

    /// Reasons with their counts, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.0.iter().map(|(reason, count)| (*reason, *count))
    }

    /// The count of one reason.
    pub fn of(&self, reason: &str) -> u64 {
        self.0.get(reason).copied().unwrap_or(0)
    }

    /// Nothing was lost.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
