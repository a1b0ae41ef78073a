//! What the queue tells of itself, for metrics.

use super::loss::Reason;
use kvprov_model::observation::{Body, Observation};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A snapshot of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Bytes that it may take on disk.
    pub capacity_bytes: u64,
    /// Bytes that it takes on disk.
    pub disk_bytes: u64,
    /// Bytes that it takes in memory because the disk is full.
    pub memory_bytes: u64,
    /// Segments, on disk and in memory.
    pub segments: u64,
    /// Records that wait to be delivered.
    pub waiting: u64,
    /// How long the oldest segment with records that wait has been there.
    pub oldest: Option<Duration>,
    /// Records that came since the start, and those that waited then.
    pub appended: u64,
    /// Records that the receiver took since the start.
    pub delivered: u64,
    /// Records that were lost since the start.
    pub lost: BTreeMap<Reason, u64>,
    /// Bytes of writes that a kill cut off, found at the start. Their appends never returned; nothing is lost.
    pub torn_bytes: u64,
    /// Writes that the disk refused since the start.
    pub disk_failures: u64,
    /// All that waits is on disk.
    pub durable: bool,
    /// Observations that were appended since the start, by kind.
    pub kinds: BTreeMap<&'static str, u64>,
}

/// Counts observations by kind: the closed table, and `unknown` for the rest.
#[derive(Debug)]
pub(super) struct Kinds(Vec<AtomicU64>);

// === impl Kinds ===

impl Default for Kinds {
    fn default() -> Self {
        Self((0..=Body::KINDS.len()).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Kinds {
    pub(super) fn count(&self, observations: &[Observation]) {
        for observation in observations {
            let kind = observation.body.kind();
            let index = Body::KINDS.iter().position(|known| known.name == kind).unwrap_or(Body::KINDS.len());
            if let Some(count) = self.0.get(index) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> BTreeMap<&'static str, u64> {
        let names = Body::KINDS.iter().map(|kind| kind.name).chain(["unknown"]);
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        names.zip(counts).filter(|(_, count)| *count > 0).collect()
    }
}
