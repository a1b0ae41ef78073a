//! Settings as arguments and environment show them, flattened with dots.

use crate::bundle::table::scalar_text;
use serde_json::Value;
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

/// Settings of one worker that are kept.
const MAX_SETTINGS: usize = 4096;
/// Deeper nesting is dropped; engines nest three deep.
const MAX_DEPTH: usize = 8;

/// Flattens a table. Lists of scalars are joined by commas; a text that holds a JSON object (as on a command line) is
/// flattened like a table.
pub(crate) fn flatten(table: &DeTable<'_>) -> BTreeMap<String, String> {
    let mut flat = BTreeMap::new();
    flatten_table("", table, 0, &mut flat);
    flat
}

fn flatten_table(prefix: &str, table: &DeTable<'_>, depth: usize, flat: &mut BTreeMap<String, String>) {
    for (key, value) in table {
        flatten_value(&joined(prefix, key.get_ref()), value.get_ref(), depth, flat);
    }
}

fn flatten_value(key: &str, value: &DeValue<'_>, depth: usize, flat: &mut BTreeMap<String, String>) {
    if depth > MAX_DEPTH || flat.len() >= MAX_SETTINGS {
        return;
    }
    match value {
        DeValue::Table(table) => flatten_table(key, table, depth + 1, flat),
        DeValue::Array(items) => {
            let scalars: Option<Vec<String>> = items.iter().map(|item| scalar_text(item.get_ref())).collect();
            match scalars {
                Some(scalars) => drop(flat.insert(key.to_owned(), scalars.join(","))),
                None => {
                    for (index, item) in items.iter().enumerate() {
                        flatten_value(&joined(key, &index.to_string()), item.get_ref(), depth + 1, flat);
                    }
                }
            }
        }
        scalar => {
            let Some(text) = scalar_text(scalar) else { return };
            match json_object(&text) {
                Some(object) => flatten_json(key, &object, depth + 1, flat),
                None => drop(flat.insert(key.to_owned(), text)),
            }
        }
    }
}

fn json_object(text: &str) -> Option<Value> {
    let trimmed = text.trim();
    if !trimmed.starts_with('{') {
        return None;
    }
    serde_json::from_str(trimmed).ok().filter(Value::is_object)
}

fn flatten_json(key: &str, value: &Value, depth: usize, flat: &mut BTreeMap<String, String>) {
    if depth > MAX_DEPTH || flat.len() >= MAX_SETTINGS {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                flatten_json(&joined(key, name), value, depth + 1, flat);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten_json(&joined(key, &index.to_string()), item, depth + 1, flat);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(flat.insert(key.to_owned(), text.clone())),
        other => drop(flat.insert(key.to_owned(), other.to_string())),
    }
}

fn joined(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn nesting_becomes_dots() {
        let text = r#"a = { b = { c = true }, d = [1, 2] }
            e = '{"kv_connector": "X", "extra": {"n": 1}}'
            f = 0x10"#;
        let table = DeTable::parse(text).unwrap();
        let flat = flatten(table.get_ref());
        let expected =
            [("a.b.c", "true"), ("a.d", "1,2"), ("e.extra.n", "1"), ("e.kv_connector", "X"), ("f", "16")];
        let expected: BTreeMap<String, String> =
            expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        assert_eq!(flat, expected);
    }
}
