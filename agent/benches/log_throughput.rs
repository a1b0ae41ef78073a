//! How fast logs are read, and what an ignored line costs.
//!
//! `KVPROV_BENCH_LOGS=DIR cargo bench -p kvprov-agent --bench log_throughput` (or files and folders as arguments)
//! concatenates every `*.log` found until 128 MiB are together and prints: the search for one literal as baseline,
//! the reader over all lines, the reader over those lines alone in which nothing matters, and the allocations of
//! each. The goal is half a gigabyte a second and no allocation for an ignored line.
#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use kvprov_agent::logs::{LogOptions, LogReader};
use kvprov_agent::source::SourceContext;
use kvprov_packs::Packs;
use memchr::memmem;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are read in one run.
const WANTED: usize = 128 << 20;
/// Bytes that come at once, as from a file.
const CHUNK: usize = 64 << 10;

fn main() {
    let arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with("--"));
    let mut roots: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    if roots.is_empty() {
        roots.extend(std::env::var_os("KVPROV_BENCH_LOGS").map(PathBuf::from));
    }
    let mut logs = Vec::new();
    for root in &roots {
        collect(root, &mut logs);
    }
    if logs.is_empty() {
        println!("no logs: set KVPROV_BENCH_LOGS or give files and folders");
        return;
    }
    let packs = Packs::builtin();
    let matcher = packs.matcher();
    let ignored: Vec<u8> = logs
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !matcher.may_matter(line) && memmem::find(line, b"ERROR").is_none())
        .filter(|line| memmem::find(line, b"WARN").is_none())
        .flatten()
        .copied()
        .collect();
    println!("{} MB of logs, {} anchors", logs.len() / 1_000_000, matcher.anchors().len());
    measure("one literal (memmem)", &repeated(&logs), |bytes| {
        black_box(memmem::find_iter(bytes, b"Potentially invalid KV blocks").count());
        0
    });
    measure("anchors alone", &repeated(&logs), |bytes| {
        let mut at = 0;
        let mut hits = 0;
        while let Some(found) = matcher.next_candidate(bytes, at) {
            hits += 1;
            at = memchr::memchr(b'\n', &bytes[found..]).map_or(bytes.len(), |end| found + end + 1);
        }
        hits
    });
    measure("anchors alone, lines that do not matter", &repeated(&ignored), |bytes| {
        u64::from(matcher.next_candidate(bytes, 0).is_some())
    });
    measure("reader, all lines", &repeated(&logs), |bytes| read(bytes, packs));
    measure("reader, lines that do not matter", &repeated(&ignored), |bytes| read(bytes, packs));
}

/// Every `*.log` below a path.
fn collect(path: &Path, logs: &mut Vec<u8>) {
    if let Ok(entries) = std::fs::read_dir(path) {
        let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        paths.sort();
        paths.iter().for_each(|path| collect(path, logs));
    } else if path.extension().is_some_and(|extension| extension == "log")
        && let Ok(mut bytes) = std::fs::read(path)
    {
        logs.append(&mut bytes);
        if logs.last().is_some_and(|last| *last != b'\n') {
            logs.push(b'\n');
        }
    }
}

fn repeated(logs: &[u8]) -> Vec<u8> {
    logs.repeat(WANTED.div_ceil(logs.len().max(1)).max(1))
}

fn read(bytes: &[u8], packs: &Packs) -> u64 {
    let context = SourceContext {
        node: "bench".into(),
        worker: None,
        stream: "bench.log".to_owned(),
        instance: "bench".to_owned(),
        generation: 0,
    };
    let options = LogOptions { engine: Some("vllm".to_owned()), year: Some(2026), ..LogOptions::default() };
    let mut reader = LogReader::new(context, options, packs.matcher(), packs);
    let mut sink = |observation| {
        black_box(&observation);
    };
    for chunk in bytes.chunks(CHUNK) {
        reader.push(chunk, &mut sink);
    }
    reader.finish(&mut sink);
    println!("    {:?}", reader.counts());
    reader.counts().total
}

/// Seconds of processor time that this process used, to a hundredth.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| -> f64 {
        behind_name.split_whitespace().nth(field).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}

fn measure(name: &str, bytes: &[u8], mut run: impl FnMut(&[u8]) -> u64) {
    let region = Region::new(ALLOCATOR);
    let (begin, begin_cpu) = (Instant::now(), cpu_seconds());
    let units = run(bytes);
    let wall = begin.elapsed().as_secs_f64();
    // A busy machine gives a part of its time only; the processor's own count is what compares.
    let seconds = match cpu_seconds() - begin_cpu {
        cpu if cpu > 0.05 => cpu,
        _ => wall,
    };
    let allocations = region.change().allocations;
    println!(
        "{name}: {:.2} GB/s of processor time ({wall:.2} s in all), {allocations} allocations over {units} lines or hits",
        bytes.len() as f64 / 1e9 / seconds
    );
}
