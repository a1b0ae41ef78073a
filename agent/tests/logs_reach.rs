//! Lines without meaning are passed over: what a log tells is the same where each line is read.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use kvprov_agent::logs::{LineCounts, LogOptions, LogReader};
use kvprov_agent::source::SourceContext;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::path::{Path, PathBuf};

fn read(text: &[u8], every_line: bool) -> (Vec<Observation>, LineCounts) {
    let context = SourceContext {
        node: "n".into(),
        worker: Some("w".into()),
        stream: "e.log".to_owned(),
        instance: "w/e.log".to_owned(),
        generation: 0,
    };
    let packs = Packs::builtin();
    let options = LogOptions { year: Some(2026), ..LogOptions::default() };
    let mut reader = LogReader::new(context, options, packs.matcher(), packs);
    if every_line {
        // What is recorded has to be seen whole.
        reader.record();
    }
    let mut seen = Vec::new();
    let mut sink = |observation: Observation| seen.push(observation);
    reader.push(text, &mut sink);
    reader.finish(&mut sink);
    (seen, *reader.counts())
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
