//! The ledger over any storage: what it holds in memory, and how it opens.

use super::arriving::Scratch;
use super::key;
use super::merge::Merge;
use super::node::{NodeState, Nodes};
use super::recent::Recent;
use super::storage::{DiskStorage, MemoryStorage, Order, Storage, is_ledger};
use super::{LedgerError, Limits, Merged};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Observations that are merged at once from another ledger.
const PAGE: usize = 512;

/// A ledger over a storage. In memory it holds one small record a node, and the views that were read last.
pub struct StoredLedger<S> {
    pub(super) storage: S,
    pub(super) limits: Limits,
    /// Equal to what is stored, unless `torn`.
    pub(super) nodes: Nodes,
    /// The number of the next batch; above every one that is stored.
    pub(super) next_batch: u64,
    /// A commit failed: the storage has to be recovered and `nodes` read anew before the next one.
    pub(super) torn: bool,
    /// Room that every merge needs; kept so that it is not asked for anew.
    pub(super) scratch: Scratch,
    /// What was read before.
    pub(super) recent: Mutex<Recent>,
    /// How often retention took something away.
    pub(super) floors: u64,
}

/// The ledger of a replay or a test.
pub type MemoryLedger = StoredLedger<MemoryStorage>;

/// The ledger of one machine, in one directory.
pub type EmbeddedLedger = StoredLedger<DiskStorage>;

// === impl StoredLedger ===

impl MemoryLedger {
    /// An empty ledger that ends with the process.
    pub fn new(limits: Limits) -> Self {
        Self {
            storage: MemoryStorage::default(),
            limits,
            nodes: Nodes::default(),
            next_batch: 0,
            torn: false,
            scratch: Scratch::default(),
            recent: Mutex::default(),
            floors: 0,
        }
    }
}

impl Default for MemoryLedger {
    fn default() -> Self {
        Self::new(Limits::unbounded())
    }
}

impl EmbeddedLedger {
    /// Whether a directory holds a ledger; opening makes one where none is.
    pub fn is_there(directory: &Path) -> bool {
        is_ledger(directory)
    }

    /// Opens or creates the ledger in a directory.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, LedgerError> {
        Self::over(DiskStorage::open(directory)?, limits)
    }
}

impl<S: Storage> StoredLedger<S> {
    /// A ledger over a storage that may hold one already. Stricter limits than before apply at once.
    pub fn over(storage: S, limits: Limits) -> Result<Self, LedgerError> {
        let nodes = read_nodes(&storage)?;
        let next_batch = next_batch(&storage)?;
        let mut ledger = Self {
            storage,
            limits,
            nodes,
            next_batch,
            torn: false,
            scratch: Scratch::default(),
            recent: Mutex::default(),
            floors: 0,
        };
        ledger.expire_all()?;
        Ok(ledger)
    }

    /// Merges another ledger: what it knows of the nodes, then every observation. Findings are not merged, they
    /// follow from the observations.
    pub fn absorb<T: Storage>(&mut self, other: &StoredLedger<T>) -> Result<Merged, LedgerError> {
        self.mend()?;
        let mut merge = Merge::over(self);
        for theirs in other.nodes.states() {
            let limits = merge.limits;
            if let Some(state) = merge.concern(&theirs.node) {
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

    /// Forgets what was read before.
    pub(super) fn forget_views(&mut self) {
        self.recent.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Before a write: makes good a commit that failed.
    pub(super) fn mend(&mut self) -> Result<(), LedgerError> {
        if self.torn {
            self.storage.recover()?;
            self.nodes = read_nodes(&self.storage)?;
            self.next_batch = next_batch(&self.storage)?;
            self.torn = false;
            self.forget_views();
        }
        Ok(())
    }
}

fn read_nodes<S: Storage>(storage: &S) -> Result<Nodes, LedgerError> {
    let mut nodes = Nodes::default();
    let mut damage = None;
    let prefix = [key::NODE];
    storage.scan(&prefix, key::prefix_end(&prefix).as_deref(), Order::Ascending, &mut |_, value| {
        match NodeState::decode(value) {
            Ok(state) => {
                nodes.insert(state);
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

fn next_batch<S: Storage>(storage: &S) -> Result<u64, LedgerError> {
    let mut next = 0;
    let prefix = [key::BLOCK];
    storage.scan(&prefix, key::prefix_end(&prefix).as_deref(), Order::Descending, &mut |last, _| {
        next = key::batch_of(last).map_or(0, |number| number.saturating_add(1));
        ControlFlow::Break(())
    })?;
    Ok(next)
}
