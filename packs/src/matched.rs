//! A message that matched a template, and what it says.
//!
//! Invariant: words and attributes are rebuilt from the template and from values that passed a typed placeholder;
//! nothing else of the message is reachable from here.

use crate::body::BodyBuilder;
use crate::fact::ends_as_path;
use crate::placeholder::{Captured, PlaceholderType};
use crate::pyrepr::ReprValue;
use crate::template::{Segment, Slot, Target, Template};
use kvprov_model::finding::Cause;
use kvprov_model::observation::Body;
use kvprov_model::value::Value;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest `says`, in bytes.
const MAX_SAYS: usize = 300;

/// A message that matched.
#[derive(Debug, Clone)]
pub struct Match<'p> {
    /// The template.
    pub template: &'p Template,
    /// The message ended before the template's text did.
    pub cut: bool,
    /// The version of the speaker lies outside the template's range: the wording is known from other versions only.
    pub other_version: bool,
    pub(crate) captured: Vec<Option<Captured>>,
}

impl Match<'_> {
    /// The observation's body; `None` when the line has no meaning (kind `none`, or values of `ignore_if`).
    pub fn body(&self) -> Option<Body> {
        if self.is_meaningless() {
            return None;
        }
        let mut body = BodyBuilder::new(&self.template.kind, &self.template.scale);
        for (target, value) in &self.template.set {
            body.constant(target, value.clone());
        }
        for (slot, value) in self.values() {
            body.put(&slot.target, &value);
        }
        for (target, name) in &self.template.also {
            if let Some(value) = self.value(name) {
                body.put(target, &value);
            }
        }
        for (target, text) in self.composed(|_| true) {
            body.put(target, &Captured::Text(text));
        }
        Some(body.finish())
    }

    /// The words: the template's text with the values of kept placeholders, at most 300 bytes.
    pub fn says(&self) -> String {
        let mut words = String::with_capacity(self.template.text.len().min(MAX_SAYS));
        let mut captured = self.captured.iter();
        for segment in &self.template.segments {
            match segment {
                Segment::Literal(literal) => words.push_str(literal),
                Segment::Placeholder(placeholder) => match captured.next() {
                    Some(Some(Captured::Map(map))) => {
                        words.push_str(&self.shown_map(map, &placeholder.slot.target));
                    }
                    Some(Some(Captured::Text(text))) => words.push_str(text),
                    Some(Some(value)) => words.push_str(&shown(value)),
                    _ => words.push('…'),
                },
            }
            if words.len() > MAX_SAYS {
                break;
            }
        }
        cut_to(words, MAX_SAYS)
    }

    /// Facts that placeholders `facts.<fact>` hold; names in `model::fact`.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::new();
        if !self.template.holds_facts {
            return facts;
        }
        for (target, value) in &self.template.set {
            if let (Target::Fact(fact), Value::Str(text)) = (target, value) {
                facts.insert(fact.clone(), text.clone());
            }
        }
        for (slot, value) in self.values() {
            if let Target::Fact(fact) = &slot.target {
                facts.insert(fact.clone(), shown(&value));
            }
        }
        for (target, text) in self.composed(|target| matches!(target, Target::Fact(_))) {
            if let Target::Fact(fact) = target {
                facts.insert(fact.clone(), text);
            }
        }
        facts
    }

    /// Settings that a `settings` placeholder holds, by dotted name; only those that some `[[fact]]` reads.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        for (placeholder, captured) in self.template.placeholders().zip(&self.captured) {
            if placeholder.kind == PlaceholderType::Settings
                && let Some(Captured::Map(map)) = captured
            {
                settings.extend(map.iter().map(|(key, value)| (key.clone(), repr_text(value))));
            }
        }
        settings
    }

    /// Whether the message begins with the template's words, or with what the template reads before them.
    pub fn begins(&self, message: &str) -> bool {
        match self.template.segments.first() {
            Some(Segment::Literal(literal)) => message.trim_start().starts_with(literal.trim()),
            _ => true,
        }
    }

    /// Whether another match is of the same template, and the same was read.
    pub fn says_the_same(&self, other: &Self) -> bool {
        std::ptr::eq(self.template, other.template)
            && self.cut == other.cut
            && self.captured == other.captured
    }

    /// The kind; `none` for a line without meaning.
    pub fn kind(&self) -> &str {
        &self.template.kind
    }

    /// Known, and without meaning.
    pub fn is_meaningless(&self) -> bool {
        if self.template.kind == "none" {
            return true;
        }
        let wanted = &self.template.ignore_if;
        !wanted.is_empty()
            && wanted
                .iter()
                .all(|(name, wanted)| self.value(name).is_some_and(|value| wanted.is(&shown(&value))))
    }

    /// Says why a neighbouring line failed.
    pub fn explains(&self) -> bool {
        self.template.explains
    }

    /// A failure whose cause a neighbouring line tells.
    pub fn takes_cause(&self) -> bool {
        self.template.takes_cause
    }

    /// An `explains` line that states a failure by itself, also without a `takes_cause` neighbour.
    pub fn alone(&self) -> bool {
        self.template.alone
    }

    /// Equal ones fold into one observation with `times`.
    pub fn folds(&self) -> bool {
        self.template.folds
    }

    /// The message may run on over following bare lines.
    pub fn multiline(&self) -> bool {
        self.template.multiline
    }

    /// The message ends in an id, of which a terminal may have put the rest on a line of its own.
    pub fn ends_in_id(&self) -> bool {
        matches!(self.template.segments.last(), Some(Segment::Placeholder(last)) if last.kind == PlaceholderType::Id)
    }

    /// Facts of the worker that this wording proves. Where the worker's version is unknown,
    /// `template.implied_versions` says which versions print it.
    pub fn implies(&self) -> &BTreeMap<String, String> {
        &self.template.implies
    }

    /// The cause that the body holds.
    pub fn cause(&self) -> Option<Cause> {
        self.template.set.iter().find_map(|(target, value)| match value {
            Value::Str(word) if target.attribute() == Some("cause") => Some(Cause::from(word.as_str())),
            _ => None,
        })
    }

    /// Every kept value with its place; the entries of a dict one by one.
    fn values(&self) -> impl Iterator<Item = (&Slot, Cow<'_, Captured>)> {
        self.template.placeholders().zip(&self.captured).flat_map(|(placeholder, captured)| {
            let (own, entries) = match captured {
                Some(Captured::Map(map)) if placeholder.kind == PlaceholderType::PyDict => (None, Some(map)),
                Some(value) => (Some((&placeholder.slot, Cow::Borrowed(value))), None),
                None => (None, None),
            };
            let entries = entries.into_iter().flat_map(|map| {
                let keys = self.template.keys.iter();
                keys.filter_map(move |(key, slot)| Some((slot, Cow::Owned(entry(map, key)?))))
            });
            own.into_iter().chain(entries)
        })
    }

    /// A value by the name of its capture.
    fn value(&self, name: &str) -> Option<Cow<'_, Captured>> {
        self.values().find(|(slot, _)| slot.name == name).map(|(_, value)| value)
    }

    /// Attributes that are made of several captures, for the wanted targets.
    fn composed(&self, wanted: fn(&Target) -> bool) -> impl Iterator<Item = (&Target, String)> {
        let value_of = |name: &str| self.value(name).map(|value| shown(&value));
        let compose = self.template.compose.iter().filter(move |(target, _)| wanted(target));
        compose.filter_map(move |(target, composition)| Some((target, composition.fill(value_of)?)))
    }

    fn shown_map(&self, map: &BTreeMap<String, ReprValue>, target: &Target) -> String {
        let pairs: Vec<String> = if target.attribute() == Some("settings") {
            map.iter().map(|(key, value)| format!("{key}={}", repr_text(value))).collect()
        } else {
            let known = |key: &String| Some(format!("{key}={}", shown(&entry(map, key)?)));
            self.template.keys.iter().filter_map(|(key, _)| known(key)).collect()
        };
        format!("{{{}}}", pairs.join(", "))
    }
}

