//! `cargo xtask lab --kill N`: what is left of kills is what an undisturbed run leaves.
//!
//! The same load runs twice beside `kvprov up`: once undisturbed, once while the agent and the collector are killed in
//! turn, N times in all, at random moments. The ledgers have to hold the same, and nothing may be lost.

use crate::lab::live::{Live, Ports};
use crate::lab::load::Load;
use anyhow::{Context, Result, bail};
use kvprov_tests::live::held::{self, Held, Names};
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long everything may take to be delivered once the load has ended.
const TO_DELIVER: Duration = Duration::from_secs(90);
/// Findings are settled when nothing changed for so long.
const TO_SETTLE: Duration = Duration::from_secs(6);
/// The doubles serve no counters, which is told in any run.
const NO_PAGE: &str = "reason=counters not read";
/// Differences that are printed.
const SHOWN: usize = 40;

/// What came of one run.
struct Outcome {
    held: Held,
    kills: BTreeMap<&'static str, u32>,
    /// Kernel records that had no room.
    dropped: f64,
    fired: f64,
    /// Opened findings by series.
    opened: BTreeMap<String, f64>,
}

/// A short run for every day, where this machine can show it: as root, with tracepoints of system calls.
pub(crate) fn in_short(binary: &Path) -> Result<()> {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !is_root || !Path::new("/sys/kernel/tracing/events/syscalls").exists() {
        println!("left out: kernel programs need root and a mounted tracefs");
        return Ok(());
    }
    let temporary = tempfile::tempdir()?;
    run(&std::path::absolute(binary)?, temporary.path(), 6, 10)
}

/// Runs both and compares; fails when anything differs.
pub(crate) fn run(binary: &Path, out: &Path, kills: u32, seconds: u32) -> Result<()> {
    println!("undisturbed run of {seconds} s");
    let quiet = one(binary, &out.join("undisturbed"), 0, seconds).context("the undisturbed run")?;
    tell(&quiet);
    println!("the same with {kills} kills");
    let killed = one(binary, &out.join("killed"), kills, seconds).context("the run with kills")?;
    tell(&killed);
    let mut wrong = Vec::new();
    let parts = [
        ("observation", &quiet.held.observations, &killed.held.observations),
        ("finding", &quiet.held.findings, &killed.held.findings),
    ];
    for (what, here, there) in parts {
        let differences = held::differences(here, there);
        for (row, here, there) in differences.iter().take(SHOWN) {
            println!("  {what}: {here} undisturbed, {there} with kills: {row}");
        }
        if !differences.is_empty() {
            wrong.push(format!("{} rows of {what}s differ", differences.len()));
        }
    }
    for outcome in [&quiet, &killed] {
        let lost = outcome.held.losses.iter().filter(|(row, _)| !row.contains(NO_PAGE));
        for (row, count) in lost {
            println!("  lost: {count} x {row}");
            wrong.push("something was lost".to_owned());
        }
        if outcome.dropped > 0.0 {
            wrong.push(format!("{} kernel records were dropped", outcome.dropped));
        }
    }
    let others = quiet.held.of_others + killed.held.of_others;
    if others > 0 {
        println!("  {others} observations are of engines of somebody else; the counters are not compared");
    } else if quiet.opened != killed.opened {
        println!("  findings counted: {:?} undisturbed, {:?} with kills", quiet.opened, killed.opened);
        wrong.push("the counters of findings differ".to_owned());
    }
    if !quiet.held.observations.keys().any(|row| row.starts_with("artifact ")) {
        wrong.push("the kernel programs saw no file; see the lines `blind` in kvprov.log".to_owned());
    }
    let done: u32 = killed.kills.values().sum();
    if done < kills {
        wrong.push(format!("only {done} of {kills} kills before the load had ended"));
    }
    if !wrong.is_empty() {
        bail!("the ledgers are not equal: {}", wrong.join("; "));
    }
    println!("the ledgers are equal, nothing was lost");
    Ok(())
}

