//! Text that a person copied from a terminal, with a small pack of this test's own.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/log.rs"]
mod log;

use kvprov_agent::logs::{Copied, LineCounts, LogOptions};
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::sync::LazyLock;

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-t-push"
text = "Waldo push broke for request {request_id:id} towards {remote_engine_id:id}"
kind = "transfer"
set = { outcome = "failed", cause = "transfer_failed" }
example = "Waldo push broke for request r1 towards e1"
source = "test"

[[template]]
id = "vllm-t-lifted"
text = "Lifting garply of request {request_id:id} which {readers:int} workers had taken"
kind = "lease"
set = { state = "expired" }
example = "Lifting garply of request r1 which 0 workers had taken"
source = "test"
"#;

static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

/// Lines that nobody broke, and some that look as if.
const WHOLE: &str = "\
no clock here
(EngineCore pid=7) ERROR 10-16 17:22:56 [n.py:8] Waldo push broke for request r1 towards e1
(EngineCore pid=7) ERROR 10-16 17:22:56 [n.py:8] Traceback (most recent call last):
Traceback (most recent call last):
  File \"n.py\", line 8, in push
RuntimeError: nobody there
WARNING 10-16 17:22:57 [w.py:9] Lifting garply of request r2 which 3 workers had taken
4 more are waiting
last line without an end";

fn read_copied(text: &str) -> (Vec<Observation>, LineCounts) {
    let copied = Some(Copied::of(text.as_bytes()));
    read_with(LogOptions { copied, ..log::options_of("vllm") }, &[text.as_bytes()])
}

fn read_with(options: LogOptions, chunks: &[&[u8]]) -> (Vec<Observation>, LineCounts) {
    log::read(log::reader(&PACKS, options), chunks.iter().copied())
}

#[test]
fn a_copied_message_says_the_same_wherever_a_terminal_broke_it() {
    for line in [
        "(EngineCore pid=7) ERROR 10-16 17:22:56 [n.py:8] Waldo push broke for request cmpl-46126a31 towards e1",
        "(EngineCore pid=7) WARNING 10-16 17:22:56 [w.py:9] Lifting garply of request cmpl-46126a31 which 0 workers had taken.",
    ] {
        let (whole, _) = read_copied(&format!("{line}\n"));
        let begin = line.find("] ").unwrap() + 2;
        // Before that nothing tells one message from others.
        for at in begin + 4..line.len() {
            let (seen, counts) = read_copied(&format!("{}\n{}\n", &line[..at], &line[at..]));
            assert_eq!(seen, whole, "broken at {at}: {}", &line[..at]);
            assert_eq!(counts.total, 2);
        }
    }
}

#[test]
fn a_copied_text_whose_lines_are_whole_is_read_as_it_stands() {
    let (seen, counts) = read_copied(WHOLE);
    assert_eq!((seen, counts), read_with(log::options_of("vllm"), &[WHOLE.as_bytes()]));
}

#[test]
fn a_copied_text_gives_the_same_in_any_cutting() {
    let bytes = WHOLE.as_bytes();
    let copied = || LogOptions { copied: Some(Copied::of(bytes)), ..log::options_of("vllm") };
    let whole = read_with(copied(), &[bytes]);
    for size in [1, 7, 44, 1000] {
        let chunks: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(read_with(copied(), &chunks), whole, "chunks of {size}");
    }
}
