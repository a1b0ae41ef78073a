//! Bodies of observations from captured values, converted by the type of each attribute.
//!
//! Invariant: a value that does not fit its attribute is left out; a body never holds a guess.

use crate::matched::{repr_text, shown};
use crate::placeholder::Captured;
use crate::template::{Half, Target};
use kvprov_model::observation::{Body, FieldDoc};
use kvprov_model::value::Value;
use std::collections::BTreeMap;

/// The fields of a kind by name.
pub(crate) fn field_of(kind: &str, name: &str) -> Option<&'static FieldDoc> {
    Body::KINDS.iter().find(|doc| doc.name == kind)?.fields.iter().find(|field| field.name == name)
}

/// Puts values into a body, converted by the type of the attribute.
pub(crate) struct BodyBuilder<'s> {
    kind: &'s str,
    scale: &'s BTreeMap<String, f64>,
    body: Body,
    lists: BTreeMap<String, Vec<Value>>,
    maps: BTreeMap<String, BTreeMap<String, Value>>,
    halves: BTreeMap<String, [Option<String>; 2]>,
}

impl<'s> BodyBuilder<'s> {
    pub(crate) fn new(kind: &'s str, scale: &'s BTreeMap<String, f64>) -> Self {
        Self {
            kind,
            scale,
            body: Body::empty(kind),
            lists: BTreeMap::new(),
            maps: BTreeMap::new(),
            halves: BTreeMap::new(),
        }
    }

    /// A constant, whose type was checked with the pack.
    pub(crate) fn constant(&mut self, target: &Target, value: Value) {
        match (target, value) {
            (Target::Attribute(name), Value::List(items)) => {
                self.lists.entry(name.clone()).or_default().extend(items);
            }
            (Target::Attribute(name), Value::Map(pairs)) => {
                self.maps.entry(name.clone()).or_default().extend(pairs);
            }
            (Target::Attribute(name), other) => {
                let _ = self.body.set(name, other);
            }
            (Target::Entry(name, key), value) => {
                self.maps.entry(name.clone()).or_default().insert(key.clone(), value);
            }
            (Target::Fact(fact), value) if field_of(self.kind, "facts").is_some() => {
                self.maps.entry("facts".to_owned()).or_default().insert(fact.clone(), value);
            }
            (Target::Fact(_) | Target::Dropped | Target::Kept | Target::Half(..), _) => {}
        }
    }

    pub(crate) fn put(&mut self, target: &Target, value: &Captured) {
        match target {
            Target::Dropped | Target::Kept => {}
            Target::Fact(fact) => {
                if field_of(self.kind, "facts").is_some() {
                    self.entry("facts", fact, value);
                }
            }
            Target::Entry(attribute, key) => self.entry(attribute, key, value),
            Target::Half(attribute, half) => {
                let place = usize::from(*half == Half::Port);
                self.halves.entry(attribute.clone()).or_default()[place] = Some(shown(value));
            }
            Target::Attribute(name) => self.attribute(name, value),
        }
    }

    fn attribute(&mut self, name: &str, value: &Captured) {
        let Some(field) = field_of(self.kind, name) else { return };
        match (field.field_type, value) {
            (_, Captured::Tokens { all, first }) => {
                let digest = if name == "first_token_digest" { first } else { all };
                let _ = self.body.set(name, Value::Str(digest.clone()));
            }
            ("list of text", Captured::List(items)) => {
                let items = items.iter().cloned().map(Value::Str);
                self.lists.entry(name.to_owned()).or_default().extend(items);
            }
            ("list of text", other) => {
                self.lists.entry(name.to_owned()).or_default().push(Value::Str(shown(other)));
            }
            ("map of text", Captured::Map(map)) => {
                for (key, value) in map {
                    self.maps
                        .entry(name.to_owned())
                        .or_default()
                        .insert(key.clone(), Value::Str(repr_text(value)));
                }
            }
            (field_type, value) => {
                let scale = self.scale.get(name).copied();
                if let Some(value) = convert(field_type, field.words, value, scale) {
                    let _ = self.body.set(name, value);
                }
            }
        }
    }

    fn entry(&mut self, attribute: &str, key: &str, value: &Captured) {
        let Some(field) = field_of(self.kind, attribute) else { return };
        let value = match field.field_type {
            "map of numbers" => number(value).map(Value::Float),
            "map of text" => Some(Value::Str(shown(value))),
            _ => None,
        };
        if let Some(value) = value {
            self.maps.entry(attribute.to_owned()).or_default().insert(key.to_owned(), value);
        }
    }

    pub(crate) fn finish(mut self) -> Body {
        for (name, items) in self.lists {
            let _ = self.body.set(&name, Value::List(items));
        }
        for (name, map) in self.maps {
            let _ = self.body.set(&name, Value::Map(map.into_iter().collect()));
        }
        for (name, halves) in self.halves {
            if let [Some(host), port] = halves {
                let text = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
                let _ = self.body.set(&name, Value::Str(text));
            }
        }
        self.body
    }
}

/// A value as a number.
pub(crate) fn number(value: &Captured) -> Option<f64> {
    match value {
        Captured::Int(number) => Some(*number as f64),
        Captured::Float(number) => Some(*number),
        Captured::Text(text) => text.parse().ok().filter(|number: &f64| number.is_finite()),
        Captured::List(_) | Captured::Map(_) | Captured::Tokens { .. } => None,
    }
}

/// A value as an attribute of a scalar type.
fn convert(field_type: &str, words: &[&str], value: &Captured, scale: Option<f64>) -> Option<Value> {
    match field_type {
        "text" => Some(Value::Str(shown(value))),
        "integer" => match (value, scale) {
            (Captured::Int(number), None) => Some(Value::Int(*number)),
            (Captured::Text(text), None) if text.parse::<i64>().is_ok() => text.parse().ok().map(Value::Int),
            _ => {
                let scaled = (number(value)? * scale.unwrap_or(1.0)).round();
                (scaled.abs() < 9.2e18).then_some(Value::Int(scaled as i64))
            }
        },
        "number" => number(value).map(|number| Value::Float(number * scale.unwrap_or(1.0))),
        "flag" => match shown(value).to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" => Some(Value::Bool(true)),
            "false" | "0" | "no" => Some(Value::Bool(false)),
            _ => None,
        },
        "word" => {
            let text = shown(value).to_ascii_lowercase();
            words.contains(&text.as_str()).then_some(Value::Str(text))
        }
        _ => None,
    }
}
