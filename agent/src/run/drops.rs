//! What the kernel programs had no room for.
//!
//! Invariant: every drop of a ring is told, also one that happened while no agent ran; hardly ever twice.

use kvprov_loader::client::Client;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Drops are told this often at most.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Follows the count of drops of one ring. What was told is remembered over the end of this process.
pub(crate) struct Drops {
    loader: Arc<Client>,
    file: PathBuf,
    ring: String,
    /// Of the ring's life.
    known: u64,
    is_told: bool,
    is_answered: bool,
    last: Option<Instant>,
}

/// What is known of drops up to now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// There are none that were not told.
    Nothing,
    /// There are some, to be told later.
    Later,
    /// These since the last time, of so many in the ring's life.
    Some { records: u64, total: u64 },
}

// === impl Drops ===

impl Drops {
    pub(crate) fn new(loader: Arc<Client>, file: PathBuf, ring: String) -> Self {
        let told = std::fs::read_to_string(&file).unwrap_or_default();
        let known = remembered(&told, &ring);
        Self { loader, file, ring, known, is_told: true, is_answered: true, last: None }
    }

    /// Looks at what the kernel counted.
    pub(crate) fn check(&mut self) -> Dropped {
        let counters = match self.loader.counters() {
            Ok(counters) => counters,
            Err(error) => {
                if std::mem::replace(&mut self.is_answered, false) {
                    tracing::warn!(%error, "the loader does not tell what the ring had no room for");
                }
                return Dropped::Nothing;
            }
        };
        self.is_answered = true;
        let total: u64 = counters.by_kind.iter().map(|kind| kind.dropped).sum();
        let records = total.saturating_sub(self.known);
        if records == 0 {
            return Dropped::Nothing;
        }
        if self.last.is_some_and(|last| last.elapsed() < TELL_EVERY) {
            return Dropped::Later;
        }
        if self.last.replace(Instant::now()).is_none() {
            tracing::warn!(
                records,
                "the kernel's ring was full; what it had no room for is counted, and unknown"
            );
        }
        self.known = total;
        self.is_told = false;
        Dropped::Some { records, total }
    }

    /// What was checked is with the queue.
    pub(crate) fn told(&mut self) {
        if std::mem::replace(&mut self.is_told, true) {
            return;
        }
        // Not kept: after a restart the same drops are told once more.
        if let Err(error) = std::fs::write(&self.file, format!("{} {}\n", self.known, self.ring)) {
            tracing::debug!(%error, "the count of drops is not kept");
        }
    }
}

/// What was told of this ring before.
fn remembered(text: &str, ring: &str) -> u64 {
    text.trim_end()
        .split_once(' ')
        .filter(|(_, of)| *of == ring)
        .and_then(|(count, _)| count.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_drops_of_another_ring_are_not_those_of_this_one() {
        assert_eq!(remembered("17 boot-1-2\n", "boot-1-2"), 17);
        for other in ["17 boot-1-3\n", "boot-1-2", "", "x boot-1-2\n", "17"] {
            assert_eq!(remembered(other, "boot-1-2"), 0, "{other:?}");
        }
    }
}
