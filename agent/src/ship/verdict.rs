//! What an answer of the receiver means for the batch, by the rules of the OTLP specification (sections "Failures" and
//! "OTLP/gRPC Throttling", "OTLP/HTTP Response").
//!
//! Retried: what is temporary by its status, what the network did, and answers that are none. Given up: what the
//! receiver says it will never take. Split: what is too large for it.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use std::time::Duration;
use tonic::{Code, Status};

/// Longest text of a receiver that is logged, in characters.
const MAX_TEXT: usize = 200;

/// What to do with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The receiver has it, except for the records that it rejected for good.
    Taken {
        /// Records that it rejected.
        rejected: u64,
        /// What it says about them, or as a warning.
        message: String,
    },
    /// Send it again, not before a pause that the receiver may ask for.
    Retry {
        /// The pause.
        after: Option<Duration>,
        /// What happened.
        reason: String,
    },
    /// Send less at once.
    TooLarge {
        /// What the receiver said.
        reason: String,
    },
    /// It will never be taken.
    Refused {
        /// What the receiver said.
        reason: String,
    },
}

/// `google.rpc.Status`, as far as it matters here.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, prost::Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<Pause>,
}

/// `google.protobuf.Duration`.
#[derive(Clone, PartialEq, prost::Message)]
struct Pause {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

/// Of a body that came with success.
pub(super) fn of_response(body: &[u8]) -> Verdict {
    match ExportLogsServiceResponse::decode(body) {
        Ok(response) => {
            let partial = response.partial_success.unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_log_records).unwrap_or(0);
            Verdict::Taken { rejected, message: tidy(&partial.error_message) }
        }
        Err(_) => retry("the answer is no OTLP response; is the endpoint a collector?"),
    }
}

/// Of a gRPC status that is not OK.
pub(super) fn of_status(status: &Status) -> Verdict {
    let reason = format!("{:?}: {}", status.code(), tidy(status.message()));
    // What the client library made of a broken connection or of garbage says nothing about the batch.
    if std::error::Error::source(status).is_some() {
        return Verdict::Retry { after: None, reason };
    }
    let after = retry_info(status.details());
    match status.code() {
        // The code of a message beyond the receiver's limit, in one implementation and in the other.
        Code::OutOfRange => Verdict::TooLarge { reason },
        Code::ResourceExhausted if after.is_none() => Verdict::TooLarge { reason },
        Code::ResourceExhausted
        | Code::Ok
        | Code::Cancelled
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Unavailable
        | Code::DataLoss => Verdict::Retry { after, reason },
        _ => Verdict::Refused { reason },
    }
}

/// Of an HTTP answer. `retry_after`: that header; `body`: its begin at least.
pub(super) fn of_http(status: u16, retry_after: Option<&str>, body: &[u8]) -> Verdict {
    if (200..300).contains(&status) {
        return of_response(body);
    }
    let said = RpcStatus::decode(body)
        .map_or_else(|_| String::from_utf8_lossy(body).into_owned(), |said| said.message);
    let reason = format!("HTTP {status}: {}", tidy(&said));
    match status {
        413 => Verdict::TooLarge { reason },
        429 | 502 | 503 | 504 => {
            let seconds = retry_after.and_then(|text| text.trim().parse().ok());
            Verdict::Retry { after: seconds.map(Duration::from_secs), reason }
        }
        _ => Verdict::Refused { reason },
    }
}

/// What the network did.
pub(super) fn retry(reason: &str) -> Verdict {
    Verdict::Retry { after: None, reason: tidy(reason) }
}

/// The pause in the details of a status.
fn retry_info(details: &[u8]) -> Option<Duration> {
    let status = RpcStatus::decode(details).ok()?;
    let info = status.details.iter().find(|any| any.type_url.ends_with("/google.rpc.RetryInfo"))?;
    let pause = RetryInfo::decode(info.value.as_slice()).ok()?.retry_delay.unwrap_or_default();
    let (seconds, nanos) = (u64::try_from(pause.seconds).ok()?, u32::try_from(pause.nanos).ok()?);
    Some(Duration::from_secs(seconds).saturating_add(Duration::from_nanos(u64::from(nanos))))
}

/// Text of somebody else, fit for a log.
fn tidy(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;

    fn taken(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Taken { rejected: 0, .. })
    }

    fn details(seconds: i64) -> Vec<u8> {
        let info = RetryInfo { retry_delay: Some(Pause { seconds, nanos: 5 }) };
        let any = Any {
            type_url: "type.googleapis.com/google.rpc.RetryInfo".to_owned(),
            value: info.encode_to_vec(),
        };
        RpcStatus { code: 8, message: String::new(), details: vec![any] }.encode_to_vec()
    }

    #[test]
    fn only_temporary_grpc_statuses_are_retried() {
        for code in
            [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable, Code::DataLoss]
        {
            assert!(matches!(of_status(&Status::new(code, "")), Verdict::Retry { .. }), "{code:?}");
        }
        for code in [
            Code::InvalidArgument,
            Code::Unimplemented,
            Code::Unauthenticated,
            Code::PermissionDenied,
            Code::NotFound,
            Code::Internal,
            Code::Unknown,
        ] {
            assert!(matches!(of_status(&Status::new(code, "")), Verdict::Refused { .. }), "{code:?}");
        }
    }

    #[test]
    fn exhaustion_is_retried_only_with_a_pause() {
        let asked = Status::with_details(Code::ResourceExhausted, "", details(3).into());
        let after = Some(Duration::new(3, 5));
        assert!(matches!(of_status(&asked), Verdict::Retry { after: found, .. } if found == after));
        assert!(matches!(of_status(&Status::resource_exhausted("large")), Verdict::TooLarge { .. }));
    }

    #[test]
    fn a_pause_below_zero_is_none() {
        let asked = Status::with_details(Code::ResourceExhausted, "", details(-3).into());
        assert!(matches!(of_status(&asked), Verdict::TooLarge { .. }));
    }

    #[test]
    fn only_temporary_http_statuses_are_retried() {
        for status in [429, 502, 503, 504] {
            assert!(matches!(of_http(status, None, b""), Verdict::Retry { after: None, .. }), "{status}");
        }
        for status in [301, 400, 401, 403, 404, 405, 415, 500, 501] {
            assert!(matches!(of_http(status, None, b""), Verdict::Refused { .. }), "{status}");
        }
        assert!(matches!(of_http(413, None, b""), Verdict::TooLarge { .. }));
        let after = Some(Duration::from_secs(2));
        assert!(
            matches!(of_http(503, Some("2"), b""), Verdict::Retry { after: found, .. } if found == after)
        );
        assert!(matches!(of_http(503, Some("soon"), b""), Verdict::Retry { after: None, .. }));
    }

    #[test]
    fn success_with_a_page_of_somebody_else_is_no_success() {
        assert!(taken(&of_http(200, None, b"")));
        assert!(!taken(&of_http(200, None, b"<html>welcome to the hotel</html>")));
    }

    #[test]
    fn partial_success_says_how_many_are_lost() {
        let partial =
            ExportLogsPartialSuccess { rejected_log_records: 3, error_message: "fo\u{1b}reign".to_owned() };
        let body = ExportLogsServiceResponse { partial_success: Some(partial) }.encode_to_vec();
        assert_eq!(of_response(&body), Verdict::Taken { rejected: 3, message: "fo reign".to_owned() });
    }
}
