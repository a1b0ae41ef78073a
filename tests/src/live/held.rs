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
/// What holds until something else is said: how often it is said again depends on restarts.
const STANDING: [&str; 2] = ["worker", "factor"];
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
    /// Observations of workers that are not named: somebody else's engines on the same machine, left out.
    pub of_others: u64,
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
        let worker = observation.envelope.worker.as_ref();
        if worker.is_some_and(|worker| names.known(worker.as_str()).is_none()) {
            held.of_others += 1;
            return ControlFlow::Continue(());
        }
        let row = names.row(&observation);
        if matches!(observation.body, Body::Loss(_)) {
            *held.losses.entry(row).or_default() += 1;
        } else if !OF_THE_RUN.contains(&observation.body.kind()) {
            let said = held.observations.entry(row).or_default();
            *said = if STANDING.contains(&observation.body.kind()) { 1 } else { *said + 1 };
        }
        ControlFlow::Continue(())
    })?;
    for finding in ledger.all_findings()?.into_values().flatten() {
        let is_of_others = finding.workers.iter().any(|worker| names.known(worker).is_none());
        if finding.state == FindingState::Resolved || is_of_others {
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
    /// The name of a worker by its id, `{engine}-{leader pid}-{hash}`.
    fn known(&self, id: &str) -> Option<&String> {
        let pid = id.rsplit('-').nth(1)?.parse().ok()?;
        self.pids.get(&pid)
    }

    fn worker(&self, id: &str) -> String {
        self.known(id).cloned().unwrap_or_else(|| id.to_owned())
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
