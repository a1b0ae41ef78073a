//! A block: some records of one node and one lane, in the order of their positions, under one key.
//!
//! Invariant: a slot keeps its number for the life of the block. A record that was replaced leaves an empty slot; one
//! that retention removed stays until the whole block goes, and is told by its position below the node's floor.
//!
//! Layout: hash of node, lane, number of slots; for each slot its position and where its record ends (u32 LE); then
//! the records.

use super::LedgerError;
use super::key::NameHash;
use super::position::Position;

/// Slots of one block: few enough that reading one record reads little beside it.
pub(super) const SLOTS: u32 = 16;
/// A block takes no further record beyond this many bytes.
pub(super) const FULL_BYTES: usize = 32 << 10;
const HEAD: usize = 16 + 1 + 1;
const END_BYTES: usize = 4;

/// A stored block.
pub(super) struct Block<'a> {
    node: NameHash,
    dated: bool,
    directory: &'a [u8],
    records: &'a [u8],
}

// === impl Block ===

impl<'a> Block<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LedgerError> {
        let damaged = |reason: &str| LedgerError::Corrupt { what: "block", reason: reason.to_owned() };
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or_else(|| damaged("it is truncated"))?;
        let mut node = [0; 16];
        node.copy_from_slice(&head[..16]);
        let (dated, slots) = (head[16] == 1, usize::from(head[17]));
        let (directory, records) = rest
            .split_at_checked(slots * (Position::length(dated) + END_BYTES))
            .ok_or_else(|| damaged("its directory is truncated"))?;
        Ok(Self { node, dated, directory, records })
    }

    pub(super) fn node(&self) -> &NameHash {
        &self.node
    }

    pub(super) fn is_dated(&self) -> bool {
        self.dated
    }

    fn stride(&self) -> usize {
        Position::length(self.dated) + END_BYTES
    }

    /// The number of slots.
    pub(super) fn slots(&self) -> usize {
        self.directory.len() / self.stride()
    }

    /// The position of a slot.
    pub(super) fn position(&self, slot: usize) -> Option<Position> {
        let entry = self.directory.chunks_exact(self.stride()).nth(slot)?;
        Position::read(&entry[..entry.len() - END_BYTES])
    }

    fn end(&self, slot: usize) -> Option<usize> {
        let end = self.directory.chunks_exact(self.stride()).nth(slot)?.last_chunk::<END_BYTES>()?;
        Some(u32::from_le_bytes(*end) as usize)
    }

    /// The record of a slot; `None` where there is none (any more).
    pub(super) fn record(&self, slot: usize) -> Option<&'a [u8]> {
        let start = if slot == 0 { 0 } else { self.end(slot - 1)? };
        self.records.get(start..self.end(slot)?).filter(|record| !record.is_empty())
    }

    /// The first slot from one on that has a record, and its position.
    pub(super) fn next(&self, from: usize) -> Option<(usize, Position)> {
        (from..self.slots())
            .find(|slot| self.record(*slot).is_some())
            .and_then(|slot| Some((slot, self.position(slot)?)))
    }

    /// This block with one slot emptied; `None` when no record is left.
    pub(super) fn without(&self, emptied: usize) -> Option<Vec<u8>> {
        let slots: Vec<(Position, &[u8])> = (0..self.slots())
            .filter_map(|slot| {
                let record = self.record(slot).filter(|_| slot != emptied);
                Some((self.position(slot)?, record.unwrap_or_default()))
            })
            .collect();
        let left = slots.iter().any(|(_, record)| !record.is_empty());
        left.then(|| write(&self.node, self.dated, &slots))
    }
}

/// The bytes of a block.
pub(super) fn write(node: &NameHash, dated: bool, slots: &[(Position, &[u8])]) -> Vec<u8> {
    let records: usize = slots.iter().map(|(_, record)| record.len()).sum();
    let length = HEAD + slots.len() * (Position::length(dated) + END_BYTES) + records;
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(node);
    bytes.extend([u8::from(dated), slots.len() as u8]);
    let mut end = 0;
    for (position, record) in slots {
        bytes.extend_from_slice(position.as_bytes());
        end += record.len() as u32;
        bytes.extend(end.to_le_bytes());
    }
    slots.iter().for_each(|(_, record)| bytes.extend_from_slice(record));
    bytes
}
