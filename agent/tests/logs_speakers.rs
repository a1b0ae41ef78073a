//! Whose words a line holds: the engine's, or those of somebody who quotes it or prints the same.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/log.rs"]
mod log;

use kvprov_agent::logs::LogOptions;
use kvprov_packs::Packs;
use std::sync::LazyLock;

const PACK: &str = r#"
engine = "vllm"

[[template]]
id = "vllm-t-severe"
text = "Waldo of {request_id:id} is gone"
level = "error"
kind = "transfer"
set = { outcome = "failed", cause = "transfer_failed" }
example = "Waldo of r1 is gone"
source = "test"

[[template]]
id = "vllm-t-common"
text = "Waldo refused for key {key:id}"
common = true
kind = "store"
set = { event = "refused" }
example = "Waldo refused for key k1"
source = "test"
"#;

static PACKS: LazyLock<Packs> = LazyLock::new(|| Packs::from_texts(&[("vllm/test.toml", PACK)]).unwrap());

/// Kinds of what a log says.
fn kinds(engine: Option<&str>, text: &str) -> Vec<String> {
    let options = LogOptions { engine: engine.map(str::to_owned), ..log::undeclared() };
    let (seen, _) = log::read(log::reader(&PACKS, options), [text.as_bytes()]);
    seen.iter().map(|one| one.body.kind().to_owned()).collect()
}

#[test]
fn the_words_of_an_error_count_at_a_warning_and_worse_and_where_no_level_stands() {
    for head in ["WARNING 11-29 15:41:00 [a.py:1] ", "ERROR 11-29 15:41:00 [a.py:1] ", ""] {
        assert_eq!(kinds(Some("vllm"), &format!("{head}Waldo of r1 is gone\n")), ["transfer"], "{head}");
    }
}

#[test]
fn the_words_of_an_error_that_somebody_quotes_where_the_engine_says_info_are_not_the_engines() {
    for head in
        ["INFO 11-29 15:41:00 [a.py:1] asked: ", "(W pid=7) DEBUG 11-29 15:41:00 [a.py:1] answer: the "]
    {
        let line = format!("{head}Waldo of r1 is gone\n");
        assert!(kinds(Some("vllm"), &line).is_empty(), "{head}");
        let often = format!("ERROR 11-29 15:41:00 [a.py:1] Waldo of r1 is gone\n{line}{line}{line}");
        assert_eq!(kinds(Some("vllm"), &often), ["transfer"], "{head}");
    }
}

#[test]
fn words_at_the_begin_are_the_engines_whatever_level_a_release_gives_them() {
    let line = "INFO 11-29 15:41:00 [a.py:1] Waldo of r1 is gone\n";
    assert_eq!(kinds(Some("vllm"), line), ["transfer"]);
}

#[test]
fn a_wrapper_that_says_info_of_everything_does_not_speak_for_the_engine() {
    for line in [
        r#"{"severity":"INFO","message":"[2026-11-29 15:41:00 TP0] and so Waldo of r1 is gone"}"#,
        r#"{"level":"info","msg":"and so Waldo of r1 is gone","time":"2026-11-29T15:41:00Z"}"#,
        "INFO worker.py:7 -- (RayWorkerWrapper pid=12) and so Waldo of r1 is gone",
        "<30>Nov 29 15:41:00 node engine[7]: and so Waldo of r1 is gone",
    ] {
        assert_eq!(kinds(Some("vllm"), &format!("{line}\n")), ["transfer"], "{line}");
    }
}

#[test]
fn words_that_other_programs_print_count_where_an_engine_speaks() {
    let line = "Waldo refused for key k1\n";
    assert_eq!(kinds(Some("vllm"), line), ["store"]);
    assert_eq!(kinds(None, &format!("(EngineCore pid=7) {line}")), ["store"]);
    assert_eq!(kinds(None, &format!("ERROR 11-29 15:41:00 [lmcache/a.py:1] {line}")), ["store"]);
}

#[test]
fn words_that_other_programs_print_do_not_count_where_nobody_is_known() {
    for head in ["", "ERROR 11-29 15:41:00 [a.py:1] ", "2018-10-14T03:01:02.670Z WARN: "] {
        assert!(kinds(None, &format!("{head}Waldo refused for key k1\n")).is_empty(), "{head}");
    }
}
