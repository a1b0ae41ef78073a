//! Retention: removes what stands below the floors, and raises the byte floors.
//!
//! Floors only grow and are functions of everything that was ever merged (see [`super::node`]), so that merging and
//! expiring commute: expired here and delivered again, it is expired again. What one pass removes is bounded; the
//! merge that caused it goes on with further commits.

use super::key::{self, Position};
use super::merge::Merge;
use super::storage::Storage;
use super::stored::StoredLedger;
use super::{LedgerError, codec};
use kvprov_model::id::NodeId;
use std::ops::ControlFlow;

/// Observations that one commit removes at most.
const PASS: usize = 4096;

impl<S: Storage> StoredLedger<S> {
    /// Removes what stands below the floors on every node.
    pub(super) fn expire_all(&mut self) -> Result<(), LedgerError> {
        let nodes: Vec<NodeId> = self.nodes.keys().cloned().collect();
        for node in nodes {
            let mut more = true;
            while more {
                let mut merge = Merge::over(self);
                let limits = merge.limits;
                if let Some(state) = merge.concern(&node) {
                    // A horizon that has become shorter applies at once.
                    state.saw(None, limits);
                }
                more = merge.expire()?;
                let prepared = merge.prepare();
                self.commit(prepared)?;
            }
        }
        Ok(())
    }
}

impl<S: Storage> Merge<'_, S> {
    /// One pass over the nodes concerned; whether another one is needed.
    pub(super) fn expire(&mut self) -> Result<bool, LedgerError> {
        let nodes: Vec<NodeId> = self.nodes.keys().cloned().collect();
        let mut room = PASS;
        for node in nodes {
            for dated in [false, true] {
                room = room.saturating_sub(self.expire_lane(&node, dated, room)?);
            }
        }
        self.sweep()?;
        Ok(room == 0)
    }

    /// Removes from the oldest on what is below the floor or beyond the cap; how many.
    fn expire_lane(&mut self, node: &NodeId, dated: bool, room: usize) -> Result<usize, LedgerError> {
        let cap = if dated { self.limits.bytes_per_node } else { self.limits.undated_bytes_per_node };
        let Some((hash, state)) = self.nodes.get(node) else { return Ok(0) };
        let lane = state.lane(dated);
        let mut bytes = lane.bytes;
        let mut gone: Vec<Position> = Vec::new();
        let mut floor = None;
        let prefix = key::node_lane(hash, dated);
        self.staged.scan(&prefix, key::prefix_end(&prefix).as_deref(), &mut |entry, length| {
            let position = key::node_position(entry);
            let beyond = cap.is_some_and(|cap| bytes > cap);
            if gone.len() >= room || (lane.admits(&position) && !beyond) {
                return ControlFlow::Break(());
            }
            let length = length.first_chunk().map_or(0, |length| u32::from_le_bytes(*length));
            bytes = bytes.saturating_sub(u64::from(length));
            if beyond {
                floor = Some(position.clone().successor());
            }
            gone.push(position);
            ControlFlow::Continue(())
        })?;
        if let (Some(floor), Some((_, state))) = (floor, self.nodes.get_mut(node)) {
            state.lane_mut(dated).raise(floor.0);
        }
        for position in &gone {
            self.remove_at(node, position)?;
        }
        self.merged.removed += gone.len() as u64;
        Ok(gone.len())
    }

    fn remove_at(&mut self, node: &NodeId, position: &Position) -> Result<(), LedgerError> {
        let stored = match position.id() {
            Some(id) => self.staged.get(&key::record(id))?.map(|bytes| (id, bytes)),
            None => None,
        };
        match stored {
            Some((id, bytes)) => self.remove(&codec::decode(id, &bytes)?, bytes.len()),
            // An entry without a record: nothing else to take out.
            None => {
                if let Some((hash, _)) = self.nodes.get(node) {
                    let entry = key::node_entry(hash, position);
                    self.staged.delete(entry);
                }
            }
        }
        Ok(())
    }

    /// Drops the names of keys that have no entries left, and the workers known under them.
    fn sweep(&mut self) -> Result<(), LedgerError> {
        for stored in std::mem::take(&mut self.thinned) {
            let entries = stored.entries();
            let mut empty = true;
            self.staged.scan(&entries, key::prefix_end(&entries).as_deref(), &mut |_, _| {
                empty = false;
                ControlFlow::Break(())
            })?;
            if !empty {
                continue;
            }
            let prefix = stored.joined();
            let mut gone = vec![stored.name()];
            self.staged.scan(&prefix, key::prefix_end(&prefix).as_deref(), &mut |key, _| {
                gone.push(key.to_vec());
                ControlFlow::Continue(())
            })?;
            for key in gone {
                self.staged.delete(key);
            }
        }
        Ok(())
    }
}
