//! What came of one fault, for people.

use super::rig::Run;
use crate::lab::live::Live;
use kvprov_tests::judge::{Expected, Judgement};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One fault.
pub(super) struct Row {
    fault: String,
    expected: Vec<String>,
    got: Vec<Got>,
    /// What is missing or too much, one sentence each.
    reasons: Vec<String>,
    /// Findings above a risk that were stated in between and stand no more.
    taken_back: Vec<String>,
    /// How many findings the recording gave alike; or the difference.
    replay: Option<Result<usize, String>>,
}

/// One finding that stands.
struct Got {
    detector: String,
    cause: String,
    confidence: String,
    requests: Vec<String>,
    /// From the last event of its evidence to its first sight with this confidence.
    after_evidence: Option<f64>,
    /// From the end of its last expected request to the first sight that names it.
    after_request: Option<f64>,
}

// === impl Row ===

impl Row {
    pub(super) fn new(
        fault: &str,
        expected: &Expected,
        judgement: Judgement,
        findings: &Value,
        (live, run): (&Live, &Run<'_>),
        ends: &BTreeMap<String, f64>,
        replay: Option<Result<usize, String>>,
    ) -> Self {
        let standing = findings["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let ids: BTreeSet<String> = standing.iter().map(|finding| text(finding, "id")).collect();
        let taken_back = live
            .sightings()
            .filter(|sighting| sighting.confidence != "risk" && !ids.contains(&sighting.id))
            .filter(|sighting| sighting.workers.iter().any(|worker| run.has_worker(worker)))
            .map(|sighting| format!("{} {} {}", sighting.detector, sighting.cause, sighting.confidence));
        Self {
            fault: fault.to_owned(),
            expected: expected.must.iter().map(ToString::to_string).collect(),
            got: standing.iter().map(|finding| Got::new(finding, live, ends)).collect(),
            reasons: judgement.reasons,
            taken_back: taken_back.collect(),
            replay,
        }
    }

    /// A fault whose run did not come to its end.
    pub(super) fn failed(fault: &str, error: &anyhow::Error) -> Self {
        Self {
            fault: fault.to_owned(),
            expected: Vec::new(),
            got: Vec::new(),
            reasons: vec![format!("the run failed: {error:#}")],
            taken_back: Vec::new(),
            replay: None,
        }
    }

    /// Whether everything demanded was stated, nothing else, nothing was taken back, and the recording says the same.
    pub(super) fn is_right(&self) -> bool {
        self.reasons.is_empty() && self.taken_back.is_empty() && !matches!(self.replay, Some(Err(_)))
    }

    fn mark(&self) -> &'static str {
        if self.is_right() { "ok" } else { "WRONG" }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<5} {}", self.mark(), self.fault)?;
        let none = ["silence".to_owned()];
        let expected = if self.expected.is_empty() { none.as_slice() } else { self.expected.as_slice() };
        for demand in expected {
            write!(f, "\n        expected    {demand}")?;
        }
        for got in &self.got {
            write!(f, "\n        got         {got}")?;
        }
        for reason in &self.reasons {
            write!(f, "\n        wrong       {reason}")?;
        }
        for finding in &self.taken_back {
            write!(f, "\n        taken back  {finding}")?;
        }
        match &self.replay {
            Some(Ok(count)) => write!(f, "\n        replay      the same {count}"),
            Some(Err(difference)) => write!(f, "\n        replay      differs: {difference}"),
            None => Ok(()),
        }
    }
}

/// Every fault in one line: what a reader of a whole pass wants to see at a glance.
pub(super) fn summary(rows: &[Row]) -> String {
    let mut text = format!("      {:<20} {:<62} {:>8} {:>8}\n", "fault", "got", "evidence", "request");
    for row in rows {
        let above: Vec<&Got> = row.got.iter().filter(|got| got.confidence != "risk").collect();
        let said: Vec<String> =
            above.iter().map(|got| format!("{} {} {}", got.detector, got.cause, got.confidence)).collect();
        let said = if said.is_empty() { "-".to_owned() } else { said.join(", ") };
        let longest = |of: fn(&Got) -> Option<f64>| {
            let all = above.iter().filter_map(|got| of(got)).reduce(f64::max);
            all.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.1} s"))
        };
        text.push_str(&format!(
            "{:<5} {:<20} {said:<62} {:>8} {:>8}\n",
            row.mark(),
            row.fault,
            longest(|got| got.after_evidence),
            longest(|got| got.after_request),
        ));
    }
    let right = rows.iter().filter(|row| row.is_right()).count();
    text.push_str(&format!("{right} of {} as expected", rows.len()));
    text
}

// === impl Got ===

impl Got {
    fn new(finding: &Value, live: &Live, ends: &BTreeMap<String, f64>) -> Self {
        let (id, confidence) = (text(finding, "id"), text(finding, "confidence"));
        let sighting = live.sightings().find(|s| s.id == id && s.confidence == confidence);
        let listed = finding["requests"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let requests: Vec<String> =
            listed.filter(|request| ends.contains_key(*request)).map(str::to_owned).collect();
        let waited = |request: &String| {
            let named = live.named().get(&(id.clone(), request.clone()))?;
            // It counts only from when it was as sure as it is now.
            let named = sighting.map_or(*named, |sighting| named.max(sighting.at));
            Some(named - ends.get(request)?)
        };
        Self {
            detector: text(finding, "detector"),
            cause: text(finding, "cause"),
            after_evidence: sighting.map(|s| s.seconds).filter(|seconds| seconds.is_finite()),
            after_request: requests.iter().filter_map(waited).reduce(f64::max),
            confidence,
            requests,
        }
    }
}

impl fmt::Display for Got {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {:?}", self.detector, self.cause, self.confidence, self.requests)?;
        if let Some(seconds) = self.after_evidence {
            write!(f, ", {seconds:.1} s after its evidence")?;
        }
        match self.after_request {
            Some(seconds) => write!(f, ", {seconds:.1} s after the answer"),
            None => Ok(()),
        }
    }
}

fn text(finding: &Value, name: &str) -> String {
    finding[name].as_str().unwrap_or_default().to_owned()
}
