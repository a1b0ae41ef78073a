//! Delivery: what was observed goes through a bounded queue on disk to the collector, at least once.
//!
//! Input: observations of any thread, by an [`Outbox`]. An append never waits for the network. The [`Shipper`] sends
//! what waits, in order, as OTLP logs over gRPC or HTTP, and removes it only when the receiver has taken it. Ids are
//! deterministic, so what arrives twice merges into nothing.
//!
//! Invariant: every loss on the way is counted by reason and told to the collector by a `loss` observation.

mod backoff;
mod batch;
mod config;
mod directory;
mod encode;
mod evict;
mod frame;
mod grpc;
mod http;
mod loss;
mod outbox;
mod queue;
mod record;
pub mod resource;
mod segment;
mod shipper;
mod stats;
#[cfg(test)]
mod tests;
mod verdict;
mod wire;

pub(crate) use backoff::Backoff;
pub use config::{Protocol, QueueConfig, ShipConfig};
pub use loss::Reason;
pub use outbox::Outbox;
pub use queue::{Committed, Queue};
pub use shipper::{ShipStats, Shipper};
pub use stats::QueueStats;

use std::path::PathBuf;

/// Why the queue could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// Another process has the directory.
    #[error(
        "the queue in {} is in use by another process; stop that agent, or give this one another directory with --data",
        .path.display()
    )]
    Locked {
        /// Where.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not {doing} the queue in {}: {reason}; let the user that runs the agent own this directory, or \
             give another one with --data", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The queue was closed.
    #[error("the queue is closed: the agent is stopping")]
    Closed,
}

/// Why nothing can be sent at all.
#[derive(Debug, thiserror::Error)]
pub enum ShipError {
    /// The endpoint is none.
    #[error(
        "cannot send to {endpoint:?}: {reason}; give it as http://host:4317 (gRPC) or http://host:4318 (HTTP)"
    )]
    Endpoint {
        /// What was given.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system gives no thread or no event queue.
    #[error("cannot start the thread that sends: {reason}")]
    Thread {
        /// What the system said.
        reason: String,
    },
}
