//! The layout of the ordered byte map that a ledger is kept in.
//!
//! | key | value |
//! |---|---|
//! | `r` id | the [`Place`] of the record: the one entry that every observation has |
//! | `b` batch, block | up to [`super::block::SLOTS`] records of one node ([`super::block`]) |
//! | `b` batch, `ff ff ff ff` | the index keys of the batch, to take them out with its last record |
//! | `i` kind, hash of name, batch | the name, and which records of the batch stand under it ([`super::posting`]) |
//! | `j` kind, hash of name | the workers known under a request or transfer |
//! | `n` hash of node, first position, batch, block | the first position that retention left; empty: the first |
//! | `w` hash of node | the node's [`super::node::NodeState`] |
//! | `f` hash of subject | the subject and its findings |
//!
//! `b` alone lies below [`super::storage::APPENDED_END`]. Batches are numbered as this replica got them; a number says
//! nothing elsewhere. Names are hashed to 16 bytes of SHA-256: keys stay short whatever a log printed.

use super::block::SLOTS;
use super::index::IndexKind;
use super::position::{Place, Position};
use kvprov_model::id::ObservationId;
use sha2::{Digest, Sha256};

pub(super) const PLACE: u8 = b'r';
pub(super) const BLOCK: u8 = b'b';
pub(super) const LIST: u8 = b'i';
const JOINED: u8 = b'j';
pub(super) const NODE_ORDER: u8 = b'n';
pub(super) const NODE: u8 = b'w';
pub(super) const FINDINGS: u8 = b'f';

const HASH_BYTES: usize = 16;

/// 16 bytes of SHA-256.
pub(super) type NameHash = [u8; HASH_BYTES];

pub(super) fn hash_name(name: &str) -> NameHash {
    let digest = Sha256::digest(name.as_bytes());
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&digest[..HASH_BYTES]);
    hash
}

pub(super) fn place(id: ObservationId) -> [u8; 17] {
    let mut key = [PLACE; 17];
    key[1..].copy_from_slice(&id.0);
    key
}

/// A block: its batch and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BlockId {
    pub(super) batch: u64,
    pub(super) number: u32,
}

/// An index key on disk: its tag and the hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredKey([u8; StoredKey::BYTES]);

// === impl BlockId ===

impl BlockId {
    pub(super) fn of(place: Place) -> Self {
        Self { batch: place.batch, number: place.index / SLOTS }
    }

    /// Reads the end of a key that ends with a block.
    fn read(bytes: &[u8]) -> Option<Self> {
        Place::read(bytes).map(|place| Self { batch: place.batch, number: place.index })
    }

    fn to_bytes(self) -> [u8; 12] {
        Place { batch: self.batch, index: self.number }.to_bytes()
    }

    pub(super) fn key(self) -> Vec<u8> {
        [&[BLOCK][..], &self.to_bytes()].concat()
    }

    /// The place of a slot of this block.
    pub(super) fn place(self, slot: usize) -> Place {
        Place { batch: self.batch, index: self.number.saturating_mul(SLOTS).saturating_add(slot as u32) }
    }
}

// === impl StoredKey ===

impl StoredKey {
    pub(super) const BYTES: usize = 1 + HASH_BYTES;

    pub(super) fn of(kind: IndexKind, name: &str) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = kind.tag();
        // The kinds of one key need no hash.
        if !name.is_empty() {
            bytes[1..].copy_from_slice(&hash_name(name));
        }
        Self(bytes)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.try_into().ok()?))
    }

    /// Whether workers that name it belong together.
    pub(super) fn joins_workers(&self) -> bool {
        [IndexKind::Request, IndexKind::Transfer].iter().any(|kind| kind.tag() == self.0[0])
    }

    /// The prefix of the lists.
    pub(super) fn lists(&self) -> Vec<u8> {
        [&[LIST][..], &self.0].concat()
    }

    pub(super) fn list(&self, batch: u64) -> Vec<u8> {
        [&[LIST][..], &self.0, &batch.to_be_bytes()].concat()
    }

    /// The key and the batch of a list.
    pub(super) fn of_list(list: &[u8]) -> Option<(Self, u64)> {
        let (key, batch) = list.get(1..)?.split_at_checked(Self::BYTES)?;
        Some((Self::read(key)?, u64::from_be_bytes(batch.try_into().ok()?)))
    }

    pub(super) fn joined(&self) -> Vec<u8> {
        [&[JOINED][..], &self.0].concat()
    }
}

/// The prefix of the lists of a kind.
pub(super) fn lists_of(kind: IndexKind) -> Vec<u8> {
    vec![LIST, kind.tag()]
}

/// The prefix of the blocks of a batch; [`batch_keys`] ends them.
pub(super) fn blocks_of(batch: u64) -> Vec<u8> {
    [&[BLOCK][..], &batch.to_be_bytes()].concat()
}

/// Where the index keys of a batch stand, behind its blocks.
pub(super) fn batch_keys(batch: u64) -> Vec<u8> {
    BlockId { batch, number: u32::MAX }.key()
}

/// The batch of a key of the table of blocks.
pub(super) fn batch_of(key: &[u8]) -> Option<u64> {
    Some(BlockId::read(key.get(1..)?)?.batch)
}

/// The prefix of the blocks of a node; dated and undated ones apart.
pub(super) fn node_lane(node: &NameHash, dated: bool) -> Vec<u8> {
    [&[NODE_ORDER][..], node, &[u8::from(dated)]].concat()
}

pub(super) fn node_block(node: &NameHash, first: &Position, block: BlockId) -> Vec<u8> {
    [&[NODE_ORDER][..], node, first.as_bytes(), &block.to_bytes()].concat()
}

/// First position and block of a node entry.
pub(super) fn of_node_block(key: &[u8]) -> Option<(Position, BlockId)> {
    let rest = key.get(1 + HASH_BYTES..)?;
    let (position, block) = rest.split_at_checked(rest.len().checked_sub(12)?)?;
    Some((Position::read(position)?, BlockId::read(block)?))
}

pub(super) fn node(node: &NameHash) -> Vec<u8> {
    [&[NODE][..], node].concat()
}

pub(super) fn findings(subject: &str) -> Vec<u8> {
    [&[FINDINGS][..], &hash_name(subject)].concat()
}

/// The first key behind all keys with a prefix; `None` when there is none.
pub(super) fn prefix_end(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}
