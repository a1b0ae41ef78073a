//! Throughput of reading logs.
//!
//! The log bench is compared in the same run with ripgrep and grep, which search the same lines for the literals that
//! the log reader looks for: a reader that watches a log file should cost no more than a few searches of it. Once over
//! all lines of the corpus, and once over those in which the reader finds nothing, as most lines of a healthy fleet
//! are. One table, on one machine, in processor time, so that the ratios mean something where the numbers do not.

use super::bench;
use super::figure::{Figure, Goal};
use crate::setup;
use anyhow::{Context, Result, bail};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::corpus;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Size of the log to search. Enough for seconds of work and small enough for the page cache.
const LOG_BYTES: usize = 256 << 20;

/// Runs of a search; the best counts.
const RUNS: usize = 3;

/// Rate of the reader to that of the faster search.
const GOAL: f64 = 0.3;

/// Measures and prints.
pub(super) fn run() -> Result<Vec<Figure>> {
    setup::package("rg", "ripgrep", "the log reader is compared with it")?;
    let directory = tempfile::tempdir().context("making a directory for the log")?;
    let log = directory.path().join("corpus.log");
    let bytes = write_log(&log)?;
    let literals = directory.path().join("literals");
    let listed = bench(LOG_BENCH, Some(&log), &["--anchors"])?;
    let count = listed.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    if count == 0 {
        bail!("the log bench lists no literals with --anchors; the comparison needs them");
    }
    std::fs::write(&literals, listed).context("writing the literals")?;
    let irrelevant = directory.path().join("irrelevant.log");
    write_repeated(&irrelevant, &bench(LOG_BENCH, Some(&log), &["--irrelevant"])?)?;
    println!("log: {} MiB of the corpus, repeated; {count} literals", bytes >> 20);

    let reader = String::from_utf8_lossy(&bench(LOG_BENCH, Some(&log), &[])?).into_owned();
    println!(
        "\n{:<26}{:>12}{:>12}{:>12}{:>22}",
        "GB/s", "ripgrep -F", "grep -F", "reader", "reader to the faster"
    );
    let mut figures = Vec::new();
    for (lines, log) in [("all lines", &log), ("irrelevant lines", &irrelevant)] {
        let [rg, grep] = searches(&literals, log)?;
        let own = reader_rate(&reader, lines);
        let ratio = own.map_or(f64::NAN, |own| own / rg.max(grep));
        figures.push(Figure::new(
            format!("log reader, {lines}, to the faster search"),
            ratio,
            "x",
            Goal::AtLeast(GOAL),
        ));
        let own = own.map_or_else(|| "?".to_owned(), |own| format!("{own:.2}"));
        println!("{lines:<26}{rg:>12.2}{grep:>12.2}{own:>12}{ratio:>22.2}");
    }
    println!("\nlog reader (agent/benches/log_throughput.rs):\n{reader}");
    Ok(figures)
}

/// The log bench: crate and name.
const LOG_BENCH: (&str, &str) = ("kvprov-agent", "log_throughput");

/// GB/s that the log bench printed for a selection of lines.
fn reader_rate(printed: &str, lines: &str) -> Option<f64> {
    let begin = format!("logs, {lines}: ");
    let rest = printed.lines().find_map(|line| line.strip_prefix(&begin))?;
    rest.split_once(" GB/s")?.0.parse().ok()
}

/// GB/s of ripgrep on one thread and of grep over bytes.
fn searches(literals: &Path, log: &Path) -> Result<[f64; 2]> {
    let name = |path: &Path| path.to_string_lossy().into_owned();
    let (literals, file) = (name(literals), name(log));
    let bytes = std::fs::metadata(log).context("measuring the log")?.len();
    let rg = search(Command::new("rg").args(["--count", "-j1", "-a", "-F", "-f", &literals, &file]))?;
    let grep =
        search(Command::new("grep").env("LC_ALL", "C").args(["-c", "-a", "-F", "-f", &literals, &file]))?;
    Ok([rg, grep].map(|seconds| bytes as f64 / 1e9 / seconds))
}

/// All logs of the corpus one after the other, repeated. Returns the bytes written.
fn write_log(path: &Path) -> Result<usize> {
    let mut once = Vec::new();
    for directory in corpus::bundles(&corpus::root()).context("listing the corpus")? {
        let bundle = Bundle::load(&directory).with_context(|| format!("reading {}", directory.display()))?;
        for file in bundle.files_of_kind("log") {
            once.extend_from_slice(bundle.files.get(&file).map_or(&[][..], Vec::as_slice));
            once.push(b'\n');
        }
    }
    if once.is_empty() {
        bail!("the corpus holds no log");
    }
    write_repeated(path, &once)
}

/// Lines again and again until they are enough. Returns the bytes written.
fn write_repeated(path: &Path, once: &[u8]) -> Result<usize> {
    if once.is_empty() {
        bail!("there are no lines to write to {}", path.display());
    }
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).context("writing the log")?);
    let times = LOG_BYTES.div_ceil(once.len());
    for _ in 0..times {
        file.write_all(once).context("writing the log")?;
    }
    file.flush().context("writing the log")?;
    Ok(once.len() * times)
}

/// Seconds of processor time of the best of several runs. A search without a hit (status 1) counts too. What it prints
/// is read: grep stops at the first hit where its output goes nowhere.
fn search(command: &mut Command) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..RUNS {
        let (start, before) = (Instant::now(), children_seconds());
        let status = command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("starting {}", command.get_program().display()))?
            .status;
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("{} failed ({status})", command.get_program().display());
        }
        let processor = children_seconds() - before;
        best = best.min(if processor > 0.05 { processor } else { start.elapsed().as_secs_f64() });
    }
    Ok(best)
}

/// Seconds of processor time that ended children used, to a hundredth.
fn children_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = |field: usize| -> f64 {
        behind_name.split_whitespace().nth(field).and_then(|ticks| ticks.parse().ok()).unwrap_or(0.0)
    };
    (ticks(13) + ticks(14)) / 100.0
}
