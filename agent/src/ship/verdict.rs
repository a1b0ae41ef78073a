//! What an answer of the receiver means for the batch, by the rules of the OTLP specification (sections "Failures" and
//! "OTLP/gRPC Throttling", "OTLP/HTTP Response").
//!
//! Retried: what is temporary by its status, what the network did, and answers that are none. Given up: what the
//! receiver says it will never take. Split: what is too large for it.

use kvprov_wire::status::{Asks, RpcStatus};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use prost::Message as _;
use std::time::Duration;
use tonic::Status;

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
    let after = RpcStatus::decode(status.details()).ok().and_then(|status| status.pause());
    match Asks::of(status.code(), after.is_some()) {
        Asks::Again => Verdict::Retry { after, reason },
        Asks::Less => Verdict::TooLarge { reason },
        Asks::Nothing => Verdict::Refused { reason },
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

/// Text of somebody else, fit for a log.
fn tidy(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsPartialSuccess;
    use tonic::Code;

    fn taken(verdict: &Verdict) -> bool {
        matches!(verdict, Verdict::Taken { rejected: 0, .. })
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
        let after = Some(Duration::new(3, 5));
        let details = RpcStatus::new(8, "", after).encode_to_vec();
        let asked = Status::with_details(Code::ResourceExhausted, "", details.into());
        assert!(matches!(of_status(&asked), Verdict::Retry { after: found, .. } if found == after));
        assert!(matches!(of_status(&Status::resource_exhausted("large")), Verdict::TooLarge { .. }));
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
