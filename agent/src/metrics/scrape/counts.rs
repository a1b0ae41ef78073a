//! What scraping has cost so far, and what came of it.

use std::collections::BTreeMap;
use std::time::Duration;

/// Figures since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pages of counters that were read whole.
    pub pages: u64,
    /// Answers of other paths that were read.
    pub answers: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Time from the first look at a socket to the end of the answer, failures included.
    pub spent: Duration,
    /// Processor time of ours in it.
    pub worked: Duration,
    /// Tries that gave nothing, by reason; a port that does not listen yet is none.
    pub failures: BTreeMap<&'static str, u64>,
    /// Endpoints by what becomes of them: `read`, `waiting`, `failing`, `refused`.
    pub endpoints: BTreeMap<&'static str, u64>,
}
