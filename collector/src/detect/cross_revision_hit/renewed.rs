//! A prefix cache that holds nothing of before a change any more, as KV events show: each block that it held was removed or
//! stored anew. An engine stores a block only when it does not find it, so that what it finds afterwards is new, although no
//! reset was told.

use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Block, BlockAction, Body, Observation};
use std::collections::BTreeSet;

/// Names of the memory of the device.
const DEVICE: &[&str] = &["GPU", "DEVICE"];

/// When the last block of before a change was gone; `None` while one is left, and where no event tells what was held.
pub(super) fn renewed(observations: &[Observation], changed: Option<WallTime>) -> Option<WallTime> {
    let changed = changed?;
    let mut told: Vec<(WallTime, i64, &Block)> = observations
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::Block(block) if is_of_device(block) => {
                Some((observation.envelope.wall?, observation.envelope.position, block))
            }
            _ => None,
        })
        .collect();
    told.sort_by_key(|(at, position, _)| (*at, *position));
    let mut held: BTreeSet<&str> = BTreeSet::new();
    for (at, _, block) in told {
        let hashes = block.hashes.iter().map(String::as_str);
        let is_before = at <= changed;
        match block.action {
            Some(BlockAction::Stored) if is_before => held.extend(hashes),
            Some(BlockAction::Cleared) => held.clear(),
            Some(BlockAction::Stored | BlockAction::Removed) => {
                let left = held.len();
                hashes.for_each(|hash| {
                    held.remove(hash);
                });
                if !is_before && left > 0 && held.is_empty() {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

fn is_of_device(block: &Block) -> bool {
    block.medium.as_deref().is_none_or(|medium| DEVICE.iter().any(|name| medium.eq_ignore_ascii_case(name)))
}
