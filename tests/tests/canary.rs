//! Prompts, completions and token ids come out nowhere.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::binary::{Binary, Output};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::canary;
use kvprov_tests::verdict::Found;
use kvprov_tests::{corpus, pool};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

/// Findings and requests explained per bundle; more of one kind tell nothing new.
const EXPLAINED: usize = 1;

#[test]
fn no_output_and_no_file_holds_a_canary() {
    // Every seventh bundle has inputs of every kind; each takes four starts of the binary.
    nothing_leaks_of_every(7);
}

#[test]
#[ignore = "takes minutes"]
fn no_output_and_no_file_of_any_bundle_holds_a_canary() {
    nothing_leaks_of_every(1);
}

fn nothing_leaks_of_every(step: usize) {
    let binary = Binary::of_workspace().unwrap();
    let directories: Vec<_> = corpus::bundles(&corpus::root()).unwrap().into_iter().step_by(step).collect();
    let leaks = pool::map(&directories, |directory| {
        let planted = canary::plant(&Bundle::load(directory).unwrap());
        leaks(&binary, &planted)
            .into_iter()
            .map(|leak| format!("{}: {leak}", planted.name))
            .collect::<Vec<_>>()
    })
    .concat();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
}

fn leaks(binary: &Binary, planted: &Bundle) -> Vec<String> {
    let bundle = planted.write().unwrap();
    let data = tempfile::tempdir().unwrap();
    let (bundle, data) = (bundle.path().as_os_str(), data.path().as_os_str());
    let word = OsStr::new;

    let json = run(binary, &[word("replay"), word("--format"), word("json"), word("--data"), data, bundle]);
    let mut leaks = in_output("replay --format json", &json);
    let text = run(binary, &[word("replay"), word("--format"), word("text"), bundle]);
    leaks.extend(in_output("replay --format text", &text));
    leaks.extend(in_directory(Path::new(data)));
    for id in explainable(&json) {
        let explained = run(binary, &[word("explain"), word("--data"), data, word(&id)]);
        leaks.extend(in_output(&format!("explain {id}"), &explained));
    }
    leaks
}

fn run(binary: &Binary, arguments: &[&OsStr]) -> Output {
    binary.run(arguments).unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
}

fn in_output(what: &str, output: &Output) -> Vec<String> {
    let streams = [("standard output", &output.stdout), ("standard error", &output.stderr)];
    streams
        .into_iter()
        .filter_map(|(stream, bytes)| Some(format!("{what}, {stream}: {}", canary::find(bytes)?)))
        .collect()
}

fn in_directory(directory: &Path) -> Vec<String> {
    let mut leaks = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            leaks.extend(in_directory(&path));
        } else if let Some(found) = canary::find(&std::fs::read(&path).unwrap()) {
            leaks.push(format!("the ledger's {}: {found}", path.display()));
        }
    }
    leaks
}

/// Ids of findings and of their requests.
fn explainable(json: &Output) -> Vec<String> {
    let output = serde_json::from_slice(&json.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&json.stderr)));
    let found = Found::all(&output).unwrap();
    let ids: BTreeSet<String> = found.iter().map(|found| found.id.clone()).take(EXPLAINED).collect();
    let requests = found.iter().flat_map(|found| found.requests.iter().take(1).cloned()).take(EXPLAINED);
    ids.into_iter().chain(requests).collect()
}
