//! The layout of the ordered byte map that a ledger is kept in.
//!
//! | key | value |
//! |---|---|
//! | `r` id | the encoded observation |
//! | `i` kind, hash of name, position | nothing: an index entry |
//! | `k` kind, hash of name | the name of an index key that has entries |
//! | `j` kind, hash of name, hash of worker | the name of a worker known under a request or transfer |
//! | `n` hash of node, position | length of the encoded observation, u32 LE |
//! | `w` hash of node | the node's [`super::node::NodeState`] |
//! | `f` hash of subject | the subject and its findings |
//!
//! A *position* sorts the observations of a view: undated ones first by (hash of stream, position in it, id), then
//! by (wall time, id). Names are hashed to 16 bytes of SHA-256: keys stay short whatever a log printed.

use super::codec::put_order;
use super::index::{IndexKey, IndexKind};
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Envelope;
use sha2::{Digest, Sha256};

pub(super) const RECORD: u8 = b'r';
const INDEX: u8 = b'i';
const NAME: u8 = b'k';
pub(super) const JOINED: u8 = b'j';
const NODE_ORDER: u8 = b'n';
pub(super) const NODE: u8 = b'w';
pub(super) const FINDINGS: u8 = b'f';

const ID_BYTES: usize = 16;
const HASH_BYTES: usize = 16;

/// 16 bytes of SHA-256.
pub(super) type NameHash = [u8; HASH_BYTES];

pub(super) fn hash_name(name: &str) -> NameHash {
    let digest = Sha256::digest(name.as_bytes());
    let mut hash = [0; HASH_BYTES];
    hash.copy_from_slice(&digest[..HASH_BYTES]);
    hash
}

/// Where an observation stands in the order of its node and of every view.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position(pub(super) Vec<u8>);

impl Position {
    /// The position of an observation.
    pub(super) fn of(envelope: &Envelope) -> Self {
        let mut bytes = Vec::with_capacity(17 + ID_BYTES);
        put_order(envelope.wall, &mut bytes);
        if envelope.wall.is_none() {
            bytes.extend(&hash_name(&envelope.stream)[..8]);
            bytes.extend((envelope.position.cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        bytes.extend(envelope.id.0);
        Self(bytes)
    }

    /// Whether a clock dated it.
    pub(super) fn is_dated(&self) -> bool {
        self.0.first() == Some(&1)
    }

    /// The least position that is greater.
    pub(super) fn successor(mut self) -> Self {
        self.0.push(0);
        self
    }

    /// The observation that stands here.
    pub(super) fn id(&self) -> Option<ObservationId> {
        self.0.last_chunk::<ID_BYTES>().map(|id| ObservationId(*id))
    }
}

pub(super) fn record(id: ObservationId) -> Vec<u8> {
    [&[RECORD][..], &id.0].concat()
}

/// An index key on disk: its tag and the hash of its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StoredKey([u8; 1 + HASH_BYTES]);

impl StoredKey {
    pub(super) fn of(key: &IndexKey) -> Self {
        let mut bytes = [0; 1 + HASH_BYTES];
        bytes[0] = key.kind().tag();
        // The kinds of one key need no hash.
        if !key.name().is_empty() {
            bytes[1..].copy_from_slice(&hash_name(key.name()));
        }
        Self(bytes)
    }

    /// The tag of the kind.
    pub(super) fn tag(&self) -> u8 {
        self.0[0]
    }

    fn under(&self, table: u8, rest: &[u8]) -> Vec<u8> {
        [&[table][..], &self.0, rest].concat()
    }

    /// The prefix of the index entries.
    pub(super) fn entries(&self) -> Vec<u8> {
        self.under(INDEX, &[])
    }

    pub(super) fn entry(&self, position: &Position) -> Vec<u8> {
        self.under(INDEX, &position.0)
    }

    /// The position in an index entry.
    pub(super) fn position(entry: &[u8]) -> Position {
        Position(entry.get(2 + HASH_BYTES..).unwrap_or_default().to_vec())
    }

    pub(super) fn name(&self) -> Vec<u8> {
        self.under(NAME, &[])
    }

    /// The prefix of the workers known under this key.
    pub(super) fn joined(&self) -> Vec<u8> {
        self.under(JOINED, &[])
    }

    pub(super) fn joined_worker(&self, worker: &str) -> Vec<u8> {
        self.under(JOINED, &hash_name(worker)[..8])
    }
}

/// The prefix of the names of a kind.
pub(super) fn names(kind: IndexKind) -> Vec<u8> {
    vec![NAME, kind.tag()]
}

/// The prefix of the entries of a node; dated and undated ones apart.
pub(super) fn node_lane(node: &NameHash, dated: bool) -> Vec<u8> {
    [&[NODE_ORDER][..], node, &[u8::from(dated)]].concat()
}

pub(super) fn node_entry(node: &NameHash, position: &Position) -> Vec<u8> {
    [&[NODE_ORDER][..], node, &position.0].concat()
}

/// The position in a node entry.
pub(super) fn node_position(entry: &[u8]) -> Position {
    Position(entry.get(1 + HASH_BYTES..).unwrap_or_default().to_vec())
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
