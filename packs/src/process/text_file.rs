//! A file of settings: JSON, or the part of YAML that settings use.
//!
//! Read are scalars, mappings nested by indentation and lists of mappings; anchors, block texts and the like are passed over.

use serde_json::Value;

/// Lines that are read.
const MAX_LINES: usize = 10_000;
/// Deeper nesting is dropped.
const MAX_DEPTH: usize = 16;

/// Names, dotted where nested, and values.
pub(super) fn flat(text: &str) -> Vec<(String, String)> {
    if text.trim_start().starts_with('{') {
        return match serde_json::from_str(text) {
            Ok(Value::Object(object)) => {
                object.into_iter().map(|(name, value)| (name, plain(value))).collect()
            }
            _ => Vec::new(),
        };
    }
    yaml(text)
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn yaml(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    // The names that the current line stands under, with their indentation.
    let mut open: Vec<(usize, String)> = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        let mut body = line.trim_start();
        let mut indent = line.len() - body.len();
        while let Some(item) = body.strip_prefix("- ") {
            indent += body.len() - item.trim_start().len();
            body = item.trim_start();
        }
        if body.is_empty() || body.starts_with('#') {
            continue;
        }
        let Some((name, value)) = body.split_once(':') else { continue };
        if !(value.is_empty() || value.starts_with(' ')) {
            continue;
        }
        let name = unquoted(name.trim());
        while open.last().is_some_and(|(depth, _)| *depth >= indent) {
            open.pop();
        }
        let value = scalar(value);
        if value.is_empty() {
            if open.len() < MAX_DEPTH {
                open.push((indent, name.to_owned()));
            }
            continue;
        }
        let path: Vec<&str> = open.iter().map(|(_, name)| name.as_str()).chain([name]).collect();
        found.push((path.join("."), value.to_owned()));
    }
    found
}

/// The value without quotes and comment.
fn scalar(text: &str) -> &str {
    let text = text.trim();
    if text.starts_with(['"', '\'']) || text.starts_with('{') {
        return unquoted(text);
    }
    text.find(" #").map_or(text, |at| &text[..at]).trim_end()
}

fn unquoted(text: &str) -> &str {
    let inner =
        |quote| text.strip_prefix(quote).and_then(|rest| rest.split_once(quote)).map(|(inner, _)| inner);
    inner('"').or_else(|| inner('\'')).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<(String, String)> {
        flat(text)
    }

    fn pair(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn yaml_nests_by_indentation() {
        let text = "chunk_size: 256 # tokens\nremote_url: \"lm://h:1\"\nextra_config:\n  a: 1\n  b:\n    c: 'x y'\n# no\nlast: true\nplugins:\n- type: t\n  parameters:\n    n: 3\n";
        assert_eq!(
            read(text),
            [
                pair("chunk_size", "256"),
                pair("remote_url", "lm://h:1"),
                pair("extra_config.a", "1"),
                pair("extra_config.b.c", "x y"),
                pair("last", "true"),
                pair("plugins.type", "t"),
                pair("plugins.parameters.n", "3"),
            ]
        );
    }

    #[test]
    fn json_keeps_its_objects_as_text() {
        assert_eq!(read("{\"a\": \"b\", \"c\": {\"d\": 1}}"), [pair("a", "b"), pair("c", "{\"d\":1}")]);
        assert_eq!(read("{broken"), []);
    }

    #[test]
    fn what_is_no_setting_is_passed_over() {
        assert_eq!(read("\u{0}\n:::\nhttp://x\n- a\n\n"), []);
    }
}
