//! HTTP of the collector: `/metrics`, `/healthz`, `/readyz`, the API below `/api/v1/` and a page.
//!
//! Read only. Every answer is made from a snapshot ([`crate::run::Board`]); no request touches the ledger or makes its
//! thread wait. Bounded: connections, requests at once, time of a request, length of a list.

mod connections;
mod error;
mod identity;
mod lists;
mod page;
mod query;

pub use connections::Limits;
pub use error::ApiError;

use crate::export::metrics;
use crate::export::traces::Traces;
use crate::intake::Queue;
use crate::receive::{Clocks, ReceiveStats};
use crate::run::Board;
use axum::Router;
use axum::extract::{Query as GivenQuery, Request};
use axum::http::{HeaderValue, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use kvprov_packs::Packs;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// What handlers know.
#[derive(Clone)]
pub struct Shared {
    /// What readers see.
    pub board: Arc<Board>,
    /// What the receivers tell; `None` where there are none.
    pub received: Option<Received>,
    /// How requests are traced; `None`: not at all.
    pub traces: Option<Traces>,
    /// The queue in front of the ledger, to tell how much waits.
    pub queue: Queue,
    /// What engines compare by themselves.
    pub packs: &'static Packs,
    /// Whether the ledger's thread runs.
    pub alive: Arc<AtomicBool>,
}

/// What receivers tell of themselves.
#[derive(Clone)]
pub struct Received {
    /// What they counted.
    pub stats: Arc<dyn Fn() -> ReceiveStats + Send + Sync>,
    /// The clocks of the nodes.
    pub clocks: Arc<Clocks>,
}

type State = axum::extract::State<Arc<Shared>>;
type Given = GivenQuery<Vec<(String, String)>>;

/// Serves until `until` is done; requests that run are given their time.
pub async fn serve(
    listener: TcpListener,
    shared: Arc<Shared>,
    limits: Limits,
    until: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let listener = connections::Bounded::new(listener, limits);
    axum::serve(listener, router(shared, limits)).with_graceful_shutdown(until).await
}

fn router(shared: Arc<Shared>, limits: Limits) -> Router {
    let at_once = Arc::new(Semaphore::new(limits.requests.max(1)));
    let bounded = move |request: Request, next: Next| {
        let at_once = Arc::clone(&at_once);
        async move { within_limits(&at_once, limits, request, next).await }
    };
    Router::new()
        .route("/", get(page::page))
        .route("/metrics", get(metrics_page))
        .route("/readyz", get(ready))
        .route("/api/v1/findings", get(lists::findings))
        .route("/api/v1/findings/{id}", get(lists::finding))
        .route("/api/v1/lineages", get(lists::lineages))
        .route("/api/v1/workers", get(lists::workers))
        .route("/api/v1/stores", get(lists::stores))
        .route("/api/v1/keyspaces", get(lists::keyspaces))
        .route("/api/v1/rollout", get(identity::rollout))
        .route("/api/v1/contract", get(identity::contract))
        .layer(middleware::from_fn(bounded))
        // Whether the process lives is answered however busy it is.
        .route("/healthz", get(health))
        .fallback(nothing_here)
        .method_not_allowed_fallback(only_read)
        .layer(middleware::map_response(harmless))
        .with_state(shared)
}

async fn within_limits(at_once: &Semaphore, limits: Limits, request: Request, next: Next) -> Response {
    let place = request.uri().path().to_owned();
    let answer = async {
        let Ok(_turn) = at_once.acquire().await else {
            return ApiError::later("the collector is stopping", &place).into_response();
        };
        next.run(request).await
    };
    match tokio::time::timeout(limits.time, answer).await {
        Ok(response) => response,
        Err(_) => {
            ApiError::later("the answer took too long, or too many requests wait", &place).into_response()
        }
    }
}

/// Nothing that is served may be taken for something else by a browser, or kept.
async fn harmless(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    response
}

async fn metrics_page(state: State) -> Response {
    let received = state.received.as_ref().map(|received| ((received.stats)(), received.clocks.all()));
    let traces = state.traces.as_ref().map(Traces::stats);
    match metrics::text(&state.board.seen(), state.queue.waiting(), received.as_ref(), traces.as_ref()) {
        Ok(text) => ([("content-type", metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            error.to_string(),
            "/metrics",
            "report it; the ledger is not harmed",
        )
        .into_response(),
    }
}

async fn health(state: State) -> Response {
    if state.alive.load(Ordering::Relaxed) {
        return (StatusCode::OK, "ok\n").into_response();
    }
    ApiError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "the ledger's thread has ended",
        "/healthz",
        "restart the collector; its log says why",
    )
    .into_response()
}

async fn ready(state: State) -> Response {
    let seen = state.board.seen();
    if !state.alive.load(Ordering::Relaxed) {
        return health(state).await;
    }
    match (&seen.failing, seen.ready) {
        (Some(reason), _) => ApiError::later(reason.clone(), "the ledger").into_response(),
        (None, false) => {
            let waiting = "what the ledger held before the start is still being evaluated";
            ApiError::later(waiting, "/readyz").into_response()
        }
        (None, true) => (StatusCode::OK, format!("ready\n{}", tracing_state(&state))).into_response(),
    }
}

/// What becomes of traces, in a line. A backend that does not answer makes nobody unready: what is found is served all the
/// same.
fn tracing_state(state: &State) -> String {
    let Some(traces) = &state.traces else { return String::new() };
    let stats = traces.stats();
    match stats.failing {
        Some(reason) => {
            let reason = reason.replace(char::is_control, " ");
            format!("traces: {} spans wait, the endpoint does not take them: {reason}\n", stats.holds.spans)
        }
        None => format!("traces: {} spans wait\n", stats.holds.spans),
    }
}

async fn nothing_here(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::NOT_FOUND,
        "there is nothing at this path",
        uri.path().chars().take(200).collect::<String>(),
        "the API has /api/v1/findings, /api/v1/findings/{id}, /api/v1/lineages, /api/v1/workers, /api/v1/stores, \
         /api/v1/keyspaces, /api/v1/rollout, /api/v1/contract; beside it are /metrics, /healthz, /readyz and the page at /",
    )
}

async fn only_read(uri: Uri) -> ApiError {
    ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "nothing can be changed here",
        uri.path().chars().take(200).collect::<String>(),
        "ask with GET",
    )
}
