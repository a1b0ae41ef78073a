//! What the receivers count, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// What became of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Taken whole.
    Ok,
    /// Taken, except for some records.
    Partial,
    /// It was none.
    Malformed,
    /// It was more than is taken at once.
    TooLarge,
    /// Too much was under way; the sender comes again.
    Busy,
    /// The ledger could not take it; the sender comes again.
    Unavailable,
}

/// Counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Requests by what became of them, in the order of [`Outcome::ALL`].
    pub requests: [u64; 6],
    /// Observations that were read.
    pub observations: u64,
    /// Among them, of a kind that this version does not know. They are kept.
    pub unknown_kinds: u64,
    /// Attributes that this version does not know. They are kept.
    pub unknown_attributes: u64,
    /// Log records of somebody else; refused.
    pub foreign: u64,
    /// Observations without what every observation has; refused.
    pub incomplete: u64,
    /// Observations whose time was too far ahead to be used.
    pub far_ahead: u64,
    /// Spans of engines.
    pub spans: SpanStats,
}

/// Counts of spans of engines since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanStats {
    /// Requests by what became of them, in the order of [`Outcome::ALL`].
    pub requests: [u64; 6],
    /// Spans that tell of a request.
    pub told: u64,
    /// Spans that no pack knows.
    pub unknown: u64,
    /// Spans that should tell of a request and do not, or were too many.
    pub dropped: u64,
    /// Attributes and events with prompts or answers that were taken out before spans were handed on.
    pub content_removed: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: [AtomicU64; 6],
    observations: AtomicU64,
    unknown_kinds: AtomicU64,
    unknown_attributes: AtomicU64,
    foreign: AtomicU64,
    incomplete: AtomicU64,
    far_ahead: AtomicU64,
    span_requests: [AtomicU64; 6],
    spans_told: AtomicU64,
    spans_unknown: AtomicU64,
    spans_dropped: AtomicU64,
    content_removed: AtomicU64,
}

// === impl Outcome ===

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ok, Self::Partial, Self::Malformed, Self::TooLarge, Self::Busy, Self::Unavailable];

    /// The word in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Partial => "partial",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }
}

// === impl ReceiveStats ===

impl ReceiveStats {
    /// Requests of one outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        Outcome::ALL
            .iter()
            .zip(self.requests)
            .find(|(known, _)| **known == outcome)
            .map_or(0, |(_, count)| count)
    }
}

// === impl Counters ===

impl Counters {
    pub(super) fn request(&self, outcome: Outcome) {
        count(&self.requests, outcome);
    }

    pub(super) fn span_request(&self, outcome: Outcome) {
        count(&self.span_requests, outcome);
    }

    pub(super) fn content_removed(&self, attributes: u64) {
        self.content_removed.fetch_add(attributes, Ordering::Relaxed);
    }

    pub(super) fn spans(&self, told: u64, unknown: u64, dropped: u64) {
        self.spans_told.fetch_add(told, Ordering::Relaxed);
        self.spans_unknown.fetch_add(unknown, Ordering::Relaxed);
        self.spans_dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    pub(super) fn observation(&self, unknown_kind: bool, unknown_attributes: u64) {
        self.observations.fetch_add(1, Ordering::Relaxed);
        self.unknown_kinds.fetch_add(u64::from(unknown_kind), Ordering::Relaxed);
        self.unknown_attributes.fetch_add(unknown_attributes, Ordering::Relaxed);
    }

    pub(super) fn skipped(&self, foreign: u64, incomplete: u64) {
        self.foreign.fetch_add(foreign, Ordering::Relaxed);
        self.incomplete.fetch_add(incomplete, Ordering::Relaxed);
    }

    pub(super) fn far_ahead(&self) {
        self.far_ahead.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> ReceiveStats {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ReceiveStats {
            requests: self.requests.each_ref().map(read),
            observations: read(&self.observations),
            unknown_kinds: read(&self.unknown_kinds),
            unknown_attributes: read(&self.unknown_attributes),
            foreign: read(&self.foreign),
            incomplete: read(&self.incomplete),
            far_ahead: read(&self.far_ahead),
            spans: SpanStats {
                requests: self.span_requests.each_ref().map(read),
                told: read(&self.spans_told),
                unknown: read(&self.spans_unknown),
                dropped: read(&self.spans_dropped),
                content_removed: read(&self.content_removed),
            },
        }
    }
}

fn count(requests: &[AtomicU64; 6], outcome: Outcome) {
    for (known, count) in Outcome::ALL.iter().zip(requests) {
        if *known == outcome {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}
