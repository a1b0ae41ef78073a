//! Nodes get other names, in another alphabetical order; workers of one node stay on one node.

use super::{Changed, without_renaming};
use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use std::collections::BTreeSet;
use toml::Value;

pub(super) fn rename(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let nodes: BTreeSet<String> =
        bundle.workers().filter_map(|worker| Some(text(worker, "node")?.to_owned())).collect();
    if nodes.is_empty() {
        return None;
    }
    let nodes: Vec<String> = nodes.into_iter().rev().collect();
    let mut changed = bundle.clone();
    changed.edit_each("worker", |worker| {
        if let Some(Value::String(node)) = worker.get_mut("node")
            && let Some(index) = nodes.iter().position(|other| other == node)
        {
            *node = format!("rack-{index}.example");
        }
    });
    without_renaming(changed)
}
