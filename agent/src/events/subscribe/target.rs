//! Whom to follow, and how patiently.

use super::Endpoint;
use kvprov_model::id::{NodeId, WorkerId};
use std::time::Duration;

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// To connect and shake hands.
    pub handshake: Duration,
    /// Between two messages of a replay.
    pub reply: Duration,
    /// For one answer as a whole.
    pub replay: Duration,
    /// Without replays after one that failed.
    pub rest: Duration,
    /// Between attempts to connect: the first and the longest.
    pub again: (Duration, Duration),
    /// Until a publisher that is gone while its worker lives counts as vanished.
    pub vanished: Duration,
    /// Between attempts to hand observations over.
    pub queue: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            handshake: seconds(5),
            reply: seconds(2),
            replay: seconds(10),
            rest: seconds(30),
            again: (Duration::from_millis(200), seconds(3)),
            vanished: seconds(5),
            queue: Duration::from_millis(50),
        }
    }
}

/// Whom to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub node: NodeId,
    /// The worker.
    pub worker: WorkerId,
    /// Where it publishes.
    pub endpoint: Endpoint,
    /// Where it is asked for batches that were published before.
    pub replay: Option<Endpoint>,
    /// The topic; empty: all.
    pub topic: String,
}

// === impl Target ===

impl Target {
    /// The name of the source, for people.
    pub fn stream(&self) -> String {
        self.endpoint.to_string()
    }

    /// The name by which a publisher is told from all others.
    pub fn name(&self) -> String {
        Self::name_of(&self.worker, &self.endpoint)
    }

    /// The name of the publisher of a worker at an endpoint.
    pub fn name_of(worker: &WorkerId, endpoint: &Endpoint) -> String {
        format!("{worker} {endpoint}")
    }
}