/// A value of a dict by its dotted path, or by the end of it.
fn entry(map: &BTreeMap<String, ReprValue>, key: &str) -> Option<Captured> {
    let value =
        map.get(key).or_else(|| map.iter().find(|(path, _)| ends_as_path(path, key)).map(|(_, v)| v))?;
    match value {
        ReprValue::Scalar(text) => crate::placeholder::clean_id(text).map(Captured::Text),
        ReprValue::List(items) => {
            Some(Captured::List(items.iter().filter_map(|item| crate::placeholder::clean_id(item)).collect()))
        }
    }
}

pub(crate) fn repr_text(value: &ReprValue) -> String {
    match value {
        ReprValue::Scalar(text) => text.clone(),
        ReprValue::List(items) => items.join(","),
    }
}

/// A value as people read it.
pub(crate) fn shown(value: &Captured) -> String {
    match value {
        Captured::Text(text) => text.clone(),
        Captured::Int(number) => number.to_string(),
        Captured::Float(number) => number.to_string(),
        Captured::List(items) => items.join(", "),
        Captured::Tokens { .. } => "…".to_owned(),
        Captured::Map(map) => map
            .iter()
            .map(|(key, value)| format!("{key}={}", repr_text(value)))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The text, cut at a character's boundary.
pub(crate) fn cut_to(mut text: String, max: usize) -> String {
    if text.len() > max {
        let mut end = max - '…'.len_utf8();
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}
