//! The clocks of nodes, seen from here: how far each is ahead of the collector's.
//!
//! Input: when an observation that was made just now (`alive`, `clock`) arrived, and what its node's clock showed. The
//! difference is the delay of the way minus what the clock is ahead. Delays vary and are never negative, so the least
//! difference of the last minutes is nearest to the truth (a minimum filter, as NTP's clock filter).
//!
//! Invariant: at most [`MAX_NODES`] nodes; a node beyond is not estimated.

use kvprov_model::clock::{ReceiveTime, SECOND, WallTime};
use kvprov_model::id::NodeId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

/// Nodes that are kept; as many as the ledger takes.
const MAX_NODES: usize = 4096;
/// A least difference is kept for each span of this length.
const SPAN: i64 = 30 * SECOND;
/// Spans that are looked back on: a clock that was set back is seen after this time.
const SPANS: usize = 10;
/// A wall time that is further ahead of its arrival than this is no time.
pub const MAX_AHEAD_NS: i64 = 3600 * SECOND;

/// What is known of a node's clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeClock {
    /// Nanoseconds by which it is ahead of the collector's, negative when behind. The delay of the way makes it look
    /// further behind than it is, by at least nothing.
    pub ahead_ns: Option<i64>,
    /// How much the least delays of the spans differ; the estimate is hardly better than that.
    pub uncertainty_ns: i64,
    /// Observations that the estimate stands on.
    pub samples: u64,
    /// Observations whose time was so far ahead that it was not used.
    pub far_ahead: u64,
    /// When one came last.
    pub last_seen: Option<ReceiveTime>,
}

/// The clocks of all nodes.
#[derive(Debug, Default)]
pub struct Clocks {
    nodes: Mutex<BTreeMap<NodeId, Filter>>,
}

#[derive(Debug, Default)]
struct Filter {
    /// Begin of a span on the collector's clock, and the least difference in it.
    spans: VecDeque<(i64, i64)>,
    samples: u64,
    far_ahead: u64,
    last_seen: Option<ReceiveTime>,
}

// === impl Clocks ===

impl Clocks {
    /// Takes note of a time that a node's clock showed just before it arrived.
    pub fn saw(&self, node: &NodeId, wall: WallTime, received: ReceiveTime) {
        self.with(node, |filter| filter.add(received, received.0.saturating_sub(wall.0)));
    }

    /// Takes note of a time that is too far ahead to be one; how many there were.
    pub fn far_ahead(&self, node: &NodeId) -> u64 {
        self.with(node, |filter| {
            filter.far_ahead += 1;
            filter.far_ahead
        })
        .unwrap_or(0)
    }

    /// What is known of a node's clock.
    pub fn node(&self, node: &NodeId) -> Option<NodeClock> {
        self.lock().get(node).map(Filter::read)
    }

    /// What is known of all.
    pub fn all(&self) -> BTreeMap<NodeId, NodeClock> {
        self.lock().iter().map(|(node, filter)| (node.clone(), filter.read())).collect()
    }

    fn with<R>(&self, node: &NodeId, change: impl FnOnce(&mut Filter) -> R) -> Option<R> {
        let mut nodes = self.lock();
        if let Some(filter) = nodes.get_mut(node) {
            return Some(change(filter));
        }
        (nodes.len() < MAX_NODES).then(|| change(nodes.entry(node.clone()).or_default()))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<NodeId, Filter>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a wall time is too far ahead of its arrival to be one.
pub(super) fn is_far_ahead(wall: WallTime, received: ReceiveTime) -> bool {
    wall.0.saturating_sub(received.0) > MAX_AHEAD_NS
}

// === impl Filter ===

impl Filter {
    fn add(&mut self, received: ReceiveTime, difference: i64) {
        self.samples += 1;
        self.last_seen = Some(received);
        let begin = received.0.div_euclid(SPAN).saturating_mul(SPAN);
        match self.spans.back_mut() {
            // The collector's own clock may have been set back: then the newest span takes it.
            Some((last, least)) if *last >= begin => *least = (*least).min(difference),
            _ => self.spans.push_back((begin, difference)),
        }
        while self.spans.len() > SPANS {
            self.spans.pop_front();
        }
    }

    fn read(&self) -> NodeClock {
        let least = self.spans.iter().map(|(_, least)| *least).min();
        let greatest = self.spans.iter().map(|(_, least)| *least).max();
        NodeClock {
            ahead_ns: least.map(i64::saturating_neg),
            uncertainty_ns: least.zip(greatest).map_or(0, |(least, greatest)| greatest.saturating_sub(least)),
            samples: self.samples,
            far_ahead: self.far_ahead,
            last_seen: self.last_seen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn feed(clocks: &Clocks, seconds: std::ops::Range<i64>, ahead: i64, delay: impl Fn(i64) -> i64) {
        for second in seconds {
            let made = second * SECOND;
            clocks.saw(&NodeId::from("n"), WallTime(made + ahead), ReceiveTime(made + delay(second)));
        }
    }

    fn ahead(clocks: &Clocks) -> i64 {
        clocks.node(&NodeId::from("n")).unwrap().ahead_ns.unwrap()
    }

    #[test]
    fn the_least_delay_gives_the_offset() {
        let clocks = Clocks::default();
        feed(&clocks, 0..60, 5 * SECOND, |second| (1 + second * 7 % 40) * MS);
        assert_eq!(ahead(&clocks), 5 * SECOND - MS);
    }

    #[test]
    fn what_waited_for_an_hour_does_not_move_the_estimate() {
        let clocks = Clocks::default();
        feed(&clocks, 0..10, 0, |_| MS);
        feed(&clocks, 10..20, 0, |_| 3600 * SECOND);
        assert_eq!(ahead(&clocks), -MS);
    }

    #[test]
    fn a_clock_that_is_set_is_seen() {
        let clocks = Clocks::default();
        feed(&clocks, 0..100, 0, |_| MS);
        feed(&clocks, 100..101, 60 * SECOND, |_| MS);
        assert_eq!(ahead(&clocks), 60 * SECOND - MS);
        feed(&clocks, 101..600, -60 * SECOND, |_| MS);
        assert_eq!(ahead(&clocks), -60 * SECOND - MS);
    }

    #[test]
    fn nodes_are_bounded() {
        let clocks = Clocks::default();
        for number in 0..MAX_NODES + 10 {
            clocks.saw(&NodeId(format!("n{number}")), WallTime(0), ReceiveTime(0));
        }
        assert_eq!(clocks.all().len(), MAX_NODES);
        assert_eq!(clocks.far_ahead(&NodeId::from("one more")), 0);
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_no_harm() {
        let clocks = Clocks::default();
        let node = NodeId::from("n");
        for wall in [i64::MIN, i64::MAX] {
            for received in [i64::MIN, 0, i64::MAX] {
                clocks.saw(&node, WallTime(wall), ReceiveTime(received));
            }
        }
        assert!(is_far_ahead(WallTime(i64::MAX), ReceiveTime(i64::MIN)));
        assert!(!is_far_ahead(WallTime(i64::MIN), ReceiveTime(i64::MAX)));
        assert!(clocks.node(&node).is_some());
    }
}
