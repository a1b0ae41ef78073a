//! Judges the findings of one bundle against its `expected.toml`.
//!
//! Invariant: the rules equal those of the scoring script that outside users run on an executable, so that a pass here
//! is a pass there. Order of confidence: risk < suspected < confirmed. A detector that is neither demanded nor allowed
//! is a false positive at suspected or above; a risk never is, unless forbidden.

mod expected;

pub use expected::{Allowed, Demand, Expected, Malformed};

use crate::verdict::{Confidence, Found};
use std::collections::{BTreeMap, BTreeSet};

/// What the judge says of one bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Why the bundle fails, one sentence each; empty when it passes.
    pub reasons: Vec<String>,
    /// Detectors whose demand was met, one entry a demand.
    pub met: Vec<String>,
    /// Detectors that claimed what they must not.
    pub false_positives: Vec<String>,
    /// Detectors whose demand was not met.
    pub missed: Vec<String>,
}

impl Judgement {
    /// Whether the bundle passes.
    pub fn passes(&self) -> bool {
        self.reasons.is_empty()
    }

    /// The judgement on a run that gave no findings at all because it failed.
    pub fn failed_run(expected: &Expected, reason: String) -> Self {
        Self {
            reasons: vec![reason],
            missed: expected.must.iter().map(|demand| demand.detector.clone()).collect(),
            ..Self::default()
        }
    }
}

/// Judges findings.
pub fn judge(expected: &Expected, findings: &[Found]) -> Judgement {
    let mut judgement = Judgement::default();
    let mut limit: BTreeMap<&str, Confidence> = BTreeMap::new();
    for demand in &expected.must {
        raise(&mut limit, &demand.detector, demand.max_confidence);
        for name in &demand.alternatives {
            raise(&mut limit, name, Confidence::Confirmed);
        }
    }
    for demand in &expected.must {
        if is_met(demand, findings) {
            judgement.met.push(demand.detector.clone());
        } else {
            judgement.missed.push(demand.detector.clone());
            judgement.reasons.push(format!("missing {demand}{}", closest(demand, findings)));
        }
        if let Some(most) = demand.max_findings {
            let count = findings
                .iter()
                .filter(|found| demand.names().any(|name| name == found.detector))
                .filter(|found| found.confidence >= Confidence::Suspected)
                .count();
            if count as u64 > most {
                judgement.false_positives.push(demand.detector.clone());
                judgement
                    .reasons
                    .push(format!("{count} findings of {}, at most {most} expected", demand.detector));
            }
        }
    }
    for ((name, confidence, overclaimed), causes) in wrong(expected, &limit, findings) {
        let what = if overclaimed { "overclaimed" } else { "false positive" };
        let causes: Vec<&str> = causes.into_iter().collect();
        judgement.reasons.push(format!("{what} {name} {confidence} (cause {})", causes.join(", ")));
        judgement.false_positives.push(name.to_owned());
    }
    judgement
}

fn raise<'e>(limit: &mut BTreeMap<&'e str, Confidence>, name: &'e str, to: Confidence) {
    let entry = limit.entry(name).or_insert(to);
    *entry = (*entry).max(to);
}

/// Findings that must not be: (detector, confidence, whether the detector itself is expected) → causes.
fn wrong<'f>(
    expected: &Expected,
    limit: &BTreeMap<&str, Confidence>,
    findings: &'f [Found],
) -> BTreeMap<(&'f str, Confidence, bool), BTreeSet<&'f str>> {
    let mut wrong: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
    for found in findings {
        let forbidden = expected.forbid.contains(&found.detector);
        let within = limit.get(found.detector.as_str());
        let tolerated = within.is_some_and(|most| found.confidence <= *most)
            || expected.may.iter().any(|allowed| allowed.covers(found));
        if forbidden || (found.confidence >= Confidence::Suspected && !tolerated) {
            let overclaimed = within.is_some() && !forbidden;
            wrong
                .entry((found.detector.as_str(), found.confidence, overclaimed))
                .or_default()
                .insert(found.cause.as_deref().unwrap_or("None"));
        }
    }
    wrong
}

/// Requests may be spread over several findings of one detector.
fn is_met(demand: &Demand, findings: &[Found]) -> bool {
    demand.names().any(|name| {
        let fitting: Vec<&Found> = findings
            .iter()
            .filter(|found| found.detector == name && found.confidence >= demand.min_confidence)
            .filter(|found| demand.cause.is_none() || found.cause == demand.cause)
            .filter(|found| demand.tokens.is_none() || found.tokens == demand.tokens)
            .filter(|found| demand.count.is_none() || found.count == demand.count)
            .collect();
        !fitting.is_empty()
            && demand.requests.iter().all(|id| fitting.iter().any(|found| found.requests.contains(id)))
    })
}

/// The findings that came near, for whoever reads a failure.
fn closest(demand: &Demand, findings: &[Found]) -> String {
    let near: Vec<String> = findings
        .iter()
        .filter(|found| demand.names().any(|name| name == found.detector))
        .take(3)
        .map(|found| {
            format!(
                "{} {} cause={} requests={} tokens={} count={}",
                found.detector,
                found.confidence,
                found.cause.as_deref().unwrap_or("None"),
                found.requests.len(),
                shown(found.tokens),
                shown(found.count),
            )
        })
        .collect();
    if near.is_empty() { String::new() } else { format!(" (got {})", near.join(", ")) }
}

fn shown(number: Option<i64>) -> String {
    number.map_or_else(|| "None".to_owned(), |number| number.to_string())
}
