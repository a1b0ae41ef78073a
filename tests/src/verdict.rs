//! What replay prints, as far as tests look at it, and what of it makes two runs say the same.
//!
//! Input: the JSON of `kvprov replay --format json`. It is read here by its documented names and not through the types
//! of the workspace, so that a change of the printed form breaks a test.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// Names of the detectors, as printed.
pub const DETECTORS: [&str; 12] = [
    "silent_recompute",
    "kv_transfer_failed",
    "stale_kv_read",
    "cross_revision_hit",
    "keyspace_fork",
    "mutual_eviction",
    "store_pressure",
    "store_conflict",
    "handshake_stall",
    "guard_disabled",
    "output_divergence",
    "unexpected_revision",
];

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confidence {
    /// The configuration allows it.
    Risk,
    /// Consistent with it.
    Suspected,
    /// Proven.
    Confirmed,
}

/// A place that proves a finding.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Proof {
    /// File of the bundle.
    pub source: String,
    /// Line from 1; 0 for a source as a whole.
    pub line: usize,
    /// What is said there.
    pub says: String,
}

/// A finding as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Stable id.
    pub id: String,
    /// Detector.
    pub detector: String,
    /// Confidence.
    pub confidence: Confidence,
    /// Cause; `None` when none is printed.
    pub cause: Option<String>,
    /// Requests concerned.
    pub requests: BTreeSet<String>,
    /// Workers concerned.
    pub workers: BTreeSet<String>,
    /// Tokens.
    pub tokens: Option<i64>,
    /// Distinct requests or events.
    pub count: Option<i64>,
    /// Evidence.
    pub evidence: Vec<Proof>,
}

/// What must stay equal when only names, clocks or the order of input change.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Verdict {
    /// Detector.
    pub detector: String,
    /// Confidence.
    pub confidence: Confidence,
    /// Cause.
    pub cause: Option<String>,
    /// Distinct requests or events.
    pub count: Option<i64>,
    /// Tokens.
    pub tokens: Option<i64>,
    /// Requests concerned.
    pub requests: BTreeSet<String>,
}

/// The output of replay cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reading the output of replay: {0}")]
pub struct Unusable(String);

// === impl Confidence ===

impl Confidence {
    /// From the printed word.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "risk" => Some(Self::Risk),
            "suspected" => Some(Self::Suspected),
            "confirmed" => Some(Self::Confirmed),
            _ => None,
        }
    }
}

impl fmt::Display for Confidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Risk => "risk",
            Self::Suspected => "suspected",
            Self::Confirmed => "confirmed",
        })
    }
}

// === impl Found ===

impl Found {
    /// All findings of one output.
    pub fn all(output: &Value) -> Result<Vec<Self>, Unusable> {
        let list = output.get("findings").ok_or_else(|| Unusable("no findings".to_owned()))?;
        let list = list.as_array().ok_or_else(|| Unusable("findings is not a list".to_owned()))?;
        list.iter().map(Self::read).collect()
    }

    /// The part that must stay equal.
    pub fn verdict(&self) -> Verdict {
        Verdict {
            detector: self.detector.clone(),
            confidence: self.confidence,
            cause: self.cause.clone(),
            count: self.count,
            tokens: self.tokens,
            requests: self.requests.clone(),
        }
    }

    fn read(value: &Value) -> Result<Self, Unusable> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let detector = text("detector").ok_or_else(|| Unusable("finding without detector".to_owned()))?;
        if !DETECTORS.contains(&detector.as_str()) {
            return Err(Unusable(format!("unknown detector {detector:?}")));
        }
        let word = text("confidence").ok_or_else(|| Unusable("finding without confidence".to_owned()))?;
        let confidence =
            Confidence::parse(&word).ok_or_else(|| Unusable(format!("unknown confidence {word:?}")))?;
        Ok(Self {
            id: text("id").unwrap_or_default(),
            detector,
            confidence,
            cause: text("cause"),
            requests: texts(value, "requests")?,
            workers: texts(value, "workers")?,
            tokens: value.get("tokens").and_then(Value::as_i64),
            count: value.get("count").and_then(Value::as_i64),
            evidence: proofs(value),
        })
    }
}

fn texts(value: &Value, key: &str) -> Result<BTreeSet<String>, Unusable> {
    match value.get(key) {
        None | Some(Value::Null) => Ok(BTreeSet::new()),
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| text.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .ok_or_else(|| Unusable(format!("{key} is not a list of text"))),
        Some(_) => Err(Unusable(format!("{key} is not a list of text"))),
    }
}

fn proofs(value: &Value) -> Vec<Proof> {
    let Some(list) = value.get("evidence").and_then(Value::as_array) else { return Vec::new() };
    list.iter()
        .map(|proof| Proof {
            source: proof.get("source").and_then(Value::as_str).unwrap_or_default().to_owned(),
            line: proof
                .get("line")
                .and_then(Value::as_u64)
                .and_then(|line| usize::try_from(line).ok())
                .unwrap_or(0),
            says: proof.get("says").and_then(Value::as_str).unwrap_or_default().to_owned(),
        })
        .collect()
}
