//! Merging: one batch of observations becomes one commit.
//!
//! Invariant: after the commit the storage holds the union of what it held and the batch, the greater encoding where
//! one id has two contents, without what stands below the floors. The index is the image of that set under
//! [`index_keys`].

use super::key::{self, NameHash, Position, StoredKey};
use super::node::NodeState;
use super::storage::{Changes, Staged, Storage};
use super::stored::StoredLedger;
use super::{IndexKey, IndexKind, LedgerError, Limits, Merged, Subject, codec, index_keys};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Observation, SCHEMA_VERSION};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// A merge in the making: changes over a storage that is not touched before [`Merge::prepare`].
pub(super) struct Merge<'a, S> {
    pub(super) staged: Staged<'a, S>,
    /// The states of the nodes concerned, as they will be.
    pub(super) nodes: BTreeMap<NodeId, (NameHash, NodeState)>,
    pub(super) merged: Merged,
    pub(super) limits: &'a Limits,
    known: &'a BTreeMap<NodeId, NodeState>,
    touched: BTreeMap<IndexKey, Touched>,
    /// Keys that lost entries and may have none left.
    pub(super) thinned: BTreeSet<StoredKey>,
}

/// An index key that got entries.
struct Touched {
    stored: StoredKey,
    /// The workers that named it, where the kind joins workers.
    workers: BTreeSet<WorkerId>,
}

/// A merge that is ready to be committed.
pub(super) struct Prepared {
    changes: Changes,
    nodes: BTreeMap<NodeId, NodeState>,
    merged: Merged,
}

// === impl StoredLedger ===

