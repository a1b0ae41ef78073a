//! One export: over gRPC, or over HTTP with a protobuf body.

use super::endpoint::{Endpoint, EndpointError, Protocol};
use super::verdict::{self, Verdict};
use crate::otlp::spans::EXPORT;
use kvprov_wire::Raw;
use kvprov_wire::error::chain;
use prost::bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use std::time::Duration;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

const CONNECT: Duration = Duration::from_secs(5);
/// What is read of an answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// What to do where gRPC is not understood.
const HTTP_HINT: &str = "if it takes OTLP over HTTP, write its path too: http://host:port/v1/traces";

/// A connection that is made when it is needed, and again when it broke.
pub(super) enum Transport {
    /// gRPC.
    Grpc(tonic::client::Grpc<Channel>),
    /// HTTP.
    Http(reqwest::Client, reqwest::Url),
}

// === impl Transport ===

impl Transport {
    /// Must be called on a runtime.
    pub(super) fn new(endpoint: &Endpoint, timeout: Duration) -> Result<Self, EndpointError> {
        let invalid = |reason: String| EndpointError { endpoint: endpoint.url.clone(), reason };
        match endpoint.protocol {
            Protocol::Grpc => {
                let channel = tonic::transport::Endpoint::from_shared(endpoint.url.clone())
                    .map_err(|error| invalid(error.to_string()))?
                    .connect_timeout(CONNECT)
                    .tcp_nodelay(true);
                let client = tonic::client::Grpc::new(channel.connect_lazy());
                Ok(Self::Grpc(client.max_decoding_message_size(MAX_ANSWER)))
            }
            Protocol::Http => {
                let url = endpoint.url.parse().map_err(|error| invalid(format!("{error}")))?;
                let client = reqwest::Client::builder()
                    .connect_timeout(CONNECT)
                    .timeout(timeout)
                    // Elsewhere is not where the operator said.
                    .redirect(reqwest::redirect::Policy::none())
                    .tcp_nodelay(true)
                    .pool_max_idle_per_host(1)
                    .build()
                    .map_err(|error| invalid(error.to_string()))?;
                Ok(Self::Http(client, url))
            }
        }
    }

    /// Sends one request.
    pub(super) async fn send(&mut self, request: Bytes) -> Verdict {
        match self {
            Self::Grpc(client) => {
                if let Err(error) = client.ready().await {
                    return Verdict::Retry(None, chain(&error));
                }
                let path = PathAndQuery::from_static(EXPORT);
                match client.unary(tonic::Request::new(request), path, Raw).await {
                    Ok(response) => verdict::of_response(&response.into_inner()),
                    Err(status) => match verdict::of_status(&status) {
                        // Mostly a server of HTTP/1 that does not know what it is asked.
                        Verdict::Retry(after, reason) if reason.contains("h2 protocol error") => {
                            Verdict::Retry(after, format!("{reason}; {HTTP_HINT}"))
                        }
                        verdict => verdict,
                    },
                }
            }
            Self::Http(client, url) => {
                let post = client.post(url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
                match post.body(request).send().await {
                    Ok(response) => read(response).await,
                    Err(error) => Verdict::Retry(None, chain(&error.without_url())),
                }
            }
        }
    }
}

async fn read(mut response: reqwest::Response) -> Verdict {
    let status = response.status().as_u16();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
            Ok(Some(_) | None) => break,
            Err(error) => return Verdict::Retry(None, chain(&error.without_url())),
        }
    }
    verdict::of_http(status, retry_after.as_deref(), &body)
}
