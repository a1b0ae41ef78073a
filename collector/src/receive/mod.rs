//! Receiving: OTLP logs over gRPC and HTTP become batches for the ledger, and so do spans of engines ([`spans`]), which are
//! also handed on as they came where that is wanted.
//!
//! Input: requests of agents, and of anybody who can reach the ports. A request is acknowledged when the ledger has
//! merged it durably, and not before; a sender that hears nothing sends again, and the ledger merges duplicates away.
//!
//! Invariant: connections, requests and the memory they take are bounded. What is beyond is refused at once with the
//! time to come again; what is no observation is refused by number; both are counted.

mod clocks;
mod config;
mod connection;
mod grpc;
mod http;
mod json;
pub mod serve;
mod shape;
pub mod spans;
mod stats;
mod take;

pub use clocks::{Clocks, MAX_AHEAD_NS, NodeClock};
pub use config::ReceiveConfig;
pub use stats::{Outcome, ReceiveStats, SpanStats};
pub use take::CLAIMED_WALL;

use crate::intake::Intake;
use connection::Connection;
use kvprov_packs::Packs;
use prost::bytes::Bytes;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use take::Taker;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

/// Requests at one time on one connection.
const STREAMS: u32 = 16;
/// Bytes that a connection may send ahead.
const WINDOW: u32 = 256 << 10;
/// How often a connection is asked for a sign of life.
const PING: Duration = Duration::from_secs(20);
/// How long requests may take to end when receiving ends.
const GRACE: Duration = Duration::from_secs(6);

/// Takes spans of engines to hand them on.
pub trait Forward: Send + Sync + 'static {
    /// Takes a request as it came, with so many spans. When it returns, they will be handed on, whatever is killed.
    ///
    /// # Errors
    ///
    /// In words, why there is no room now: the sender comes again.
    fn forward(&self, request: Bytes, spans: u64) -> Result<(), String>;
}

/// What receivers share with others.
#[derive(Clone)]
pub struct Beside {
    /// The clocks of the nodes.
    pub clocks: Arc<Clocks>,
    /// Who hands spans of engines on; `None`: nobody.
    pub forward: Option<Arc<dyn Forward>>,
    /// Which spans tell of requests.
    pub packs: &'static Packs,
}

impl Default for Beside {
    fn default() -> Self {
        Self { clocks: Arc::default(), forward: None, packs: Packs::builtin() }
    }
}

/// Running receivers. Dropping them stops them without grace.
pub struct Receivers {
    taker: Arc<Taker>,
    grpc: Option<SocketAddr>,
    http: Option<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// Why receiving cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// An address cannot be listened on.
    #[error(
        "cannot take OTLP over {protocol} on {address}: {reason}; stop what listens there, or configure another address"
    )]
    Listen {
        /// The protocol.
        protocol: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
}

// === impl Receivers ===

impl Receivers {
    /// Listens on the configured addresses and hands what comes to `intake`. To be called on a tokio runtime.
    pub async fn start(config: ReceiveConfig, intake: Arc<dyn Intake>) -> Result<Self, ReceiveError> {
        Self::start_beside(config, intake, Beside::default()).await
    }

    /// As [`Receivers::start`], with what others share.
    pub async fn start_beside(
        config: ReceiveConfig,
        intake: Arc<dyn Intake>,
        beside: Beside,
    ) -> Result<Self, ReceiveError> {
        let taker = Arc::new(Taker::new(config, intake, beside));
        let (stop, stopped) = watch::channel(false);
        let mut receivers =
            Self { taker: Arc::clone(&taker), grpc: None, http: None, stop, tasks: Vec::new() };
        // Both are bound before either serves: an address in use leaves nothing running.
        let grpc = listen("gRPC", taker.config.grpc).await?;
        let http = listen("HTTP", taker.config.http).await?;
        if let Some((listener, address)) = grpc {
            receivers.grpc = Some(address);
            receivers.tasks.push(tokio::spawn(serve_grpc(listener, Arc::clone(&taker), stopped.clone())));
        }
        if let Some((listener, address)) = http {
            receivers.http = Some(address);
            let bounds = serve::Bounds {
                connections: taker.config.connections,
                request: taker.config.request_timeout(),
            };
            receivers.tasks.push(tokio::spawn(serve::serve(listener, http::router(taker), bounds, stopped)));
        }
        Ok(receivers)
    }

    /// Where OTLP over gRPC is taken.
    pub fn grpc_address(&self) -> Option<SocketAddr> {
        self.grpc
    }

    /// Where OTLP over HTTP is taken.
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The clocks of the nodes that were heard of.
    pub fn clocks(&self) -> Arc<Clocks> {
        self.taker.clocks()
    }

    /// What was counted so far.
    pub fn stats(&self) -> ReceiveStats {
        self.taker.counters.read()
    }

    /// Shares [`Receivers::stats`] with a page of metrics.
    pub fn watch(&self) -> impl Fn() -> ReceiveStats + Send + Sync + 'static {
        let counters = Arc::clone(&self.taker.counters);
        move || counters.read()
    }

    /// Stops listening, and lets requests under way end.
    pub async fn stop(mut self) {
        let _ = self.stop.send(true);
        for task in std::mem::take(&mut self.tasks) {
            let abort = task.abort_handle();
            if tokio::time::timeout(GRACE, task).await.is_err() {
                abort.abort();
            }
        }
    }
}

impl Drop for Receivers {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

async fn listen(
    protocol: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<(TcpListener, SocketAddr)>, ReceiveError> {
    let Some(address) = address else { return Ok(None) };
    let failed =
        |error: std::io::Error| ReceiveError::Listen { protocol, address, reason: error.to_string() };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, bound)))
}

async fn serve_grpc(listener: TcpListener, taker: Arc<Taker>, mut stopped: watch::Receiver<bool>) {
    let room = Arc::new(Semaphore::new(taker.config.connections.max(1)));
    let timeout = taker.config.request_timeout();
    let (sender, incoming) = mpsc::channel(1);
    let mut stop = stopped.clone();
    let accepting = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                accepted = serve::accept(&listener, &room) => accepted,
                () = serve::told(&mut stop) => return,
            };
            let Some((stream, permit)) = accepted else { continue };
            let connection = Connection::new(stream, permit, PING * 3);
            if sender.send(Ok::<_, std::io::Error>(connection)).await.is_err() {
                return;
            }
        }
    });
    let server = tonic::transport::Server::builder()
        .timeout(timeout)
        .max_concurrent_streams(STREAMS)
        .concurrency_limit_per_connection(STREAMS as usize)
        .initial_connection_window_size(WINDOW)
        .initial_stream_window_size(WINDOW)
        .http2_keepalive_interval(Some(PING))
        .http2_keepalive_timeout(Some(PING))
        .add_service(grpc::Export::<grpc::Logs>::of(Arc::clone(&taker)))
        .add_service(grpc::Export::<grpc::Traces>::of(taker))
        .serve_with_incoming_shutdown(ReceiverStream::new(incoming), async move {
            serve::told(&mut stopped).await;
        });
    if let Err(error) = server.await {
        tracing::error!(%error, "taking OTLP over gRPC ended");
    }
    accepting.abort();
}
