//! OTLP over gRPC: the one call `LogsService/Export`, on bytes that are encoded already.

use super::ShipError;
use super::config::ShipConfig;
use super::verdict::{self, Verdict};
use kvprov_wire::Raw;
use kvprov_wire::error::chain;
use prost::bytes::Bytes;
use std::time::Duration;
use tonic::Request;
use tonic::codec::CompressionEncoding;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";
const CONNECT: Duration = Duration::from_secs(5);
/// An idle connection is asked for a sign of life this often, so that one that is dead is noticed.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// Largest answer that is read.
const MAX_ANSWER: usize = 64 << 10;

/// A connection that is made when it is needed, and again when it broke.
#[derive(Debug)]
pub(super) struct Grpc {
    client: tonic::client::Grpc<Channel>,
}

impl Grpc {
    /// Must be called on a runtime.
    pub(super) fn new(config: &ShipConfig) -> Result<Self, ShipError> {
        let invalid = |reason: String| ShipError::Endpoint { endpoint: config.endpoint.clone(), reason };
        let endpoint = Endpoint::from_shared(config.endpoint.clone())
            .map_err(|error| invalid(error.to_string()))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(config.timeout)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true);
        let client = tonic::client::Grpc::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER);
        let client = if config.gzip { client.send_compressed(CompressionEncoding::Gzip) } else { client };
        Ok(Self { client })
    }

    /// Sends one request.
    pub(super) async fn send(&mut self, request: Bytes) -> Verdict {
        if let Err(error) = self.client.ready().await {
            return verdict::retry(&chain(&error));
        }
        let path = PathAndQuery::from_static(EXPORT);
        match self.client.unary(Request::new(request), path, Raw).await {
            Ok(response) => verdict::of_response(&response.into_inner()),
            Err(status) => verdict::of_status(&status),
        }
    }
}
