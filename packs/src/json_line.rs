//! Log lines that are JSON objects, as an `[[json]]` entry describes them.
//!
//! Invariant: only the paths that the entry names are read; of the words, its id and the kept values are shown.

use crate::body::{BodyBuilder, field_of, number};
use crate::matched::{cut_to, shown};
use crate::placeholder::{Captured, MAX_ID, clean_id};
use crate::template::{Composition, Target};
use kvprov_model::observation::Body;
use kvprov_model::value::Value as Attribute;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A JSON line that matched.
#[derive(Debug, Clone)]
pub struct JsonMatch<'p> {
    /// Name of the `[[json]]` entry.
    pub id: &'p str,
    /// The engine whose pack holds it.
    pub engine: &'p str,
    /// The observation's body; `None` for kind `none`.
    pub body: Option<Body>,
    /// The id and the kept fields.
    pub says: String,
    /// Unix seconds, where the line dates itself.
    pub time: Option<f64>,
}

/// One `[[json]]`, checked.
#[derive(Debug, Clone)]
pub(crate) struct JsonSignature {
    pub(crate) id: String,
    pub(crate) engine: String,
    pub(crate) kind: String,
    pub(crate) set: Vec<(Target, Attribute)>,
    pub(crate) when: BTreeMap<String, String>,
    pub(crate) present: Vec<String>,
    /// Attribute and the dotted path of its value.
    pub(crate) attributes: Vec<(Target, String)>,
    pub(crate) exists: Vec<(Target, String)>,
    /// Attributes made of several paths.
    pub(crate) compose: Vec<(Target, Composition)>,
    /// Attributes that take the first entry of a list.
    pub(crate) first: Vec<(Target, String)>,
    pub(crate) time: Option<String>,
    pub(crate) scale: BTreeMap<String, f64>,
}

impl JsonSignature {
    /// Whether the object fulfils every condition.
    pub(crate) fn fits(&self, object: &Map<String, Value>) -> bool {
        self.present.iter().all(|path| at(object, path).is_some())
            && self.when.iter().all(|(path, wanted)| {
                at(object, path).is_some_and(|value| scalar(value).is_some_and(|text| text == *wanted))
            })
    }

    /// How many conditions it has.
    pub(crate) fn conditions(&self) -> usize {
        self.present.len() + self.when.len()
    }

    /// The longest key that every such line holds, with its opening quote.
    pub(crate) fn anchor(&self) -> String {
        let keys = self.present.iter().chain(self.when.keys());
        let longest = keys.filter_map(|path| path.split('.').next()).max_by_key(|key| key.len());
        longest.map_or_else(String::new, |key| format!("\"{key}"))
    }

    /// Reads an object that fits.
    pub(crate) fn read(&self, object: &Map<String, Value>) -> JsonMatch<'_> {
        let mut says = self.id.clone();
        let mut body = BodyBuilder::new(&self.kind, &self.scale);
        for (target, value) in &self.set {
            body.constant(target, value.clone());
        }
        for (target, path) in &self.exists {
            let there = at(object, path).is_some_and(|value| !value.is_null());
            body.constant(target, Attribute::Bool(there));
            says.push_str(&format!(" {}={there}", target.attribute().unwrap_or_default()));
        }
        let whole =
            self.attributes.iter().filter_map(|(target, path)| Some((target, captured(at(object, path)?)?)));
        let firsts = self.first.iter().filter_map(|(target, path)| {
            let value = at(object, path)?;
            Some((target, captured(value.as_array().map_or(Some(value), |items| items.first())?)?))
        });
        let composed = self.compose.iter().filter_map(|(target, composition)| {
            let text = composition.fill(|path| at(object, path).and_then(scalar))?;
            Some((target, Captured::Text(clean_id(&text)?)))
        });
        for (target, value) in whole.chain(firsts).chain(composed) {
            if let Some(name) = target.attribute() {
                says.push_str(&format!(" {name}={}", self.shown(name, &value)));
            }
            body.put(target, &value);
        }
        JsonMatch {
            id: &self.id,
            engine: &self.engine,
            body: (self.kind != "none").then(|| body.finish()),
            says: cut_to(says, 300),
            time: self.time.as_ref().and_then(|path| at(object, path)).and_then(Value::as_f64),
        }
    }

    /// A value for people, in the unit of its attribute.
    fn shown(&self, attribute: &str, value: &Captured) -> String {
        match (self.scale.get(attribute), number(value)) {
            (Some(scale), Some(number)) => {
                let scaled = number * scale;
                let whole =
                    field_of(&self.kind, attribute).is_some_and(|field| field.field_type == "integer");
                if whole { scaled.round().to_string() } else { scaled.to_string() }
            }
            _ => shown(value),
        }
    }
}

/// The value at a dotted path; a key that itself holds dots is found too.
pub(crate) fn at<'o>(object: &'o Map<String, Value>, path: &str) -> Option<&'o Value> {
    if let Some(value) = object.get(path) {
        return Some(value);
    }
    let (head, rest) = path.split_once('.')?;
    at(object.get(head)?.as_object()?, rest)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A value of a bounded, id-like form. Text with blanks is no field that a pack may keep.
fn captured(value: &Value) -> Option<Captured> {
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(Captured::Int(whole)),
            None => number.as_f64().map(Captured::Float),
        },
        Value::Bool(flag) => Some(Captured::Text(flag.to_string())),
        Value::String(text) => clean_id(text).map(Captured::Text),
        Value::Array(items) => {
            let ids = items.iter().filter_map(scalar).filter(|text| text.len() <= MAX_ID);
            Some(Captured::List(ids.filter_map(|text| clean_id(&text)).collect()))
        }
        Value::Null | Value::Object(_) => None,
    }
}
