//! What packs hold, for people.

use crate::load::Packs;
use crate::version::VersionRange;

/// What the packs of one engine hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSummary {
    /// The engine.
    pub engine: String,
    /// Files, by relative path.
    pub files: Vec<String>,
    /// Log templates, JSON lines among them.
    pub templates: usize,
    /// Meanings of metrics.
    pub metrics: usize,
    /// Rules for facts.
    pub facts: usize,
    /// Grammars of keys.
    pub keys: usize,
    /// The span of versions that entries name: the earliest `since` and the latest bound.
    pub versions: VersionRange,
}

impl Packs {
    /// One summary an engine, by name.
    pub fn list(&self) -> Vec<PackSummary> {
        Vec::new()
    }
}
