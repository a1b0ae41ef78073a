//! The shape of a pack file, as `SCHEMA.md` describes it.
//!
//! Invariant: an unknown key is an error, never ignored. Positions are kept so that every later error can name its
//! line; what the values mean is checked in [`crate::validate`]. `source` and some `note`s speak to readers of the pack
//! alone.

use crate::metric::MetricType;
use crate::process::ProcessPlace;
use serde::Deserialize;
use std::collections::BTreeMap;
use toml::Spanned;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PackFile {
    pub(crate) engine: Spanned<String>,
    /// Facts of a worker of any engine under which the `[[fact]]`s of this file apply to it.
    #[serde(default)]
    pub(crate) applies_when: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) template: Vec<Spanned<RawTemplate>>,
    #[serde(default)]
    pub(crate) json: Vec<Spanned<RawJson>>,
    #[serde(default)]
    pub(crate) metric: Vec<Spanned<RawMetric>>,
    #[serde(default)]
    pub(crate) info: Vec<Spanned<RawInfo>>,
    #[serde(default)]
    pub(crate) fact: Vec<Spanned<RawFact>>,
    #[serde(default)]
    pub(crate) key: Vec<Spanned<RawKey>>,
    #[serde(default)]
    pub(crate) weights: Vec<Spanned<RawWeights>>,
    #[serde(default)]
    pub(crate) process: Vec<Spanned<RawProcess>>,
    #[serde(default)]
    pub(crate) endpoint: Vec<Spanned<RawEndpoint>>,
    #[serde(default)]
    pub(crate) answer: Vec<Spanned<RawAnswer>>,
    #[serde(default)]
    pub(crate) span: Vec<Spanned<RawSpan>>,
    #[serde(default)]
    pub(crate) guard: Vec<Spanned<RawGuard>>,
}

/// `[[template]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawTemplate {
    pub(crate) id: String,
    pub(crate) text: Spanned<String>,
    #[serde(default)]
    pub(crate) at_start: bool,
    #[serde(default)]
    pub(crate) user_text: bool,
    #[serde(default)]
    pub(crate) common: bool,
    pub(crate) since: Option<Spanned<String>>,
    pub(crate) until: Option<Spanned<String>>,
    pub(crate) level: Option<Spanned<String>>,
    pub(crate) kind: Spanned<String>,
    #[serde(default)]
    pub(crate) set: BTreeMap<String, Spanned<toml::Value>>,
    #[serde(default)]
    pub(crate) scale: BTreeMap<String, f64>,
    #[serde(default)]
    pub(crate) keys: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) compose: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) also: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) ignore_if: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) explains: bool,
    #[serde(default)]
    pub(crate) takes_cause: bool,
    #[serde(default)]
    pub(crate) alone: bool,
    #[serde(default)]
    pub(crate) implies: BTreeMap<String, Spanned<String>>,
    pub(crate) implies_since: Option<Spanned<String>>,
    pub(crate) implies_until: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) multiline: bool,
    #[serde(default)]
    pub(crate) folds: bool,
    #[serde(default)]
    pub(crate) answers: bool,
    pub(crate) example: Spanned<String>,
    pub(crate) source: String,
}

/// `[[json]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawJson {
    pub(crate) id: String,
    pub(crate) kind: Spanned<String>,
    #[serde(default)]
    pub(crate) set: BTreeMap<String, Spanned<toml::Value>>,
    pub(crate) example: Spanned<String>,
    #[serde(default)]
    pub(crate) when: BTreeMap<String, toml::Value>,
    #[serde(default)]
    pub(crate) present: Vec<String>,
    #[serde(default)]
    pub(crate) attributes: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) exists: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) compose: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) first: BTreeMap<String, Spanned<String>>,
    pub(crate) time: Option<String>,
    #[serde(default)]
    pub(crate) scale: BTreeMap<String, f64>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[metric]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawMetric {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(rename = "type")]
    pub(crate) metric_type: MetricType,
    pub(crate) counter: Spanned<String>,
    pub(crate) since: Option<Spanned<String>>,
    pub(crate) until: Option<Spanned<String>>,
    pub(crate) note: Option<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[info]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawInfo {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) value_is_time: bool,
}

/// `[[fact]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFact {
    pub(crate) fact: Spanned<String>,
    #[serde(default)]
    pub(crate) from: Vec<String>,
    pub(crate) compose: Option<Spanned<String>>,
    #[serde(rename = "match")]
    pub(crate) pattern: Option<Spanned<String>>,
    pub(crate) format: Option<String>,
    #[serde(default)]
    pub(crate) map: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) default: Vec<RawDefault>,
    #[serde(default)]
    pub(crate) when: BTreeMap<String, Spanned<String>>,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// One default of a `[[fact]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawDefault {
    pub(crate) since: Option<Spanned<String>>,
    pub(crate) until: Option<Spanned<String>>,
    pub(crate) value: String,
}

