//! Ids that a terminal, or a person who pasted its text, broke over two lines.
//!
//! An id of a request is made of letters that say nothing, so a line that ends within one and a line that begins
//! within one look like whole lines. What tells is that both together hold an id of a known form, which neither holds
//! by itself.

/// Lengths of ids that are only hexadecimal digits: a UUID without dashes, SHA-1, SHA-256.
const HEX_IDS: [usize; 3] = [32, 40, 64];

/// Dashes of a UUID.
const UUID_DASHES: [usize; 4] = [8, 13, 18, 23];
const UUID_LEN: usize = 36;

/// Whether `before` ends and `behind` begins within one id.
pub(super) fn completes(before: &str, behind: &str) -> bool {
    let (before, behind) = (before.trim_end().as_bytes(), behind.trim_start().as_bytes());
    let tail_len = before.iter().rev().take(UUID_LEN * 2).take_while(|byte| is_id(**byte)).count();
    let head_len = behind.iter().take(UUID_LEN * 2).take_while(|byte| is_id(**byte)).count();
    if tail_len == 0 || head_len == 0 {
        return false;
    }
    let is_letter_before =
        before.len().checked_sub(tail_len + 1).is_some_and(|at| before[at].is_ascii_alphanumeric());
    let is_letter_behind = behind.get(head_len).is_some_and(u8::is_ascii_alphanumeric);
    let mut around = [0; UUID_LEN * 4];
    let len = tail_len + head_len;
    around[..tail_len].copy_from_slice(&before[before.len() - tail_len..]);
    around[tail_len..len].copy_from_slice(&behind[..head_len]);
    let around = &around[..len];
    is_hex_id(around, tail_len, is_letter_before, is_letter_behind)
        || is_uuid(around, tail_len, is_letter_before, is_letter_behind)
}

/// Whether a message may begin within an id, so that it is worth to look above it.
pub(super) fn may_begin_inside(message: &str) -> bool {
    message.trim_start().bytes().take_while(|byte| is_id(*byte)).count() >= 2
}

fn is_id(byte: u8) -> bool {
    byte == b'-' || matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

fn is_hex(byte: u8) -> bool {
    byte != b'-'
}

/// Hexadecimal digits on both sides of `at`, as many as an id has.
fn is_hex_id(around: &[u8], at: usize, letter_before: bool, letter_behind: bool) -> bool {
    let before = around[..at].iter().rev().take_while(|byte| is_hex(**byte)).count();
    let behind = around[at..].iter().take_while(|byte| is_hex(**byte)).count();
    let is_torn = (before == at && letter_before) || (behind == around.len() - at && letter_behind);
    let is_whole = HEX_IDS.contains(&before) || HEX_IDS.contains(&behind);
    !is_torn && !is_whole && before > 0 && behind > 0 && HEX_IDS.contains(&(before + behind))
}

/// A UUID that holds both sides of `at`.
fn is_uuid(around: &[u8], at: usize, letter_before: bool, letter_behind: bool) -> bool {
    let last = around.len().saturating_sub(UUID_LEN);
    if around.len() < UUID_LEN {
        return false;
    }
    (at.saturating_sub(UUID_LEN - 1)..=last.min(at.saturating_sub(1))).any(|begin| {
        let end = begin + UUID_LEN;
        let is_begin = if begin == 0 { !letter_before } else { around[begin - 1] == b'-' };
        let is_end = if end == around.len() { !letter_behind } else { around[end] == b'-' };
        let spans = end > at;
        let form = || {
            around[begin..end]
                .iter()
                .enumerate()
                .all(|(index, byte)| UUID_DASHES.contains(&index) == (*byte == b'-'))
        };
        is_begin && is_end && spans && form()
    })
}

#[cfg(test)]
mod tests {
    use super::{completes, may_begin_inside};

    const UUID: &str = "8f07dfc0-52ea-4c11-9be2-a2f0e6571c3d";
    const HEX: &str = "3ce84ffb82764f45b028dd8e6c4beed1";

    #[test]
    fn an_id_broken_anywhere_is_one() {
        for id in [UUID, HEX] {
            for at in 1..id.len() {
                let (before, behind) = id.split_at(at);
                assert!(completes(before, behind), "{id} at {at}");
                let (before, behind) = (format!("for request cmpl-{before}"), format!("{behind}-0 failed"));
                assert!(completes(&before, &behind), "{id} at {at} in a sentence");
                assert!(may_begin_inside(&behind) || id.len() - at < 2);
            }
        }
    }

    #[test]
    fn whole_ids_on_either_side_are_not_one() {
        assert!(!completes(UUID, UUID));
        assert!(!completes(HEX, HEX));
        assert!(!completes(&format!("for request {UUID}"), "12 blocks"));
        assert!(!completes("for request", HEX));
        assert!(!completes(HEX, ""));
    }

    #[test]
    fn words_and_numbers_are_no_ids() {
        assert!(!completes("for request cmpl-12", "34 blocks of 56"));
        assert!(!completes("the cache was faded", "added 12345678"));
        assert!(!completes(&format!("x{}", &HEX[..16]), &HEX[16..]));
        assert!(!completes(&HEX[..16], &format!("{}x", &HEX[16..])));
    }
}
