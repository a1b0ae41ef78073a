//! What stands under one index key: posting lists with what is below the floors left out.
//!
//! Invariant: a view is a function of the set. Numbers of batches and places decide nothing but what is read when.

use super::block::{Block, SLOTS};
use super::index::IndexKind;
use super::key::{self, BlockId, StoredKey};
use super::position::{Place, Position};
use super::posting::Posting;
use super::storage::{Order, Storage};
use super::stored::StoredLedger;
use super::{IndexKey, LedgerError, codec, posting};
use kvprov_model::observation::Observation;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

/// Lists of one key that a listing of keys reads over before it seeks to the next key.
const SEEK_AFTER: usize = 16;

/// An entry of a view: wall time and place.
pub(super) type Entry = (Option<i64>, Place);

impl<S: Storage> StoredLedger<S> {
    /// Hands every entry of one lane of a view to `visit`, in no meaningful order.
    pub(super) fn each_entry(
        &self,
        stored: &StoredKey,
        dated: bool,
        visit: &mut dyn FnMut(Entry) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        self.each_entry_since(stored, 0, dated, visit)
    }

    /// The same of a batch and all behind it.
    pub(super) fn each_entry_since(
        &self,
        stored: &StoredKey,
        batch: u64,
        dated: bool,
        visit: &mut dyn FnMut(Entry) -> Result<(), LedgerError>,
    ) -> Result<(), LedgerError> {
        let mut outcome = Ok(());
        let until = key::prefix_end(&stored.lists());
        self.storage.scan(&stored.list(batch), until.as_deref(), Order::Ascending, &mut |list, value| {
            let Some((_, batch)) = StoredKey::of_list(list) else { return ControlFlow::Continue(()) };
            outcome = posting::read(value).and_then(|(_, postings)| {
                for posting in postings.into_iter().filter(|posting| posting.wall.is_some() == dated) {
                    if self.is_kept(batch, &posting)? {
                        visit((posting.wall, Place { batch, index: posting.index }))?;
                    }
                }
                Ok(())
            });
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome
    }

    /// Whether an entry stands above its node's floor.
    pub(super) fn is_kept(&self, batch: u64, posting: &Posting) -> Result<bool, LedgerError> {
        let Some(state) = self.nodes.by_hash(&posting.node) else { return Ok(true) };
        let lane = state.lane(posting.wall.is_some());
        match lane.admits_time(posting.wall) {
            Some(kept) => Ok(kept),
            None => {
                let position = self.position(Place { batch, index: posting.index })?;
                Ok(position.is_some_and(|position| lane.admits(&position)))
            }
        }
    }

    /// The entries of the newest observations of one lane, at most `limit`; and how many were left out.
    pub(super) fn newest(
        &self,
        stored: &StoredKey,
        dated: bool,
        limit: usize,
    ) -> Result<(Vec<Place>, u64), LedgerError> {
        let mut newest: BinaryHeap<Reverse<Entry>> = BinaryHeap::new();
        let mut total = 0;
        self.each_entry(stored, dated, &mut |entry| {
            total += 1;
            if newest.len() < limit {
                newest.push(Reverse(entry));
            } else if newest.peek().is_some_and(|Reverse((oldest, _))| entry.0 > *oldest) {
                newest.pop();
                newest.push(Reverse(entry));
            }
            Ok(())
        })?;
        let cut = total - newest.len() as u64;
        let Some(Reverse((oldest, _))) = newest.peek().copied() else { return Ok((Vec::new(), cut)) };
        if cut == 0 {
            return Ok((newest.into_iter().map(|Reverse((_, place))| place).collect(), 0));
        }
        // Of those of the oldest time that fits, the greatest positions are taken, whatever came first.
        let mut places: Vec<Place> = newest
            .into_iter()
            .filter(|Reverse((wall, _))| *wall > oldest)
            .map(|Reverse((_, place))| place)
            .collect();
        let room = limit - places.len();
        let mut tied: BinaryHeap<Reverse<(Position, Place)>> = BinaryHeap::new();
        self.each_entry(stored, dated, &mut |(wall, place)| {
            if wall == oldest
                && let Some(position) = self.position(place)?
            {
                tied.push(Reverse((position, place)));
                if tied.len() > room {
                    tied.pop();
                }
            }
            Ok(())
        })?;
        places.extend(tied.into_iter().map(|Reverse((_, place))| place));
        Ok((places, cut))
    }

    fn position(&self, place: Place) -> Result<Option<Position>, LedgerError> {
        let mut position = Ok(None);
        self.storage.get_with(&BlockId::of(place).key(), &mut |bytes| {
            position = Block::read(bytes).map(|block| block.position((place.index % SLOTS) as usize));
        })?;
        position
    }

    /// The observations at some places, in the order of their positions.
    pub(super) fn load(&self, mut places: Vec<Place>) -> Result<Vec<Observation>, LedgerError> {
        places.sort_unstable();
        let mut loaded: Vec<(Position, Observation)> = Vec::with_capacity(places.len());
        for places in places.chunk_by(|a, b| BlockId::of(*a) == BlockId::of(*b)) {
            let Some(first) = places.first() else { continue };
            let mut outcome = Ok(());
            self.storage.get_with(&BlockId::of(*first).key(), &mut |bytes| {
                outcome = Block::read(bytes).and_then(|block| {
                    for place in places {
                        loaded.extend(read_slot(&block, *place)?);
                    }
                    Ok(())
                });
            })?;
            outcome?;
        }
        loaded.sort_by_key(|(position, _)| *position);
        Ok(loaded.into_iter().map(|(_, observation)| observation).collect())
    }

    /// Every key of a kind that has an observation, at most `limit`, in the order of the hashes.
    pub(super) fn listed(&self, kind: IndexKind, limit: usize) -> Result<Vec<IndexKey>, LedgerError> {
        let prefix = key::lists_of(kind);
        let end = key::prefix_end(&prefix);
        let mut keys: Vec<IndexKey> = Vec::new();
        let mut last: Option<StoredKey> = None;
        let mut from = Some(prefix);
        while let Some(start) = from.take() {
            let mut outcome = Ok(());
            let mut passed = 0;
            self.storage.scan(&start, end.as_deref(), Order::Ascending, &mut |list, value| {
                let Some((stored, batch)) = StoredKey::of_list(list) else {
                    return ControlFlow::Continue(());
                };
                if last == Some(stored) {
                    passed += 1;
                    if passed < SEEK_AFTER {
                        return ControlFlow::Continue(());
                    }
                    from = key::prefix_end(&stored.lists());
                    return ControlFlow::Break(());
                }
                passed = 0;
                if keys.len() >= limit {
                    return ControlFlow::Break(());
                }
                outcome = posting::read(value).and_then(|(name, postings)| {
                    for posting in postings.iter().rev() {
                        if self.is_kept(batch, posting)? {
                            keys.push(kind.key(name));
                            last = Some(stored);
                            break;
                        }
                    }
                    Ok(())
                });
                if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            })?;
            outcome?;
        }
        Ok(keys)
    }
}

/// The observation in a slot of a block; `None` where there is none.
pub(super) fn read_slot(
    block: &Block<'_>,
    place: Place,
) -> Result<Option<(Position, Observation)>, LedgerError> {
    let slot = (place.index % SLOTS) as usize;
    match (block.position(slot), block.record(slot)) {
        (Some(position), Some(record)) => Ok(Some((position, codec::decode(position.id(), record)?))),
        _ => Ok(None),
    }
}
