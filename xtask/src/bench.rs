//! `cargo xtask bench`: throughput of reading logs and of merging observations.
//!
//! The log bench is compared in the same run with ripgrep and grep, which search the same lines for the literals that
//! the log reader looks for: a reader that watches a log file should cost no more than a search of it. One table, on
//! one machine, so that the ratios mean something where the numbers do not.

use crate::{setup, step, tree};
use anyhow::{Context, Result, bail};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::corpus;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Size of the log to search. Enough for seconds of work and small enough for the page cache.
const LOG_BYTES: usize = 256 << 20;

/// Runs per search; the best counts.
const RUNS: usize = 3;

/// Nothing to choose.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {}

/// Measures and prints.
pub(crate) fn run(_: &Arguments) -> Result<()> {
    setup::package("rg", "ripgrep", "the log reader is compared with it")?;
    let directory = tempfile::tempdir().context("making a directory for the log")?;
    let log = directory.path().join("corpus.log");
    let literals = directory.path().join("literals");
    let bytes = write_log(&log)?;
    let count = write_literals(&literals)?;
    let name = |path: &Path| path.to_string_lossy().into_owned();

    println!("log: {} MiB of the corpus, repeated; {count} literals", bytes >> 20);
    let rg =
        search(Command::new("rg").args(["--count", "-j1", "-a", "-F", "-f", &name(&literals), &name(&log)]))?;
    let grep = search(Command::new("grep").env("LC_ALL", "C").args([
        "-c",
        "-a",
        "-F",
        "-f",
        &name(&literals),
        &name(&log),
    ]))?;
    let reader = bench("kvprov-agent", "log_throughput", Some(&log))?;
    let ledger = bench("kvprov-collector", "ledger_ingest", None)?;

    println!("\n{:<34}{:>14}{:>12}", "search of the same log", "MB/s", "against rg");
    let rg_rate = rate(bytes, rg);
    println!("{:<34}{rg_rate:>14.0}{:>12.2}", "ripgrep -F, one thread", 1.0);
    println!("{:<34}{:>14.0}{:>12.2}", "LC_ALL=C grep -F", rate(bytes, grep), rate(bytes, grep) / rg_rate);
    println!("\nlog reader (agent/benches/log_throughput.rs):\n{reader}");
    println!("ledger (collector/benches/ledger_ingest.rs):\n{ledger}");
    println!(
        "goals: the log reader no slower than grep -F; the ledger above 100,000 observations a second on a core"
    );
    Ok(())
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
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).context("writing the log")?);
    let times = LOG_BYTES.div_ceil(once.len());
    for _ in 0..times {
        file.write_all(&once).context("writing the log")?;
    }
    file.flush().context("writing the log")?;
    Ok(once.len() * times)
}

/// The literals by which the log reader finds lines, as the binary lists them. Returns their number.
fn write_literals(path: &Path) -> Result<usize> {
    let output = step::cargo_command()
        .args(["run", "--quiet", "--release", "--package", "kvprov", "--", "packs", "anchors"])
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("asking kvprov for its literals")?;
    let literals: Vec<u8> = if output.status.success() { output.stdout } else { Vec::new() };
    let count = literals.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    if count == 0 {
        bail!("`kvprov packs anchors` lists no literals; the comparison needs them");
    }
    std::fs::write(path, literals).context("writing the literals")?;
    Ok(count)
}

/// The best of several runs. A search without a hit (status 1) counts too.
fn search(command: &mut Command) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("starting {}", command.get_program().display()))?;
        if !matches!(status.code(), Some(0 | 1)) {
            bail!("{} failed ({status})", command.get_program().display());
        }
        best = best.min(start.elapsed());
    }
    Ok(best)
}

/// Runs a bench of a crate, which prints its own lines. `KVPROV_BENCH_LOG` names the log to read.
fn bench(package: &str, name: &str, log: Option<&Path>) -> Result<String> {
    let mut command = step::cargo_command();
    command.args(["bench", "--quiet", "--package", package, "--bench", name]).current_dir(tree::root());
    if let Some(log) = log {
        command.env("KVPROV_BENCH_LOG", log);
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running the bench {name}"))?;
    if !output.status.success() {
        bail!("the bench {name} of {package} failed; its words above say why");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn rate(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e6
}
