//! Traces: the lineages of requests as spans, and the spans of engines as they came, to an OTLP endpoint.
//!
//! A request is told when its nodes have been heard past its end by the settling time, if its lineage is divergent, its
//! KV failed or was recomputed, a finding names it, or its id falls into the sample. What it is told as depends on
//! nothing but what the ledger knows: ids of traces and spans are hashes of the request ([`ids`]), so that what is told
//! twice, by a replica or after a kill, is the same span. It is told again under the same ids when its status, its
//! points or its findings become others; the later telling stands.
//!
//! The way out: [`teller`] looks at requests on the ledger's thread and puts spans into the [`spool`], receivers put in
//! what engines send; one task ([`sender`]) empties it. Invariant: what was put in is delivered, waits, or is counted
//! as lost by reason ([`stats`]).
//!
//! Never in a span: prompts, answers, token ids. What is in one stands in [`attributes`].

pub mod attributes;
mod endpoint;
mod ids;
mod parcel;
mod sender;
mod spans;
mod spool;
mod stats;
mod story;
mod teller;
mod told;
mod transport;
mod verdict;

pub use endpoint::{Endpoint, EndpointError, Protocol};
pub use spool::SpoolError;
pub use stats::{Lost, Origin, TraceStats};
pub use teller::Teller;

use crate::receive::{Clocks, Forward};
use prost::bytes::Bytes;
use sender::Sender;
use spool::Spool;
use stats::Counters;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Where and how requests are traced.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where spans go.
    pub endpoint: Endpoint,
    /// The share of requests that are told although nothing is amiss; 0 to 1.
    pub sample: f64,
    /// Hand on what engines send.
    pub forward: bool,
    /// Bytes that may wait on disk.
    pub queue_bytes: u64,
    /// How long after a request's end it is told.
    pub settling: Duration,
    /// How long one export may take.
    pub timeout: Duration,
    /// First pause after a failed export; each further one doubles it.
    pub backoff: Duration,
    /// Longest pause.
    pub backoff_max: Duration,
}

/// Why nothing can be traced.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The queue cannot be used.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// The endpoint cannot be sent to.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The endpoint is this collector.
    #[error(
        "traces_endpoint {endpoint} is where this collector itself takes OTLP: its spans would go round for ever; give \
         the address of a tracing backend"
    )]
    Itself {
        /// The endpoint.
        endpoint: String,
    },
}

/// What traces share: the queue and the counts.
#[derive(Debug, Clone)]
pub struct Traces {
    settings: Settings,
    spool: Arc<Spool>,
    counters: Arc<Counters>,
    told: Option<PathBuf>,
}

// === impl Settings ===

impl Settings {
    /// The defaults for an endpoint: one request of a hundred, 64 MiB of queue, ten seconds to settle.
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            sample: 0.01,
            forward: true,
            queue_bytes: 64 << 20,
            // Engines export their spans every five seconds.
            settling: Duration::from_secs(10),
            timeout: Duration::from_secs(10),
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(60),
        }
    }
}

// === impl Traces ===

impl Traces {
    /// Opens the queue below a data directory; without one it is in memory.
    pub fn open(settings: Settings, data: Option<PathBuf>) -> Result<Self, TracesError> {
        let directory = data.map(|data| data.join("traces"));
        let counters: Arc<Counters> = Arc::default();
        let spool = Spool::open(directory.clone(), settings.queue_bytes, Arc::clone(&counters))?;
        let told = directory.map(|directory| directory.join("told.json"));
        Ok(Self { settings, spool: Arc::new(spool), counters, told })
    }

    /// What looks at requests, for the ledger's thread.
    pub fn teller(&self, clocks: Arc<Clocks>) -> Teller {
        Teller::new(self, clocks)
    }

    /// Sends what waits until it is told to stop; what waits then stays for the next start.
    pub async fn send(self, stop: watch::Receiver<bool>) -> Result<(), TracesError> {
        Sender::new(self)?.run(stop).await;
        Ok(())
    }

    /// Whether what engines send is handed on.
    pub fn forwards(&self) -> bool {
        self.settings.forward
    }

    /// What was counted, and what waits.
    pub fn stats(&self) -> TraceStats {
        self.counters.read(&self.spool.holds())
    }
}

impl Forward for Traces {
    fn forward(&self, request: Bytes, spans: u64) -> Result<(), String> {
        self.spool.put(Origin::Engine, &request, spans).map_err(|full| full.to_string())
    }
}
