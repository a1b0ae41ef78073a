//! `expected.toml`: what a bundle demands, allows and forbids.
//!
//! Input: files of the corpus. Unknown keys and words are errors, so that a slip of the pen does not weaken a test.

use crate::verdict::{Confidence, DETECTORS, Found};
use std::fmt;
use std::path::Path;
use toml::{Table, Value};

/// What a bundle demands, allows and forbids.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Findings that have to appear.
    pub must: Vec<Demand>,
    /// Findings that are no error.
    pub may: Vec<Allowed>,
    /// Detectors that must not appear at all, not even as risk.
    pub forbid: Vec<String>,
    /// Reason in one line.
    pub why: String,
}

/// One finding that has to appear.
#[derive(Debug, Clone)]
pub struct Demand {
    /// The detector.
    pub detector: String,
    /// Detectors accepted in its place.
    pub alternatives: Vec<String>,
    /// At least this sure.
    pub min_confidence: Confidence,
    /// A stronger claim of the detector counts as false positive.
    pub max_confidence: Confidence,
    /// The cause, where the input fixes it.
    pub cause: Option<String>,
    /// Ids that have to be among those of the fitting findings.
    pub requests: Vec<String>,
    /// The tokens, where the input fixes them.
    pub tokens: Option<i64>,
    /// The count, where the input fixes it.
    pub count: Option<i64>,
    /// At most so many findings of the detector at suspected or above.
    pub max_findings: Option<u64>,
}

/// A finding that is no error.
#[derive(Debug, Clone)]
pub struct Allowed {
    detector: String,
    confidence: Confidence,
    cause: Option<String>,
}

/// `expected.toml` cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("reading what {file} expects: {what}; its keys are described in tests/incidents/field/README.md")]
pub struct Malformed {
    file: String,
    what: String,
}

// === impl Expected ===

impl Expected {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, Malformed> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| Malformed { file: file.clone(), what: error.to_string() })?;
        Self::parse(&text).map_err(|what| Malformed { file, what })
    }

    /// Parses the text of the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let mut expected = Self::default();
        for (key, value) in &table {
            match key.as_str() {
                "must" => expected.must = list(key, value)?.map(demand).collect::<Result<_, _>>()?,
                "may" => expected.may = list(key, value)?.map(allowed).collect::<Result<_, _>>()?,
                "forbid" => expected.forbid = list(key, value)?.map(detector).collect::<Result<_, _>>()?,
                "why" => expected.why = text_of(key, value)?,
                other => return Err(format!("unknown key {other:?}")),
            }
        }
        Ok(expected)
    }
}

// === impl Demand ===

impl Demand {
    /// The detector and those accepted in its place.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.detector.as_str()).chain(self.alternatives.iter().map(String::as_str))
    }
}

impl fmt::Display for Demand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}>={}", self.names().collect::<Vec<_>>().join("/"), self.min_confidence)?;
        if let Some(cause) = &self.cause {
            write!(f, " cause={cause}")?;
        }
        if !self.requests.is_empty() {
            write!(f, " requests={:?}", self.requests)?;
        }
        if let Some(tokens) = self.tokens {
            write!(f, " tokens={tokens}")?;
        }
        if let Some(count) = self.count {
            write!(f, " count={count}")?;
        }
        Ok(())
    }
}

// === impl Allowed ===

impl Allowed {
    /// Whether the finding is covered.
    pub fn covers(&self, found: &Found) -> bool {
        found.detector == self.detector
            && found.confidence <= self.confidence
            && (self.cause.is_none() || self.cause == found.cause)
    }
}

fn demand(value: &Value) -> Result<Demand, String> {
    let Value::Table(table) = value else { return Err("entry of must is not a table".to_owned()) };
    let mut demand = Demand {
        detector: String::new(),
        alternatives: Vec::new(),
        min_confidence: Confidence::Suspected,
        max_confidence: Confidence::Confirmed,
        cause: None,
        requests: Vec::new(),
        tokens: None,
        count: None,
        max_findings: None,
    };
    for (key, value) in table {
        match key.as_str() {
            "detector" => demand.detector = detector(value)?,
            "alt" => demand.alternatives = list(key, value)?.map(detector).collect::<Result<_, _>>()?,
            "min_confidence" => demand.min_confidence = confidence(&text_of(key, value)?)?,
            "max_confidence" => demand.max_confidence = confidence(&text_of(key, value)?)?,
            "cause" => demand.cause = Some(text_of(key, value)?),
            "requests" => {
                demand.requests = list(key, value)?.map(|id| text_of(key, id)).collect::<Result<_, _>>()?;
            }
            "tokens" => demand.tokens = Some(integer(key, value)?),
            "count" => demand.count = Some(integer(key, value)?),
            "max_findings" => {
                demand.max_findings =
                    Some(u64::try_from(integer(key, value)?).map_err(|_| format!("{key} is negative"))?);
            }
            other => return Err(format!("unknown key {other:?} in must")),
        }
    }
    if demand.detector.is_empty() {
        return Err("entry of must without detector".to_owned());
    }
    if demand.min_confidence > demand.max_confidence {
        return Err("min_confidence above max_confidence".to_owned());
    }
    Ok(demand)
}

/// `"name"`, `"name:confidence"` or a table with detector, confidence, cause.
fn allowed(value: &Value) -> Result<Allowed, String> {
    if let Value::Table(table) = value {
        let get = |key: &str| table.get(key).map(|value| text_of(key, value)).transpose();
        return Ok(Allowed {
            detector: detector(table.get("detector").ok_or("entry of may without detector")?)?,
            confidence: get("confidence")?.map_or(Ok(Confidence::Confirmed), |word| confidence(&word))?,
            cause: get("cause")?,
        });
    }
    let text = text_of("may", value)?;
    let (name, word) = text.split_once(':').unwrap_or((&text, ""));
    Ok(Allowed {
        detector: detector(&Value::String(name.to_owned()))?,
        confidence: if word.is_empty() { Confidence::Confirmed } else { confidence(word)? },
        cause: None,
    })
}

fn detector(value: &Value) -> Result<String, String> {
    let name = text_of("detector", value)?;
    if DETECTORS.contains(&name.as_str()) { Ok(name) } else { Err(format!("unknown detector {name:?}")) }
}

fn confidence(word: &str) -> Result<Confidence, String> {
    Confidence::parse(word).ok_or_else(|| format!("unknown confidence {word:?}"))
}

fn list<'v>(key: &str, value: &'v Value) -> Result<std::slice::Iter<'v, Value>, String> {
    value.as_array().map(|list| list.iter()).ok_or_else(|| format!("{key} is not a list"))
}

fn text_of(key: &str, value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("{key} is not text"))
}

fn integer(key: &str, value: &Value) -> Result<i64, String> {
    value.as_integer().ok_or_else(|| format!("{key} is not an integer"))
}
