//! What a ledger holds in words that are the same in another run of the same load: no ids, no times, no pids.

use kvprov_collector::ledger::{EmbeddedLedger, Ledger, LedgerError, Limits};
use kvprov_model::finding::FindingState;
use kvprov_model::observation::{Body, Observation};
use kvprov_model::value::Value;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// How often each row is held.
pub type Rows = BTreeMap<String, u64>;

/// What another run tells otherwise: signs of life, clocks, figures of the moment.
const OF_THE_RUN: [&str; 3] = ["alive", "clock", "counters"];
/// Attributes that are of the processes or the moment.
const OF_THE_PROCESS: [&str; 3] = ["pid", "pids", "duration_ns"];

/// What a ledger holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// Observations by kind and what they say.
    pub observations: Rows,
    /// Findings that stand.
    pub findings: Rows,
    /// What was said to be lost.
    pub losses: Rows,
}

/// Names that stand for what is another in every run.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Name of each leader's process.
    pub pids: BTreeMap<u32, String>,
    /// Texts and what to put in their place.
    pub texts: Vec<(String, String)>,
}

/// Reads a ledger that nobody else has open.
pub fn read(directory: &Path, names: &Names) -> Result<Held, LedgerError> {
    let ledger = EmbeddedLedger::open(directory, Limits::unbounded())?;
    let mut held = Held::default();
    ledger.each_observation(&mut |observation| {
        let row = names.row(&observation);
        if matches!(observation.body, Body::Loss(_)) {
            *held.losses.entry(row).or_default() += 1;
        } else if !OF_THE_RUN.contains(&observation.body.kind()) {
            *held.observations.entry(row).or_default() += 1;
        }
        ControlFlow::Continue(())
    })?;
    for finding in ledger.all_findings()?.into_values().flatten() {
        if finding.state == FindingState::Resolved {
            continue;
        }
        let mut workers: Vec<String> = finding.workers.iter().map(|worker| names.worker(worker)).collect();
        workers.sort();
        let row = format!(
            "{} {} {:?} {}",
            finding.detector.as_str(),
            finding.cause.as_str(),
            finding.confidence,
            workers.join(" ")
        );
        *held.findings.entry(row).or_default() += 1;
    }
    Ok(held)
}

/// Rows that one holds more often than the other: how often here, how often there.
pub fn differences<'r>(here: &'r Rows, there: &'r Rows) -> Vec<(&'r str, u64, u64)> {
    let count = |rows: &Rows, row: &str| rows.get(row).copied().unwrap_or(0);
    let mut rows: Vec<&String> = here.keys().chain(there.keys()).collect();
    rows.sort();
    rows.dedup();
    rows.into_iter()
        .map(|row| (row.as_str(), count(here, row), count(there, row)))
        .filter(|(_, here, there)| here != there)
        .collect()
}

// === impl Names ===

impl Names {
    /// A worker's id as its name: `{engine}-{leader pid}-{hash}`.
    fn worker(&self, id: &str) -> String {
        let pid = id.rsplit('-').nth(1).and_then(|pid| pid.parse().ok());
        pid.and_then(|pid: u32| self.pids.get(&pid)).cloned().unwrap_or_else(|| id.to_owned())
    }

    fn text(&self, text: &str) -> String {
        self.texts.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn row(&self, observation: &Observation) -> String {
        let worker = observation.envelope.worker.as_ref().map(|worker| self.worker(worker.as_str()));
        let mut row = format!("{} of {}", observation.body.kind(), worker.unwrap_or_default());
        observation.body.for_each_attribute(|name, value| {
            if !OF_THE_PROCESS.contains(&name) {
                row.push_str(&format!(" {name}={}", self.value(&value)));
            }
        });
        row
    }

    fn value(&self, value: &Value) -> String {
        match value {
            Value::Str(text) => self.text(text),
            other => self.text(&format!("{other:?}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_named_by_its_leader() {
        let names = Names { pids: BTreeMap::from([(7, "a".to_owned())]), texts: Vec::new() };
        assert_eq!(names.worker("sglang-7-0011aabb"), "a");
        assert_eq!(names.worker("sglang-8-0011aabb"), "sglang-8-0011aabb");
    }

    #[test]
    fn what_is_held_more_often_is_a_difference() {
        let here = Rows::from([("x".to_owned(), 2), ("y".to_owned(), 1)]);
        let there = Rows::from([("x".to_owned(), 1), ("y".to_owned(), 1), ("z".to_owned(), 1)]);
        assert_eq!(differences(&here, &there), [("x", 2, 1), ("z", 0, 1)]);
    }
}
