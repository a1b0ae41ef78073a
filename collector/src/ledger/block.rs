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
const FULL_BYTES: usize = 32 << 10;
const HEAD: usize = 16 + 1 + 1;
const END_BYTES: usize = 4;

/// A stored block.
pub(super) struct Block<'a> {
    node: NameHash,
    dated: bool,
    directory: &'a [u8],
    records: &'a [u8],
}

/// A block in the making.
pub(super) struct BlockWriter {
    node: NameHash,
    dated: bool,
    slots: u8,
    directory: Vec<u8>,
    records: Vec<u8>,
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
        let mut writer = BlockWriter::new(self.node, self.dated);
        let mut left = false;
        for slot in 0..self.slots() {
            let record = self.record(slot).filter(|_| slot != emptied).unwrap_or_default();
            left |= !record.is_empty();
            writer.push(&self.position(slot)?, record);
        }
        left.then(|| writer.finish())
    }
}

// === impl BlockWriter ===

impl BlockWriter {
    pub(super) fn new(node: NameHash, dated: bool) -> Self {
        Self { node, dated, slots: 0, directory: Vec::with_capacity(512), records: Vec::with_capacity(4096) }
    }

    /// Whether a record of this node and lane still belongs here.
    pub(super) fn takes(&self, node: &NameHash, dated: bool) -> bool {
        u32::from(self.slots) < SLOTS
            && self.records.len() < FULL_BYTES
            && self.node == *node
            && self.dated == dated
    }

    /// Adds a slot, behind the ones of lesser position.
    pub(super) fn push(&mut self, position: &Position, record: &[u8]) {
        self.slots += 1;
        self.directory.extend_from_slice(position.as_bytes());
        self.records.extend_from_slice(record);
        self.directory.extend((self.records.len() as u32).to_le_bytes());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        let head = [u8::from(self.dated), self.slots];
        [&self.node[..], &head, &self.directory, &self.records].concat()
    }
}
