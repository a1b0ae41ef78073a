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

use super::key::Position;
use super::{LedgerError, Limits};
use kvprov_model::clock::WallTime;
use kvprov_model::id::NodeId;
use serde::{Deserialize, Serialize};

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

/// The observations of a node that are dated, or that are not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lane {
    /// Encoded bytes that are kept.
    pub(super) bytes: u64,
    /// The least position that may be kept.
    pub(super) floor: Vec<u8>,
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
        self.newest = self.newest.max(wall);
        if let (Some(newest), Some(horizon)) = (self.newest, limits.horizon_ns) {
            let mut floor = Vec::with_capacity(9);
            super::codec::put_order(Some(newest.plus(horizon.max(0).saturating_neg())), &mut floor);
            self.dated.raise(floor);
        }
    }

    /// Whether an observation at a position may be kept.
    pub(super) fn admits(&self, position: &Position) -> bool {
        self.lane(position.is_dated()).admits(position)
    }

    /// Joins what another replica knows of the node. Bytes are what is kept here and stay.
    pub(super) fn join(&mut self, other: &Self, limits: &Limits) {
        self.saw(other.newest, limits);
        self.dated.raise(other.dated.floor.clone());
        self.undated.raise(other.undated.floor.clone());
    }
}

// === impl Lane ===

impl Lane {
    pub(super) fn admits(&self, position: &Position) -> bool {
        position.0 >= self.floor
    }

    pub(super) fn raise(&mut self, floor: Vec<u8>) {
        if floor > self.floor {
            self.floor = floor;
        }
    }
}
