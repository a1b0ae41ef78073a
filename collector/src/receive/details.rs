//! `google.rpc.Status` and `RetryInfo`: how OTLP tells a sender what was wrong and when to come again.

use prost::Message;
use std::time::Duration;

/// Type of the detail that asks for a pause.
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RpcStatus {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Pause>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, Message)]
struct Pause {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// A status with words and, where it is temporary, a pause.
pub(super) fn status(code: i32, message: &str, after: Option<Duration>) -> RpcStatus {
    let details = after.into_iter().map(|after| {
        let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
        let pause = Pause { seconds, nanos: after.subsec_nanos().cast_signed() };
        let value = RetryInfo { retry_delay: Some(pause) }.encode_to_vec();
        Any { type_url: RETRY_INFO.to_owned(), value }
    });
    RpcStatus { code, message: message.to_owned(), details: details.collect() }
}
