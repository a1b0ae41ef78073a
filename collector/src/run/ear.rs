//! What the collector hears of the nodes: signs of life, and who fell silent.
//!
//! Signs of life (`alive`) come every second and say nothing that a later one does not say better. They are held here,
//! by node and stream, and never written to the ledger.

use crate::view::Hearing;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Body, Observation, SourceKind};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A node that says nothing for this long is not waited for.
const SILENT: Duration = Duration::from_secs(60);
/// A node that speaks for this long without a sign of life gives none: its newest time has to do.
const UNSIGNED: Duration = Duration::from_secs(15);
/// Streams of signs of life that one node may have; further ones are ignored.
const STREAMS: usize = 16;
/// Nodes that are listened to.
const NODES: usize = 4_096;
/// An observation dated further ahead of the collector's clock than this is dated wrongly.
const AHEAD: i64 = 3_600 * SECOND;

#[derive(Debug, Clone, Copy)]
struct Sign {
    until: WallTime,
    heard: Instant,
}

#[derive(Debug, Clone)]
struct Node {
    /// When it was heard for the first time; `None`: not yet, the ledger knows it from before.
    since: Option<Instant>,
    heard: Instant,
    /// What it had delivered before this collector started.
    before: Option<WallTime>,
    signs: BTreeMap<String, Sign>,
}

/// What was heard of every node.
#[derive(Debug, Default)]
pub struct Ear {
    nodes: BTreeMap<NodeId, Node>,
}

/// What is to become of an observation that came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// It goes to the ledger.
    Keep,
    /// It was a sign of life and has been taken note of.
    Sign,
    /// It is dated so far ahead that it would make everything else look old.
    Ahead,
}

// === impl Ear ===

impl Ear {
    /// A node that the ledger knows from before; it has as long to speak as any.
    pub fn expect(&mut self, node: &NodeId, newest: WallTime, now: Instant) {
        if let Some(node) = self.node(node, now) {
            node.before = Some(newest);
        }
    }

    /// Takes note of an observation that comes at an instant and at a time of the collector's clock.
    pub fn take(&mut self, observation: &Observation, now: Instant, receive: WallTime) -> Sort {
        let envelope = &observation.envelope;
        if envelope.wall.is_some_and(|wall| wall.since(receive) > AHEAD) {
            return Sort::Ahead;
        }
        // Spans come from wherever an engine runs and vouch for no node; nor do operators.
        let is_operator = matches!(observation.body, Body::Expected(_)) && envelope.worker.is_none();
        if envelope.source == SourceKind::Traces || is_operator {
            return Sort::Keep;
        }
        let Some(node) = self.node(&envelope.node, now) else { return Sort::Keep };
        node.heard = now;
        node.since.get_or_insert(now);
        let Body::Alive(_) = &observation.body else { return Sort::Keep };
        let Some(until) = envelope.wall else { return Sort::Sign };
        let known = node.signs.len();
        match node.signs.get_mut(&envelope.stream) {
            Some(sign) => *sign = Sign { until: sign.until.max(until), heard: now },
            None if known < STREAMS => {
                node.signs.insert(envelope.stream.clone(), Sign { until, heard: now });
            }
            None => {}
        }
        Sort::Sign
    }

    /// What was heard, for a view. A node is complete up to the earliest sign of those of its streams that still speak.
    pub fn hearing(&self, now: Instant) -> Hearing {
        let mut hearing = Hearing::default();
        for (name, node) in &self.nodes {
            let speaks = |heard: Instant| now.duration_since(heard) < SILENT;
            if !speaks(node.heard) {
                hearing.silent.insert(name.clone());
            }
            let speaking = node.signs.values().filter(|sign| speaks(sign.heard)).map(|sign| sign.until).min();
            let last = node.signs.values().map(|sign| sign.until).max();
            // One source may be far ahead of another when a node begins to speak; only a sign says that none is behind.
            let unsigned = node.since.is_none_or(|since| now.duration_since(since) < UNSIGNED);
            let begun = unsigned.then(|| node.before.unwrap_or(WallTime(i64::MIN)));
            if let Some(until) = speaking.or(last).or(begun) {
                hearing.complete.insert(name.clone(), until);
            }
        }
        hearing
    }

