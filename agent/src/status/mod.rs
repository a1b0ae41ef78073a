//! What the agent tells of itself: `/metrics`, `/healthz` and `/readyz` over HTTP, on loopback unless configured.
//!
//! Input: figures by [`Stats`], states by [`Readiness`]. Invariant: metrics are of the closed list in [`metric`], with
//! bounded labels; connections and their time are bounded.

pub mod metric;
pub mod own;
mod readiness;
mod serve;
mod stats;

pub use metric::Metric;
pub use readiness::{Part, Readiness};
pub use stats::{Series, Stats};

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Where the page is unless configured.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9471);

/// The running page. Dropping it stops it.
#[derive(Debug)]
pub struct StatusPage {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The address cannot be listened on.
    #[error(
        "cannot serve metrics on {address}: {reason}; stop what listens there, or configure another address"
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        reason: String,
    },
}

// === impl StatusPage ===

impl StatusPage {
    /// Serves the page on a thread of its own.
    pub fn start(
        address: SocketAddr,
        stats: Arc<Stats>,
        readiness: Arc<Readiness>,
    ) -> Result<Self, StatusError> {
        Self::with_head_timeout(address, stats, readiness, serve::HEAD_TIMEOUT)
    }

    /// As [`StatusPage::start`], with another time for the head of a request.
    pub fn with_head_timeout(
        address: SocketAddr,
        stats: Arc<Stats>,
        readiness: Arc<Readiness>,
        head_timeout: Duration,
    ) -> Result<Self, StatusError> {
        let failed = |error: std::io::Error| StatusError::Listen { address, reason: error.to_string() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("kvprov-status".to_owned())
            .spawn(move || runtime.block_on(serve::serve(listener, stats, readiness, stopped, head_timeout)))
            .map_err(failed)?;
        Ok(Self { address: bound, stop, thread: Some(thread) })
    }

    /// Where it is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for StatusPage {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
