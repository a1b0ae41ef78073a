//! The request for batches that were published before, and what is answered.
//!
//! Source: `ZmqEventPublisher` of vLLM and SGLang. The request is an empty frame and a number in eight bytes, big-endian.
//! Each batch from that number on that is still held comes as a message of its own: an empty frame, in vLLM from 0.32 the
//! topic, the number, the batch. A message with the number -1 ends them. A publisher whose queue to us is full drops
//! replies in silence, so an answer may have holes and no end.

/// The number that ends an answer.
const END: u64 = u64::MAX;

/// One message of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply<'b> {
    /// A batch.
    Batch { seq: u64, payload: &'b [u8] },
    /// Nothing follows.
    End,
}

/// The frames of the request for all batches from a number on.
pub(super) fn request(from: u64) -> [Vec<u8>; 2] {
    [Vec::new(), from.to_be_bytes().to_vec()]
}

/// Reads a message of an answer; `None` when it is none.
pub(super) fn reply<'b>(parts: &[&'b [u8]]) -> Option<Reply<'b>> {
    let ([b"", seq, payload] | [b"", _, seq, payload]) = *parts else { return None };
    let seq = number(seq)?;
    Some(if seq == END { Reply::End } else { Reply::Batch { seq, payload } })
}

/// A batch as it comes to a subscriber behind its topic: number, payload.
pub(super) fn published<'b>(parts: &[&'b [u8]]) -> Option<(u64, &'b [u8])> {
    let [_, seq, payload] = *parts else { return None };
    Some((number(seq)?, payload))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_and_without_a_topic() {
        let seq = 7u64.to_be_bytes();
        let batch = Some(Reply::Batch { seq: 7, payload: &b"x"[..] });
        assert_eq!(reply(&[b"", &seq, b"x"]), batch);
        assert_eq!(reply(&[b"", b"kv@p", &seq, b"x"]), batch);
        let end = (-1i64).to_be_bytes();
        assert_eq!(reply(&[b"", &end, b""]), Some(Reply::End));
        assert_eq!(reply(&[b"", b"", &end, b""]), Some(Reply::End));
    }

    #[test]
    fn anything_else_is_no_answer() {
        assert_eq!(reply(&[]), None);
        assert_eq!(reply(&[b"", b"short", b"x"]), None);
        assert_eq!(published(&[b"t", b"\0"]), None);
    }
}
