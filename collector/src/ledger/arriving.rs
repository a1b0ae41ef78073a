//! The new observations of one batch, and how they become blocks and posting lists.
//!
//! Invariant: of two contents under one id the greater encoding alone is written. The order of the batch is (node,
//! lane, position), so that a block holds one lane of one node and lists are written in one pass.

use super::LedgerError;
use super::block::{self, FULL_BYTES, SLOTS};
use super::codec;
use super::key::{self, BlockId, NameHash};
use super::listing::Listing;
use super::merge::Merge;
use super::position::Position;
use super::posting::Posting;
use super::storage::Storage;
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Observation;
use std::collections::HashMap;
use std::ops::Range;

/// Room beyond this many bytes is given back after a merge.
const SCRATCH_BYTES: usize = 1 << 20;

/// Room for a batch.
#[derive(Default)]
pub(super) struct Scratch {
    /// Encodings end to end.
    encodings: Vec<u8>,
    new: Vec<Arrival>,
    by_id: HashMap<ObservationId, u32>,
}

/// What of a batch is to be written.
pub(super) struct Arriving<'o> {
    observations: &'o [Observation],
    room: Scratch,
    /// Where the encodings end that are kept; behind it the one that is being looked at.
    kept: usize,
}

struct Arrival {
    /// Its number among the observations that were handed in.
    number: u32,
    node: NameHash,
    position: Position,
    encoding: Range<usize>,
}

// === impl Arriving ===

impl<'o> Arriving<'o> {
    pub(super) fn over(observations: &'o [Observation], room: Scratch) -> Self {
        Self { observations, room, kept: 0 }
    }

    /// Encodes an observation that may be kept.
    pub(super) fn encode(&mut self, observation: &Observation) {
        self.room.encodings.truncate(self.kept);
        codec::encode(observation, &mut self.room.encodings);
    }

    /// What [`Arriving::encode`] wrote last.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.room.encodings[self.kept..]
    }

    /// What the batch has under an id so far.
    pub(super) fn earlier(&self, id: ObservationId) -> Option<&[u8]> {
        let arrival = self.room.new.get(*self.room.by_id.get(&id)? as usize)?;
        Some(&self.room.encodings[arrival.encoding.clone()])
    }

    /// Keeps what was encoded last, in place of what the batch had under the id.
    pub(super) fn keep(&mut self, number: usize, node: NameHash, position: Position) {
        let encoding = self.kept..self.room.encodings.len();
        self.kept = encoding.end;
        let arrival = Arrival { number: number as u32, node, position, encoding };
        let next = self.room.new.len() as u32;
        let index = *self.room.by_id.entry(position.id()).or_insert(next);
        match self.room.new.get_mut(index as usize) {
            Some(earlier) => *earlier = arrival,
            None => self.room.new.push(arrival),
        }
    }

    /// Writes blocks, places and lists; gives the room back.
    pub(super) fn write<S: Storage>(mut self, merge: &mut Merge<'_, S>) -> Result<Scratch, LedgerError> {
        let Scratch { encodings, new, .. } = &mut self.room;
        new.sort_by(|a, b| (&a.node, &a.position).cmp(&(&b.node, &b.position)));
        let mut listing = Listing::with_capacity(new.len());
        let mut block = BlockId { batch: merge.batch, number: 0 };
        let mut slots: Vec<(Position, &[u8])> = Vec::with_capacity(SLOTS as usize);
        let mut rest = new.as_slice();
        while let Some(first) = rest.first() {
            let dated = first.position.is_dated();
            let mut bytes = 0;
            slots.clear();
            for arrival in rest.iter().take(SLOTS as usize) {
                if arrival.node != first.node || arrival.position.is_dated() != dated || bytes > FULL_BYTES {
                    break;
                }
                let place = block.place(slots.len());
                let observation = &self.observations[arrival.number as usize];
                let wall = observation.envelope.wall.map(|wall| wall.0);
                let posting = Posting { node: arrival.node, wall, index: place.index };
                merge.merged.index_cut += listing.add(observation, posting);
                merge.staged.put_unread((key::place(arrival.position.id()), place.to_bytes()));
                let record = &encodings[arrival.encoding.clone()];
                bytes += record.len();
                slots.push((arrival.position, record));
            }
            if let Some((_, state)) =
                merge.nodes.get_mut(&self.observations[first.number as usize].envelope.node)
            {
                state.lane_mut(dated).bytes += bytes as u64;
            }
            merge.staged.put(key::node_block(&first.node, &first.position, block), Vec::new());
            merge.staged.put(block.key(), block::write(&first.node, dated, &slots));
            rest = &rest[slots.len()..];
            block.number += 1;
        }
        if block.number > 0 {
            listing.write(merge)?;
        }
        Ok(self.room.cleared())
    }
}

// === impl Scratch ===

impl Scratch {
    fn cleared(mut self) -> Self {
        if self.encodings.capacity() > SCRATCH_BYTES {
            return Self::default();
        }
        self.encodings.clear();
        self.new.clear();
        self.by_id.clear();
        self
    }
}