    fn node(&mut self, name: &NodeId, now: Instant) -> Option<&mut Node> {
        if !self.nodes.contains_key(name) {
            if self.nodes.len() >= NODES {
                return None;
            }
            let node = Node { since: None, heard: now, before: None, signs: BTreeMap::new() };
            self.nodes.insert(name.clone(), node);
        }
        self.nodes.get_mut(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::id::ObservationId;
    use kvprov_model::observation::{Alive, Envelope, Loss, SourceKind};

    fn observation(stream: &str, wall: i64, body: Body) -> Observation {
        let envelope = Envelope {
            schema_version: 1,
            id: ObservationId::derive(stream, 0, wall as u64, 0),
            node: NodeId::from("n"),
            boot_id: None,
            worker: None,
            source: SourceKind::Log,
            stream: stream.to_owned(),
            position: 1,
            monotonic: None,
            wall: Some(WallTime(wall)),
            says: None,
        };
        Observation { envelope, body, extra: BTreeMap::new(), resource: BTreeMap::new() }
    }

    fn alive(stream: &str, wall: i64) -> Observation {
        observation(stream, wall, Body::Alive(Alive::default()))
    }

    fn complete(ear: &Ear, now: Instant) -> Option<i64> {
        ear.hearing(now).complete.get(&NodeId::from("n")).map(|time| time.0)
    }

    #[test]
    fn a_node_is_complete_up_to_the_slowest_of_its_streams() {
        let (mut ear, now) = (Ear::default(), Instant::now());
        assert_eq!(ear.take(&alive("a", 100), now, WallTime(0)), Sort::Sign);
        ear.take(&alive("b", 70), now, WallTime(0));
        ear.take(&alive("a", 90), now, WallTime(0));
        assert_eq!(complete(&ear, now), Some(70));
    }

    #[test]
    fn a_stream_that_fell_silent_holds_nobody_up() {
        let (mut ear, now) = (Ear::default(), Instant::now());
        ear.take(&alive("a", 100), now, WallTime(0));
        ear.take(&alive("b", 70), now, WallTime(0));
        let later = now + SILENT * 2;
        ear.take(&alive("a", 200), later, WallTime(0));
        assert_eq!(complete(&ear, later), Some(200));
        assert!(ear.hearing(later).silent.is_empty());
    }

    #[test]
    fn a_node_that_only_sends_observations_is_not_silent() {
        let (mut ear, now) = (Ear::default(), Instant::now());
        let other = observation("a", 5, Body::Loss(Loss::default()));
        assert_eq!(ear.take(&other, now, WallTime(0)), Sort::Keep);
        assert!(ear.hearing(now + SILENT / 2).silent.is_empty());
        assert_eq!(ear.hearing(now + SILENT * 2).silent.len(), 1);
        assert_eq!(complete(&ear, now), Some(i64::MIN));
        assert_eq!(complete(&ear, now + UNSIGNED), None);
    }

    #[test]
    fn a_node_known_from_before_is_complete_up_to_there_until_it_gives_a_sign() {
        let (mut ear, now) = (Ear::default(), Instant::now());
        ear.expect(&NodeId::from("n"), WallTime(50), now);
        ear.take(&observation("a", 90, Body::Loss(Loss::default())), now + UNSIGNED * 2, WallTime(0));
        assert_eq!(complete(&ear, now + UNSIGNED * 2), Some(50));
        ear.take(&alive("a", 60), now + UNSIGNED * 2, WallTime(0));
        assert_eq!(complete(&ear, now + UNSIGNED * 2), Some(60));
    }

    #[test]
    fn what_is_dated_far_ahead_is_told_apart() {
        let (mut ear, now) = (Ear::default(), Instant::now());
        assert_eq!(ear.take(&alive("a", AHEAD + 1), now, WallTime(0)), Sort::Ahead);
        assert_eq!(complete(&ear, now), None);
    }
}
