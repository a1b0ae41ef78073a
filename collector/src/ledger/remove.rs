//! Taking records out: blocks, places, lists, and the batch with its last record.
//!
//! Invariant: what is gone is found by no view. A record below its node's floor may still lie in a block or a list;
//! readers tell it by the floor, and it goes with its block, its lists with their batch.

use super::block::{Block, SLOTS};
use super::key::{self, BlockId, StoredKey};
use super::merge::Merge;
use super::position::{Place, Position};
use super::storage::Storage;
use super::{IndexKey, LedgerError, index_keys, listing, posting};
use kvprov_model::observation::Observation;
use std::ops::ControlFlow;

impl<S: Storage> Merge<'_, S> {
    /// Takes one record out of the middle, because another of the same id takes its place: the entry under the id stays
    /// and is overwritten.
    pub(super) fn take_out(
        &mut self,
        block: &Block<'_>,
        place: Place,
        observation: &Observation,
        length: usize,
    ) -> Result<(), LedgerError> {
        let id = BlockId::of(place);
        let slot = (place.index % SLOTS) as usize;
        self.mark_all(observation);
        for key in index_keys(observation).0 {
            let stored = StoredKey::of(key.kind(), key.name());
            let list = stored.list(place.batch);
            let Some(bytes) = self.staged.get(&list)? else { continue };
            match posting::without(&bytes, place.index)? {
                Some(bytes) => self.staged.put(list, bytes),
                None => {
                    self.staged.delete(list);
                    self.forget_joined(&stored)?;
                }
            }
        }
        if self.concern(&observation.envelope.node).is_some()
            && let Some((_, state)) = self.nodes.get_mut(&observation.envelope.node)
        {
            let lane = state.lane_mut(block.is_dated());
            lane.bytes = lane.bytes.saturating_sub(length as u64);
        }
        let Some(first) = block.position(0) else { return Ok(()) };
        let entry = key::node_block(block.node(), &first, id);
        let start = self.staged.get(&entry)?.as_deref().and_then(Position::read).unwrap_or(first);
        let Some(bytes) = block.without(slot) else { return self.drop_block(id, entry) };
        let left = Block::read(&bytes)?;
        let next = (0..left.slots())
            .filter_map(|slot| left.next(slot))
            .map(|(_, position)| position)
            .find(|position| *position >= start);
        match next {
            Some(next) => {
                self.staged.put(entry, next.as_bytes().to_vec());
                self.staged.put(id.key(), bytes);
                Ok(())
            }
            None => self.drop_block(id, entry),
        }
    }

    /// Drops a block that holds nothing any more, and its batch if it was the last.
    pub(super) fn drop_block(&mut self, id: BlockId, node_entry: Vec<u8>) -> Result<(), LedgerError> {
        self.staged.delete(node_entry);
        self.staged.delete(id.key());
        let keys = key::batch_keys(id.batch);
        if !self.is_empty(&key::blocks_of(id.batch), Some(&keys))? {
            return Ok(());
        }
        for stored in listing::keys_of(&self.staged, id.batch)? {
            self.staged.delete(stored.list(id.batch));
            self.forget_joined(&stored)?;
        }
        self.staged.delete(keys);
        Ok(())
    }

    /// Forgets the workers known under a key that has no list any more.
    fn forget_joined(&mut self, stored: &StoredKey) -> Result<(), LedgerError> {
        if stored.joins_workers()
            && self.is_empty(&stored.lists(), key::prefix_end(&stored.lists()).as_deref())?
        {
            self.staged.delete(stored.joined());
        }
        Ok(())
    }

    fn is_empty(&self, from: &[u8], until: Option<&[u8]>) -> Result<bool, LedgerError> {
        let mut empty = true;
        self.staged.scan(from, until, &mut |_, _| {
            empty = false;
            ControlFlow::Break(())
        })?;
        Ok(empty)
    }

    /// Marks every subject that an observation concerns by itself.
    pub(super) fn mark_all(&mut self, observation: &Observation) {
        for key in index_keys(observation).0 {
            self.mark(key.kind(), IndexKey::name(&key));
        }
    }
}
