//! Messages without what nobody may keep: rebuilt from a template and the values that passed its placeholders.
//!
//! Invariant: the result holds the template's own text, kept values and fillers, and nothing else of the message.

use crate::json_line::{JsonSignature, at};
use crate::matched::{Match, repr_text, shown};
use crate::matcher::Matcher;
use crate::placeholder::{Captured, PlaceholderType, clean_id, digest_text, tokens_text};
use crate::pyrepr::ReprValue;
use crate::template::{Part, Segment};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Stands for text that was dropped.
const FILLER: &str = "…";

impl Match<'_> {
    /// How many pieces the template's text has.
    pub fn pieces(&self) -> usize {
        self.template.segments.len()
    }

    /// The first `pieces` pieces of the message, rebuilt. Matched again it says the same, unless a value prints in a
    /// way that reads as something else; compare before it is used.
    pub fn rebuilt(&self, pieces: usize) -> String {
        let mut captured = self.captured.iter();
        let mut text = String::new();
        for segment in self.template.segments.iter().take(pieces) {
            match segment {
                Segment::Literal(literal) => text.push_str(literal),
                Segment::Placeholder(placeholder) => {
                    let value = captured.next().and_then(Option::as_ref);
                    text.push_str(&printed(placeholder.kind, value));
                }
            }
        }
        text
    }
}

impl Matcher {
    /// An object with only those of its fields that the `[[json]]` entry which fits it names.
    pub fn rebuilt_json(&self, object: &Map<String, Value>) -> Option<Map<String, Value>> {
        self.signature_of(object).map(|signature| signature.rebuilt(object))
    }
}

impl JsonSignature {
    fn rebuilt(&self, object: &Map<String, Value>) -> Map<String, Value> {
        let mut kept = Map::new();
        let mut keep = |path: &str, value: Option<Value>| {
            if let Some(value) = value {
                kept.entry(path.to_owned()).or_insert(value);
            }
        };
        for (path, wanted) in &self.when {
            let value = at(object, path).filter(|value| !value.is_string() || value.as_str() == Some(wanted));
            keep(path, value.cloned());
        }
        let named = self.attributes.iter().chain(&self.first).map(|(_, path)| path.as_str());
        let composed = self.compose.iter().flat_map(|(_, composition)| {
            composition.0.iter().filter_map(|part| match part {
                Part::Value(path, _) => Some(path.as_str()),
                Part::Text(_) => None,
            })
        });
        for path in named.chain(composed).chain(self.time.as_deref()) {
            keep(path, at(object, path).and_then(plain));
        }
        let there = self.present.iter().chain(self.exists.iter().map(|(_, path)| path));
        for path in there {
            keep(
                path,
                at(object, path).map(|value| if value.is_null() { Value::Null } else { Value::Bool(true) }),
            );
        }
        kept
    }
}

/// Numbers, flags, ids and lists of them.
fn plain(value: &Value) -> Option<Value> {
    match value {
        Value::Number(_) | Value::Bool(_) => Some(value.clone()),
        Value::String(text) => clean_id(text).map(Value::String),
        Value::Array(items) => {
            Some(Value::Array(items.iter().filter(|item| !item.is_array()).filter_map(plain).collect()))
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// A value as its placeholder reads it.
fn printed(kind: PlaceholderType, value: Option<&Captured>) -> String {
    match (kind, value) {
        (PlaceholderType::Digest, Some(Captured::Text(digest))) => digest_text(digest),
        (_, Some(Captured::Tokens { all, first })) => tokens_text(all, first),
        (PlaceholderType::Size, Some(Captured::Int(bytes))) => format!("{bytes} B"),
        (_, Some(Captured::List(items))) => {
            let items: Vec<String> = items.iter().filter_map(|item| quoted(item)).collect();
            format!("[{}]", items.join(", "))
        }
        (_, Some(Captured::Map(map))) => printed_map(map),
        (PlaceholderType::Float, Some(Captured::Float(number))) => format!("{number:?}"),
        (_, Some(value)) => shown(value),
        (PlaceholderType::Id, None) => "None".to_owned(),
        (PlaceholderType::Word, None) => "none".to_owned(),
        (PlaceholderType::Path, None) => "/".to_owned(),
        // Zero has words of its own in some engines.
        (PlaceholderType::Int | PlaceholderType::Float, None) => "1".to_owned(),
        (PlaceholderType::Size, None) => "1 B".to_owned(),
        (PlaceholderType::Ids | PlaceholderType::TokenDigest, None) => "[]".to_owned(),
        (PlaceholderType::PyDict | PlaceholderType::Settings, None) => "{}".to_owned(),
        (PlaceholderType::Digest | PlaceholderType::Text, None) => FILLER.to_owned(),
    }
}

fn printed_map(map: &BTreeMap<String, ReprValue>) -> String {
    let pair = |(key, value): (&String, &ReprValue)| {
        let value = match value {
            ReprValue::Scalar(_) => quoted(&repr_text(value))?,
            ReprValue::List(items) => {
                let items: Vec<String> = items.iter().filter_map(|item| quoted(item)).collect();
                format!("[{}]", items.join(", "))
            }
        };
        Some(format!("{}: {value}", quoted(key)?))
    };
    let pairs: Vec<String> = map.iter().filter_map(pair).collect();
    format!("{{{}}}", pairs.join(", "))
}

/// In quotes that do not stand in it.
fn quoted(text: &str) -> Option<String> {
    let quote = ['\'', '"'].into_iter().find(|quote| !text.contains(*quote))?;
    (!text.contains('\n')).then(|| format!("{quote}{text}{quote}"))
}
