//! OTLP over HTTP: `POST /v1/logs` with a protobuf body.

use super::ShipError;
use super::config::ShipConfig;
use super::verdict::{self, Verdict};
use flate2::Compression;
use flate2::write::GzEncoder;
use kvprov_wire::error::with_causes;
use prost::bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Url, redirect};
use std::io::Write as _;
use std::time::Duration;

const CONNECT: Duration = Duration::from_secs(5);
/// What is read of an answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// A client with connections that are kept.
#[derive(Debug)]
pub(super) struct Http {
    client: Client,
    url: Url,
    gzip: bool,
}

impl Http {
    pub(super) fn new(config: &ShipConfig) -> Result<Self, ShipError> {
        let invalid = |reason: String| ShipError::Endpoint { endpoint: config.endpoint.clone(), reason };
        let mut url: Url = config.endpoint.parse().map_err(|error| invalid(format!("{error}")))?;
        if url.path() == "/" {
            url.set_path("/v1/logs");
        }
        let client = Client::builder()
            .connect_timeout(CONNECT)
            .timeout(config.timeout)
            // Elsewhere is not where the operator said.
            .redirect(redirect::Policy::none())
            .tcp_nodelay(true)
            .pool_max_idle_per_host(1)
            .build()
            .map_err(|error| invalid(error.to_string()))?;
        Ok(Self { client, url, gzip: config.gzip })
    }

    /// Sends one request.
    pub(super) async fn send(&mut self, request: Bytes) -> Verdict {
        let post = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/x-protobuf");
        let post = match self.gzip.then(|| compress(&request)) {
            Some(Ok(body)) => post.header(CONTENT_ENCODING, "gzip").body(body),
            // Compression into memory does not fail; if it did, the plain bytes are as good.
            Some(Err(_)) | None => post.body(request),
        };
        let mut response = match post.send().await {
            Ok(response) => response,
            Err(error) => return verdict::retry(&describe(&error)),
        };
        let status = response.status().as_u16();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => body.extend_from_slice(&chunk),
                Ok(Some(_)) if (200..300).contains(&status) => {
                    return verdict::retry("the answer is longer than any OTLP response");
                }
                Ok(Some(_) | None) => break,
                Err(error) => return verdict::retry(&describe(&error)),
            }
        }
        verdict::of_http(status, retry_after.as_deref(), &body)
    }
}

fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// An error with its causes, without the address, which the message around it has.
fn describe(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() { "timed out" } else { "failed" };
    with_causes(what.to_owned(), error)
}
