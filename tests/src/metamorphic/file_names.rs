//! Files of a bundle get other names; `incident.toml` says what each is.

use super::{Changed, without_renaming};
use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use toml::Value;

pub(super) fn rename(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let listed: Vec<String> =
        bundle.sources().filter_map(|source| Some(text(source, "file")?.to_owned())).collect();
    if listed.is_empty() {
        return None;
    }
    let new = |file: &str| {
        listed.iter().position(|other| other == file).map(|index| format!("input/{index:02}.data"))
    };
    let mut changed = bundle.clone();
    changed.edit_each("source", |source| {
        if let Some(Value::String(file)) = source.get_mut("file")
            && let Some(other) = new(file)
        {
            *file = other;
        }
    });
    changed.files = bundle
        .files
        .iter()
        .map(|(file, bytes)| (new(file).unwrap_or_else(|| file.clone()), bytes.clone()))
        .collect();
    without_renaming(changed)
}
