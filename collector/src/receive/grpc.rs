//! OTLP over gRPC: observations as logs, and spans of engines.
//!
//! The service takes the bytes of a message as they are: they are measured before anything is made of them. A request
//! is read only while there is room for one more.

use super::details;
use super::take::{NotTaken, Payload, Taker};
use crate::otlp::raw::Raw;
use crate::otlp::spans;
use prost::Message as _;
use prost::bytes::Bytes;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Request, Response, Status};

const EXPORT_LOGS: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// What is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    /// Observations.
    Logs,
    /// Spans of engines.
    Traces,
}

/// The service for observations.
#[derive(Clone)]
pub(super) struct Logs(pub(super) Arc<Taker>);

/// The service for spans.
#[derive(Clone)]
pub(super) struct Traces(pub(super) Arc<Taker>);

impl NamedService for Logs {
    const NAME: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
}

impl NamedService for Traces {
    const NAME: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
}

impl<B> Service<http::Request<B>> for Logs
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        answer(Arc::clone(&self.0), Signal::Logs, request)
    }
}

impl<B> Service<http::Request<B>> for Traces
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        answer(Arc::clone(&self.0), Signal::Traces, request)
    }
}

fn answer<B>(
    taker: Arc<Taker>,
    signal: Signal,
    request: http::Request<B>,
) -> BoxFuture<http::Response<tonic::body::Body>, Infallible>
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    let export = match signal {
        Signal::Logs => EXPORT_LOGS,
        Signal::Traces => spans::EXPORT,
    };
    if request.uri().path() != export {
        let unknown = Status::unimplemented("only Export of logs and of traces is answered here");
        return Box::pin(async move { Ok(unknown.into_http()) });
    }
    let slot = match taker.slot() {
        Ok(slot) => slot,
        Err(busy) => return Box::pin(async move { Ok(status(&busy).into_http()) }),
    };
    Box::pin(async move {
        let mut accepted = EnabledCompressionEncodings::default();
        accepted.enable(CompressionEncoding::Gzip);
        let mut grpc = Grpc::new(Raw)
            .apply_compression_config(accepted, EnabledCompressionEncodings::default())
            .apply_max_message_size_config(Some(taker.config.request_bytes), None);
        Ok(grpc.unary(Export { taker, signal, slot: Some(slot) }, request).await)
    })
}

struct Export {
    taker: Arc<Taker>,
    signal: Signal,
    slot: Option<OwnedSemaphorePermit>,
}

impl UnaryService<Bytes> for Export {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (taker, signal, slot) = (Arc::clone(&self.taker), self.signal, self.slot.take());
        Box::pin(async move {
            let _slot = slot;
            let bytes = request.into_inner();
            let taken = match signal {
                Signal::Logs => {
                    taker.take(Payload::Protobuf(bytes)).await.map(|response| response.encode_to_vec())
                }
                Signal::Traces => taker.take_spans(bytes).await.map(|response| response.encode_to_vec()),
            };
            taken.map(|bytes| Response::new(Bytes::from(bytes))).map_err(|error| status(&error))
        })
    }
}

/// The status that tells a sender what to do, by the rules of OTLP.
fn status(error: &NotTaken) -> Status {
    let (code, after) = match error {
        NotTaken::Malformed(_) => (Code::InvalidArgument, None),
        // Without a pause: the same bytes are never to be sent again.
        NotTaken::TooLarge(_) => (Code::ResourceExhausted, None),
        NotTaken::Busy { after, .. } => (Code::ResourceExhausted, Some(*after)),
        NotTaken::Unavailable { after, .. } => (Code::Unavailable, Some(*after)),
    };
    let message = error.to_string();
    let details = details::status(code as i32, &message, after).encode_to_vec();
    Status::with_details(code, message, Bytes::from(details))
}
