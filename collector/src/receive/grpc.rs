//! OTLP over gRPC: observations as logs, and spans of engines.
//!
//! The service takes the bytes of a message as they are: they are measured before anything is made of them. A request
//! is read only while there is room for one more.

use super::take::{NotTaken, Payload, Taker};
use crate::otlp::spans;
use kvprov_wire::Raw;
use kvprov_wire::status::RpcStatus;
use prost::Message as _;
use prost::bytes::Bytes;
use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tonic::codec::{CompressionEncoding, EnabledCompressionEncodings};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Request, Response, Status};

/// What is taken. Each signal has a service of its own with one call, `Export`.
pub(super) trait Signal: 'static {
    /// The service.
    const SERVICE: &'static str;
    /// The path of its call.
    const EXPORT: &'static str;

    /// Takes a request and gives the answer as it goes over the wire.
    fn take(taker: &Taker, request: Bytes) -> impl Future<Output = Result<Vec<u8>, NotTaken>> + Send;
}

/// Observations.
pub(super) enum Logs {}

impl Signal for Logs {
    const SERVICE: &'static str = "opentelemetry.proto.collector.logs.v1.LogsService";
    const EXPORT: &'static str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

    async fn take(taker: &Taker, request: Bytes) -> Result<Vec<u8>, NotTaken> {
        Ok(taker.take(Payload::Protobuf(request)).await?.encode_to_vec())
    }
}

/// Spans of engines.
pub(super) enum Traces {}

impl Signal for Traces {
    const SERVICE: &'static str = "opentelemetry.proto.collector.trace.v1.TraceService";
    const EXPORT: &'static str = spans::EXPORT;

    async fn take(taker: &Taker, request: Bytes) -> Result<Vec<u8>, NotTaken> {
        Ok(taker.take_spans(request).await?.encode_to_vec())
    }
}

/// The service of a signal.
pub(super) struct Export<S> {
    taker: Arc<Taker>,
    signal: PhantomData<fn() -> S>,
}

/// One call of it.
struct Call<S> {
    of: Export<S>,
    slot: Option<OwnedSemaphorePermit>,
}

// === impl Export ===

impl<S> Export<S> {
    pub(super) fn of(taker: Arc<Taker>) -> Self {
        Self { taker, signal: PhantomData }
    }
}

impl<S> Clone for Export<S> {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.taker))
    }
}

impl<S: Signal> NamedService for Export<S> {
    const NAME: &'static str = S::SERVICE;
}

impl<S, B> Service<http::Request<B>> for Export<S>
where
    S: Signal,
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
        if request.uri().path() != S::EXPORT {
            let unknown = Status::unimplemented("only Export of logs and of traces is answered here");
            return Box::pin(async move { Ok(unknown.into_http()) });
        }
        let slot = match self.taker.slot() {
            Ok(slot) => slot,
            Err(busy) => return Box::pin(async move { Ok(status(&busy).into_http()) }),
        };
        let of = self.clone();
        Box::pin(async move {
            let mut accepted = EnabledCompressionEncodings::default();
            accepted.enable(CompressionEncoding::Gzip);
            let mut grpc = Grpc::new(Raw)
                .apply_compression_config(accepted, EnabledCompressionEncodings::default())
                .apply_max_message_size_config(Some(of.taker.config.request_bytes), None);
            Ok(grpc.unary(Call { of, slot: Some(slot) }, request).await)
        })
    }
}

// === impl Call ===

impl<S: Signal> UnaryService<Bytes> for Call<S> {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (of, slot) = (self.of.clone(), self.slot.take());
        Box::pin(async move {
            let _slot = slot;
            let taken = S::take(&of.taker, request.into_inner()).await;
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
    let details = RpcStatus::new(code as i32, &message, after).encode_to_vec();
    Status::with_details(code, message, Bytes::from(details))
}
