//! Lines without meaning are passed over: what a log tells is the same where each line is read.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/log.rs"]
mod log;

use kvprov_agent::logs::LineCounts;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::path::{Path, PathBuf};

fn read(text: &[u8], every_line: bool) -> (Vec<Observation>, LineCounts) {
    let reader = log::reader(Packs::builtin(), log::undeclared());
    log::read(if every_line { log::recording(reader) } else { reader }, [text])
}

fn logs(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            logs(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            found.push(path);
        }
    }
}

#[test]
fn what_logs_of_incidents_tell_hangs_on_no_line_without_meaning() {
    let mut found = Vec::new();
    logs(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/incidents"), &mut found);
    assert!(found.len() > 500);
    for path in found {
        let text = std::fs::read(&path).unwrap();
        assert_eq!(read(&text, false), read(&text, true), "{}", path.display());
    }
}

/// Lines of two years in which nothing matters, and a last one that does.
fn two_quiet_years() -> String {
    let mut text = String::new();
    for month in (1..=12).chain(1..=12) {
        text += &format!("INFO {month:02}-02 15:41:00 [core.py:1] nothing of interest\n").repeat(1500);
    }
    text + "(EngineCore pid=7) ERROR 01-02 15:41:00 [base_worker.py:1] NIXL compatibility hash mismatch. Local: 46126a31\n"
}

#[test]
fn years_that_pass_in_silence_are_counted_however_a_log_is_cut() {
    let text = two_quiet_years();
    let cut = |size: usize| {
        let reader = log::reader(Packs::builtin(), log::options_of("vllm"));
        log::read(reader, text.as_bytes().chunks(size))
    };
    let whole = cut(text.len());
    let told = whole.0[0].envelope.wall.map(|wall| wall.to_rfc3339());
    assert_eq!(told.as_deref().map(|time| &time[..7]), Some("2028-01"));
    for size in [17, 4096, 70_000, 300_000] {
        assert_eq!(cut(size), whole, "in pieces of {size} bytes");
    }
}
