//! The ledger over any storage: what it holds in memory, and how it opens.

use super::key;
use super::merge::Merge;
use super::node::NodeState;
use super::storage::{DiskStorage, MemoryStorage, Order, Storage};
use super::{LedgerError, Limits, Merged};
use kvprov_model::id::NodeId;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

/// Observations that are merged at once from another ledger.
const PAGE: usize = 512;

/// A ledger over a storage. In memory it holds one small record a node, never the observations.
pub struct StoredLedger<S> {
    pub(super) storage: S,
    pub(super) limits: Limits,
    /// Equal to what is stored, unless `torn`.
    pub(super) nodes: BTreeMap<NodeId, NodeState>,
    /// A commit failed: the storage has to be recovered and `nodes` read anew before the next one.
    pub(super) torn: bool,
}

/// Stored keys and values in order.
pub type Dump = Vec<(Vec<u8>, Vec<u8>)>;

/// The ledger of a replay or a test.
pub type MemoryLedger = StoredLedger<MemoryStorage>;

/// The ledger of one machine, in one directory.
pub type EmbeddedLedger = StoredLedger<DiskStorage>;

// === impl StoredLedger ===

impl MemoryLedger {
    /// An empty ledger that ends with the process.
    pub fn new(limits: Limits) -> Self {
        Self { storage: MemoryStorage::default(), limits, nodes: BTreeMap::new(), torn: false }
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new(Limits::unbounded())
    }
}

impl EmbeddedLedger {
    /// Opens or creates the ledger in a directory.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, LedgerError> {
        Self::over(DiskStorage::open(directory)?, limits)
    }
}

impl<S: Storage> StoredLedger<S> {
    /// A ledger over a storage that may hold one already. Stricter limits than before apply at once.
    pub fn over(storage: S, limits: Limits) -> Result<Self, LedgerError> {
        let nodes = read_nodes(&storage)?;
        let mut ledger = Self { storage, limits, nodes, torn: false };
        ledger.expire_all()?;
        Ok(ledger)
    }

    /// Everything stored in order, for comparison: two ledgers are equal when their dumps are. Left out is the table
    /// of workers known under a request, which may name one too many after an expiry.
    pub fn dump(&self) -> Result<Dump, LedgerError> {
        let mut entries = Vec::new();
        self.storage.scan(&[], None, Order::Ascending, &mut |key, value| {
            if key.first() != Some(&key::JOINED) {
                entries.push((key.to_vec(), value.to_vec()));
            }
            ControlFlow::Continue(())
        })?;
        Ok(entries)
    }

    /// Merges another ledger: what it knows of the nodes, then every observation. Findings are not merged, they
    /// follow from the observations.
    pub fn absorb<T: Storage>(&mut self, other: &StoredLedger<T>) -> Result<Merged, LedgerError> {
        self.mend()?;
        let mut merge = Merge::over(self);
        for (node, theirs) in &other.nodes {
            let limits = merge.limits;
            if let Some(state) = merge.concern(node) {
                state.join(theirs, limits);
            }
        }
        let prepared = merge.prepare();
        let mut total = self.commit(prepared)?;
        let mut page = Vec::with_capacity(PAGE);
        let mut outcome = Ok(());
        other.each_observation(&mut |observation| {
            page.push(observation);
            if page.len() == PAGE {
                outcome = self.merge_batch(&page).map(|merged| total += merged);
                page.clear();
            }
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        outcome?;
        total += self.merge_batch(&page)?;
        self.expire_all()?;
        Ok(total)
    }

    /// Before a write: makes good a commit that failed.
    pub(super) fn mend(&mut self) -> Result<(), LedgerError> {
        if self.torn {
            self.storage.recover()?;
            self.nodes = read_nodes(&self.storage)?;
            self.torn = false;
        }
        Ok(())
    }
}

fn read_nodes<S: Storage>(storage: &S) -> Result<BTreeMap<NodeId, NodeState>, LedgerError> {
    let mut nodes = BTreeMap::new();
    let mut damage = None;
    let prefix = [key::NODE];
    storage.scan(&prefix, key::prefix_end(&prefix).as_deref(), Order::Ascending, &mut |_, value| {
        match NodeState::decode(value) {
            Ok(state) => {
                nodes.insert(state.node.clone(), state);
                ControlFlow::Continue(())
            }
            Err(error) => {
                damage = Some(error);
                ControlFlow::Break(())
            }
        }
    })?;
    damage.map_or(Ok(nodes), Err)
}
