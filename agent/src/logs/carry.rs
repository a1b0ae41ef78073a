//! What a reader takes over a seam: a place where it stops and begins anew, as after a restart.
//!
//! Invariant: a reader that goes on behind a seam and one that was made anew from what the seam carried read alike.
//! So a source that is read on later needs no byte before the seam. Nothing of a message is carried.

use super::wrapping::Wrapping;
use kvprov_model::clock::WallTime;
use serde::{Deserialize, Serialize};

/// What was learnt before a seam.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carry {
    /// Bytes before the seam.
    pub offset: u64,
    /// Lines before the seam.
    pub lines: u64,
    /// Engine that speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Year and month of the last line that had a clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<(i16, u8)>,
    /// Time of the last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall: Option<WallTime>,
    /// Lines that are still to be looked at one by one.
    pub one_by_one: u32,
    /// Lines waited for a first clock, or one was found.
    pub dated: bool,
}

// === impl Carry ===

impl Carry {
    /// At the begin of a source of which nothing is known.
    pub fn begin() -> Self {
        Self::default().onward()
    }

    /// The same for the begin of the next file of a stream.
    pub fn onward(&self) -> Self {
        Self { offset: 0, lines: 0, one_by_one: Wrapping::default().left(), ..self.clone() }
    }
}
