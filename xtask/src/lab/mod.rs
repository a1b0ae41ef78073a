//! `cargo xtask lab`: kvprov beside real storage code and real engines that are driven into known faults.
//!
//! The rigs are not part of this tree; `--rigs` names their directory. Each case runs beside a fresh `kvprov up`:
//! what it found is compared with what the case is made to show, and every write, read and removal that it saw with
//! what the processes wrote down from inside.
#![allow(clippy::disallowed_methods, reason = "the processes of a rig signal nothing")]

mod cases;
mod crowd;
mod http;
pub(crate) mod kill;
pub(crate) mod live;
mod load;
mod pairs;
mod table;

use crate::{score, tree};
use anyhow::{Context, Result, bail};
use cases::Case;
use kvprov_tests::live::{Agreement, Deed, seen, truth};
use live::{Live, Ports};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use table::Row;

/// How long a finding may take once a case has ended.
const PATIENCE: Duration = Duration::from_secs(8);

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Directory of the store rigs, with `rig.sh`; set up before.
    #[arg(long, required_unless_present_any = ["kill", "pairs", "crowd"])]
    rigs: Option<PathBuf>,
    /// Instead: directory of the rig of prefill/decode pairs, with `rig.sh`; set up before.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rigs", "kill", "seconds"])]
    pairs: Option<PathBuf>,
    /// With `--pairs`: the engines log at DEBUG.
    #[arg(long, requires = "pairs")]
    debug: bool,
    /// With `--pairs`: start kvprov so many seconds after the engines.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, requires = "pairs")]
    late: u64,
    /// Instead of the rigs: kill agent and collector so often in turn while engine doubles work, and compare the ledger
    /// with an undisturbed run's.
    #[arg(long, value_name = "TIMES", conflicts_with = "rigs")]
    kill: Option<u32>,
    /// Instead of the rigs: start so many engine doubles at once, and ask how soon each is a worker and whether what it
    /// opened was seen.
    #[arg(long, value_name = "DOUBLES", conflicts_with_all = ["rigs", "kill", "pairs"])]
    crowd: Option<u32>,
    /// The rigs' own directory of environments and packages (`KVPROV_LAB`).
    #[arg(long)]
    lab: Option<PathBuf>,
    /// Executable; without it kvprov is built.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Seconds of the cases that run for a while; without it 10, and 60 with `--kill`.
    #[arg(long)]
    seconds: Option<u32>,
    /// Where to put what the cases leave; without it a directory that goes.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Record each case as well, replay the recording and compare the findings.
    #[arg(long)]
    record: bool,
    /// Cases, or faults of the pairs; without one all that need no server, or all.
    cases: Vec<String>,
}

/// Runs the cases and prints the table; fails when any verdict is not the expected one.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let binary = match &arguments.bin {
        Some(path) => path.clone(),
        None => score::build_binary()?,
    };
    let binary = std::path::absolute(binary)?;
    let temporary = tempfile::tempdir()?;
    let out = arguments.out.clone().unwrap_or_else(|| temporary.path().to_owned());
    if let Some(kills) = arguments.kill {
        return kill::run(&binary, &std::path::absolute(out)?, kills, arguments.seconds.unwrap_or(60));
    }
    if let Some(doubles) = arguments.crowd {
        return crowd::run(&binary, &std::path::absolute(out)?, doubles);
    }
    if let Some(rig) = &arguments.pairs {
        return pairs::run(&pairs::Pairs {
            rig,
            lab: arguments.lab.as_deref(),
            binary: &binary,
            out: &std::path::absolute(out)?,
            record: arguments.record,
            debug: arguments.debug,
            late: arguments.late,
            faults: &arguments.cases,
        });
    }
    let wanted =
        |case: &&Case| arguments.cases.is_empty() || arguments.cases.iter().any(|name| name == case.name);
    let mut rows = Vec::new();
    let mut total: BTreeMap<Deed, Agreement> = BTreeMap::new();
    for case in cases::CASES.iter().filter(wanted) {
        let row = one(arguments, &binary, case, &out.join(case.name))
            .with_context(|| format!("case {}", case.name))?;
        for (deed, agreement) in &row.agreements {
            *total.entry(*deed).or_default() += *agreement;
        }
        println!("{row}");
        rows.push(row);
    }
    println!("\n{}", table::render(&rows, &total));
    let wrong = rows.iter().filter(|row| !row.is_right()).count();
    if wrong > 0 {
        bail!("{wrong} of {} cases are not as expected", rows.len());
    }
    Ok(())
}

fn one(arguments: &Arguments, binary: &Path, case: &'static Case, directory: &Path) -> Result<Row> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let recording = directory.join("recording");
    let mut live =
        Live::start(binary, directory, arguments.record.then_some(recording.as_path()), Ports::Free)?;
    let rig = directory.join("rig");
    let rigs = arguments.rigs.as_deref().context("--rigs names the directory of the rigs")?;
    let mut command = Command::new(rigs.join("rig.sh"));
    command
        .args(["run", case.name, "--no-strace", "--secs", &arguments.seconds.unwrap_or(10).to_string()])
        .args(["--delay", "2", "--out"])
        .arg(&rig)
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(directory.join("rig.log"))?)
        .stderr(std::fs::File::create(directory.join("rig.err"))?);
    if let Some(lab) = &arguments.lab {
        command.env("KVPROV_LAB", lab);
    }
    let mut process = command.spawn().context("starting rig.sh")?;
    while process.try_wait()?.is_none() {
        live.look()?;
        std::thread::sleep(Duration::from_millis(100));
    }
    let ended = Instant::now();
    while ended.elapsed() < PATIENCE {
        live.look()?;
        std::thread::sleep(Duration::from_millis(200));
    }
    let findings = live.findings()?;
    std::fs::write(directory.join("findings.json"), serde_json::to_vec_pretty(&findings)?)?;
    std::fs::write(directory.join("agent.metrics"), live.agent_page("/metrics")?)?;
    live.stop()?;
    let happened = truth::read(&rig.join("truth.jsonl")).map_err(anyhow::Error::msg)?;
    let seen = seen::read(&live.ledger()).context("reading the ledger that kvprov left")?;
    let agreements = Deed::ALL.map(|deed| (deed, Agreement::of(deed, &happened, &seen)));
    let replayed = match arguments.record {
        true => Some(replay(binary, &recording)?),
        false => None,
    };
    Ok(Row::new(case, &findings, live.sightings(), agreements.into(), replayed.as_ref()))
}

/// The findings of a recording.
fn replay(binary: &Path, recording: &Path) -> Result<serde_json::Value> {
    let output = Command::new(binary)
        .arg("replay")
        .arg(recording)
        .args(["--format", "json"])
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .output()
        .context("starting kvprov replay")?;
    if !output.status.success() {
        bail!("replay of {} failed: {}", recording.display(), String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("reading what replay printed")
}
