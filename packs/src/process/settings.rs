//! Arguments, environment and JSON in them as flat settings.

use super::{ProcessSettings, ProcessSignature};
use crate::fact::{KnownSettings, normal_name};
use serde_json::Value;
use std::collections::BTreeSet;

/// Settings of one process that are kept.
const MAX_SETTINGS: usize = 1024;
/// Longest value that is kept, in bytes. Longer ones are no settings that a fact reads.
const MAX_VALUE: usize = 4096;
/// Deeper nesting is dropped; engines nest three deep.
const MAX_DEPTH: usize = 8;
/// What an option without value means.
const SET: &str = "true";

/// Takes settings and keeps what some fact reads.
pub(super) struct Reader<'r> {
    known: &'r KnownSettings,
    files: &'r BTreeSet<String>,
    found: &'r mut ProcessSettings,
    place: &'static str,
}

/// The setting that an argument names, where it is an option.
pub(super) fn option_name(argument: &str) -> Option<String> {
    let option = argument.strip_prefix('-')?;
    // A negative number is a value.
    if option.is_empty() || option.starts_with(|first: char| first.is_ascii_digit() || first == '.') {
        return None;
    }
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    let name = normal_name(name);
    (!name.is_empty()).then_some(name)
}

// === impl Reader ===

impl<'r> Reader<'r> {
    pub(super) fn new(
        known: &'r KnownSettings,
        files: &'r BTreeSet<String>,
        found: &'r mut ProcessSettings,
        place: &'static str,
    ) -> Self {
        Self { known, files, found, place }
    }

    /// What is read from now on stands here.
    pub(super) fn place(&mut self, place: &'static str) {
        self.place = place;
    }

    /// A variable of the environment. Names of settings in an environment are upper case; a lower-case variable that is
    /// called like an option is somebody else's.
    pub(super) fn variable(&mut self, name: &str, value: &str) {
        if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
            self.setting(name, value);
        }
    }

    pub(super) fn arguments(
        &mut self,
        arguments: &[String],
        positional: Option<&str>,
        options: &ProcessSignature,
    ) {
        let ProcessSignature { flags, lists, named, .. } = options;
        let mut positional = positional;
        // Whether an argument that is no option may stand here on its own: not behind the values of a list.
        let mut is_free = true;
        let mut at = 0;
        while let Some(argument) = arguments.get(at) {
            at += 1;
            let Some(name) = option_name(argument) else {
                if is_free && let Some(name) = positional.take() {
                    self.setting(name, argument);
                }
                continue;
            };
            if named.contains(&name) {
                let first = argument.split_once('=').map(|(_, value)| value);
                let rest = arguments.get(at..).unwrap_or_default();
                let rest = rest.iter().take_while(|next| option_name(next).is_none()).map(String::as_str);
                let values: Vec<&str> = first.into_iter().chain(rest).collect();
                at += values.len() - usize::from(first.is_some());
                is_free = false;
                let all: Vec<String> = values.into_iter().filter_map(name_and_path).collect();
                if !all.is_empty() {
                    self.keep(&name, &all.join(","));
                }
                continue;
            }
            let value = match argument.split_once('=') {
                Some((_, value)) => Some(value),
                None if flags.contains(&name) => None,
                None => {
                    let next = arguments.get(at).filter(|next| option_name(next).is_none());
                    at += usize::from(next.is_some());
                    next.map(String::as_str)
                }
            };
            is_free = !lists.contains(&name);
            self.setting(&name, value.unwrap_or(SET));
        }
    }

    /// Keeps a setting, or what of its JSON value is one.
    pub(super) fn setting(&mut self, name: &str, value: &str) {
        let name = normal_name(name);
        let value = value.trim();
        if self.files.contains(&name) && !value.is_empty() && self.found.files.len() < MAX_DEPTH {
            self.found.files.push(value.to_owned());
        }
        if value.starts_with('{')
            && let Ok(json @ Value::Object(_)) = serde_json::from_str(value)
        {
            self.nested(&name, &json, 0);
        } else {
            self.keep(&name, value);
        }
    }

    fn nested(&mut self, path: &str, value: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return;
        }
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.nested(&format!("{path}.{name}"), value, depth + 1);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.nested(&format!("{path}.{index}"), item, depth + 1);
                }
            }
            Value::Null => {}
            Value::String(text) => self.keep(path, text),
            scalar => self.keep(path, &scalar.to_string()),
        }
    }

    fn keep(&mut self, name: &str, value: &str) {
        let has_room = self.found.settings.len() < MAX_SETTINGS || self.found.settings.contains_key(name);
        if has_room && value.len() <= MAX_VALUE && self.known.knows(name) {
            self.found.settings.insert(name.to_owned(), without_users(value));
            self.found.places.insert(name.to_owned(), self.place);
        }
    }
}

/// `name=path`, from that or from a JSON object with both.
fn name_and_path(value: &str) -> Option<String> {
    let value = value.trim();
    if let Ok(Value::Object(fields)) = serde_json::from_str(value) {
        let text = |name: &str| fields.get(name).and_then(Value::as_str);
        return Some(format!("{}={}", text("name")?, text("path")?));
    }
    // A comma would run into the next one.
    (value.contains('=') && !value.contains(',')).then(|| value.to_owned())
}

/// The value without user and password of the URLs in it.
fn without_users(value: &str) -> String {
    let mut clean = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("://") {
        clean.push_str(before);
        clean.push_str("://");
        let end = after.find(['/', '?', '#', ',']).unwrap_or(after.len());
        let (authority, tail) = after.split_at(end);
        clean.push_str(authority.rsplit('@').next().unwrap_or(authority));
        rest = tail;
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_urls_are_dropped() {
        assert_eq!(without_users("redis://u:p@h:1/0"), "redis://h:1/0");
        assert_eq!(without_users("redis://h:1"), "redis://h:1");
        assert_eq!(without_users("a://x:y@h1,b://z@h2/p@q"), "a://h1,b://h2/p@q");
        assert_eq!(without_users("/mnt/a@b"), "/mnt/a@b");
    }

    #[test]
    fn a_negative_number_is_no_option() {
        assert_eq!(option_name("-1"), None);
        assert_eq!(option_name("-"), None);
        assert_eq!(option_name("--"), None);
        assert_eq!(option_name("x"), None);
        assert_eq!(option_name("--a-b=c").as_deref(), Some("a_b"));
        assert_eq!(option_name("-tp").as_deref(), Some("tp"));
    }
}
