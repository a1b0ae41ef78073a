//! Bodies of observations from captured values, converted by the type of each attribute.
//!
//! Invariant: a value that does not fit its attribute is left out; a body never holds a guess.

use crate::matched::{repr_text, shown};
use crate::placeholder::Captured;
use crate::template::{Half, Target};
use kvprov_model::observation::{Body, FieldDoc};
use kvprov_model::value::Value;
use std::collections::BTreeMap;

/// The fields of a kind.
fn fields_of(kind: &str) -> &'static [FieldDoc] {
    Body::KINDS.iter().find(|doc| doc.name == kind).map_or(&[], |doc| doc.fields)
}

/// The field of a kind by name.
pub(crate) fn field_of(kind: &str, name: &str) -> Option<&'static FieldDoc> {
    fields_of(kind).iter().find(|field| field.name == name)
}

/// Puts values into a body, converted by the type of the attribute.
pub(crate) struct BodyBuilder<'s> {
    fields: &'static [FieldDoc],
    scale: &'s BTreeMap<String, f64>,
    body: Body,
    // A body has few attributes: a list of them is faster than a map, and names stay borrowed.
    lists: Vec<(&'s str, Vec<Value>)>,
    maps: Vec<(&'s str, Vec<(String, Value)>)>,
    halves: Vec<(&'s str, [Option<String>; 2])>,
}

impl<'s> BodyBuilder<'s> {
    pub(crate) fn new(kind: &str, scale: &'s BTreeMap<String, f64>) -> Self {
        Self {
            fields: fields_of(kind),
            scale,
            body: Body::empty(kind),
            lists: Vec::new(),
            maps: Vec::new(),
            halves: Vec::new(),
        }
    }

    /// A constant, whose type was checked with the pack.
    pub(crate) fn constant(&mut self, target: &'s Target, value: Value) {
        match (target, value) {
            (Target::Attribute(name), Value::List(items)) => of_name(&mut self.lists, name).extend(items),
            (Target::Attribute(name), Value::Map(pairs)) => {
                for (key, value) in pairs {
                    insert(of_name(&mut self.maps, name), &key, value);
                }
            }
            (Target::Attribute(name), other) => {
                let _ = self.body.set(name, other);
            }
            (Target::Entry(name, key), value) => insert(of_name(&mut self.maps, name), key, value),
            (Target::Fact(fact), value) if self.field(FACTS).is_some() => {
                insert(of_name(&mut self.maps, FACTS), fact, value);
            }
            (Target::Fact(_) | Target::Dropped | Target::Kept | Target::Half(..), _) => {}
        }
    }

    pub(crate) fn put(&mut self, target: &'s Target, value: &Captured) {
        match target {
            Target::Dropped | Target::Kept => {}
            Target::Fact(fact) => self.entry(FACTS, fact, value),
            Target::Entry(attribute, key) => self.entry(attribute, key, value),
            Target::Half(attribute, half) => {
                let place = usize::from(*half == Half::Port);
                of_name(&mut self.halves, attribute)[place] = Some(shown(value));
            }
            Target::Attribute(name) => self.attribute(name, value),
        }
    }

    fn field(&self, name: &str) -> Option<&'static FieldDoc> {
        self.fields.iter().find(|field| field.name == name)
    }

    fn attribute(&mut self, name: &'s str, value: &Captured) {
        let Some(field) = self.field(name) else { return };
        match (field.field_type, value) {
            (_, Captured::Tokens { all, first }) => {
                let digest = if name == "first_token_digest" { first } else { all };
                let _ = self.body.set(name, Value::Str(digest.clone()));
            }
            ("list of text", Captured::List(items)) => {
                of_name(&mut self.lists, name).extend(items.iter().cloned().map(Value::Str));
            }
            ("list of text", other) => of_name(&mut self.lists, name).push(Value::Str(shown(other))),
            ("map of text", Captured::Map(map)) => {
                for (key, value) in map {
                    insert(of_name(&mut self.maps, name), key, Value::Str(repr_text(value)));
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

    fn entry(&mut self, attribute: &'s str, key: &str, value: &Captured) {
        let Some(field) = self.field(attribute) else { return };
        let value = match field.field_type {
            "map of numbers" => number(value).map(Value::Float),
            "map of text" => Some(Value::Str(shown(value))),
            _ => None,
        };
        if let Some(value) = value {
            insert(of_name(&mut self.maps, attribute), key, value);
        }
    }

    pub(crate) fn finish(mut self) -> Body {
        for (name, items) in self.lists {
            let _ = self.body.set(name, Value::List(items));
        }
        for (name, pairs) in self.maps {
            let _ = self.body.set(name, Value::Map(pairs));
        }
        for (name, halves) in self.halves {
            if let [Some(host), port] = halves {
                let text = port.map_or_else(|| host.clone(), |port| format!("{host}:{port}"));
                let _ = self.body.set(name, Value::Str(text));
            }
        }
        self.body
    }
}

/// The attribute that holds facts.
const FACTS: &str = "facts";

/// What is collected for an attribute.
fn of_name<'v, 's, T: Default>(collected: &'v mut Vec<(&'s str, T)>, name: &'s str) -> &'v mut T {
    let place = collected.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        collected.push((name, T::default()));
        collected.len() - 1
    });
    &mut collected[place].1
}

/// Puts a pair into pairs that stand in the order of their keys; the last of a key counts.
fn insert(pairs: &mut Vec<(String, Value)>, key: &str, value: Value) {
    match pairs.binary_search_by(|(known, _)| known.as_str().cmp(key)) {
        Ok(place) => pairs[place].1 = value,
        Err(place) => pairs.insert(place, (key.to_owned(), value)),
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
