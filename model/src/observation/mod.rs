//! Observations: dated facts from one source on one node, and their wire form.
//!
//! The table of kinds is closed ([`kinds`]), and so are the lists of their words ([`words`]); what a newer sender adds
//! is kept in [`Observation::extra`] or as [`Body::Unknown`] and travels on unchanged. [`otlp`] maps both ways without
//! loss. `docs/observations.md` is generated from these types by [`reference`].

pub mod kinds;
pub mod otlp;
pub mod reference;
pub mod words;

use crate::clock::{MonotonicTime, WallTime};
use crate::id::{NodeId, ObservationId, WorkerId};
use crate::value::Value;
use std::collections::BTreeMap;

pub use kinds::*;
pub use words::*;

/// Version of the contract that this crate writes.
pub const SCHEMA_VERSION: i64 = 1;

crate::string_enum! {
    /// What kind of source saw it.
    pub enum SourceKind {
        /// A kernel hook or a recording of one.
        Kernel = "kernel",
        /// A log line.
        Log = "log",
        /// A scrape or a snapshot of metrics.
        Metrics = "metrics",
        /// A KV event.
        Events = "events",
        /// A span of an engine's own tracing.
        Traces = "traces",
        /// Arguments, environment, files, declarations.
        Config = "config",
    }
}

// === impl SourceKind ===

impl SourceKind {
    /// Whether what it does not tell did not happen, as long as nothing of it was lost. Counters tell of no single event,
    /// and nothing is concluded from the absence of a KV event. A kind that a newer sender knows is taken to tell all,
    /// so that its losses count.
    pub fn tells_every_event(&self) -> bool {
        !matches!(self, Self::Metrics | Self::Events)
    }
}

/// What every observation carries.
#[derive(Debug, Clone, PartialEq)]
pub struct Envelope {
    /// Version of the contract of the sender.
    pub schema_version: i64,
    /// Deterministic identity.
    pub id: ObservationId,
    /// The node.
    pub node: NodeId,
    /// The boot of the node, where known; monotonic times compare only within it.
    pub boot_id: Option<String>,
    /// The worker that is spoken of.
    pub worker: Option<WorkerId>,
    /// What kind of source saw it.
    pub source: SourceKind,
    /// The source instance: a file name in a bundle, a path or an endpoint live.
    pub stream: String,
    /// Line, record or snapshot in the stream, counted from 1; 0 for the stream as a whole.
    pub position: i64,
    /// Nanoseconds since boot, where a kernel clock dated it.
    pub monotonic: Option<MonotonicTime>,
    /// The node's wall clock; `None` where nothing dates it.
    pub wall: Option<WallTime>,
    /// The words, rebuilt from a template and its allow-listed fields; never the line itself.
    pub says: Option<String>,
}

/// One observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// What every observation carries.
    pub envelope: Envelope,
    /// What this kind says.
    pub body: Body,
    /// Attributes that this version does not know, by full name.
    pub extra: BTreeMap<String, Value>,
    /// Resource attributes beyond node and boot, by full name.
    pub resource: BTreeMap<String, Value>,
}

// === impl Observation ===

impl Observation {
    /// The worker's name, or an empty text.
    pub fn worker(&self) -> &str {
        self.envelope.worker.as_ref().map_or("", WorkerId::as_str)
    }

    /// Place and words as evidence.
    pub fn evidence(&self) -> crate::finding::Evidence {
        crate::finding::Evidence {
            source: self.envelope.stream.clone(),
            line: u64::try_from(self.envelope.position).unwrap_or(0),
            says: self.envelope.says.clone().unwrap_or_else(|| self.body.kind().to_owned()),
        }
    }
}
