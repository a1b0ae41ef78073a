//! How far the nodes have been heard while the collector runs.
//!
//! What is absent may be concluded only when everything that could have said it has been heard. A node is heard up to
//! the time of its last sign of life, which its agent gives when every source has delivered up to there; before the
//! first one, up to the newest time that the node dated anything with. A node that says nothing for long is *silent*:
//! it holds nobody up any more, and what rests on its silence names it as unknown. The collector decides by its own
//! clock who is silent; a view asks no clock.

use kvprov_model::clock::WallTime;
use kvprov_model::id::NodeId;
use std::collections::{BTreeMap, BTreeSet};

/// What the collector has heard of the nodes beyond their observations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hearing {
    /// The time up to which a node has said that it has delivered everything, on its own clock.
    pub complete: BTreeMap<NodeId, WallTime>,
    /// Nodes that have said nothing for long.
    pub silent: BTreeSet<NodeId>,
    /// Before this time retention may have removed something; `None`: nothing was removed.
    pub expired_before: Option<WallTime>,
}

/// Whether some workers have been heard up to a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Not yet: nothing may be concluded from absence.
    Waiting,
    /// Up to there, but for these nodes, which fell silent before: what they would have said is unknown.
    Except(BTreeSet<NodeId>),
    /// All of them.
    All,
}

// === impl Heard ===

impl Heard {
    /// Whether a conclusion from absence may be stated, if only as suspected.
    pub fn is_settled(&self) -> bool {
        *self != Self::Waiting
    }

    /// What is unknown because a node fell silent, as the words of a finding.
    pub fn unknown(&self) -> Option<String> {
        let Self::Except(nodes) = self else { return None };
        let names = nodes.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ");
        Some(format!("what {names} would have said, which fell silent before"))
    }
}
