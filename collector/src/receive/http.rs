//! OTLP over HTTP, plain or gzip: `POST /v1/logs` with protobuf or JSON, `POST /v1/traces` with protobuf.

use super::json;
use super::take::{NotTaken, Payload, Taker};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use flate2::read::MultiGzDecoder;
use kvprov_wire::status::RpcStatus;
use prost::Message as _;
use prost::bytes::Bytes;
use serde_json::json;
use std::io::Read as _;
use std::sync::Arc;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;

const PROTOBUF: &str = "application/x-protobuf";
const JSON: &str = "application/json";
// The codes of google.rpc.Code that answers name.
const INVALID_ARGUMENT: i32 = 3;
const RESOURCE_EXHAUSTED: i32 = 8;
const UNAVAILABLE: i32 = 14;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Protobuf,
    Json,
}

/// The routes.
pub(super) fn router(taker: Arc<Taker>) -> Router {
    Router::new().route("/v1/logs", post(logs)).route("/v1/traces", post(traces)).with_state(taker)
}

async fn logs(State(taker): State<Arc<Taker>>, headers: HeaderMap, body: Body) -> Response {
    let Some(format) = format(&headers) else {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("expected {PROTOBUF} or {JSON}\n"))
            .into_response();
    };
    let taken = async {
        let _slot = taker.slot()?;
        let limit = match format {
            Format::Protobuf => taker.config.request_bytes,
            Format::Json => taker.config.json_bytes(),
        };
        let bytes = timeout(taker.config.read_timeout, read(body, limit))
            .await
            .map_err(|_| NotTaken::Malformed("its body did not arrive in time".to_owned()))??;
        let bytes = plain(&headers, bytes, limit)?;
        let payload = match format {
            Format::Protobuf => Payload::Protobuf(bytes),
            Format::Json => Payload::Json(bytes),
        };
        taker.take(payload).await
    };
    match (taken.await, format) {
        (Ok(response), Format::Protobuf) => reply(StatusCode::OK, PROTOBUF, response.encode_to_vec()),
        (Ok(response), Format::Json) => reply(StatusCode::OK, JSON, json::write(&response).into_bytes()),
        (Err(error), format) => refuse(&error, format),
    }
}

/// Spans of engines. Their JSON form is nobody's: exporters write protobuf.
async fn traces(State(taker): State<Arc<Taker>>, headers: HeaderMap, body: Body) -> Response {
    if format(&headers) != Some(Format::Protobuf) {
        return (StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("expected {PROTOBUF}\n")).into_response();
    }
    let taken = async {
        let _slot = taker.slot()?;
        let limit = taker.config.request_bytes;
        let bytes = timeout(taker.config.read_timeout, read(body, limit))
            .await
            .map_err(|_| NotTaken::Malformed("its body did not arrive in time".to_owned()))??;
        taker.take_spans(plain(&headers, bytes, limit)?).await
    };
    match taken.await {
        Ok(response) => reply(StatusCode::OK, PROTOBUF, response.encode_to_vec()),
        Err(error) => refuse(&error, Format::Protobuf),
    }
}

fn format(headers: &HeaderMap) -> Option<Format> {
    let given = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    match given.split(';').next()?.trim() {
        PROTOBUF => Some(Format::Protobuf),
        JSON => Some(Format::Json),
        _ => None,
    }
}

/// Reads a body up to a number of bytes.
async fn read(body: Body, limit: usize) -> Result<Bytes, NotTaken> {
    let mut chunks = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|error| NotTaken::Malformed(format!("its body broke off: {error}")))?;
        if bytes.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(Bytes::from(bytes))
}

/// Decompresses, up to the same number of bytes.
fn plain(headers: &HeaderMap, bytes: Bytes, limit: usize) -> Result<Bytes, NotTaken> {
    let encoding = headers.get(CONTENT_ENCODING).map_or(Ok("identity"), |value| value.to_str());
    match encoding {
        Ok("identity" | "") => Ok(bytes),
        Ok("gzip") => {
            let mut plain = Vec::new();
            let read = MultiGzDecoder::new(bytes.as_ref()).take(limit as u64 + 1).read_to_end(&mut plain);
            read.map_err(|error| NotTaken::Malformed(format!("its body is no gzip: {error}")))?;
            if plain.len() > limit { Err(too_large(limit)) } else { Ok(Bytes::from(plain)) }
        }
        _ => Err(NotTaken::Malformed("its content-encoding is neither gzip nor identity".to_owned())),
    }
}

fn too_large(limit: usize) -> NotTaken {
    NotTaken::TooLarge(format!("more than {limit} bytes"))
}

fn refuse(error: &NotTaken, format: Format) -> Response {
    let (status, code, after) = match error {
        NotTaken::Malformed(_) => (StatusCode::BAD_REQUEST, INVALID_ARGUMENT, None),
        NotTaken::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, RESOURCE_EXHAUSTED, None),
        NotTaken::Busy { after, .. } => (StatusCode::TOO_MANY_REQUESTS, RESOURCE_EXHAUSTED, Some(*after)),
        NotTaken::Unavailable { after, .. } => (StatusCode::SERVICE_UNAVAILABLE, UNAVAILABLE, Some(*after)),
    };
    let message = error.to_string();
    let mut response = match format {
        Format::Protobuf => reply(status, PROTOBUF, RpcStatus::new(code, &message, after).encode_to_vec()),
        Format::Json => {
            reply(status, JSON, json!({"code": code, "message": message}).to_string().into_bytes())
        }
    };
    if let Some(after) = after {
        // Whole seconds, at least one.
        let seconds = after.as_millis().div_ceil(1000).max(1) as u64;
        response.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    response
}

fn reply(status: StatusCode, format: &'static str, body: Vec<u8>) -> Response {
    (status, [(CONTENT_TYPE, format)], body).into_response()
}
