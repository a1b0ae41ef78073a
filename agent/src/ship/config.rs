//! What the queue and the shipper are told.

use kvprov_model::id::NodeId;
use kvprov_model::value::Value;
use std::path::PathBuf;
use std::time::Duration;

/// A queue.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Its directory; nothing else should be in it.
    pub directory: PathBuf,
    /// Bytes it may take on disk. At least 1 MiB.
    pub capacity_bytes: u64,
    /// Bytes it may take in memory while the disk is full. At least 256 KiB.
    pub memory_bytes: u64,
    /// The node, for the queue's own observations.
    pub node: NodeId,
    /// The boot of the node.
    pub boot_id: Option<String>,
    /// Resource attributes of the sender, by OpenTelemetry's conventions ([`super::resource`]).
    pub resource: Vec<(String, Value)>,
}

/// How requests travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP with protobuf bodies.
    Http,
}

/// Where and how to send.
#[derive(Debug, Clone)]
pub struct ShipConfig {
    /// `http://host:4317` for gRPC; `http://host:4318` or the whole address of the logs signal for HTTP.
    pub endpoint: String,
    /// How requests travel.
    pub protocol: Protocol,
    /// Compress requests; worth it over a network, not on one machine.
    pub gzip: bool,
    /// Most records of a request.
    pub batch_records: usize,
    /// Most bytes of a request, before compression. One record alone may be larger.
    pub batch_bytes: usize,
    /// How long records wait for others before a request that is not full is sent.
    pub linger: Duration,
    /// How long one request may take.
    pub timeout: Duration,
    /// First pause after a failure; each further one doubles it.
    pub backoff: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
}

// === impl QueueConfig ===

impl QueueConfig {
    /// The defaults: 256 MiB on disk, 16 MiB in memory while the disk is full.
    pub fn new(directory: impl Into<PathBuf>, node: NodeId) -> Self {
        Self {
            directory: directory.into(),
            capacity_bytes: 256 << 20,
            memory_bytes: 16 << 20,
            node,
            boot_id: None,
            resource: Vec::new(),
        }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity_bytes.max(1 << 20)
    }

    pub(super) fn memory(&self) -> u64 {
        self.memory_bytes.max(256 << 10)
    }

    /// Bytes of a segment on disk.
    pub(super) fn segment(&self) -> u64 {
        (self.capacity() / 32).clamp(64 << 10, 8 << 20)
    }

    /// Bytes of a segment in memory.
    pub(super) fn memory_segment(&self) -> u64 {
        (self.memory() / 8).clamp(32 << 10, 2 << 20)
    }

    /// Bytes that may be kept of segments that had to go.
    pub(super) fn remains(&self) -> u64 {
        (self.capacity() / 8).min(self.memory() / 4)
    }
}

// === impl ShipConfig ===

impl ShipConfig {
    /// The defaults for an endpoint.
    pub fn new(endpoint: impl Into<String>, protocol: Protocol) -> Self {
        Self {
            endpoint: endpoint.into(),
            protocol,
            gzip: false,
            batch_records: 2048,
            batch_bytes: 1 << 20,
            linger: Duration::from_millis(300),
            timeout: Duration::from_secs(10),
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(30),
        }
    }
}
