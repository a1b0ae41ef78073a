//! Serves HTTP/1 within bounds: connections are counted, and one that does not speak is closed.
//!
//! Invariant: at most `connections` at a time; those beyond wait in the listener's queue. The head of a request has to
//! arrive within [`HEAD_TIMEOUT`], and a whole exchange within the time that is given.

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long a connection may take to send the head of its next request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(15);
/// Most bytes of heads that are kept of one connection.
const HEAD_BYTES: usize = 64 << 10;
/// How long requests may take to end when serving ends.
const GRACE: Duration = Duration::from_secs(3);
/// Pause after the system gave no connection: it has no descriptors left, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds of a server.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Connections at a time.
    pub connections: usize,
    /// How long one request may take, from its head to its answer.
    pub request: Duration,
}

/// Serves until `stopped` says so or its sender is gone, then lets requests under way end.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: Bounds,
    mut stopped: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(bounds.connections.max(1)));
    let router =
        router.layer(axum::middleware::from_fn(move |request, next: axum::middleware::Next| async move {
            let late = (axum::http::StatusCode::REQUEST_TIMEOUT, "the request took too long\n");
            timeout(bounds.request, next.run(request))
                .await
                .unwrap_or_else(|_| axum::response::IntoResponse::into_response(late))
        }));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &room) => accepted,
            () = told(&mut stopped) => break,
        };
        // What ended is let go.
        while connections.try_join_next().is_some() {}
        let Some((stream, permit)) = accepted else { continue };
        let service = TowerToHyperService::new(router.clone());
        let mut stop = stopped.clone();
        connections.spawn(async move {
            let mut builder = auto::Builder::new(TokioExecutor::new()).http1_only();
            builder
                .http1()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            tokio::pin!(connection);
            tokio::select! {
                _ = connection.as_mut() => {}
                () = told(&mut stop) => {
                    connection.as_mut().graceful_shutdown();
                    // Whether it ended well is its client's concern.
                    let _ = connection.await;
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    // What does not end in time is cut off when the set is dropped.
    let _ = timeout(GRACE, async { while connections.join_next().await.is_some() {} }).await;
}

/// The next connection, when there is room for it.
pub(super) async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => {
            // Small answers should not wait for more.
            let _ = stream.set_nodelay(true);
            Some((stream, permit))
        }
        Err(error) => {
            tracing::debug!(%error, "a connection could not be accepted");
            sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

/// Waits until it is said to stop, or nobody is left who could say it.
pub(super) async fn told(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}
