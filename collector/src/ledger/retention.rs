//! Retention: removes what stands below the floors, and raises the byte floors.
//!
//! Floors only grow and are functions of everything that was ever merged (see [`super::node`]), so that merging and
//! expiring commute: expired here and delivered again, it is expired again. What one pass removes is bounded; the
//! merge that caused it goes on with further commits.

use super::block::Block;
use super::key::{self, BlockId};
use super::merge::Merge;
use super::node::Lane;
use super::position::Position;
use super::storage::{Staged, Storage};
use super::stored::StoredLedger;
use super::{LedgerError, codec};
use kvprov_model::id::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::ControlFlow;

/// Observations that one commit removes at most.
const PASS: usize = 1024;

/// A walk over the observations of one lane of a node, oldest first, as long as they have to go.
///
/// Blocks overlap in time: those whose first position was passed wait in `heads` by the position they have come to.
struct Walk<'w, S> {
    staged: &'w Staged<'w, S>,
    lane: &'w Lane,
    cap: Option<u64>,
    room: usize,
    bytes: u64,
    removed: usize,
    /// Behind the last observation that went because of the cap.
    floor: Option<Vec<u8>>,
    heads: BinaryHeap<Reverse<(Position, BlockId)>>,
    opened: BTreeMap<BlockId, Opened>,
}

/// A block from which something goes.
struct Opened {
    bytes: Vec<u8>,
    gone: Vec<usize>,
    next: Option<Position>,
}

impl<S: Storage> StoredLedger<S> {
    /// Removes what stands below the floors on every node.
    pub(super) fn expire_all(&mut self) -> Result<(), LedgerError> {
        let nodes: Vec<NodeId> = self.nodes.states().map(|state| state.node.clone()).collect();
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
        Ok(room == 0)
    }

    /// Removes from the oldest on what is below the floor or beyond the cap; how many.
    fn expire_lane(&mut self, node: &NodeId, dated: bool, room: usize) -> Result<usize, LedgerError> {
        let cap = if dated { self.limits.bytes_per_node } else { self.limits.undated_bytes_per_node };
        let Some((hash, state)) = self.nodes.get(node) else { return Ok(0) };
        let lane = state.lane(dated);
        if lane.bytes == 0 {
            return Ok(0);
        }
        let prefix = key::node_lane(hash, dated);
        let mut walk = Walk {
            staged: &self.staged,
            lane,
            cap,
            room,
            bytes: lane.bytes,
            removed: 0,
            floor: None,
            heads: BinaryHeap::new(),
            opened: BTreeMap::new(),
        };
        walk.go(&prefix)?;
        let Walk { bytes, removed, floor, opened, .. } = walk;
        if let Some((_, state)) = self.nodes.get_mut(node) {
            let lane = state.lane_mut(dated);
            lane.bytes = bytes;
            if let Some(floor) = floor {
                lane.raise(&floor);
            }
        }
        for (id, opened) in opened {
            self.close(id, &opened)?;
        }
        self.merged.removed += removed as u64;
        Ok(removed)
    }

    /// Takes out what a walk found in one block.
    fn close(&mut self, id: BlockId, opened: &Opened) -> Result<(), LedgerError> {
        let block = Block::read(&opened.bytes)?;
        for slot in &opened.gone {
            if let (Some(position), Some(record)) = (block.position(*slot), block.record(*slot)) {
                self.mark_all(&codec::decode(position.id(), record)?);
                self.staged.delete(key::place(position.id()).to_vec());
            }
        }
        let Some(first) = block.position(0) else { return Ok(()) };
        let entry = key::node_block(block.node(), &first, id);
        match opened.next {
            Some(next) => self.staged.put(entry, next.as_bytes().to_vec()),
            None => self.drop_block(id, entry)?,
        }
        Ok(())
    }
}

// === impl Walk ===

impl<S: Storage> Walk<'_, S> {
    fn go(&mut self, prefix: &[u8]) -> Result<(), LedgerError> {
        let mut outcome = Ok(());
        let staged = self.staged;
        staged.scan(prefix, key::prefix_end(prefix).as_deref(), &mut |entry, start| {
            let Some((first, block)) = key::of_node_block(entry) else { return ControlFlow::Continue(()) };
            outcome = self.drain(Some(&first));
            if outcome.is_err() || !self.must_go(&first) {
                return ControlFlow::Break(());
            }
            self.heads.push(Reverse((Position::read(start).unwrap_or(first), block)));
            ControlFlow::Continue(())
        })?;
        outcome?;
        self.drain(None)
    }

    fn must_go(&self, position: &Position) -> bool {
        self.removed < self.room
            && (!self.lane.admits(position) || self.cap.is_some_and(|cap| self.bytes > cap))
    }

    /// Removes from the blocks that wait, as long as they come before `until`.
    fn drain(&mut self, until: Option<&Position>) -> Result<(), LedgerError> {
        while let Some(Reverse((position, id))) = self.heads.peek().copied() {
            if until.is_some_and(|until| position >= *until) || !self.must_go(&position) {
                break;
            }
            self.heads.pop();
            self.remove(position, id)?;
        }
        Ok(())
    }

    fn remove(&mut self, position: Position, id: BlockId) -> Result<(), LedgerError> {
        if !self.opened.contains_key(&id) {
            let Some(bytes) = self.staged.get(&id.key())? else { return Ok(()) };
            self.opened.insert(id, Opened { bytes, gone: Vec::new(), next: Some(position) });
        }
        let Some(opened) = self.opened.get_mut(&id) else { return Ok(()) };
        let block = Block::read(&opened.bytes)?;
        let from = opened.gone.last().map_or(0, |slot| slot + 1);
        let slots = (from..block.slots()).filter_map(|slot| block.next(slot));
        let mut slots = slots.skip_while(|(_, other)| *other < position);
        let Some((slot, _)) = slots.next() else { return Ok(()) };
        let length = block.record(slot).map_or(0, <[u8]>::len);
        let next = block.next(slot + 1).map(|(_, position)| position);
        opened.gone.push(slot);
        opened.next = next;
        if self.cap.is_some_and(|cap| self.bytes > cap) {
            self.floor = Some(position.successor());
        }
        self.bytes = self.bytes.saturating_sub(length as u64);
        self.removed += 1;
        if let Some(next) = next {
            self.heads.push(Reverse((next, id)));
        }
        Ok(())
    }
}
