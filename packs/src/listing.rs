//! What packs hold, for people.

use crate::load::Packs;
use std::collections::BTreeMap;

/// What the packs of one engine hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// Ways in which a process is recognised.
    pub processes: usize,
}

impl Packs {
    /// One summary an engine, by name.
    pub fn list(&self) -> Vec<PackSummary> {
        let mut by_engine: BTreeMap<&str, PackSummary> = BTreeMap::new();
        for (file, engine) in &self.files {
            by_engine.entry(engine).or_default().files.push(file.clone());
        }
        for (engine, summary) in &mut by_engine {
            summary.engine = (*engine).to_owned();
            summary.templates = self.templates.iter().filter(|template| template.engine == *engine).count()
                + self.json.iter().filter(|signature| signature.engine == *engine).count();
            summary.metrics = self.metrics.meanings().filter(|meaning| meaning.engine == *engine).count();
            summary.facts = self.facts.iter().filter(|rule| rule.engine == *engine).count();
            summary.keys = self.keys.len_of(engine);
            summary.processes = self.processes.entries().filter(|entry| entry.engine == *engine).count();
        }
        by_engine.into_values().collect()
    }

    /// A template by its id.
    pub fn template(&self, id: &str) -> Option<&crate::template::Template> {
        self.templates.iter().find(|template| template.id == id).map(AsRef::as_ref)
    }

    /// Every template, in the order of the packs.
    pub fn templates(&self) -> impl Iterator<Item = &crate::template::Template> {
        self.templates.iter().map(AsRef::as_ref)
    }
}
