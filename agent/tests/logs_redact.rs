//! A recorded log is read as the log it was made of, and holds nothing that nobody may keep.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "the table of what is not read alike")]

#[path = "support/log.rs"]
mod log;

use kvprov_agent::bundle::{Bundle, InputKind};
use kvprov_agent::logs::{LogOptions, LogReader};
use kvprov_model::observation::{Body, Observation};
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn reader(options: &LogOptions) -> LogReader<'static> {
    log::reader(Packs::builtin(), options.clone())
}

fn read(options: &LogOptions, bytes: &[u8]) -> Vec<Observation> {
    log::read(reader(options), [bytes]).0
}

/// The recorded form, and which templates could not be kept.
fn record(options: &LogOptions, bytes: &[u8]) -> (Vec<u8>, Vec<(String, u64)>) {
    let mut reader = reader(options);
    let mut recorded = Vec::new();
    reader.record();
    for chunk in bytes.chunks(1000) {
        reader.push(chunk, &mut |_| {});
        reader.recorded(false, &mut recorded);
    }
    reader.finish(&mut |_| {});
    reader.recorded(true, &mut recorded);
    (recorded, reader.not_recorded())
}

/// Everything of observations but their places.
fn said(seen: &[Observation]) -> Vec<String> {
    let one = |one: &Observation| format!("{:?} {:?} {:?}", one.envelope.wall, one.envelope.says, one.body);
    let mut said: Vec<String> = seen.iter().map(one).collect();
    said.sort();
    said
}

fn bundles(root: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    if entries
        .iter()
        .any(|path| path.ends_with("incident.toml") || path.extension().is_some_and(|e| e == "log"))
    {
        found.push(root.to_owned());
        return;
    }
    for path in entries.iter().filter(|path| path.is_dir()) {
        bundles(path, found);
    }
}

#[test]
fn the_logs_of_the_incidents_are_read_alike_once_recorded() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/incidents");
    let mut directories = Vec::new();
    bundles(&root, &mut directories);
    assert!(directories.len() > 100, "{}", directories.len());
    let (mut logs, mut observations, mut unlike) = (0, 0, Vec::new());
    let mut refused: BTreeMap<String, u64> = BTreeMap::new();
    for directory in directories {
        let Ok(bundle) = Bundle::open(std::slice::from_ref(&directory)) else { continue };
        for source in bundle.sources().iter().filter(|source| source.kind == InputKind::Log) {
            let worker = bundle.workers().iter().find(|worker| worker.name == source.worker);
            let options = LogOptions {
                engine: worker.and_then(|worker| worker.engine.clone()),
                version: worker.and_then(|worker| worker.engine_version.clone()),
                timezone_seconds: source.zone_seconds,
                year: source.year.or(Some(2026)),
                mtime: None,
                ..LogOptions::default()
            };
            let Ok(bytes) = std::fs::read(&source.path) else { continue };
            logs += 1;
            let original = read(&options, &bytes);
            let (recorded, not_kept) = record(&options, &bytes);
            for (template, count) in not_kept {
                *refused.entry(template).or_default() += count;
            }
            // As replayed: nothing is declared about clocks.
            let replayed = LogOptions { timezone_seconds: 0, year: None, ..options };
            let again = read(&replayed, &recorded);
            observations += original.len();
            let (original, again) = (said(&original), said(&again));
            if original != again {
                let missing = original.iter().find(|one| !again.contains(one));
                let added = again.iter().find(|one| !original.contains(one));
                unlike.push(format!("{}:\n  - {missing:?}\n  + {added:?}", source.path.display()));
            }
        }
    }
    let share = unlike.len() as f64 / f64::from(logs);
    eprintln!("{logs} logs, {observations} observations, {} unlike; not rebuilt: {refused:?}", unlike.len());
    unlike.iter().for_each(|one| eprintln!("{one}"));
    assert!(share <= 0.03, "{share}");
}

const CANARY: &str = "xyzzyCanary4711";

