//! What a bundle declares: its workers and its sources.

use kvprov_model::clock::WallTime;
use kvprov_model::observation::Role;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A worker as declared. What is not declared is learnt from the input.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkerSpec {
    /// Unique name.
    pub name: String,
    /// Its node.
    pub node: Option<String>,
    /// Its engine.
    pub engine: Option<String>,
    /// The engine's version.
    pub engine_version: Option<String>,
    /// What it is for.
    pub role: Option<Role>,
    /// Its Kubernetes pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Its container.
    pub container: Option<String>,
    /// Image of the container, as it was asked for.
    pub image: Option<String>,
    /// Digest of that image.
    pub image_digest: Option<String>,
    /// Settings, flattened with dots.
    pub settings: BTreeMap<String, String>,
    /// Effective models in order of time.
    pub revisions: Vec<RevisionSpec>,
    /// Its end.
    pub end: Option<EndSpec>,
    /// File and line of the declaration; line 0 where nothing declares it.
    pub declared_in: String,
    /// See `declared_in`.
    pub line: u64,
}

/// What a worker ran from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisionSpec {
    /// Since when; `None`: since its start.
    pub from: Option<WallTime>,
    /// Its semantic factors.
    pub factors: Vec<FactorSpec>,
    /// Line of the declaration.
    pub line: u64,
}

/// One declared factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FactorSpec {
    /// Name of the factor.
    pub factor: String,
    /// The adapter that has it.
    pub adapter: Option<String>,
    /// `algorithm:value`.
    pub text: String,
}

/// The end of a worker.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EndSpec {
    /// When.
    pub at: Option<WallTime>,
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Its exit status.
    pub status: Option<i64>,
    /// Line of the declaration.
    pub line: u64,
}

/// Kinds of sources, in the order in which they are read: what a log tells of its engine helps to read metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InputKind {
    /// Log text.
    Log,
    /// Kernel records.
    Kernel,
    /// KV events.
    Events,
    /// A snapshot of metrics.
    Metrics,
}

/// One source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSpec {
    /// Name of its worker.
    pub worker: String,
    /// What it holds.
    pub kind: InputKind,
    /// The file.
    pub path: PathBuf,
    /// The name by which people know it: the path in the bundle.
    pub stream: String,
    /// Zone of clocks that print none, in seconds east of UTC.
    pub zone_seconds: i32,
    /// Year of clocks that print none.
    pub year: Option<i16>,
    /// Time of a snapshot.
    pub at: Option<WallTime>,
}

// === impl InputKind ===

impl InputKind {
    /// The word in `incident.toml` and in `watched_by`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Kernel => "kernel",
            Self::Events => "kv-events",
            Self::Metrics => "metrics",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        match word {
            "log" | "logs" => Some(Self::Log),
            "kernel" => Some(Self::Kernel),
            "kv-events" | "kv_events" | "events" => Some(Self::Events),
            "metrics" => Some(Self::Metrics),
            _ => None,
        }
    }
}
