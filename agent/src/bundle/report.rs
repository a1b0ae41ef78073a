//! What reading a bundle came to.

use crate::bundle::problem::Problem;
use crate::source::Losses;
use std::collections::BTreeMap;

/// Lines of logs by what became of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// All lines.
    pub total: u64,
    /// Lines that a template knows.
    pub matched: u64,
    /// Lines that were understood and mean nothing for KV.
    pub ignored: u64,
    /// Lines without a known form.
    pub unparsed: u64,
}

/// What reading a bundle came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Lines of logs.
    pub lines: LineCounts,
    /// Kernel records, events and samples of metrics read.
    pub records: u64,
    /// What was skipped or cut, by `kind: reason`.
    pub loss: BTreeMap<String, u64>,
    /// What is wrong with the input.
    pub problems: Vec<Problem>,
}

// === impl Report ===

impl Report {
    pub(crate) fn lose(&mut self, kind: &str, losses: &Losses) {
        for (reason, count) in losses.iter() {
            let total = self.loss.entry(format!("{kind}: {reason}")).or_default();
            *total = total.saturating_add(count);
        }
    }
}

// === impl LineCounts ===

impl std::ops::AddAssign for LineCounts {
    fn add_assign(&mut self, other: Self) {
        self.total = self.total.saturating_add(other.total);
        self.matched = self.matched.saturating_add(other.matched);
        self.ignored = self.ignored.saturating_add(other.ignored);
        self.unparsed = self.unparsed.saturating_add(other.unparsed);
    }
}
