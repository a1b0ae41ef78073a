//! `incident.toml` lists the same things in another order.

use super::{Changed, without_renaming};
use crate::bundle::Bundle;
use crate::verdict::Found;

pub(super) fn reverse(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    reversed(bundle, "source")
}

pub(super) fn reverse_workers(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    reversed(bundle, "worker")
}

fn reversed(bundle: &Bundle, list: &str) -> Option<Changed> {
    let mut changed = bundle.clone();
    let entries = changed.list_mut(list)?;
    if entries.len() < 2 {
        return None;
    }
    entries.reverse();
    without_renaming(changed)
}
