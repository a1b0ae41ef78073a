//! What is about to become an observation, and how places become ids.

use super::explain::Spot;
use super::prefix::Prefix;
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Observation, SourceKind};
use std::borrow::Cow;

/// Observations that one statement of a line can give.
pub(super) const PER_STATEMENT: u32 = 8;
/// Index of the statement's own observation.
pub(super) const OWN: u32 = 0;
/// Index of what the statement says of its worker.
pub(super) const WORKER: u32 = 1;
/// Index of the handshake that a cause and a failure give together.
pub(super) const EXPLAINED: u32 = 2;
/// Added to the index of the statement for those folded into it.
pub(super) const FOLDED: u32 = 4;

/// What is about to become an observation.
#[derive(Debug, Clone)]
pub(super) struct Telling {
    /// Where it stands.
    pub(super) place: Place,
    /// Which of the observations of that place.
    pub(super) index: u32,
    /// When it was said.
    pub(super) wall: Option<WallTime>,
    /// The words, rebuilt.
    pub(super) says: String,
    /// What it says.
    pub(super) body: Body,
}

/// One message of one process; borrowed from its line until it has to wait.
#[derive(Debug, Clone)]
pub(super) struct Statement<'a> {
    /// What stood before it.
    pub(super) prefix: Prefix<'a>,
    /// The message.
    pub(super) message: Cow<'a, str>,
    /// Where it begins.
    pub(super) place: Place,
    /// Which statement of its line, from 0.
    pub(super) ordinal: u32,
    /// Physical lines it took.
    pub(super) lines: u64,
    /// When it was said.
    pub(super) wall: Option<WallTime>,
}

// === impl Telling ===

impl Telling {
    /// The observation.
    pub(super) fn observe(self, context: &SourceContext) -> Observation {
        let says = (!self.says.is_empty()).then_some(self.says);
        context.observe(SourceKind::Log, self.place, self.index, self.wall, says, self.body)
    }
}

// === impl Statement ===

impl Statement<'_> {
    /// The same, to be kept beyond its line.
    pub(super) fn into_owned(self) -> Statement<'static> {
        Statement {
            prefix: self.prefix.into_owned(),
            message: Cow::Owned(self.message.into_owned()),
            place: self.place,
            ordinal: self.ordinal,
            lines: self.lines,
            wall: self.wall,
        }
    }

    /// Where and by whom it was said.
    pub(super) fn spot(&self) -> Spot {
        Spot { line: self.place.position, wall: self.wall, prefix: self.prefix.clone().into_owned() }
    }

    /// Something to tell about this statement.
    pub(super) fn tell(&self, index: u32, says: String, body: Body) -> Telling {
        Telling {
            place: self.place,
            index: self.ordinal * PER_STATEMENT + index,
            wall: self.wall,
            says,
            body,
        }
    }
}