impl<S: Storage> StoredLedger<S> {
    pub(super) fn merge_batch(&mut self, observations: &[Observation]) -> Result<Merged, LedgerError> {
        self.mend()?;
        let mut merge = Merge::over(self);
        // Times first: what is too old for the batch it comes in is never added.
        for observation in observations {
            merge.take_time(observation);
        }
        let mut buffer = Vec::with_capacity(1024);
        for observation in observations {
            merge.add(observation, &mut buffer)?;
        }
        merge.join_touched()?;
        let mut more = merge.expire()?;
        let prepared = merge.prepare();
        let mut merged = self.commit(prepared)?;
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
        self.nodes.extend(prepared.nodes);
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
            known: &ledger.nodes,
            touched: BTreeMap::new(),
            thinned: BTreeSet::new(),
        }
    }

    /// The state of a node that is known or may become known.
    pub(super) fn concern(&mut self, node: &NodeId) -> Option<&mut NodeState> {
        let fresh = self.nodes.keys().filter(|node| !self.known.contains_key(node)).count();
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

    fn add(&mut self, observation: &Observation, buffer: &mut Vec<u8>) -> Result<(), LedgerError> {
        let envelope = &observation.envelope;
        let Some((node_hash, state)) = self.nodes.get(&envelope.node) else {
            self.merged.refused_nodes += 1;
            return Ok(());
        };
        buffer.clear();
        codec::encode(observation, buffer);
        if buffer.len() > self.limits.observation_bytes {
            self.merged.oversized += 1;
            return Ok(());
        }
        let position = Position::of(envelope);
        if !state.admits(&position) {
            self.merged.expired += 1;
            return Ok(());
        }
        let node_entry = key::node_entry(node_hash, &position);
        let record = key::record(envelope.id);
        match self.staged.get(&record)? {
            Some(old) if old >= *buffer => {
                self.merged.duplicates += 1;
                return Ok(());
            }
            Some(old) => {
                self.merged.replaced += 1;
                self.remove(&codec::decode(envelope.id, &old)?, old.len());
            }
            None => self.merged.added += 1,
        }
        if envelope.schema_version > SCHEMA_VERSION {
            self.merged.newer += 1;
        }

        let (keys, cut) = index_keys(observation);
        self.merged.index_cut += cut;
        for key in keys {
            let touched = self
                .touched
                .entry(key)
                .or_insert_with_key(|key| Touched { stored: StoredKey::of(key), workers: BTreeSet::new() });
            self.staged.put(touched.stored.entry(&position), Vec::new());
            if touched.stored.joins_workers()
                && let Some(worker) = &envelope.worker
                && !touched.workers.contains(worker)
            {
                touched.workers.insert(worker.clone());
            }
        }
        if let Some((_, state)) = self.nodes.get_mut(&envelope.node) {
            state.lane_mut(position.is_dated()).bytes += buffer.len() as u64;
        }
        self.staged.put(node_entry, (buffer.len() as u32).to_le_bytes().to_vec());
        self.staged.put(record, buffer.clone());
        Ok(())
    }

    /// Takes an observation out of every table; what it was under changes.
    pub(super) fn remove(&mut self, observation: &Observation, length: usize) {
        let envelope = &observation.envelope;
        let position = Position::of(envelope);
        for key in index_keys(observation).0 {
            self.mark(&key);
            let stored = StoredKey::of(&key);
            self.staged.delete(stored.entry(&position));
            self.thinned.insert(stored);
        }
        self.concern(&envelope.node);
        if let Some((hash, state)) = self.nodes.get_mut(&envelope.node) {
            let lane = state.lane_mut(position.is_dated());
            lane.bytes = lane.bytes.saturating_sub(length as u64);
            self.staged.delete(key::node_entry(hash, &position));
        }
        self.staged.delete(key::record(envelope.id));
    }

    /// Marks the subject that a key stands for.
    fn mark(&mut self, key: &IndexKey) {
        let subject = match key {
            IndexKey::Worker(worker) => Subject::Worker(worker.clone()),
            IndexKey::Store(store) => Subject::Store(store.clone()),
            IndexKey::Roster | IndexKey::Fleet => Subject::Fleet,
            IndexKey::Request(_) | IndexKey::Transfer(_) | IndexKey::Engine(_) => return,
        };
        self.merged.dirty.insert(subject);
    }

    /// Names the keys that got entries, and marks every worker known under one that joins workers.
    fn join_touched(&mut self) -> Result<(), LedgerError> {
        for (key, touched) in std::mem::take(&mut self.touched) {
            let Touched { stored, mut workers } = touched;
            self.mark(&key);
            if stored.joins_workers() {
                for worker in workers_under(&self.staged, &stored)? {
                    workers.remove(&worker);
                    self.merged.dirty.insert(Subject::Worker(worker));
                }
                for worker in workers {
                    self.staged.put(stored.joined_worker(worker.as_str()), worker.0.into_bytes());
                }
            }
            self.staged.put(stored.name(), key.name().as_bytes().to_vec());
        }
        Ok(())
    }

    /// The changes, with the states of the nodes among them.
    pub(super) fn prepare(mut self) -> Prepared {
        let mut nodes = BTreeMap::new();
        for (node, (hash, state)) in self.nodes {
            if self.known.get(&node) != Some(&state) {
                self.staged.put(key::node(&hash), state.encode());
                nodes.insert(node, state);
            }
        }
        Prepared { changes: self.staged.into_changes(), nodes, merged: self.merged }
    }
}

fn workers_under<S: Storage>(
    staged: &Staged<'_, S>,
    stored: &StoredKey,
) -> Result<Vec<WorkerId>, LedgerError> {
    let prefix = stored.joined();
    let mut workers = Vec::new();
    staged.scan(&prefix, key::prefix_end(&prefix).as_deref(), &mut |_, worker| {
        workers.push(WorkerId(String::from_utf8_lossy(worker).into_owned()));
        ControlFlow::Continue(())
    })?;
    Ok(workers)
}

impl StoredKey {
    fn joins_workers(&self) -> bool {
        [IndexKind::Request, IndexKind::Transfer].iter().any(|kind| kind.tag() == self.tag())
    }
}
