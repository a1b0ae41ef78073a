//! `cargo xtask lab --pairs DIR`: kvprov beside real prefill/decode pairs that are broken on purpose.
//!
//! The rig is not part of this tree. Its `rig.sh list` names the faults; each runs beside a fresh `kvprov up`, whose findings are
//! looked at all the while. What stands in the end is judged by the `expected.toml` that the rig writes, under the rules by
//! which recordings are judged. What a run left to be looked at lies below `--out`, one directory a fault.

mod rig;
mod row;

use crate::lab::live::{Live, Ports};
use crate::lab::table;
use anyhow::{Context, Result, bail};
use kvprov_tests::judge::{Expected, judge};
use kvprov_tests::verdict::Found;
use rig::Rig;
use row::Row;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at the findings: the error of the seconds that are told.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Between two looks at which processes are the rig's.
const FAMILY_EVERY: Duration = Duration::from_secs(1);
/// How long a finding may take once the engines are down.
const PATIENCE: Duration = Duration::from_secs(8);
/// Lists of the API that are kept of every run.
const LISTS: [&str; 3] = ["workers", "lineages", "stores"];

/// What to run, as the task was told.
#[derive(Debug)]
pub(crate) struct Pairs<'a> {
    /// Directory with `rig.sh`.
    pub(crate) rig: &'a Path,
    /// The rig's own directory of environments (`KVPROV_LAB`).
    pub(crate) lab: Option<&'a Path>,
    pub(crate) binary: &'a Path,
    pub(crate) out: &'a Path,
    /// Record each run as well, replay it and compare.
    pub(crate) record: bool,
    /// Engines log at DEBUG.
    pub(crate) debug: bool,
    /// Seconds by which kvprov starts after the rig.
    pub(crate) late: u64,
    /// Faults; empty: all.
    pub(crate) faults: &'a [String],
}

/// Runs the faults and prints the table; fails when any verdict is not the expected one.
pub(crate) fn run(pairs: &Pairs<'_>) -> Result<()> {
    let rig = Rig::new(pairs.rig, pairs.lab);
    let all = rig.faults()?;
    if let Some(unknown) = pairs.faults.iter().find(|fault| !all.contains(fault)) {
        bail!("the rig knows no fault {unknown:?}; it knows {}", all.join(", "));
    }
    let mut rows = Vec::new();
    for fault in all.iter().filter(|fault| pairs.faults.is_empty() || pairs.faults.contains(fault)) {
        let row = one(pairs, &rig, fault).unwrap_or_else(|error| Row::failed(fault, &error));
        println!("{row}");
        rows.push(row);
    }
    println!("\n{}", row::summary(&rows));
    let wrong = rows.iter().filter(|row| !row.is_right()).count();
    if wrong > 0 {
        bail!("{wrong} of {} faults are not told as expected", rows.len());
    }
    Ok(())
}

fn one(pairs: &Pairs<'_>, rig: &Rig<'_>, fault: &str) -> Result<Row> {
    let directory = pairs.out.join(fault);
    if directory.exists() {
        std::fs::remove_dir_all(&directory)?;
    }
    std::fs::create_dir_all(&directory)?;
    let recording = pairs.record.then(|| directory.join("recording"));
    let start = || Live::start(pairs.binary, &directory, recording.as_deref(), Ports::Usual);
    let mut live = if pairs.late == 0 { Some(start()?) } else { None };
    let mut run = rig.start(fault, pairs.debug, &directory)?;
    let begun = Instant::now();
    let mut looked = None;
    while !run.is_over()? {
        if looked.is_none_or(|at: Instant| at.elapsed() >= FAMILY_EVERY) {
            looked = Some(Instant::now());
            run.look()?;
        }
        match &mut live {
            Some(live) => live.look()?,
            None if begun.elapsed().as_secs() >= pairs.late => live = Some(start()?),
            None => {}
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let mut live = live.context("the rig was over before kvprov was to start")?;
    let ended = Instant::now();
    while ended.elapsed() < PATIENCE {
        live.look()?;
        std::thread::sleep(LOOK_EVERY);
    }
    let mut findings = keep(&live, &directory)?;
    live.stop()?;
    of_run(&mut findings, &run);
    run.succeeded()?;
    let bundle = rig::bundle(&directory);
    let expected = Expected::load(&bundle.join("expected.toml"))?;
    let judgement = judge(&expected, &Found::all(&findings)?);
    let replay = match &recording {
        Some(recording) => {
            let mut replayed = super::replay(pairs.binary, recording)?;
            of_run(&mut replayed, &run);
            Some(table::compare(&findings, &replayed))
        }
        None => None,
    };
    let ends = rig::ends_of_requests(&bundle)?;
    Ok(Row::new(fault, &expected, judgement, &findings, (&live, &run), &ends, replay))
}

/// Leaves the findings on workers of a run; those of the fleet name the workers that they compare.
fn of_run(findings: &mut Value, run: &rig::Run<'_>) {
    if let Some(list) = findings["findings"].as_array_mut() {
        list.retain(|finding| {
            let mut workers = finding["workers"].as_array().into_iter().flatten().filter_map(Value::as_str);
            workers.any(|worker| run.has_worker(worker))
        });
    }
}

/// Keeps what a run may be asked about later; the findings that stand.
fn keep(live: &Live, directory: &Path) -> Result<Value> {
    let put = |name: &str, text: &str| -> Result<()> {
        let path: PathBuf = directory.join(name);
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    let findings = live.findings()?;
    put("findings.json", &serde_json::to_string_pretty(&findings)?)?;
    put("findings-any.json", &live.page("/api/v1/findings?state=any&limit=1000")?)?;
    for list in LISTS {
        put(&format!("{list}.json"), &live.page(&format!("/api/v1/{list}?limit=1000"))?)?;
    }
    put("agent.metrics", &live.agent_page("/metrics")?)?;
    put("collector.metrics", &live.page("/metrics")?)?;
    Ok(findings)
}
