//! Throughput of reading logs.
//!
//! The log bench is compared in the same run with ripgrep and grep, which search the same lines for the literals that
//! the log reader looks for: a reader that watches a log file should cost no more than a search of it. Over an hour of real
//! engines at INFO that serve several requests a second, over a flood of DEBUG, over the lines in which the reader finds
//! nothing, as most lines of a healthy fleet are, and, without a goal, over an hour with few requests, in which a larger
//! share of the lines is kept, over starts and ends of engines alone and over the corpus of incidents, most lines of which
//! say something. One table, on one machine, in processor time, so that the ratios mean something where the numbers do not.

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
const GOAL: f64 = 0.8;

/// Folder of the corpus with logs of real engines.
const REAL: &str = "evidence";

/// What an engine prints again and again while it serves, by what stands in the line, and how often in an hour beside its
/// requests: a line of throughput and one of transfers every ten seconds (`VLLM_LOG_STATS_INTERVAL`), a scrape every fifteen.
const AN_HOUR: [(&[u8], usize); 3] = [(b"Avg prompt ", 360), (b"KV Transfer ", 360), (b"GET /metrics ", 240)];
/// What it prints of a request.
const REQUEST: &[u8] = b"/v1/completions ";
/// Requests that an engine on a card of its own serves in an hour: five a second.
const BUSY: usize = 5 * 3600;
/// One a second.
const QUIET: usize = 3600;

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
    println!("log: {} MiB of the corpus, repeated; {count} literals", bytes >> 20);
    let irrelevant = directory.path().join("irrelevant.log");
    write_repeated(&irrelevant, &bench(LOG_BENCH, Some(&log), &["--irrelevant"])?)?;
    let [info, quiet, starts, flood] =
        ["info", "quiet", "starts", "flood"].map(|name| directory.path().join(name).with_extension("log"));
    let real = logs(|name| name.starts_with(REAL))?;
    write_repeated(&info, &an_hour(&real, BUSY))?;
    write_repeated(&quiet, &an_hour(&real, QUIET))?;
    write_repeated(&starts, &at_info(&real).concat())?;
    write_repeated(&flood, &floods(&real).concat())?;

    let reader = String::from_utf8_lossy(&bench(LOG_BENCH, Some(&log), &[])?).into_owned();
    let mixes = [
        ("an hour at INFO", &info, Some(GOAL)),
        ("a flood of DEBUG", &flood, Some(GOAL)),
        ("irrelevant lines", &irrelevant, Some(GOAL)),
        ("a quiet hour at INFO", &quiet, None),
        ("starts and ends at INFO", &starts, None),
        ("all lines of incidents", &log, None),
    ];
    println!(
        "\n{:<26}{:>12}{:>12}{:>12}{:>22}{:>22}",
        "GB/s", "ripgrep -F", "grep -F", "reader", "reader to the faster", "allocations a line"
    );
    let mut figures = Vec::new();
    for (lines, log, goal) in mixes {
        let [rg, grep] = searches(&literals, log)?;
        let printed = String::from_utf8_lossy(&bench(LOG_BENCH, Some(log), &["--only-all"])?).into_owned();
        let (own, allocations) = reader_rate(&printed, "all lines").unwrap_or((f64::NAN, f64::NAN));
        let ratio = own / rg.max(grep);
        println!("{lines:<26}{rg:>12.2}{grep:>12.2}{own:>12.2}{ratio:>22.2}{allocations:>22.2}");
        let name = format!("log reader, {lines}, to the faster search");
        figures.push(Figure::new(name, ratio, "x", goal.map_or(Goal::None, Goal::AtLeast)));
    }
    let ignored = reader_rate(&reader, "irrelevant lines").map_or(f64::NAN, |(_, allocations)| allocations);
    figures.push(Figure::new(
        "log reader, allocations an irrelevant line".to_owned(),
        ignored,
        "",
        Goal::AtMost(0.0),
    ));
    println!("\nlog reader (agent/benches/log_throughput.rs):\n{reader}");
    Ok(figures)
}

/// The log bench: crate and name.
const LOG_BENCH: (&str, &str) = ("kvprov-agent", "log_throughput");

/// GB/s and allocations a line that the log bench printed for a selection of lines.
fn reader_rate(printed: &str, lines: &str) -> Option<(f64, f64)> {
    let begin = format!("logs, {lines}: ");
    let rest = printed.lines().find_map(|line| line.strip_prefix(&begin))?;
    let (rate, rest) = rest.split_once(" GB/s, ")?;
    Some((rate.parse().ok()?, rest.split_once(' ')?.0.parse().ok()?))
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
    write_repeated(path, &logs(|_| true)?.concat())
}

/// The logs of the bundles whose name is wanted, each with a line end.
fn logs(wanted: impl Fn(&str) -> bool) -> Result<Vec<Vec<u8>>> {
    let root = corpus::root();
    let mut logs = Vec::new();
    for directory in corpus::bundles(&root).context("listing the corpus")? {
        let name = directory.strip_prefix(&root).unwrap_or(&directory).to_string_lossy().into_owned();
        if !wanted(&name) {
            continue;
        }
        let bundle = Bundle::load(&directory).with_context(|| format!("reading {}", directory.display()))?;
        for file in bundle.files_of_kind("log") {
            let mut log = bundle.files.get(&file).cloned().unwrap_or_default();
            log.push(b'\n');
            logs.push(log);
        }
    }
    if logs.is_empty() {
        bail!("the corpus in {} holds no such log", root.display());
    }
    Ok(logs)
}

/// What the engines print at INFO.
fn at_info(logs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let lines = logs.iter().flat_map(|log| log.split_inclusive(|byte| *byte == b'\n'));
    lines.filter(|line| !is_debug(line)).map(<[u8]>::to_vec).collect()
}

/// What the engines print at INFO in an hour with so many requests: everything once, and between start and end what comes
/// again and again.
fn an_hour(logs: &[Vec<u8>], requests: usize) -> Vec<u8> {
    let lines = at_info(logs);
    let holds = |line: &[u8], words: &[u8]| line.windows(words.len()).any(|window| window == words);
    let again: Vec<(Vec<&[u8]>, usize)> = AN_HOUR
        .iter()
        .chain([&(REQUEST, requests)])
        .map(|(words, times)| {
            (lines.iter().map(Vec::as_slice).filter(|line| holds(line, words)).collect(), *times)
        })
        .collect();
    let mut hour = Vec::new();
    for log in logs {
        let mut lines = at_info(std::slice::from_ref(log));
        let ends = lines.iter().position(|line| holds(line, b"shutdown")).unwrap_or(lines.len());
        let end = lines.split_off(ends);
        hour.extend(lines.concat());
        for second in 0..3600 {
            for (lines, times) in again.iter().filter(|(lines, _)| !lines.is_empty()) {
                for count in second * times / 3600..(second + 1) * times / 3600 {
                    hour.extend_from_slice(lines[count % lines.len()]);
                }
            }
        }
        hour.extend(end.concat());
    }
    hour
}

/// Logs in which most lines are of DEBUG.
fn floods(logs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_flood = |log: &&Vec<u8>| {
        let lines: Vec<bool> = log.split(|byte| *byte == b'\n').map(is_debug).collect();
        lines.iter().filter(|debug| **debug).count() * 2 > lines.len()
    };
    logs.iter().filter(is_flood).cloned().collect()
}

fn is_debug(line: &[u8]) -> bool {
    line.windows(6).any(|word| word == b"DEBUG ")
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
