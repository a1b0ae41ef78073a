//! One log line of an engine, compiled.

use crate::version::VersionRange;
use std::collections::BTreeMap;

/// One `[[template]]`.
#[derive(Debug, Clone)]
pub struct Template {
    /// Unique name, starts with the engine.
    pub id: String,
    /// The engine whose pack holds it.
    pub engine: String,
    /// The text with its placeholders.
    pub text: String,
    /// Versions that print it.
    pub versions: VersionRange,
    /// Level at which it is printed; informational.
    pub level: Option<String>,
    /// Kind of observation; `none` for a line without meaning.
    pub kind: String,
    /// Says why a neighbouring line failed.
    pub explains: bool,
    /// A failure whose cause a neighbouring line tells.
    pub takes_cause: bool,
    /// Facts of the worker that this wording proves.
    pub implies: BTreeMap<String, String>,
    /// Versions that print this wording, where narrower than `versions`; only for workers of unknown version.
    pub implied_versions: VersionRange,
    /// The message may run on over following bare lines.
    pub multiline: bool,
    /// Equal ones fold into one observation with `times`.
    pub folds: bool,
    /// A full message as printed.
    pub example: String,
    /// Where it was read.
    pub source: String,
}
