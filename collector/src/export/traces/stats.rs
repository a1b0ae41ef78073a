//! What became of requests and spans, for metrics and readers.

use super::story::Why;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Who made spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// This collector.
    Kvprov,
    /// An engine; handed on as they came.
    Engine,
}

/// Why spans, or what should have become some, went nowhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lost {
    /// The oldest ones made room.
    QueueFull,
    /// More than the queue ever holds, at once.
    Oversized,
    /// The file of them was damaged.
    Damaged,
    /// The endpoint will never take them.
    Refused,
    /// The endpoint took the others of a request.
    Rejected,
    /// More than the endpoint takes at once.
    TooLarge,
    /// Nothing dates the request.
    Undated,
    /// Too many requests waited to be told.
    TooManyWaiting,
}

/// What waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holds {
    /// Bytes that may wait.
    pub capacity_bytes: u64,
    /// Bytes that wait.
    pub bytes: u64,
    /// Spans that wait.
    pub spans: u64,
    /// How long the oldest has waited.
    pub oldest: Option<Duration>,
    /// Whether all of it is on disk, or is meant to be in memory.
    pub durable: bool,
}

/// Everything counted since the start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TraceStats {
    /// What waits.
    pub holds: Holds,
    /// Requests told for the first time, by why.
    pub told: BTreeMap<&'static str, u64>,
    /// Requests told again because something about them became another.
    pub told_again: u64,
    /// Requests that wait until their nodes are heard past their end.
    pub waiting: u64,
    /// Spans put into the queue.
    pub queued: BTreeMap<Origin, u64>,
    /// Spans that the endpoint took.
    pub delivered: BTreeMap<Origin, u64>,
    /// Spans that went nowhere; of [`Lost::Undated`] and [`Lost::TooManyWaiting`] requests.
    pub lost: BTreeMap<(Origin, Lost), u64>,
    /// Exports that the endpoint took.
    pub exports: u64,
    /// Exports that are tried again.
    pub retries: u64,
    /// Why the last export failed, while they do.
    pub failing: Option<String>,
}

#[derive(Debug, Default)]
struct Held {
    told: BTreeMap<&'static str, u64>,
    queued: BTreeMap<Origin, u64>,
    delivered: BTreeMap<Origin, u64>,
    lost: BTreeMap<(Origin, Lost), u64>,
    failing: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    held: Mutex<Held>,
    told_again: AtomicU64,
    waiting: AtomicU64,
    exports: AtomicU64,
    retries: AtomicU64,
}

// === impl Origin ===

impl Origin {
    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kvprov => "kvprov",
            Self::Engine => "engine",
        }
    }
}

// === impl Lost ===

impl Lost {
    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::QueueFull => "queue_full",
            Self::Oversized => "oversized",
            Self::Damaged => "damaged",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::TooLarge => "too_large",
            Self::Undated => "undated",
            Self::TooManyWaiting => "too_many_waiting",
        }
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn told(&self, why: Why, again: bool) {
        if again {
            self.told_again.fetch_add(1, Ordering::Relaxed);
        } else {
            self.with(|held| *held.told.entry(why.as_str()).or_insert(0) += 1);
        }
    }

    pub(super) fn waiting(&self, requests: usize) {
        self.waiting.store(requests as u64, Ordering::Relaxed);
    }

    pub(super) fn queued(&self, origin: Origin, spans: u64) {
        self.with(|held| *held.queued.entry(origin).or_insert(0) += spans);
    }

    pub(super) fn delivered(&self, origin: Origin, spans: u64) {
        self.exports.fetch_add(1, Ordering::Relaxed);
        self.with(|held| {
            held.failing = None;
            *held.delivered.entry(origin).or_insert(0) += spans;
        });
    }

    pub(super) fn lost(&self, origin: Origin, reason: Lost, count: u64) {
        if count > 0 {
            self.with(|held| *held.lost.entry((origin, reason)).or_insert(0) += count);
        }
    }

    pub(super) fn fails(&self, reason: &str, again: bool) {
        self.retries.fetch_add(u64::from(again), Ordering::Relaxed);
        self.with(|held| held.failing = Some(reason.to_owned()));
    }

    pub(super) fn read(&self, holds: &Holds) -> TraceStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.with(|held| TraceStats {
            holds: *holds,
            told: held.told.clone(),
            told_again: read(&self.told_again),
            waiting: read(&self.waiting),
            queued: held.queued.clone(),
            delivered: held.delivered.clone(),
            lost: held.lost.clone(),
            exports: read(&self.exports),
            retries: read(&self.retries),
            failing: held.failing.clone(),
        })
    }

    fn with<R>(&self, change: impl FnOnce(&mut Held) -> R) -> R {
        change(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
