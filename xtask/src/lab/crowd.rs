//! `cargo xtask lab --crowd N`: a node on which everything starts at once.
//!
//! N engine doubles start together beside `kvprov up`; each then reads a model of its own. Every one has to become a
//! worker soon, with the digest of the very file that it read, and no kernel record may be lost.

use crate::lab::live::{Live, Ports};
use crate::lab::load::Load;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Goal: seconds from the start of the last one until every one is listed.
const LISTED_WITHIN: f64 = 2.0;
/// How long it is looked at before it is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Starts them and compares; fails when one is missing or late.
pub(crate) fn run(binary: &Path, out: &Path, doubles: u32) -> Result<()> {
    std::fs::create_dir_all(out)?;
    let mut live = Live::start(binary, out, None, Ports::Free)?;
    let place = out.join("crowd");
    let begun = Instant::now();
    let mut load = Load::of(binary, &place, &script(doubles), 10)?;
    let names = load.names();
    let started = begun.elapsed();
    let listed = until(|| Ok(pids(&workers(&live)?).is_superset(&names.keys().copied().collect())))
        .context("waiting for every double among the workers")?;
    println!(
        "{doubles} doubles started within {:.2} s; the last was listed {:.2} s after that",
        started.as_secs_f64(),
        listed.as_secs_f64()
    );
    load.open()?;
    let expected = || digests(&place, &names);
    let known = until(|| Ok(load.is_done()? && known(&workers(&live)?) == expected()?));
    if known.is_err() {
        let (found, wanted) = (self::known(&workers(&live)?), expected()?);
        let wrong = wanted.iter().filter(|(pid, digest)| found.get(*pid) != Some(*digest));
        for (pid, digest) in wrong.take(10) {
            println!("  {}: expected {digest}, found {:?}", names[pid], found.get(pid));
        }
    }
    let known = known.context("waiting for the weights of every double")?;
    println!("every weights digest is that of the file; the last came {:.2} s later", known.as_secs_f64());
    load.end()?;
    let page = live.agent_page("/metrics")?;
    std::fs::write(out.join("agent.metrics"), &page)?;
    live.stop()?;
    let dropped: f64 = page
        .lines()
        .filter(|line| {
            line.starts_with("kvprov_kernel_events_total{") && line.contains("outcome=\"dropped\"")
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    println!("kernel records dropped: {dropped}");
    if dropped > 0.0 {
        bail!("{dropped} kernel records were dropped");
    }
    if listed.as_secs_f64() > LISTED_WITHIN {
        bail!("the last was listed after {:.2} s, goal {LISTED_WITHIN} s", listed.as_secs_f64());
    }
    Ok(())
}

/// So many doubles with a model each.
fn script(doubles: u32) -> String {
    (0..doubles).fold(String::new(), |mut script, number| {
        _ = writeln!(
            script,
            "[[double]]\nscenario = \"a crowd\"\nexpects = \"nothing\"\nname = \"one-{number}\"\narguments = [\"-m\", \
             \"vllm.entrypoints.openai.api_server\", \"--model\", \"{{models}}/m{number}\", \"--port\", \"{}\"]\n\
             environment = {{}}\nmodel = {{ directory = \"m{number}\", seed = \"m{number}\" }}\n",
            20_000 + number
        );
        script
    })
}

fn workers(live: &Live) -> Result<Vec<Value>> {
    let page: Value = serde_json::from_str(&live.page("/api/v1/workers?limit=1000")?)?;
    Ok(page["workers"].as_array().cloned().unwrap_or_default())
}

fn pids(workers: &[Value]) -> BTreeSet<u32> {
    workers.iter().flat_map(pids_of).collect()
}

fn pids_of(worker: &Value) -> impl Iterator<Item = u32> {
    worker["pids"].as_array().into_iter().flatten().filter_map(|pid| pid.as_str()?.parse().ok())
}

/// The full digest of its weights, by pid.
fn known(workers: &[Value]) -> BTreeMap<u32, String> {
    let weights = |worker: &Value| {
        let mut factors = worker["factors"].as_array()?.iter();
        let weights = factors.find(|factor| factor["factor"] == "weights" && factor["state"] == "full")?;
        Some(weights["value"].as_str()?.to_owned())
    };
    let digest = |worker: &Value| Some((pids_of(worker).next()?, weights(worker)?));
    workers.iter().filter_map(digest).collect()
}

/// What `sha256sum` says of the file that each read.
fn digests(place: &Path, names: &BTreeMap<u32, String>) -> Result<BTreeMap<u32, String>> {
    let file =
        |name: &String| place.join(format!("models/m{}/model.safetensors", name.trim_start_matches("one-")));
    let output =
        Command::new("sha256sum").args(names.values().map(file)).output().context("starting sha256sum")?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let of_file = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    Ok(names.keys().copied().zip(printed.lines().map(of_file)).collect())
}

/// How long until something holds.
fn until(mut holds: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            bail!("not within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(begun.elapsed())
}
