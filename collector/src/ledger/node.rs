//! What a ledger knows of one node: its watermark, and how far retention has come.
//!
//! Invariant: `newest` and both floors only grow, and each is a function of every observation that was ever merged,
//! not of their order:
//!
//! * The time floor is the newest wall time minus the horizon.
//! * The byte floor lies behind the greatest observation x with: the observations from x on take more than the cap.
//!   Adding observations can only raise it. What stands above it was never removed, so the sum from x on is exact
//!   for every x that matters, however the observations were split or ordered. The floor has to be remembered: an
//!   older observation that would fit once a large one is gone must not slip in behind it.
//!
//! Observations that nothing dates cannot grow old; they have a lane and a cap of their own.

use super::key::{NameHash, hash_name};
use super::position::Position;
use super::{LedgerError, Limits};
use kvprov_model::clock::WallTime;
use kvprov_model::id::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node's watermark and floors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeState {
    /// The node.
    pub(super) node: NodeId,
    /// The newest wall time it has delivered.
    pub(super) newest: Option<WallTime>,
    /// Its dated observations.
    pub(super) dated: Lane,
    /// Its undated ones.
    pub(super) undated: Lane,
}

/// The nodes of a ledger, by name and by the hash that stands for it in keys.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    states: BTreeMap<NodeId, NodeState>,
    names: BTreeMap<NameHash, NodeId>,
}

/// The observations of a node that are dated, or that are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lane {
    /// Encoded bytes that are kept.
    pub(super) bytes: u64,
    /// The least position that may be kept.
    pub(super) floor: Vec<u8>,
}

// === impl Nodes ===

impl Nodes {
    pub(super) fn get(&self, node: &NodeId) -> Option<&NodeState> {
        self.states.get(node)
    }

    pub(super) fn by_hash(&self, hash: &NameHash) -> Option<&NodeState> {
        self.states.get(self.names.get(hash)?)
    }

    pub(super) fn insert(&mut self, state: NodeState) {
        if !self.states.contains_key(&state.node) {
            self.names.insert(hash_name(state.node.as_str()), state.node.clone());
        }
        self.states.insert(state.node.clone(), state);
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &NodeState> {
        self.states.values()
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }
}

// === impl NodeState ===

impl NodeState {
    pub(super) fn new(node: NodeId) -> Self {
        Self { node, newest: None, dated: Lane::default(), undated: Lane::default() }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, LedgerError> {
        serde_json::from_slice(bytes)
            .map_err(|error| LedgerError::Corrupt { what: "node state", reason: error.to_string() })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Texts, numbers and lists of numbers always have a JSON form.
        serde_json::to_vec(self).unwrap_or_default()
    }

    pub(super) fn lane(&self, dated: bool) -> &Lane {
        if dated { &self.dated } else { &self.undated }
    }

    pub(super) fn lane_mut(&mut self, dated: bool) -> &mut Lane {
        if dated { &mut self.dated } else { &mut self.undated }
    }

    /// Takes note of a time that the node delivered.
    pub(super) fn saw(&mut self, wall: Option<WallTime>, limits: &Limits) {
        if wall.is_some() && wall <= self.newest {
            return;
        }
        self.newest = self.newest.max(wall);
        if let (Some(newest), Some(horizon)) = (self.newest, limits.horizon_ns) {
            let floor = super::codec::time_order(newest.plus(horizon.max(0).saturating_neg()));
            self.dated.raise(&floor);
        }
    }

    /// Whether an observation at a position may be kept.
    pub(super) fn admits(&self, position: &Position) -> bool {
        self.lane(position.is_dated()).admits(position)
    }

    /// Joins what another replica knows of the node. Bytes are what is kept here and stay.
    pub(super) fn join(&mut self, other: &Self, limits: &Limits) {
        self.saw(other.newest, limits);
        self.dated.raise(&other.dated.floor);
        self.undated.raise(&other.undated.floor);
    }
}

// === impl Lane ===

impl Lane {
    pub(super) fn admits(&self, position: &Position) -> bool {
        position.as_bytes() >= self.floor.as_slice()
    }

    /// Whether an observation of a wall time may be kept; `None` when only its whole position tells.
    pub(super) fn admits_time(&self, wall: Option<i64>) -> Option<bool> {
        if self.floor.is_empty() {
            return Some(true);
        }
        let order = super::codec::time_order(WallTime(wall?));
        match order.as_slice().cmp(self.floor.get(..9)?) {
            std::cmp::Ordering::Equal if self.floor.len() > 9 => None,
            order => Some(order.is_ge()),
        }
    }

    pub(super) fn raise(&mut self, floor: &[u8]) {
        if floor > self.floor.as_slice() {
            self.floor = floor.to_vec();
        }
    }
}
