//! What an answer of the endpoint means for a request, by the rules of the OTLP specification.

use crate::otlp::spans::ExportTraceServiceResponse;
use kvprov_wire::status::Asks;
use prost::Message as _;
use std::time::Duration;
use tonic::Status;

/// Longest text of an endpoint that is kept, in characters.
const MAX_TEXT: usize = 200;

/// What to do with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The endpoint has it, except for these many spans.
    Taken(u64),
    /// Send it again, not before a pause that the endpoint may ask for.
    Retry(Option<Duration>, String),
    /// It is more than the endpoint takes at once.
    TooLarge(String),
    /// It will never be taken.
    Refused(String),
}

/// Of a body that came with success.
pub(super) fn of_response(body: &[u8]) -> Verdict {
    match ExportTraceServiceResponse::decode(body) {
        Ok(response) => {
            let partial = response.partial_success.unwrap_or_default();
            let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
            if rejected > 0 {
                tracing::warn!(
                    rejected,
                    message = tidy(&partial.error_message),
                    "the tracing endpoint rejected spans"
                );
            }
            Verdict::Taken(rejected)
        }
        // It said that it has them; some endpoints answer with other words than the specification's.
        Err(_) => Verdict::Taken(0),
    }
}

/// Of a gRPC status that is not OK.
pub(super) fn of_status(status: &Status) -> Verdict {
    let reason = format!("{:?}: {}", status.code(), tidy(status.message()));
    // What the client library made of a broken connection says nothing about the request.
    if std::error::Error::source(status).is_some() {
        return Verdict::Retry(None, reason);
    }
    // With details it asks for a pause; without, it is a matter of size.
    match Asks::of(status.code(), !status.details().is_empty()) {
        Asks::Again => Verdict::Retry(None, reason),
        Asks::Less => Verdict::TooLarge(reason),
        Asks::Nothing => Verdict::Refused(reason),
    }
}

/// Of an HTTP answer; of its body the begin at least.
pub(super) fn of_http(status: u16, retry_after: Option<&str>, body: &[u8]) -> Verdict {
    let reason = format!("HTTP {status}");
    match status {
        200..=299 => of_response(body),
        413 => Verdict::TooLarge(reason),
        429 | 502 | 503 | 504 => {
            let seconds = retry_after.and_then(|seconds| seconds.trim().parse().ok());
            Verdict::Retry(seconds.map(Duration::from_secs), reason)
        }
        // A proxy that has no backend yet, and a path that is served a moment later.
        404 | 408 | 500 => Verdict::Retry(None, reason),
        _ => Verdict::Refused(reason),
    }
}

fn tidy(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn what_is_temporary_is_sent_again() {
        for status in [429, 500, 502, 503, 504] {
            assert!(matches!(of_http(status, None, b""), Verdict::Retry(None, _)), "{status}");
        }
        assert!(
            matches!(of_http(503, Some("7"), b""), Verdict::Retry(Some(pause), _) if pause.as_secs() == 7)
        );
        for code in [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted] {
            assert!(matches!(of_status(&Status::new(code, "x")), Verdict::Retry(..)), "{code:?}");
        }
    }

    #[test]
    fn what_will_never_be_taken_is_given_up() {
        for status in [400, 401, 415] {
            assert!(matches!(of_http(status, None, b""), Verdict::Refused(_)), "{status}");
        }
        assert!(matches!(of_status(&Status::invalid_argument("x")), Verdict::Refused(_)));
        assert!(matches!(of_http(413, None, b""), Verdict::TooLarge(_)));
        assert_eq!(of_http(200, None, b""), Verdict::Taken(0));
        assert_eq!(of_http(200, None, b"{}"), Verdict::Taken(0));
    }
}
