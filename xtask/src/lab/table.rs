//! What came of the cases, for people.

use crate::lab::cases::Case;
use crate::lab::live::Sighting;
use kvprov_tests::live::{Agreement, Deed};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One case.
pub(crate) struct Row {
    case: &'static Case,
    /// Findings that are more than a risk: detector, cause, confidence.
    got: BTreeSet<(String, String, String)>,
    /// From the event that completed the evidence to the confirmed finding.
    seconds: Option<f64>,
    /// Confirmed findings that were stated in between and are gone.
    taken_back: Vec<String>,
    pub(crate) agreements: BTreeMap<Deed, Agreement>,
    /// Whether the recording gave the same findings under the same ids; and how many.
    replay: Option<Result<usize, String>>,
}

// === impl Row ===

impl Row {
    pub(crate) fn new<'s>(
        case: &'static Case,
        findings: &Value,
        sightings: impl Iterator<Item = &'s Sighting>,
        agreements: BTreeMap<Deed, Agreement>,
        replayed: Option<&Value>,
    ) -> Self {
        let got: BTreeSet<(String, String, String)> = above_risk(findings).collect();
        let mut seconds: Option<f64> = None;
        let mut taken_back = Vec::new();
        for sighting in sightings.filter(|sighting| sighting.confidence == "confirmed") {
            if !got
                .iter()
                .any(|(detector, cause, _)| *detector == sighting.detector && *cause == sighting.cause)
            {
                taken_back.push(format!("{} {}", sighting.detector, sighting.cause));
            }
            let is_expected = case.expected.is_some_and(|(detector, _)| detector == sighting.detector);
            if is_expected && seconds.is_none_or(|known| sighting.seconds < known) {
                seconds = Some(sighting.seconds);
            }
        }
        let replay = replayed.map(|replayed| compare(findings, replayed));
        Self { case, got, seconds, taken_back, agreements, replay }
    }

    /// Whether the verdict is the expected one and nothing else was stated.
    pub(crate) fn is_right(&self) -> bool {
        let found = match self.case.expected {
            Some((detector, cause)) => self.got.iter().any(|(got, of, confidence)| {
                got == detector && cause.split('|').any(|cause| of == cause) && confidence == "confirmed"
            }),
            None => true,
        };
        let beside = self.got.iter().all(|(got, _, _)| {
            self.case.expected.is_some_and(|(detector, _)| detector == got)
                || self.case.also.contains(&got.as_str())
        });
        let replayed = !matches!(self.replay, Some(Err(_)));
        found && beside && replayed && self.taken_back.is_empty()
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected =
            self.case.expected.map_or("none".to_owned(), |(detector, cause)| format!("{detector} {cause}"));
        let got: Vec<String> = self
            .got
            .iter()
            .map(|(detector, cause, confidence)| format!("{detector} {cause} {confidence}"))
            .collect();
        let got = if got.is_empty() { "none".to_owned() } else { got.join(", ") };
        let seconds = self.seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.1} s"));
        write!(f, "{:<5} {:<24} {expected:<30} {got:<56} {seconds:>7}", self.mark(), self.case.name)?;
        for (deed, agreement) in &self.agreements {
            write!(f, "  {deed:?} {}/{}/{}", agreement.both, agreement.seen, agreement.happened)?;
        }
        match &self.replay {
            Some(Ok(count)) => write!(f, "  replay: the same {count}")?,
            Some(Err(difference)) => write!(f, "  replay differs: {difference}")?,
            None => {}
        }
        if !self.taken_back.is_empty() {
            write!(f, "  taken back: {}", self.taken_back.join(", "))?;
        }
        Ok(())
    }
}

impl Row {
    fn mark(&self) -> &'static str {
        if self.is_right() { "ok" } else { "WRONG" }
    }
}

/// The whole table.
pub(crate) fn render(rows: &[Row], total: &BTreeMap<Deed, Agreement>) -> String {
    let mut text =
        format!("      {:<24} {:<30} {:<56} {:>7}  both/seen/happened\n", "case", "expected", "got", "after");
    for row in rows {
        text.push_str(&format!("{row}\n"));
    }
    for (deed, agreement) in total {
        text.push_str(&format!(
            "{deed:?}: precision {:.4}, recall {:.4} ({} of {} seen, {} happened)\n",
            agreement.precision(),
            agreement.recall(),
            agreement.both,
            agreement.seen,
            agreement.happened
        ));
    }
    text
}

fn text(finding: &Value, name: &str) -> String {
    finding[name].as_str().unwrap_or_default().to_owned()
}

fn above_risk(findings: &Value) -> impl Iterator<Item = (String, String, String)> {
    findings["findings"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter(|finding| finding["confidence"] != "risk" && finding["state"] != "resolved")
        .map(|finding| (text(finding, "detector"), text(finding, "cause"), text(finding, "confidence")))
}

/// Compares live findings with those of the recording: number of equal ones, or what differs.
pub(crate) fn compare(live: &Value, replayed: &Value) -> Result<usize, String> {
    let set = |findings: &Value| -> BTreeSet<(String, String, String, String)> {
        findings["findings"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
            .iter()
            .filter(|finding| finding["state"] != "resolved")
            .map(|finding| {
                (
                    text(finding, "id"),
                    text(finding, "detector"),
                    text(finding, "cause"),
                    text(finding, "confidence"),
                )
            })
            .collect()
    };
    let (live, replayed) = (set(live), set(replayed));
    if live == replayed {
        return Ok(live.len());
    }
    let only = |a: &BTreeSet<_>, b: &BTreeSet<_>| format!("{:?}", a.difference(b).collect::<Vec<_>>());
    Err(format!("live only {}, replay only {}", only(&live, &replayed), only(&replayed, &live)))
}
