//! OTLP over gRPC.
//!
//! The service takes the bytes of a message as they are: they are measured before anything is made of them. A request
//! is read only while there is room for one more.

use super::details;
use super::take::{NotTaken, Payload, Taker};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use prost::bytes::{Buf as _, BufMut as _, Bytes};
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::OwnedSemaphorePermit;
use tonic::codec::{
    Codec, CompressionEncoding, DecodeBuf, Decoder, EnabledCompressionEncodings, EncodeBuf, Encoder,
};
use tonic::codegen::{Body, BoxFuture, Service, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Code, Request, Response, Status};

const SERVICE: &str = "opentelemetry.proto.collector.logs.v1.LogsService";
const EXPORT: &str = "/opentelemetry.proto.collector.logs.v1.LogsService/Export";

/// The service.
#[derive(Clone)]
pub(super) struct Logs {
    pub(super) taker: Arc<Taker>,
}

impl NamedService for Logs {
    const NAME: &'static str = SERVICE;
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
        if request.uri().path() != EXPORT {
            let unknown = Status::unimplemented("only logs are taken here: LogsService/Export");
            return Box::pin(async move { Ok(unknown.into_http()) });
        }
        let slot = match self.taker.slot() {
            Ok(slot) => slot,
            Err(busy) => return Box::pin(async move { Ok(status(&busy).into_http()) }),
        };
        let taker = Arc::clone(&self.taker);
        Box::pin(async move {
            let mut accepted = EnabledCompressionEncodings::default();
            accepted.enable(CompressionEncoding::Gzip);
            let mut grpc = Grpc::new(Raw)
                .apply_compression_config(accepted, EnabledCompressionEncodings::default())
                .apply_max_message_size_config(Some(taker.config.request_bytes), None);
            Ok(grpc.unary(Export { taker, slot: Some(slot) }, request).await)
        })
    }
}

struct Export {
    taker: Arc<Taker>,
    slot: Option<OwnedSemaphorePermit>,
}

impl UnaryService<Bytes> for Export {
    type Response = Bytes;
    type Future = BoxFuture<Response<Bytes>, Status>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let (taker, slot) = (Arc::clone(&self.taker), self.slot.take());
        Box::pin(async move {
            let _slot = slot;
            let taken = taker.take(Payload::Protobuf(request.into_inner())).await;
            let bytes =
                |response: ExportLogsServiceResponse| Response::new(Bytes::from(response.encode_to_vec()));
            taken.map(bytes).map_err(|error| status(&error))
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

/// Messages as they are.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let length = buffer.remaining();
        Ok(Some(buffer.copy_to_bytes(length)))
    }
}
