//! Merging: one batch of observations becomes one commit.
//!
//! Invariant: after the commit the storage holds the union of what it held and the batch, the greater encoding where
//! one id has two contents, without what stands below the floors. The index is the image of that set under
//! [`super::index_keys`].

use super::arriving::Arriving;
use super::index::IndexKind;
use super::key::{self, BlockId, NameHash};
use super::node::{NodeState, Nodes};
use super::position::{Place, Position};
use super::storage::{Changes, Staged, Storage};
use super::stored::StoredLedger;
use super::{LedgerError, Limits, Merged, Subject, codec};
use kvprov_model::id::{NodeId, StoreId, WorkerId};
use kvprov_model::observation::{Observation, SCHEMA_VERSION};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A merge in the making: changes over a storage that is not touched before [`Merge::prepare`].
pub(super) struct Merge<'a, S> {
    pub(super) staged: Staged<'a, S>,
    /// The states of the nodes concerned, as they will be.
    pub(super) nodes: BTreeMap<NodeId, (NameHash, NodeState)>,
    pub(super) merged: Merged,
    pub(super) limits: &'a Limits,
    /// The number that this batch has if it writes one.
    pub(super) batch: u64,
    known: &'a Nodes,
}

/// A merge that is ready to be committed.
pub(super) struct Prepared {
    changes: Changes,
    nodes: Vec<NodeState>,
    merged: Merged,
}

// === impl StoredLedger ===

impl<S: Storage> StoredLedger<S> {
    pub(super) fn merge_batch(&mut self, observations: &[Observation]) -> Result<Merged, LedgerError> {
        self.mend()?;
        let scratch = std::mem::take(&mut self.scratch);
        let mut merge = Merge::over(self);
        // Times first: what is too old for the batch it comes in is never added.
        for observation in observations {
            merge.take_time(observation);
        }
        let mut arriving = Arriving::over(observations, scratch);
        for (number, observation) in observations.iter().enumerate() {
            merge.add(number, observation, &mut arriving)?;
        }
        let scratch = arriving.write(&mut merge)?;
        let mut more = merge.expire()?;
        let prepared = merge.prepare();
        let mut merged = self.commit(prepared)?;
        // Whatever of this batch's number was written: the next one has another.
        self.next_batch += 1;
        self.scratch = scratch;
        while more {
            let mut merge = Merge::over(self);
            merge.merged = merged;
            for observation in observations {
                merge.concern(&observation.envelope.node);
            }
            more = merge.expire()?;
            let prepared = merge.prepare();
            merged = self.commit(prepared)?;
        }
        Ok(merged)
    }

    /// Commits; the states in memory follow only when the storage has taken them.
    pub(super) fn commit(&mut self, prepared: Prepared) -> Result<Merged, LedgerError> {
        if !prepared.changes.is_empty() {
            self.storage.commit(prepared.changes).inspect_err(|_| self.torn = true)?;
        }
        for state in prepared.nodes {
            self.nodes.insert(state);
        }
        self.floors += u64::from(prepared.merged.removed > 0);
        if prepared.merged.replaced > 0 {
            self.forget_views();
        }
        Ok(prepared.merged)
    }
}

// === impl Merge ===

impl<'a, S: Storage> Merge<'a, S> {
    pub(super) fn over(ledger: &'a StoredLedger<S>) -> Self {
        Self {
            staged: Staged::new(&ledger.storage),
            nodes: BTreeMap::new(),
            merged: Merged::default(),
            limits: &ledger.limits,
            batch: ledger.next_batch,
            known: &ledger.nodes,
        }
    }

