//! A process that gets and sets on the file store of a real engine, and what processes use of the machine.
//!
//! The store's code comes from the rigs, which are not part of this tree; the process is `hicache/sglang`.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Bytes of 64 tokens of the model that the store is configured for: 36 layers, 8 heads of 128, keys and values, 2 bytes.
pub(super) const PAGE_BYTES: usize = 64 * 36 * 8 * 128 * 2 * 2;
/// Pages so small that hardly anything but the calls themselves is left.
pub(super) const SMALL_BYTES: usize = 64 << 10;
/// Bytes that a burst sets and gets.
const BURST_BYTES: usize = 80 << 20;
/// Pages of a burst at most.
const PAGES_AT_MOST: usize = 50;
/// Bursts of a measurement; the one at the fastest tenth counts: what else runs on the machine only makes them slower.
pub(super) const BURSTS: usize = 60;

/// Where things are.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) rigs: PathBuf,
    pub(super) lab: PathBuf,
    pub(super) binary: PathBuf,
}

/// A running store.
pub(super) struct Store {
    process: Child,
    tell: ChildStdin,
    answers: BufReader<ChildStdout>,
    page_bytes: usize,
}

/// Of a call, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) clock: f64,
    pub(super) processor: f64,
}

// === impl Store ===

impl Store {
    /// Starts it with its files in a directory and pages of a size.
    pub(super) fn start(place: &Place, directory: &Path, page_bytes: usize) -> Result<Self> {
        let own = tree::root().join("xtask/src/bench/hicache");
        let path = std::env::join_paths([own, place.rigs.join("lib")])?;
        let mut process = Command::new(place.lab.join("stores-venv/bin/python"))
            .args(["-m", "sglang.launch_server", "--model-path", "Qwen/Qwen3-8B", "--tp-size", "1"])
            .args(["--page-size", "64", "--enable-hierarchical-cache", "--hicache-storage-backend", "file"])
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("KVPROV_LAB", &place.lab)
            .env("PAGE_BYTES", page_bytes.to_string())
            .env("SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR", directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting the python of the rigs; is --lab set up?")?;
        let tell = process.stdin.take().context("no standard input")?;
        let answers = BufReader::new(process.stdout.take().context("no standard output")?);
        let mut store = Self { process, tell, answers, page_bytes };
        let mut line = String::new();
        while store.answers.read_line(&mut line)? > 0 {
            if line.trim() == "ready" {
                return Ok(store);
            }
            line.clear();
        }
        bail!("the store ended before it was ready; its words above say why")
    }

    /// One measurement.
    pub(super) fn measure(&mut self) -> Result<Cost> {
        let bursts: Vec<Cost> = (0..BURSTS).map(|_| self.burst()).collect::<Result<_>>()?;
        Ok(Cost {
            clock: fast(bursts.iter().map(|cost| cost.clock).collect()),
            processor: fast(bursts.iter().map(|cost| cost.processor).collect()),
        })
    }

    /// Pages that a burst sets and gets.
    pub(super) fn pages(&self) -> usize {
        (BURST_BYTES / self.page_bytes).clamp(1, PAGES_AT_MOST)
    }

    fn burst(&mut self) -> Result<Cost> {
        writeln!(self.tell, "{}", self.pages())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        let parts: Vec<f64> = answer.split_whitespace().filter_map(|part| part.parse().ok()).collect();
        let [clock, processor] = parts[..] else { bail!("the store answered {answer:?}") };
        let calls = 2.0 * self.pages() as f64;
        Ok(Cost { clock: clock / calls, processor: processor / calls })
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // One that has ended cannot be ended again.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The one at the fastest tenth.
fn fast(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 10).copied().unwrap_or(f64::NAN)
}

/// A kvprov's processes: the parent first, then its children by what they are.
pub(super) fn family(parent: u32) -> Result<Vec<(String, u32)>> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))
        .context("listing the children of kvprov")?;
    let mut all = vec![("parent".to_owned(), parent)];
    for child in children.split_whitespace() {
        let arguments = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        let what = arguments.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        all.push((String::from_utf8_lossy(what).into_owned(), child.parse()?));
    }
    Ok(all)
}

/// Seconds of processor time of a process, to a hundredth.
pub(super) fn processor(pid: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).context("reading a process' times")?;
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let mut ticks = behind_name.split_whitespace().skip(11).take(2);
    let mut next = || ticks.next().and_then(|ticks| ticks.parse::<f64>().ok()).unwrap_or(f64::NAN);
    Ok((next() + next()) / 100.0)
}