/// Where a `[[key]]` expression is matched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KeyPlace {
    /// The last parts of a path.
    #[default]
    Path,
    /// The last part of a path.
    FileName,
    /// A key that is no path, as a whole.
    Key,
}

/// One capture or several that are put together.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum OneOrMore {
    /// One.
    One(String),
    /// Several, in order.
    More(Vec<String>),
}

impl OneOrMore {
    pub(crate) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::More(names) => names,
        }
    }
}

/// How the content part of a key is brought to one form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Normalise {
    /// Signed or unpadded 64-bit hex becomes unsigned with 16 digits.
    LmcacheHash,
}

/// `[[key]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawKey {
    pub(crate) id: String,
    #[serde(rename = "match")]
    pub(crate) pattern: Spanned<String>,
    #[serde(default)]
    pub(crate) on: KeyPlace,
    pub(crate) content: Option<OneOrMore>,
    pub(crate) temporary: Option<Temporary>,
    #[serde(default)]
    pub(crate) fields: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) hex_fields: Vec<String>,
    #[serde(default)]
    pub(crate) rank_fields: Vec<Spanned<String>>,
    pub(crate) normalise: Option<Normalise>,
    #[serde(default)]
    pub(crate) not_artifact: bool,
    pub(crate) example: Spanned<OneOrMore>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// Whether a name is one used while writing.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub(crate) enum Temporary {
    /// Always or never.
    Flag(bool),
    /// When this capture took part in the match.
    Capture(String),
}

/// `[[weights]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawWeights {
    #[serde(rename = "match")]
    pub(crate) pattern: Spanned<String>,
    pub(crate) factor: Spanned<String>,
    pub(crate) digest: Option<String>,
    pub(crate) evidence: Option<String>,
    pub(crate) example: Spanned<OneOrMore>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[process]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawProcess {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) place: ProcessPlace,
    #[serde(default)]
    pub(crate) detached: bool,
    #[serde(default)]
    pub(crate) run: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) title: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) options: Vec<String>,
    #[serde(default)]
    pub(crate) environment: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) libraries: Vec<Spanned<String>>,
    pub(crate) role: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) roles: Vec<RawRole>,
    #[serde(default)]
    pub(crate) package: Vec<String>,
    pub(crate) positional: Option<String>,
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    #[serde(default)]
    pub(crate) lists: Vec<String>,
    #[serde(default)]
    pub(crate) named: Vec<String>,
    #[serde(default)]
    pub(crate) files: Vec<String>,
    pub(crate) example: Spanned<OneOrMore>,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[endpoint]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawEndpoint {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) port: Vec<String>,
    pub(crate) default_port: Option<u16>,
    pub(crate) serves: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) needs: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) unless: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) keeps_counters_when: Vec<String>,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[guard]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawGuard {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) since: Option<Spanned<String>>,
    pub(crate) until: Option<Spanned<String>>,
    #[serde(default)]
    pub(crate) when: BTreeMap<String, Spanned<String>>,
    #[serde(default)]
    pub(crate) off_when: BTreeMap<String, Spanned<String>>,
    pub(crate) covers: Vec<Spanned<String>>,
    #[serde(default)]
    pub(crate) converts: Vec<Spanned<String>>,
    pub(crate) outcome: String,
    #[serde(default, rename = "note")]
    _note: Option<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[answer]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAnswer {
    pub(crate) id: String,
    pub(crate) path: Spanned<String>,
    pub(crate) each: Option<String>,
    #[serde(default)]
    pub(crate) facts: BTreeMap<String, Spanned<String>>,
    pub(crate) engine_version: Option<String>,
    pub(crate) engine_id: Option<String>,
    pub(crate) adapter: Option<RawAdapter>,
    pub(crate) example: Spanned<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// `[[span]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawSpan {
    pub(crate) id: String,
    pub(crate) name: Spanned<String>,
    pub(crate) attributes: BTreeMap<String, Spanned<String>>,
    pub(crate) example: Spanned<String>,
    #[serde(default, rename = "source")]
    _source: String,
}

/// How an entry of a list in an `[[answer]]` is an adapter.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawAdapter {
    pub(crate) when: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

/// One rule for the role of a `[[process]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawRole {
    pub(crate) role: Spanned<String>,
    pub(crate) when: BTreeMap<String, Spanned<String>>,
}

/// The line of a byte offset, counted from 1.
pub(crate) fn line_of(text: &str, offset: usize) -> usize {
    let end = offset.min(text.len());
    memchr::memchr_iter(b'\n', &text.as_bytes()[..end]).count() + 1
}
