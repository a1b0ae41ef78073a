//! What an engine's answer over HTTP says, by an allow-list of its fields.
//!
//! Invariant: a field that no entry names is never kept; kept values are scalars of bounded length.

use crate::load::Packs;
use serde_json::Value;
use std::collections::BTreeMap;

/// Longest value that is kept, in bytes.
const MAX_VALUE: usize = 1024;
/// Entries of a list that are read.
const MAX_ENTRIES: usize = 4096;

/// One `[[answer]]`, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AnswerRule {
    pub(crate) id: String,
    pub(crate) engine: String,
    pub(crate) path: String,
    /// Dotted path of the list whose entries are read; `None`: the object itself.
    pub(crate) each: Option<String>,
    /// Fact and the dotted path of its value.
    pub(crate) facts: BTreeMap<String, String>,
    pub(crate) engine_version: Option<String>,
    pub(crate) engine_id: Option<String>,
    pub(crate) adapter: Option<AdapterRule>,
}

/// How an entry of a list is an adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AdapterRule {
    /// What an adapter has and a model has not.
    pub(crate) when: String,
    pub(crate) name: String,
    pub(crate) path: String,
}

/// What an answer says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said<'p> {
    /// Name of the `[[answer]]` entry.
    pub id: &'p str,
    /// Facts of the worker.
    pub facts: BTreeMap<String, String>,
    /// The engine's version.
    pub engine_version: Option<String>,
    /// The id by which peers know it.
    pub engine_id: Option<String>,
    /// Paths of adapters by name; `None`: the answer lists none by its nature.
    pub adapters: Option<BTreeMap<String, String>>,
}

impl AnswerRule {
    fn read(&self, answer: &Value) -> Said<'_> {
        let mut said = Said {
            id: &self.id,
            adapters: self.adapter.as_ref().map(|_| BTreeMap::new()),
            ..Said::default()
        };
        let one = std::slice::from_ref(answer);
        let entries = match &self.each {
            None => one,
            Some(path) => at(answer, path).and_then(Value::as_array).map_or(&[][..], Vec::as_slice),
        };
        for entry in entries.iter().take(MAX_ENTRIES) {
            if let Some(rule) = &self.adapter
                && at(entry, &rule.when).is_some_and(|value| !value.is_null())
            {
                if let (Some(name), Some(adapters)) = (scalar(entry, &rule.name), &mut said.adapters) {
                    adapters.insert(name, scalar(entry, &rule.path).unwrap_or_default());
                }
                continue;
            }
            for (fact, path) in &self.facts {
                if let Some(value) = scalar(entry, path) {
                    // The first entry counts, as the first of several names does among settings.
                    said.facts.entry(fact.clone()).or_insert(value);
                }
            }
            let first = |known: Option<String>, path: &Option<String>| {
                known.or_else(|| scalar(entry, path.as_deref()?))
            };
            said.engine_version = first(said.engine_version.take(), &self.engine_version);
            said.engine_id = first(said.engine_id.take(), &self.engine_id);
        }
        said
    }
}

impl Packs {
    /// Whether anything that an engine answers at a path is understood.
    pub fn reads_answer(&self, engine: &str, path: &str) -> bool {
        self.answers.iter().any(|rule| rule.engine == engine && rule.path == path)
    }

    /// Reads what an engine answered at a path; `None` when nothing of it is understood.
    pub fn read_answer(&self, engine: &str, path: &str, answer: &Value) -> Option<Said<'_>> {
        let rule = self.answers.iter().find(|rule| rule.engine == engine && rule.path == path)?;
        let said = rule.read(answer);
        let is_empty = said.facts.is_empty() && said.engine_version.is_none() && said.engine_id.is_none();
        (!is_empty || said.adapters.as_ref().is_some_and(|adapters| !adapters.is_empty())).then_some(said)
    }
}

fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').try_fold(value, |value, name| value.get(name))
}

/// A value that can be kept as text.
fn scalar(value: &Value, path: &str) -> Option<String> {
    let text = match at(value, path)? {
        Value::String(text) => text.clone(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => return None,
    };
    (!text.is_empty() && text.len() <= MAX_VALUE && !text.chars().any(char::is_control)).then_some(text)
}