/// Lines with a user's words wherever a line can hold some.
fn planted() -> String {
    let prompts = [
        format!(
            "INFO 08-22 10:11:12 [async_llm.py:1] Received request r1: prompt: '{CANARY} {CANARY}', params: SamplingParams(n=1, stop=['{CANARY}']), prompt_token_ids: [815, 4711, 29], lora_request: None."
        ),
        format!("WARNING 08-22 10:11:13 [nixl_connector.py:7] something about {CANARY}"),
        format!("ERROR 08-22 10:11:14 [nixl_connector.py:7]   File \"x.py\", line 3, {CANARY}"),
        format!("[2026-08-22 10:11:15 TP0] {CANARY} {CANARY}"),
        format!(
            "{{\"levelname\": \"ERROR\", \"asctime\": \"2026-08-22 10:11:16,000\", \"name\": \"nixl\", \"message\": \"{CANARY}\", \"extra\": \"{CANARY}\"}}"
        ),
        format!("{{\"error\": {{\"message\": \"{CANARY}\"}}}}"),
        format!(
            "2026-08-22T10:11:17.000000000Z stderr P WARNING 08-22 10:11:17 [kv_connector.py:7] half {CANARY}"
        ),
        format!("2026-08-22T10:11:17.000000000Z stderr F and {CANARY} half"),
        CANARY.to_owned(),
        format!("Traceback (most recent call last): {CANARY}"),
    ];
    prompts.join("\n") + "\n"
}

#[test]
fn planted_words_survive_in_no_recorded_line() {
    let options = LogOptions { year: Some(2026), ..LogOptions::default() };
    let (recorded, _) = record(&options, planted().as_bytes());
    let text = String::from_utf8(recorded).unwrap();
    assert!(!text.contains(CANARY) && !text.contains("4711"), "{text}");
    assert_eq!(said(&read(&options, planted().as_bytes())), said(&read(&options, text.as_bytes())));
}

#[test]
fn of_known_messages_a_recording_holds_no_more_than_observations_do() {
    let packs = Packs::builtin();
    let options = LogOptions { year: Some(2026), ..LogOptions::default() };
    let mut leaks = Vec::new();
    for template in packs.templates() {
        // Behind the message, and in place of free text.
        let example = &template.example;
        let planted =
            format!("WARNING 08-22 10:11:12 [nixl_connector.py:7] {example} secret {CANARY} words\n");
        let (recorded, _) = record(&options, planted.as_bytes());
        let text = String::from_utf8_lossy(&recorded).into_owned();
        // A setting without a closing quote takes what follows it, in the observation too.
        let observed = said(&read(&options, planted.as_bytes())).concat();
        let leaked = |word: &str| text.contains(word) && !observed.contains(word);
        if leaked(CANARY) || leaked("secret") {
            leaks.push(format!("{}: {text}", template.id));
        }
    }
    assert!(leaks.is_empty(), "{} of them: {:#?}", leaks.len(), &leaks[..leaks.len().min(5)]);
}

#[test]
fn a_trouble_keeps_its_hash_and_lines_keep_their_numbers() {
    let text = "INFO 08-22 10:11:12 [x.py:1] nothing\n\nWARNING 08-22 10:11:13 [nixl_connector.py:7] nobody knows this\nrest\n";
    let options = LogOptions { year: Some(2026), ..LogOptions::default() };
    let (recorded, _) = record(&options, text.as_bytes());
    let again = read(&options, &recorded);
    let original = read(&options, text.as_bytes());
    assert!(matches!(original[0].body, Body::Trouble(_)));
    assert_eq!(said(&original), said(&again));
    assert_eq!(original[0].envelope.position, again[0].envelope.position);
    assert_eq!(recorded.iter().filter(|byte| **byte == b'\n').count(), 4);
}

#[test]
fn what_is_recorded_of_a_recording_is_the_same() {
    let text = "WARNING 08-22 10:11:13 [nixl_connector.py:7] nobody knows this\n";
    let options = LogOptions { year: Some(2026), ..LogOptions::default() };
    let (recorded, _) = record(&options, text.as_bytes());
    assert_eq!(record(&options, &recorded).0, recorded);
}
