//! What the receivers are told.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Addresses and bounds of the receivers.
#[derive(Debug, Clone)]
pub struct ReceiveConfig {
    /// Where OTLP over gRPC is taken; `None`: nowhere.
    pub grpc: Option<SocketAddr>,
    /// Where OTLP over HTTP is taken; `None`: nowhere.
    pub http: Option<SocketAddr>,
    /// Longest request after decompression, in bytes. One of JSON may be a quarter of it.
    pub request_bytes: usize,
    /// Requests that are read or wait for the ledger at one time.
    pub requests: usize,
    /// Memory that these may take once decoded, in bytes. One alone may take half of it.
    pub memory_bytes: u64,
    /// Connections of each protocol.
    pub connections: usize,
    /// How long a request may take to arrive.
    pub read_timeout: Duration,
    /// How long the ledger may take to keep a request.
    pub patience: Duration,
}

impl Default for ReceiveConfig {
    fn default() -> Self {
        Self {
            grpc: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 4317))),
            http: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 4318))),
            request_bytes: 4 << 20,
            requests: 32,
            memory_bytes: 128 << 20,
            connections: 256,
            read_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(30),
        }
    }
}

impl ReceiveConfig {
    /// Longest request as JSON: each of its bytes becomes more.
    pub(super) fn json_bytes(&self) -> usize {
        self.request_bytes / 4
    }

    /// How long a whole request may take.
    pub(super) fn request_timeout(&self) -> Duration {
        self.read_timeout.saturating_add(self.patience)
    }
}
