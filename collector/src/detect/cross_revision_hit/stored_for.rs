//! For which adapter an engine keeps a block, as its block events tell.
//!
//! A store that is named by block hashes holds the same names. A hash that an engine tells for two adapters, or with and without
//! one, belongs to none.

use crate::view::{Member, Selected, View};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{BlockAction, Body, Observation};
use std::collections::BTreeMap;

/// What one engine tells of its blocks: by hash the adapter, where it is one, and the place of the event.
struct Blocks {
    events: Selected,
    adapters: BTreeMap<String, Option<(String, usize)>>,
}

/// The blocks of the engines that were asked for; each is read once.
#[derive(Default)]
pub(super) struct StoredFor(BTreeMap<WorkerId, Blocks>);

// === impl StoredFor ===

impl StoredFor {
    /// The adapter for which an engine keeps a block, and the event that tells it.
    pub(super) fn adapter(
        &mut self,
        view: &View<'_>,
        member: &Member,
        hash: &str,
    ) -> Option<(String, Observation)> {
        if !self.0.contains_key(&member.id) {
            self.0.insert(member.id.clone(), Blocks::of(view, &member.id));
        }
        let blocks = self.0.get(&member.id)?;
        let (adapter, index) = blocks.adapters.get(hash)?.clone()?;
        Some((adapter, blocks.events.get(index)?.clone()))
    }
}

// === impl Blocks ===

impl Blocks {
    fn of(view: &View<'_>, worker: &WorkerId) -> Self {
        let events = view.worker(worker);
        let mut adapters: BTreeMap<String, Option<(String, usize)>> = BTreeMap::new();
        for (index, observation) in events.iter().enumerate() {
            let Body::Block(block) = &observation.body else { continue };
            if block.action != Some(BlockAction::Stored) {
                continue;
            }
            for hash in &block.hashes {
                let told = block.adapter.clone().map(|adapter| (adapter, index));
                match adapters.get_mut(hash) {
                    Some(held) => {
                        let is_same = held.as_ref().map(|(adapter, _)| adapter) == block.adapter.as_ref();
                        if !is_same {
                            *held = None;
                        }
                    }
                    None => {
                        adapters.insert(hash.clone(), told);
                    }
                }
            }
        }
        Self { events, adapters }
    }
}
