//! How fast logs are read, and what a line costs.
//!
//! `KVPROV_BENCH_LOGS=DIR cargo bench -p kvprov-agent --bench log_throughput` (or `KVPROV_BENCH_LOG=FILE`, or files and
//! folders as arguments) concatenates every `*.log` found, repeats it until 128 MiB are together and prints one line
//! for each selection of lines: `logs, irrelevant lines: 1.00 GB/s, 0.00 allocations a line`. Times are those of the
//! processor, the best of a few runs, so that a busy machine shows the same figures.
//!
//! `--anchors` prints the literals by which the reader finds lines, `--irrelevant` the irrelevant lines of the input:
//! a search of the same bytes for the same literals is what the reader is compared with (`cargo xtask bench`).
//! `--only-all` leaves the measurements of selections out, for a profiler.
#![allow(clippy::print_stdout, reason = "a bench prints what it measured")]

use kvprov_agent::logs::{LogOptions, LogReader};
use kvprov_agent::source::SourceContext;
use kvprov_packs::{Packs, Reach};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that are read in one run.
const WANTED: usize = 128 << 20;
/// Bytes that come at once, as from a file.
const CHUNK: usize = 64 << 10;
/// Runs of each measurement; the best counts.
const RUNS: usize = 5;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let packs = Packs::builtin();
    let matcher = packs.matcher();
    if arguments.iter().any(|argument| argument == "--anchors") {
        matcher.telling_anchors().for_each(|anchor| println!("{anchor}"));
        return;
    }
    let mut logs = Vec::new();
    for root in roots(&arguments) {
        collect(&root, &mut logs);
    }
    if logs.is_empty() {
        println!("no logs: set KVPROV_BENCH_LOGS or give files and folders");
        return;
    }
    let without_anchor = lines_of(&logs, |line| !matcher.may_matter(line));
    let reader = reader(packs);
    let irrelevant = lines_of(&logs, |line| reader.passes_over(line));
    if arguments.iter().any(|argument| argument == "--irrelevant") {
        // A closed pipe is no failure of the bench.
        let _ = std::io::stdout().write_all(&irrelevant);
        return;
    }
    println!("{} bytes of logs, {} anchors", logs.len(), matcher.anchors().len());
    if !arguments.iter().any(|argument| argument == "--only-all") {
        measure("anchors alone, irrelevant lines", &repeated(&irrelevant), |bytes| {
            let found = matcher.next_long_candidate(bytes, 0, Reach::Telling);
            memchr::memchr_iter(b'\n', bytes).count() as u64 + u64::from(found.is_some())
        });
        measure("logs, irrelevant lines", &repeated(&irrelevant), |bytes| read(bytes, packs));
        measure("logs, lines without an anchor", &repeated(&without_anchor), |bytes| read(bytes, packs));
    }
    measure("logs, all lines", &repeated(&logs), |bytes| read(bytes, packs));
}

/// Where logs are, by arguments or environment.
fn roots(arguments: &[String]) -> Vec<PathBuf> {
    let given = arguments.iter().filter(|argument| !argument.starts_with("--")).map(PathBuf::from);
    let mut roots: Vec<PathBuf> = given.collect();
    if roots.is_empty() {
        let variables = ["KVPROV_BENCH_LOG", "KVPROV_BENCH_LOGS"];
        roots.extend(variables.iter().filter_map(std::env::var_os).map(PathBuf::from));
    }
    roots
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

fn lines_of(logs: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let lines = logs.split_inclusive(|byte| *byte == b'\n');
    lines.filter(|line| wanted(line)).flatten().copied().collect()
}

fn repeated(logs: &[u8]) -> Vec<u8> {
    logs.repeat(WANTED.div_ceil(logs.len().max(1)).max(1))
}

fn reader(packs: &Packs) -> LogReader<'_> {
    let context = SourceContext {
        node: "bench".into(),
        worker: None,
        stream: "bench.log".to_owned(),
        instance: "bench".to_owned(),
        generation: 0,
    };
    let options = LogOptions { engine: Some("vllm".to_owned()), year: Some(2026), ..LogOptions::default() };
    LogReader::new(context, options, packs.matcher(), packs)
}

/// Reads everything; the number of lines.
fn read(bytes: &[u8], packs: &Packs) -> u64 {
    let mut reader = reader(packs);
    let mut sink = |observation| {
        black_box(&observation);
    };
    for chunk in bytes.chunks(CHUNK) {
        reader.push(chunk, &mut sink);
    }
    reader.finish(&mut sink);
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

fn measure(name: &str, bytes: &[u8], run: impl Fn(&[u8]) -> u64) {
    let mut best = f64::INFINITY;
    let mut allocations = 0.0;
    for _ in 0..RUNS {
        let region = Region::new(ALLOCATOR);
        let (begin, begin_cpu) = (Instant::now(), cpu_seconds());
        let lines = black_box(run(bytes));
        let wall = begin.elapsed().as_secs_f64();
        let cpu = cpu_seconds() - begin_cpu;
        best = best.min(if cpu > 0.05 { cpu } else { wall });
        allocations = region.change().allocations as f64 / lines.max(1) as f64;
    }
    println!("{name}: {:.2} GB/s, {allocations:.2} allocations a line", bytes.len() as f64 / 1e9 / best);
}