    /// The state of a node that is known or may become known.
    pub(super) fn concern(&mut self, node: &NodeId) -> Option<&mut NodeState> {
        let fresh = self.nodes.keys().filter(|node| self.known.get(node).is_none()).count();
        match self.nodes.entry(node.clone()) {
            Entry::Occupied(entry) => Some(&mut entry.into_mut().1),
            Entry::Vacant(entry) => {
                let state = match self.known.get(node) {
                    Some(state) => state.clone(),
                    None if self.known.len() + fresh < self.limits.nodes => NodeState::new(node.clone()),
                    None => return None,
                };
                Some(&mut entry.insert((key::hash_name(node.as_str()), state)).1)
            }
        }
    }

    /// Takes note of the time of an observation, before any is added.
    fn take_time(&mut self, observation: &Observation) {
        let (limits, envelope) = (self.limits, &observation.envelope);
        if let Some((_, state)) = self.nodes.get_mut(&envelope.node) {
            state.saw(envelope.wall, limits);
        } else if let Some(state) = self.concern(&envelope.node) {
            state.saw(envelope.wall, limits);
        }
    }

    fn add(
        &mut self,
        number: usize,
        observation: &Observation,
        arriving: &mut Arriving<'_>,
    ) -> Result<(), LedgerError> {
        let envelope = &observation.envelope;
        let Some((node, state)) = self.nodes.get(&envelope.node) else {
            self.merged.refused_nodes += 1;
            return Ok(());
        };
        let node = *node;
        arriving.encode(observation);
        if arriving.encoded().len() > self.limits.observation_bytes {
            self.merged.oversized += 1;
            return Ok(());
        }
        let position = Position::of(envelope);
        if !state.admits(&position) {
            self.merged.expired += 1;
            return Ok(());
        }
        let stored = match arriving.earlier(envelope.id) {
            Some(earlier) => Some(earlier < arriving.encoded()),
            None => self.replaces(observation, arriving.encoded())?,
        };
        match stored {
            Some(false) => {
                self.merged.duplicates += 1;
                return Ok(());
            }
            Some(true) => self.merged.replaced += 1,
            None => self.merged.added += 1,
        }
        if envelope.schema_version > SCHEMA_VERSION {
            self.merged.newer += 1;
        }
        arriving.keep(number, node, position);
        Ok(())
    }

    /// Whether an encoding takes the place of a stored one, which is then taken out; `None`: nothing is stored.
    fn replaces(&mut self, observation: &Observation, encoded: &[u8]) -> Result<Option<bool>, LedgerError> {
        let id = observation.envelope.id;
        let mut place = None;
        self.staged.get_with(&key::place(id), &mut |bytes| place = Place::read(bytes))?;
        let Some(place) = place else { return Ok(None) };
        let Some(bytes) = self.staged.get(&BlockId::of(place).key())? else { return Ok(None) };
        let block = super::block::Block::read(&bytes)?;
        let slot = (place.index % super::block::SLOTS) as usize;
        match block.record(slot) {
            None => Ok(None),
            Some(old) if old >= encoded => Ok(Some(false)),
            Some(old) => {
                let old_observation = codec::decode(id, old)?;
                self.take_out(&block, place, &old_observation, old.len())?;
                Ok(Some(true))
            }
        }
    }

    /// Marks the subject that a key stands for.
    pub(super) fn mark(&mut self, kind: IndexKind, name: &str) {
        let subject = match kind {
            IndexKind::Worker => Subject::Worker(WorkerId::from(name)),
            IndexKind::Store => Subject::Store(StoreId::from(name)),
            IndexKind::Roster | IndexKind::Fleet => Subject::Fleet,
            IndexKind::Request | IndexKind::Transfer | IndexKind::Engine => return,
        };
        self.merged.dirty.insert(subject);
    }

    /// The changes, with the states of the nodes among them.
    pub(super) fn prepare(mut self) -> Prepared {
        let mut nodes = Vec::new();
        for (node, (hash, state)) in self.nodes {
            if self.known.get(&node) != Some(&state) {
                self.staged.put(key::node(&hash), state.encode());
                nodes.push(state);
            }
        }
        Prepared { changes: self.staged.into_changes(), nodes, merged: self.merged }
    }
}
