//! What a ledger holds, independent of batches and places: for comparison.

use super::block::{Block, SLOTS};
use super::key::{self, BlockId, StoredKey};
use super::position::Place;
use super::storage::{Order, Storage};
use super::stored::StoredLedger;
use super::{LedgerError, posting};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Rows in order: `r` id and encoding; `n` hash of node, position and length; `k` index key and name; `i` index key,
/// position and id; `w` hash of node and state; `f` hash of subject and findings.
pub type Dump = Vec<(Vec<u8>, Vec<u8>)>;

impl<S: Storage> StoredLedger<S> {
    /// Everything held in order: two ledgers are equal when their dumps are. Left out is which workers are known
    /// under a request, which may name one too many after an expiry. The whole ledger is held in memory.
    pub fn dump(&self) -> Result<Dump, LedgerError> {
        let mut rows = BTreeMap::new();
        let mut outcome = Ok(());
        self.storage.scan(&[], None, Order::Ascending, &mut |key, value| {
            outcome = match key.first() {
                Some(&key::PLACE) => self.dump_record(key, value, &mut rows),
                Some(&key::LIST) => self.dump_list(key, value, &mut rows),
                Some(&key::NODE | &key::FINDINGS) => {
                    rows.insert(key.to_vec(), value.to_vec());
                    Ok(())
                }
                _ => Ok(()),
            };
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome.map(|()| rows.into_iter().collect())
    }

    fn dump_record(
        &self,
        id: &[u8],
        place: &[u8],
        rows: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), LedgerError> {
        let Some(place) = Place::read(place) else { return Ok(()) };
        let Some(bytes) = self.storage.get(&BlockId::of(place).key())? else { return Ok(()) };
        let block = Block::read(&bytes)?;
        let slot = (place.index % SLOTS) as usize;
        if let (Some(position), Some(record)) = (block.position(slot), block.record(slot)) {
            rows.insert(id.to_vec(), record.to_vec());
            let row = [&[key::NODE_ORDER][..], block.node(), position.as_bytes()].concat();
            rows.insert(row, (record.len() as u32).to_le_bytes().to_vec());
        }
        Ok(())
    }

    fn dump_list(
        &self,
        list: &[u8],
        value: &[u8],
        rows: &mut BTreeMap<Vec<u8>, Vec<u8>>,
    ) -> Result<(), LedgerError> {
        let Some((stored, batch)) = StoredKey::of_list(list) else { return Ok(()) };
        let (name, postings) = posting::read(value)?;
        for posting in postings {
            if !self.is_kept(batch, &posting)? {
                continue;
            }
            let place = Place { batch, index: posting.index };
            let Some(bytes) = self.storage.get(&BlockId::of(place).key())? else { continue };
            if let Some(position) = Block::read(&bytes)?.position((place.index % SLOTS) as usize) {
                rows.insert([&stored.lists(), position.as_bytes()].concat(), position.id().0.to_vec());
                rows.insert([&b"k"[..], stored.as_bytes()].concat(), name.as_bytes().to_vec());
            }
        }
        Ok(())
    }
}
