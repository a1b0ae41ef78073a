//! Recognises what a loose file holds by its first bytes.

use crate::bundle::spec::InputKind;
use crate::events::json::looks_like_event;
use crate::kernel::Record;
use crate::metrics::exposition::{Line, lines};

/// Bytes that are looked at.
pub(crate) const HEAD: usize = 64 * 1024;
/// Lines that are looked at.
const LINES: usize = 40;

/// What a file holds. `None`: nothing that is read here (binary, compressed, empty).
pub(crate) fn kind_of(head: &[u8]) -> Option<InputKind> {
    if head.is_empty() || looks_binary(head) {
        return None;
    }
    let first: Vec<&[u8]> = head
        .split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .take(LINES)
        .collect();
    let most = |is: &dyn Fn(&[u8]) -> bool| {
        let hits = first.iter().filter(|line| is(line)).count();
        hits > 0 && hits * 2 >= first.len().saturating_sub(1).max(1)
    };
    if most(&|line| line.starts_with(b"{") && Record::parse(line).is_ok()) {
        return Some(InputKind::Kernel);
    }
    if most(&|line| line.starts_with(b"{") && looks_like_event(line)) {
        return Some(InputKind::Events);
    }
    if most(&looks_like_metrics) {
        return Some(InputKind::Metrics);
    }
    Some(InputKind::Log)
}

fn looks_like_metrics(line: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(line) else { return false };
    let with_end = format!("{text}\n");
    match lines(&with_end).next() {
        Some(Line::Family(_)) => true,
        // A word and a number may stand in any text; a name of metrics has an underscore, a colon or labels.
        Some(Line::Sample(sample)) => sample.name.contains(['_', ':']) || !sample.labels.is_empty(),
        _ => false,
    }
}

fn looks_binary(head: &[u8]) -> bool {
    let odd = head.iter().filter(|byte| **byte == 0).count();
    head.starts_with(&[0x1f, 0x8b]) || head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) || odd * 100 > head.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_not_the_name() {
        let cases: [(&[u8], Option<InputKind>); 7] = [
            (b"{\"ts\":1,\"pid\":2,\"op\":\"open\",\"path\":\"/a\"}\n", Some(InputKind::Kernel)),
            (
                b"{\"ts\":1,\"seq\":0,\"type\":\"BlockStored\",\"block_hashes\":[1]}\n",
                Some(InputKind::Events),
            ),
            (b"# HELP a b\n# TYPE a counter\na 1\n", Some(InputKind::Metrics)),
            (b"vllm:prompt_tokens_total{engine=\"0\"} 1.0\n", Some(InputKind::Metrics)),
            (b"INFO 09-25 00:42:05 [async_llm.py:270] Added request\n", Some(InputKind::Log)),
            (
                b"{\"log\":\"x\\n\",\"stream\":\"stderr\",\"time\":\"2026-01-01T00:00:00Z\"}\n",
                Some(InputKind::Log),
            ),
            (b"\x1f\x8b\x08\x00", None),
        ];
        for (head, kind) in cases {
            assert_eq!(kind_of(head), kind, "{}", String::from_utf8_lossy(head));
        }
    }
}
