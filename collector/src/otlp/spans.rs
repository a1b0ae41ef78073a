//! The messages of the traces signal, as far as they are written and read here.
//!
//! Numbers of fields: `opentelemetry/proto/collector/trace/v1` and `trace/v1`, version 1.5.

use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// A request to take spans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceRequest {
    /// Spans by who made them.
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// The answer to it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTraceServiceResponse {
    /// What was not taken.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<ExportTracePartialSuccess>,
}

/// What of a request was not taken.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ExportTracePartialSuccess {
    /// How many spans.
    #[prost(int64, tag = "1")]
    pub rejected_spans: i64,
    /// Why, or a warning.
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// Spans of one resource.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ResourceSpans {
    /// Who made them.
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    /// The spans, by the library that made them.
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// Spans of one library.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ScopeSpans {
    /// The library.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// The spans.
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// A span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Span {
    /// Its trace, 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    /// Its id, 8 bytes.
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    /// The span above it, 8 bytes; empty: none.
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    /// Its name.
    #[prost(string, tag = "5")]
    pub name: String,
    /// 1: internal.
    #[prost(int32, tag = "6")]
    pub kind: i32,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    /// What is said of it.
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    /// What happened in it.
    #[prost(message, repeated, tag = "11")]
    pub events: Vec<Event>,
    /// How it ended.
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
    /// Flags of the trace context: 1 sampled, 0x100 it is known whether the parent is elsewhere, 0x200 it is.
    #[prost(fixed32, tag = "16")]
    pub flags: u32,
}

/// Something that happened in a span.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Event {
    /// Nanoseconds since the Unix epoch.
    #[prost(fixed64, tag = "1")]
    pub time_unix_nano: u64,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// What is said of it.
    #[prost(message, repeated, tag = "3")]
    pub attributes: Vec<KeyValue>,
}

/// How a span ended.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Status {
    /// In words, where it is an error.
    #[prost(string, tag = "2")]
    pub message: String,
    /// 0 unset, 1 ok, 2 error.
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// The code of a span that failed.
pub const ERROR: i32 = 2;
/// The kind of a span that is neither a request nor an answer.
pub const INTERNAL: i32 = 1;
/// The call that takes spans.
pub const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
