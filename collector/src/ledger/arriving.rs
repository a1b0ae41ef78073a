//! The new observations of one batch, and how they become blocks and posting lists.
//!
//! Invariant: of two contents under one id the greater encoding alone is written. The order of the batch is (node,
//! lane, position), so that a block holds one lane of one node and lists are written in one pass.

use super::LedgerError;
use super::block::{BlockWriter, SLOTS};
use super::codec;
use super::key::{self, BlockId, NameHash};
use super::listing::Listing;
use super::merge::Merge;
use super::position::Position;
use super::storage::Storage;
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Observation;
use std::collections::HashMap;
use std::ops::Range;

/// What of a batch is to be written.
pub(super) struct Arriving<'o> {
    /// Encodings end to end; behind `kept` the one that is being looked at.
    encodings: Vec<u8>,
    kept: usize,
    new: Vec<Arrival<'o>>,
    by_id: HashMap<ObservationId, usize>,
}

struct Arrival<'o> {
    observation: &'o Observation,
    node: NameHash,
    position: Position,
    encoding: Range<usize>,
}

// === impl Arriving ===

impl<'o> Arriving<'o> {
    pub(super) fn with_capacity(observations: usize) -> Self {
        Self {
            encodings: Vec::with_capacity(observations.min(1 << 16) * 256),
            kept: 0,
            new: Vec::with_capacity(observations),
            by_id: HashMap::with_capacity(observations),
        }
    }

    /// Encodes an observation that may be kept.
    pub(super) fn encode(&mut self, observation: &Observation) {
        self.encodings.truncate(self.kept);
        codec::encode(observation, &mut self.encodings);
    }

    /// What [`Arriving::encode`] wrote last.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.encodings[self.kept..]
    }

    /// What the batch has under an id so far.
    pub(super) fn earlier(&self, id: ObservationId) -> Option<&[u8]> {
        let arrival = self.new.get(*self.by_id.get(&id)?)?;
        Some(&self.encodings[arrival.encoding.clone()])
    }

    /// Keeps what was encoded last, in place of what the batch had under the id.
    pub(super) fn keep(&mut self, observation: &'o Observation, node: NameHash, position: Position) {
        let encoding = self.kept..self.encodings.len();
        self.kept = encoding.end;
        let arrival = Arrival { observation, node, position, encoding };
        let id = observation.envelope.id;
        match self.by_id.get(&id).and_then(|index| self.new.get_mut(*index)) {
            Some(earlier) => *earlier = arrival,
            None => {
                self.by_id.insert(id, self.new.len());
                self.new.push(arrival);
            }
        }
    }

    /// Writes blocks, places and lists.
    pub(super) fn write<S: Storage>(mut self, merge: &mut Merge<'_, S>) -> Result<(), LedgerError> {
        self.new.sort_by(|a, b| (a.node, a.position).cmp(&(b.node, b.position)));
        let batch = merge.batch;
        let mut listing = Listing::new();
        let mut number = 0;
        let mut rest = self.new.as_slice();
        while let Some(first) = rest.first() {
            let mut writer = BlockWriter::new(first.node, first.position.is_dated());
            let block = BlockId { batch, number };
            let mut slots = 0;
            for arrival in rest.iter().take(SLOTS as usize) {
                let record = &self.encodings[arrival.encoding.clone()];
                if !writer.takes(&arrival.node, arrival.position.is_dated()) {
                    break;
                }
                let place = block.place(slots);
                writer.push(&arrival.position, record);
                merge
                    .staged
                    .put(key::place(arrival.observation.envelope.id).to_vec(), place.to_bytes().to_vec());
                merge.merged.index_cut += listing.add(arrival.observation, arrival.node, place.index);
                slots += 1;
            }
            if let Some((_, state)) = merge.nodes.get_mut(&first.observation.envelope.node) {
                let bytes = rest[..slots].iter().map(|arrival| arrival.encoding.len() as u64).sum::<u64>();
                state.lane_mut(first.position.is_dated()).bytes += bytes;
            }
            merge.staged.put(key::node_block(&first.node, &first.position, block), Vec::new());
            merge.staged.put(block.key(), writer.finish());
            rest = &rest[slots..];
            number += 1;
        }
        if number > 0 {
            listing.write(merge)?;
        }
        Ok(())
    }
}
