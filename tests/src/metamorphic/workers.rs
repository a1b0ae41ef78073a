//! Workers get other names, in another alphabetical order.

use super::{Changed, without_renaming};
use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use std::collections::BTreeMap;
use toml::Value;

pub(super) fn rename(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let names: Vec<String> =
        bundle.workers().filter_map(|worker| Some(text(worker, "name")?.to_owned())).collect();
    if names.is_empty() {
        return None;
    }
    let last = names.len();
    let new: BTreeMap<&str, String> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (name.as_str(), format!("w-{:03}-pod", last - index)))
        .collect();
    let mut changed = bundle.clone();
    for (list, key) in [("worker", "name"), ("source", "worker")] {
        changed.edit_each(list, |table| {
            if let Some(Value::String(name)) = table.get_mut(key)
                && let Some(other) = new.get(name.as_str())
            {
                name.clone_from(other);
            }
        });
    }
    without_renaming(changed)
}
