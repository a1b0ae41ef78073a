//! The page over HTTP/1, within bounds: connections are counted, and one that does not speak is closed.
//!
//! Invariant: at most [`CONNECTIONS`] at a time. The head of a request has to arrive within [`HEAD_TIMEOUT`]; bodies are
//! not read.

use super::readiness::Readiness;
use super::stats::Stats;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at a time; those beyond wait in the listener's queue.
pub(super) const CONNECTIONS: usize = 32;
/// How long the head of a request may take, and a connection may be idle.
pub(super) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes of heads that are kept of one connection.
const HEAD_BYTES: usize = 16 << 10;
/// How long one connection may live.
const LIFETIME: Duration = Duration::from_secs(300);
/// Pause after the system gave no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone)]
struct Page {
    stats: Arc<Stats>,
    readiness: Arc<Readiness>,
}

/// Serves until `stopped` says so or its sender is gone.
pub(super) async fn serve(
    listener: TcpListener,
    stats: Arc<Stats>,
    readiness: Arc<Readiness>,
    mut stopped: watch::Receiver<bool>,
    head_timeout: Duration,
) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(Page { stats, readiness });
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            _ = stopped.wait_for(|stop| *stop) => return,
        };
        while connections.try_join_next().is_some() {}
        let Some((stream, permit)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(head_timeout)
                .max_buf_size(HEAD_BYTES);
            // How it ended is its client's concern.
            let _ = timeout(LIFETIME, builder.serve_connection(TokioIo::new(stream), service)).await;
            drop(permit);
        });
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::debug!(%error, "a connection could not be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn metrics(State(page): State<Page>) -> Response {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page.stats.page()).into_response()
}

async fn ready(State(page): State<Page>) -> Response {
    let status = if page.readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(page.readiness.to_json())).into_response()
}