fn tell(outcome: &Outcome) {
    let Outcome { held, kills, dropped, fired, .. } = outcome;
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (row, count) in &held.observations {
        *kinds.entry(row.split(' ').next().unwrap_or_default()).or_default() += count;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    println!("  kills     {kills:?}");
    println!("  holds     {}", kinds.join(", "));
    for (row, count) in &held.findings {
        println!("  finding   {count} x {row}");
    }
    println!("  kernel    {fired} events, {dropped} dropped; {} losses told", held.losses.len());
}

fn one(binary: &Path, directory: &Path, kills: u32, seconds: u32) -> Result<Outcome> {
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    std::fs::create_dir_all(directory)?;
    let mut live = Live::start(binary, directory, None, Ports::Free)?;
    let place = directory.join("load");
    let mut load = Load::start(binary, &place, seconds)?;
    wait(Duration::from_secs(30), "every double is found", || {
        let workers = live.page("/api/v1/workers")?;
        Ok(load.names().keys().all(|pid| workers.contains(&pid.to_string())))
    })?;
    load.open()?;
    let kills = work(&live, &mut load, kills, seconds)?;
    delivered(&live, &load)?;
    load.end()?;
    delivered(&live, &load)?;
    let page = live.agent_page("/metrics")?;
    let opened = series(&live.page("/metrics")?, "kvprov_findings_total");
    std::fs::write(directory.join("agent.metrics"), &page)?;
    let of = |outcome: &str| -> f64 {
        let outcome = format!("outcome=\"{outcome}\"");
        let events = series(&page, "kvprov_kernel_events_total");
        events.iter().filter(|(labels, _)| labels.contains(&outcome)).map(|(_, count)| count).sum()
    };
    live.stop()?;
    let mut texts = vec![(place.to_string_lossy().into_owned(), "{load}".to_owned())];
    texts.extend(load.names().iter().map(|(pid, name)| (format!("pid={pid}"), format!("pid of {name}"))));
    let names = Names { pids: load.names(), texts };
    let held = held::read(&live.ledger(), &names).context("reading the ledger that kvprov left")?;
    Ok(Outcome { held, kills, dropped: of("dropped"), fired: of("fired"), opened })
}

/// Waits for the end of the load and kills meanwhile.
fn work(live: &Live, load: &mut Load, kills: u32, seconds: u32) -> Result<BTreeMap<&'static str, u32>> {
    let begun = Instant::now();
    let mut done: BTreeMap<&'static str, u32> = BTreeMap::new();
    // All kills lie in the first nine tenths.
    let mean = f64::from(seconds) * 0.9 / f64::from(kills.max(1));
    let mut next = Duration::ZERO;
    let mut total = 0;
    while !load.is_done()? {
        if begun.elapsed() > load.patience() {
            bail!("the load takes longer than {} s", load.patience().as_secs());
        }
        if total < kills && begun.elapsed() >= next {
            let name = if total % 2 == 0 { "agent" } else { "collector" };
            if let Some(pid) = live.child_of(name)? {
                kill(pid)?;
                total += 1;
                *done.entry(name).or_default() += 1;
                // Around the mean, wherever this kill came to lie.
                let random = RandomState::new().hash_one(total) as f64 / u64::MAX as f64;
                next = Duration::from_secs_f64(mean * (f64::from(total - 1) + 0.2 + 1.6 * random));
                next = next.max(begun.elapsed() + Duration::from_millis(50));
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(done)
}

fn kill(pid: u32) -> Result<()> {
    let status = Command::new("kill").args(["-KILL", &pid.to_string()]).status()?;
    if !status.success() {
        bail!("kill -KILL {pid} failed");
    }
    Ok(())
}

/// Waits until nothing waits to be delivered and no finding on the load changes.
fn delivered(live: &Live, load: &Load) -> Result<()> {
    let names = load.names();
    let is_ours = |finding: &serde_json::Value| {
        let workers = finding["workers"].to_string();
        names.keys().any(|pid| workers.contains(&format!("-{pid}-")))
    };
    let mut before = (String::new(), Instant::now());
    wait(TO_DELIVER, "everything is delivered", || {
        // Either may be on its way back.
        let (Ok(agent), Ok(findings)) = (live.agent_page("/metrics"), live.findings()) else {
            return Ok(false);
        };
        // A sign of life may always be on its way.
        let waiting: f64 = series(&agent, "kvprov_queue_records").values().sum();
        let ours = findings["findings"].as_array().into_iter().flatten().filter(|finding| is_ours(finding));
        let stands = ours.map(ToString::to_string).collect::<String>();
        if stands != before.0 || waiting > 4.0 {
            before = (stands, Instant::now());
        }
        Ok(before.1.elapsed() >= TO_SETTLE)
    })
}

fn wait(patience: Duration, what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        if begun.elapsed() > patience {
            bail!("after {} s it is not so that {what}", patience.as_secs());
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The series of a metric: labels and value.
fn series(page: &str, name: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let (labels, value) = rest.rsplit_once(' ')?;
        (labels.is_empty() || labels.starts_with('{')).then_some(())?;
        Some((labels.to_owned(), value.parse().ok()?))
    });
    lines.collect()
}
