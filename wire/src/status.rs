//! `google.rpc.Status` and `RetryInfo`: how OTLP tells a sender what was wrong, whether to come again, and when.

use prost::Message;
use std::time::Duration;
use tonic::Code;

/// Type of the detail that asks for a pause, behind the authority.
const RETRY_INFO: &str = "/google.rpc.RetryInfo";
const AUTHORITY: &str = "type.googleapis.com";

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// A code of gRPC.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// Words.
    #[prost(string, tag = "2")]
    pub message: String,
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

// === impl RpcStatus ===

impl RpcStatus {
    /// A status with words and, where it is temporary, a pause.
    pub fn new(code: i32, message: &str, after: Option<Duration>) -> Self {
        let details = after.into_iter().map(|after| {
            let seconds = i64::try_from(after.as_secs()).unwrap_or(i64::MAX);
            let pause = Pause { seconds, nanos: after.subsec_nanos().cast_signed() };
            let value = RetryInfo { retry_delay: Some(pause) }.encode_to_vec();
            Any { type_url: format!("{AUTHORITY}{RETRY_INFO}"), value }
        });
        Self { code, message: message.to_owned(), details: details.collect() }
    }

    /// The pause that it asks for; one below zero is none.
    pub fn pause(&self) -> Option<Duration> {
        let info = self.details.iter().find(|any| any.type_url.ends_with(RETRY_INFO))?;
        let pause = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
        let (seconds, nanos) = (u64::try_from(pause.seconds).ok()?, u32::try_from(pause.nanos).ok()?);
        Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos))))
    }
}

/// What a sender does after a status that is not OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Send it again.
    Again,
    /// Send less at once.
    Less,
    /// Send it no more.
    Nothing,
}

// === impl Asks ===

impl Asks {
    /// By the rules of OTLP. What is exhausted may be so for a while, which a pause says, or the limit of a message.
    pub fn of(code: Code, has_pause: bool) -> Self {
        match code {
            // The code of a message beyond the receiver's limit, in one implementation and in the other.
            Code::OutOfRange => Self::Less,
            Code::ResourceExhausted if !has_pause => Self::Less,
            Code::ResourceExhausted
            | Code::Ok
            | Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Aborted
            | Code::Unavailable
            | Code::DataLoss => Self::Again,
            _ => Self::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_told_and_read() {
        for pause in [None, Some(Duration::ZERO), Some(Duration::new(3, 5))] {
            let bytes = RpcStatus::new(8, "later", pause).encode_to_vec();
            assert_eq!(RpcStatus::decode(bytes.as_slice()).ok().and_then(|status| status.pause()), pause);
        }
    }

    #[test]
    fn a_pause_below_zero_is_none() {
        let info = RetryInfo { retry_delay: Some(Pause { seconds: -3, nanos: 5 }) };
        let any = Any { type_url: RETRY_INFO.to_owned(), value: info.encode_to_vec() };
        assert_eq!(RpcStatus { code: 8, message: String::new(), details: vec![any] }.pause(), None);
    }
}
