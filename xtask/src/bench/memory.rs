//! Memory of a running kvprov: at rest, and after a load where there are rigs to make one.

use super::figure::{Figure, Goal};
use super::store::{Place, SMALL_BYTES, Store, family};
use crate::lab::live::{Live, Ports};
use anyhow::{Context, Result};
use std::path::Path;
use std::time::Duration;

/// Of the agent, in MiB.
const GOAL: f64 = 64.0;
/// Until it is at rest.
const REST: Duration = Duration::from_secs(30);

/// Measures.
pub(super) fn run(binary: &Path, place: Option<&Place>) -> Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let mut live = Live::start(binary, directory.path(), None, Ports::Free)?;
    std::thread::sleep(REST);
    println!(
        "{:<22}{:>12}{:>12}{:>12}{:>12}{:>12}",
        "MiB", "resident", "anonymous", "program", "ring", "share (Pss)"
    );
    let mut figures = look(&live, "at rest")?;
    if let Some(place) = place {
        let files = directory.path().join("store");
        std::fs::create_dir(&files)?;
        let mut store = Store::start(place, &files, SMALL_BYTES)?;
        std::thread::sleep(Duration::from_secs(2));
        store.measure()?;
        store.measure()?;
        figures.extend(look(&live, "after a load")?);
    }
    live.stop()?;
    Ok(figures)
}

fn look(live: &Live, when: &str) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (name, pid) in family(live.pid())? {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("reading a status")?;
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .context("reading a process' maps")?;
        let [resident, anonymous, file, shared] =
            ["VmRSS:", "RssAnon:", "RssFile:", "RssShmem:"].map(|name| mebibytes(&status, name));
        let share = mebibytes(&rollup, "Pss:");
        println!(
            "{:<22}{resident:>12.1}{anonymous:>12.1}{file:>12.1}{shared:>12.1}{share:>12.1}",
            format!("{name} {when}")
        );
        let goal = if name == "agent" && when == "at rest" { Goal::AtMost(GOAL) } else { Goal::None };
        figures.push(Figure::new(format!("memory of the {name} {when}, resident"), resident, "MiB", goal));
    }
    Ok(figures)
}

/// A figure in kB of a page of `/proc`.
fn mebibytes(page: &str, name: &str) -> f64 {
    let value = page.lines().find_map(|line| line.strip_prefix(name));
    value
        .and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok())
        .map_or(f64::NAN, |kibibytes| kibibytes / 1024.0)
}
