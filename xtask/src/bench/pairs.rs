//! A healthy prefill/decode pair of real engines with and without kvprov beside it, in turns.
//!
//! Without kvprov each turn measures twice: how far these two lie apart is the noise of the machine. Beside it nothing may be
//! found, since nothing is broken, and what its processes take is told as a share of what the engines take.

mod load;
mod rig;

use super::figure::{Figure, Goal, median};
use super::store::{family, processor};
use crate::lab::live::{Live, Ports};
use anyhow::Result;
use load::{Load, Pace};
use rig::Pair;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ROUNDS: usize = 3;
/// Requests of one measurement: three turns make more than a thousand beside kvprov.
const REQUESTS: usize = 340;
/// Until kvprov has read what the last requests left.
const SETTLE: Duration = Duration::from_secs(12);
/// Of the engines' processor time, in percent.
const SHARE: f64 = 1.0;

/// Where things are.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Directory with `rig.sh`.
    pub(super) rig: PathBuf,
    /// The rig's own directory of environments.
    pub(super) lab: PathBuf,
    pub(super) binary: PathBuf,
}

/// One way to measure a pace.
type Way = fn(&Pace) -> f64;

/// What one turn beside kvprov showed.
struct Beside {
    pace: Pace,
    /// Processor seconds of the engines, and of each half of kvprov.
    engines: f64,
    own: BTreeMap<String, f64>,
    findings: Vec<String>,
}

/// Measures in so many turns.
pub(super) fn run(place: &Place, rounds: Option<usize>) -> Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let pair = Pair::start(place)?;
    let mut load = Load::new(pair.router());
    load.run(REQUESTS / 4)?;
    let mut turns: Vec<([Pace; 2], Beside)> = Vec::new();
    for round in 0..rounds.unwrap_or(ROUNDS) {
        let own = directory.path().join(format!("turn-{round}"));
        std::fs::create_dir(&own)?;
        // Who comes first changes, so that what drifts favours nobody.
        let turn = if round % 2 == 0 {
            let without = [alone(&mut load)?, alone(&mut load)?];
            (without, beside(place, &own, &pair, &mut load)?)
        } else {
            let with = beside(place, &own, &pair, &mut load)?;
            ([alone(&mut load)?, alone(&mut load)?], with)
        };
        println!(
            "turn {}: {} and {} without kvprov, {} with it",
            round + 1,
            turn.0[0],
            turn.0[1],
            turn.1.pace
        );
        turns.push(turn);
    }
    Ok(figures(&turns))
}

fn figures(turns: &[([Pace; 2], Beside)]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let ways: [(&str, Way); 2] =
        [("requests a second", |pace| pace.rate), ("time to the first token", |pace| pace.first_token)];
    for (name, way) in ways {
        let band = turns.iter().map(|([a, b], _)| (way(a) / way(b)).ln().abs()).fold(0.0, f64::max).exp();
        let ratios = turns.iter().map(|([a, b], with)| way(&with.pace) / f64::midpoint(way(a), way(b)));
        let name = format!("pair: {name}, with kvprov to without");
        figures.push(Figure::new(name, median(ratios.collect()), "x", Goal::Between(1.0 / band, band)));
    }
    for half in ["agent", "parent", "collector"] {
        let share = |with: &Beside| with.own.get(half).copied().unwrap_or(f64::NAN) / with.engines * 100.0;
        let shares = median(turns.iter().map(|(_, with)| share(with)).collect());
        let goal = if half == "agent" { Goal::AtMost(SHARE) } else { Goal::None };
        figures.push(Figure::new(
            format!("pair: processor time of the {half}"),
            shares,
            "% of the engines'",
            goal,
        ));
    }
    let requests = turns.len() * REQUESTS;
    let found: Vec<&String> = turns.iter().flat_map(|(_, with)| &with.findings).collect();
    for finding in &found {
        println!("found although nothing is broken: {finding}");
    }
    let name = format!("pair: findings in {requests} healthy requests");
    figures.push(Figure::new(name, found.len() as f64, "", Goal::AtMost(0.0)));
    figures
}

/// Measures without kvprov. Engines that idled are slow at first, so that they idle as long as beside it.
fn alone(load: &mut Load) -> Result<Pace> {
    std::thread::sleep(SETTLE + SETTLE);
    load.run(REQUESTS)
}

/// Measures beside a kvprov.
fn beside(place: &Place, directory: &Path, pair: &Pair<'_>, load: &mut Load) -> Result<Beside> {
    let mut live = Live::start(&place.binary, directory, None, Ports::Free)?;
    std::thread::sleep(SETTLE);
    let processes = family(live.pid())?;
    let before: Vec<f64> = processes.iter().map(|(_, pid)| processor(*pid)).collect::<Result<_>>()?;
    let engines = pair.processor()?;
    let pace = load.run(REQUESTS)?;
    let engines = pair.processor()? - engines;
    let mut own = BTreeMap::new();
    for ((name, pid), before) in processes.into_iter().zip(before) {
        own.insert(name, processor(pid)? - before);
    }
    std::thread::sleep(SETTLE);
    let findings = live.findings()?;
    let words = |finding: &serde_json::Value| {
        ["confidence", "detector", "cause", "summary"]
            .map(|key| finding[key].as_str().unwrap_or("-"))
            .join(" ")
    };
    let findings = findings["findings"].as_array().into_iter().flatten().map(words).collect();
    live.stop()?;
    Ok(Beside { pace, engines, own, findings })
}
