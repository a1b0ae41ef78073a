//! Prints every observation of bundles, and of their logs read by themselves for several engines and cuttings.
//!
//! `cargo run --release -p kvprov-agent --example dump_observations -- DIR…` takes folders of bundles. Two dumps, of
//! the code before and after a change, show whether the change kept what is told: `diff` of them must be empty.
#![allow(clippy::print_stdout, reason = "a dump is printed")]

use kvprov_agent::bundle::Bundle;
use kvprov_agent::logs::{LogOptions, LogReader};
use kvprov_agent::source::SourceContext;
use kvprov_packs::Packs;
use std::path::{Path, PathBuf};

fn main() {
    let mut folders = Vec::new();
    let mut logs = Vec::new();
    for root in std::env::args().skip(1) {
        collect(Path::new(&root), &mut folders, &mut logs);
    }
    folders.iter().for_each(|folder| bundle(folder));
    for path in &logs {
        let Ok(bytes) = std::fs::read(path) else { continue };
        for engine in [None, Some("vllm"), Some("sglang"), Some("mooncake")] {
            for chunk in [64 << 10, 997] {
                log(path, &bytes, engine, chunk);
            }
        }
    }
}

/// Folders that hold files, and every log.
fn collect(path: &Path, folders: &mut Vec<PathBuf>, logs: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(path) else { return };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    if paths.iter().any(|path| path.is_file()) {
        folders.push(path.to_owned());
    }
    for path in paths {
        if path.is_dir() {
            collect(&path, folders, logs);
        } else if path.extension().is_some_and(|extension| extension == "log") {
            logs.push(path);
        }
    }
}

fn bundle(folder: &Path) {
    println!("== {}", folder.display());
    let packs = Packs::builtin();
    match Bundle::open(&[folder.to_owned()]) {
        Ok(bundle) => {
            let mut sink = |observation| println!("{observation:?}");
            let report = bundle.read(packs, packs.matcher(), &mut sink, &mut |_, _| {});
            println!("{report:?}");
        }
        Err(error) => println!("{error}"),
    }
}

fn log(path: &Path, bytes: &[u8], engine: Option<&str>, chunk: usize) {
    println!("-- {} as {engine:?} by {chunk}", path.display());
    let packs = Packs::builtin();
    let context = SourceContext {
        node: "dump".into(),
        worker: None,
        stream: "log".to_owned(),
        instance: path.display().to_string(),
        generation: 0,
    };
    let options = LogOptions { engine: engine.map(str::to_owned), year: Some(2026), ..LogOptions::default() };
    let mut reader = LogReader::new(context, options, packs.matcher(), packs);
    let mut sink = |observation| println!("{observation:?}");
    for chunk in bytes.chunks(chunk) {
        reader.push(chunk, &mut sink);
    }
    reader.finish(&mut sink);
    println!("{:?}", reader.counts());
}
