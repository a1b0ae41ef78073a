//! Signs of life: up to which time every source has handed over all it had.

use crate::kernel::live::Now;
use crate::ship::Outbox;
use kvprov_model::clock::{MonotonicTime, WallTime};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);
const CLOCK_EVERY: Duration = Duration::from_secs(60);

/// How far one source has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress(Arc<AtomicI64>);

/// How far every source has come.
#[derive(Debug, Default)]
pub(crate) struct Alive {
    sources: Vec<(&'static str, Progress)>,
}

/// Tells it regularly.
#[derive(Debug)]
pub(crate) struct Ticker {
    last: Option<Instant>,
    last_clock: Option<Instant>,
    told: i64,
}

// === impl Progress ===

impl Progress {
    /// Everything up to this time is with the queue.
    pub(crate) fn reached(&self, wall: WallTime) {
        self.0.store(wall.0, Ordering::Release);
    }
}

// === impl Alive ===

impl Alive {
    /// A source that has to be waited for.
    pub(crate) fn source(&mut self, name: &'static str) -> Progress {
        let progress = Progress::default();
        self.sources.push((name, progress.clone()));
        progress
    }

    /// The time that all of them have reached.
    fn reached(&self) -> i64 {
        self.sources.iter().map(|(_, progress)| progress.0.load(Ordering::Acquire)).min().unwrap_or(0)
    }
}

// === impl Ticker ===

impl Ticker {
    pub(crate) fn new() -> Self {
        Self { last: None, last_clock: None, told: 0 }
    }

    /// Tells how far all have come, when it is time.
    pub(crate) fn tick(&mut self, alive: &Alive, outbox: &Outbox) {
        let is_due = |last: Option<Instant>, every| last.is_none_or(|last| last.elapsed() >= every);
        if !is_due(self.last, EVERY) {
            return;
        }
        self.last = Some(Instant::now());
        let reached = alive.reached();
        if reached != 0 && reached != self.told {
            self.told = reached;
            let streams = alive.sources.iter().map(|(name, _)| (*name).to_owned()).collect();
            // A queue that takes nothing says so itself.
            let _ = outbox.alive(streams, WallTime(reached));
        }
        if is_due(self.last_clock, CLOCK_EVERY) {
            self.last_clock = Some(Instant::now());
            let now = Now::read();
            let _ = outbox.clock(MonotonicTime(now.monotonic), WallTime(now.wall));
        }
    }
}
