//! `kvprov packs`: what people who extend the packs are told.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_tests::binary::{Binary, Output};
use kvprov_tests::corpus;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

/// Engines of the table by version, and what releases of them have to have rows of their own.
const RELEASES: [(&str, &[&str]); 3] = [
    ("vllm", &["0.11", "0.12", "0.31"]),
    ("sglang", &["0.5.4", "0.5.23"]),
    ("lmcache", &["0.3.10", "0.5.6"]),
];

fn packs(arguments: &[&str]) -> Output {
    let command: Vec<&OsStr> =
        ["packs"].into_iter().chain(arguments.iter().copied()).map(OsStr::new).collect();
    Binary::of_workspace().unwrap().run(&command).unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Engine, version, columns.
type Row = (String, String, Vec<u64>);

/// The rows of both tables: engine, then its columns.
fn tables(printed: &str) -> (BTreeMap<String, Vec<u64>>, Vec<Row>) {
    let (engines, versions) = printed.split_once("What is known of a version").unwrap();
    let numbers = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
    let rows = |text: &str| {
        let rows = text.lines().skip_while(|line| !line.starts_with("engine")).skip(1);
        rows.map(str::to_owned).filter(|row| !row.trim().is_empty()).collect::<Vec<_>>()
    };
    let of_engine = rows(engines).into_iter().map(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        (words[0].to_owned(), numbers(&words[1..]))
    });
    let mut engine = String::new();
    let mut of_version = Vec::new();
    for row in rows(versions) {
        let words: Vec<&str> = row.split_whitespace().collect();
        let words = if row.starts_with(' ') {
            &words[..]
        } else {
            engine = words[0].to_owned();
            &words[1..]
        };
        of_version.push((engine.clone(), words[0].to_owned(), numbers(&words[1..])));
    }
    (of_engine.collect(), of_version)
}

/// Templates of messages and of JSON lines, as they stand in the files.
fn entries() -> u64 {
    let signatures = corpus::root().join("../../packs/signatures");
    let mut count = 0;
    for engine in
        std::fs::read_dir(signatures).unwrap().filter_map(Result::ok).filter(|entry| entry.path().is_dir())
    {
        for pack in std::fs::read_dir(engine.path()).unwrap() {
            let text = std::fs::read_to_string(pack.unwrap().path()).unwrap();
            count += text.lines().filter(|line| matches!(*line, "[[template]]" | "[[json]]")).count();
        }
    }
    count as u64
}

#[test]
fn the_table_counts_every_template() {
    let (engines, _) = tables(&text(&packs(&["list"])));
    let told: u64 = engines.values().map(|columns| columns[0]).sum();
    assert_eq!(told, entries());
    for engine in ["vllm", "sglang", "lmcache", "mooncake", "nixl", "dynamo", "llm-d", "router"] {
        assert!(engines[engine][0] > 0, "{engine} has no template");
    }
}

#[test]
fn the_table_by_version_has_a_row_where_something_begins_or_ends() {
    let (engines, versions) = tables(&text(&packs(&["list"])));
    for (engine, releases) in RELEASES {
        let rows: Vec<_> = versions.iter().filter(|(of, ..)| of == engine).collect();
        for release in releases {
            let row = rows.iter().find(|(_, version, _)| version.starts_with(release));
            assert!(row.is_some(), "{engine} {release} stands in no row");
        }
        for (_, version, columns) in &rows {
            assert!(columns[0] > 0 && columns[0] <= engines[engine][0], "{engine} {version}");
        }
    }
}

#[test]
fn a_line_is_explained_by_its_template() {
    let line = "(EngineCore_DP0 pid=71) WARNING 08-16 08:09:07 [base_worker.py:2967] Releasing expired KV blocks for \
                request cmpl-7 which were retrieved by 0 remote worker(s) before lease expired.";
    let told = text(&packs(&["explain", line]));
    for word in ["Warning", "base_worker.py", "vllm-nixl-lease-expired", "cmpl-7", "readers"] {
        assert!(told.contains(word), "{word} in {told}");
    }
    assert!(text(&packs(&["explain", "the sky is blue"])).contains("no template knows"));
}

#[test]
fn a_pack_with_an_error_is_named_with_file_and_line() {
    assert_eq!(packs(&["check"]).status, Some(0));
    let directory = tempfile::tempdir().unwrap();
    let pack = directory.path().join("vllm/own.toml");
    std::fs::create_dir(pack.parent().unwrap()).unwrap();
    for (content, line) in [
        ("engine = \"vllm\"\n\n[[template]]\nid = \"x\"\nbogus = 1\n", 5),
        (
            "engine = \"vllm\"\n\n[[template]]\nid = \"x\"\ntext = \"no example of a template\"\nkind = \"none\"\n",
            3,
        ),
        ("engine = [\n", 1),
    ] {
        let told = told_of(&pack, content, directory.path());
        assert_eq!(told.status, Some(2), "{content}");
        let told = String::from_utf8(told.stderr).unwrap() + &String::from_utf8(told.stdout).unwrap();
        assert!(told.contains(&format!("own.toml:{line}")), "{content}: {told}");
    }
}

fn told_of(pack: &Path, content: &str, packs_directory: &Path) -> Output {
    std::fs::write(pack, content).unwrap();
    packs(&["check", &packs_directory.to_string_lossy()])
}
