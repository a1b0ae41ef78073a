//! Ids that are the same wherever and however often a request is told.
//!
//! Invariant: a function of the request alone. Another part of the input gives another id, as far as SHA-256 does.

use crate::otlp::context::{SpanId, TraceId};
use kvprov_model::id::RequestStem;
use sha2::{Digest as _, Sha256};

/// The trace of a request that stands in no other.
pub(super) fn trace(request: &RequestStem) -> TraceId {
    let digest = hash("trace", request, "");
    let mut id = [0; 16];
    id.copy_from_slice(&digest[..16]);
    id
}

/// The span of a point of a request.
pub(super) fn span(request: &RequestStem, point: &str) -> SpanId {
    let digest = hash("span", request, point);
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    id
}

/// Whether a request falls into a share of all, 0 to 1. Every collector decides alike.
pub(super) fn is_sampled(request: &RequestStem, share: f64) -> bool {
    let digest = hash("sample", request, "");
    let mut first = [0; 8];
    first.copy_from_slice(&digest[..8]);
    // 53 bits: what a float holds exactly.
    let place = (u64::from_be_bytes(first) >> 11) as f64 / (1u64 << 53) as f64;
    place < share
}

fn hash(of: &str, request: &RequestStem, point: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in ["kvprov", of, request.as_str(), point] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn ids_depend_on_request_and_point_alone() {
        let (a, b) = (RequestStem::of("a"), RequestStem::of("b"));
        assert_eq!(trace(&a), trace(&RequestStem::of("cmpl-a-0")));
        let spans = [span(&a, "x"), span(&a, "y"), span(&b, "x")];
        assert_eq!(spans.iter().collect::<BTreeSet<_>>().len(), 3);
        assert_ne!(trace(&a), trace(&b));
    }

    #[test]
    fn a_share_of_requests_is_sampled() {
        let sampled = |share| (0..10_000).filter(|n| is_sampled(&RequestStem(n.to_string()), share)).count();
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((60..=140).contains(&sampled(0.01)), "{}", sampled(0.01));
    }
}
