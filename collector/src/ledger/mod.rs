//! The ledger: a grow-only set of observations, keyed by their deterministic id.
//!
//! Merging is set union and therefore commutative, associative and idempotent: any order, any duplicate, any replica
//! gives the same ledger. Where two observations of one id differ in content (never from one sender) the greater
//! encoding wins, so that merging still commutes. Views are pure functions of the set. Retention
//! raises floors that only grow, so it commutes with merging as well.
//!
//! Input: observations that the receiver decoded from OTLP, or that a replay made. Nothing but observations and
//! findings is written. Everything that is refused, cut or expired is counted in [`Merged`] or [`Selection`].

mod arriving;
mod block;
mod codec;
mod dump;
mod error;
mod findings;
mod index;
mod key;
mod listing;
mod merge;
mod node;
mod position;
mod posting;
mod read;
mod recent;
mod remove;
mod retention;
pub mod storage;
mod stored;
mod view;

pub use dump::Dump;
pub use error::LedgerError;
pub use index::{IndexKey, IndexKind, MAX_KEYS_PER_OBSERVATION, Subject, index_keys};
pub use stored::{EmbeddedLedger, MemoryLedger, StoredLedger};

use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::NodeId;
use kvprov_model::observation::Observation;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

/// What a merge did. Every observation that was handed in is in exactly one of `added`, `replaced`, `duplicates`,
/// `expired`, `refused_nodes` and `oversized`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Merged {
    /// Observations that are new.
    pub added: u64,
    /// Observations that took the place of one with the same id and a lesser encoding.
    pub replaced: u64,
    /// Observations that were there already, or lost against one with the same id and a greater encoding.
    pub duplicates: u64,
    /// Observations that came too late: below their node's floor.
    pub expired: u64,
    /// Observations of nodes beyond [`Limits::nodes`]; refused.
    pub refused_nodes: u64,
    /// Observations whose encoding exceeds [`Limits::observation_bytes`]; refused.
    pub oversized: u64,
    /// Among the kept ones: written under a newer contract than this version knows. Unknown attributes are kept.
    pub newer: u64,
    /// Index keys that were left out because one observation names too many ([`MAX_KEYS_PER_OBSERVATION`]).
    pub index_cut: u64,
    /// Observations that retention removed in this merge; they had been counted as added before.
    pub removed: u64,
    /// Subjects whose view changed.
    pub dirty: BTreeSet<Subject>,
}

/// What a view holds, in order: first what nothing dates by (stream, position, id), then by (wall time, id).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Selection {
    /// The observations.
    pub observations: Vec<Observation>,
    /// Observations left out because the view is larger than [`Limits::selection`]; the oldest are left out.
    pub cut: u64,
}

/// A selection in the order of a view (by wall time, stream, position and id), shared with the ledger that made it.
#[derive(Debug, Clone, Default)]
pub struct Viewed {
    /// The observations.
    pub observations: Arc<Vec<Observation>>,
    /// As in [`Selection`].
    pub cut: u64,
}

/// What a ledger allows itself. The defaults suit one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Dated observations older than the newest of their node by more than this many nanoseconds expire; `None`:
    /// never.
    pub horizon_ns: Option<i64>,
    /// Encoded bytes of dated observations a node may hold; the newest that fit are kept. `None`: unbounded.
    pub bytes_per_node: Option<u64>,
    /// Encoded bytes of observations a node may hold that nothing dates. `None`: unbounded.
    pub undated_bytes_per_node: Option<u64>,
    /// Nodes that may write.
    pub nodes: usize,
    /// Encoded bytes of one observation.
    pub observation_bytes: usize,
    /// Observations that one selection, or keys that one listing, may return.
    pub selection: usize,
}

/// A set of observations with views, and the findings that were last concluded from it.
pub trait Ledger: Send + Sync {
    /// Adds observations. When it returns, they are as durable as the ledger makes them, all of them or none.
    fn merge(&mut self, observations: &[Observation]) -> Result<Merged, LedgerError>;

    /// Hands every observation under a key to `visit`, in the order of [`Selection`], without a limit on the dated
    /// ones, until it breaks.
    fn visit(
        &self,
        key: &IndexKey,
        visit: &mut dyn FnMut(Observation) -> ControlFlow<()>,
    ) -> Result<(), LedgerError>;

    /// The observations under a key, at most [`Limits::selection`] of them.
    fn select(&self, key: &IndexKey) -> Result<Selection, LedgerError>;

    /// The same in the order of a view. A ledger may remember what it gave, and then reads only what came since.
    fn view(&self, key: &IndexKey) -> Result<Viewed, LedgerError> {
        Ok(self.select(key)?.in_order())
    }

    /// Every key of a kind, at most [`Limits::selection`] of them, in no meaningful but a stable order.
    fn keys(&self, kind: IndexKind) -> Result<Vec<IndexKey>, LedgerError>;

    /// The newest wall time that a node has delivered, on its own clock.
    fn watermark(&self, node: &NodeId) -> Option<WallTime>;

    /// The newest wall time of every node that dated anything.
    fn watermarks(&self) -> BTreeMap<NodeId, WallTime>;

    /// The findings last put on a subject.
    fn findings(&self, subject: &Subject) -> Result<Vec<Finding>, LedgerError>;

    /// Replaces the findings on a subject; an empty slice removes them.
    fn put_findings(&mut self, subject: &Subject, findings: &[Finding]) -> Result<(), LedgerError>;

    /// The findings on every subject.
    fn all_findings(&self) -> Result<BTreeMap<Subject, Vec<Finding>>, LedgerError>;
}

// === impl Selection ===

impl Selection {
    fn in_order(self) -> Viewed {
        let Self { mut observations, cut } = self;
        observations.sort_by(|a, b| recent::order(a).cmp(&recent::order(b)));
        Viewed { observations: Arc::new(observations), cut }
    }
}

// === impl Merged ===

impl std::ops::AddAssign for Merged {
    fn add_assign(&mut self, other: Self) {
        self.added += other.added;
        self.replaced += other.replaced;
        self.duplicates += other.duplicates;
        self.expired += other.expired;
        self.refused_nodes += other.refused_nodes;
        self.oversized += other.oversized;
        self.newer += other.newer;
        self.index_cut += other.index_cut;
        self.removed += other.removed;
        self.dirty.extend(other.dirty);
    }
}

// === impl Limits ===

impl Default for Limits {
    fn default() -> Self {
        Self {
            horizon_ns: Some(24 * 3600 * kvprov_model::clock::SECOND),
            bytes_per_node: Some(1 << 30),
            undated_bytes_per_node: Some(64 << 20),
            nodes: 4096,
            observation_bytes: 1 << 20,
            selection: 200_000,
        }
    }
}

impl Limits {
    /// Keeps everything, for replay: the input is finite.
    pub fn unbounded() -> Self {
        Self {
            horizon_ns: None,
            bytes_per_node: None,
            undated_bytes_per_node: None,
            nodes: usize::MAX,
            observation_bytes: 64 << 20,
            selection: usize::MAX,
        }
    }
}
