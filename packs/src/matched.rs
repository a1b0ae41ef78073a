//! A message that matched a template, and what it says.

use crate::template::Template;
use kvprov_model::finding::Cause;
use kvprov_model::observation::Body;
use std::collections::BTreeMap;

/// A message that matched.
#[derive(Debug, Clone)]
pub struct Match<'p> {
    /// The template.
    pub template: &'p Template,
    /// The message ended before the template's text did.
    pub cut: bool,
}

impl Match<'_> {
    /// The observation's body; `None` when the line has no meaning (kind `none`, or a value of `ignore_if`).
    pub fn body(&self) -> Option<Body> {
        None
    }
    /// The words: the template's text with the values of kept placeholders, at most 300 bytes.
    pub fn says(&self) -> String {
        String::new()
    }
    /// Facts that placeholders `facts.<fact>` hold; names in `model::fact`.
    pub fn facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// Settings that a `settings` placeholder holds, by dotted name; only those that some `[[fact]]` reads.
    pub fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
    /// The kind; `none` for a line without meaning.
    pub fn kind(&self) -> &str {
        &self.template.kind
    }
    /// Known, and without meaning.
    pub fn is_meaningless(&self) -> bool {
        self.template.kind == "none"
    }
    /// Says why a neighbouring line failed.
    pub fn explains(&self) -> bool {
        self.template.explains
    }
    /// A failure whose cause a neighbouring line tells.
    pub fn takes_cause(&self) -> bool {
        self.template.takes_cause
    }
    /// Equal ones fold into one observation with `times`.
    pub fn folds(&self) -> bool {
        self.template.folds
    }
    /// The message may run on over following bare lines.
    pub fn multiline(&self) -> bool {
        self.template.multiline
    }
    /// Facts of the worker that this wording proves.
    pub fn implies(&self) -> &BTreeMap<String, String> {
        &self.template.implies
    }
    /// The cause that the body holds.
    pub fn cause(&self) -> Option<Cause> {
        None
    }
}
