//! How far output that the kernel saw was read: before that the ring may move on.
//!
//! Pieces of output are never put on disk. So until what a piece says is with the queue, and where its reader stands is
//! saved, the piece has to stay in the ring: after a kill the next agent takes it from there.

use crate::kernel::live::OutputPiece;
use crate::logs::streams::StreamState;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Records of the ring begin at multiples of so many bytes.
const RECORDS_AT: u64 = 8;

/// Position of the ring before which no piece is needed any more. Shared by the thread that reads the pieces, which
/// moves it, and the one that gives room back.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settled(Arc<AtomicU64>);

/// What the thread that gives room back knows of pieces.
#[derive(Debug)]
pub(crate) struct Pieces {
    settled: Settled,
    /// Position of the last piece that was handed on.
    last: Option<u64>,
}

/// Readings of output on disk, which name the ring that they are of. They hold no text.
#[derive(Debug)]
pub(crate) struct Readings {
    path: PathBuf,
    ring: String,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    ring: String,
    states: Vec<StreamState>,
}

// === impl Settled ===

impl Settled {
    /// No piece before this position is needed.
    pub(crate) fn reached(&self, position: u64) {
        self.0.fetch_max(position, Ordering::AcqRel);
    }
}

// === impl Pieces ===

impl Pieces {
    pub(crate) fn new(settled: Settled) -> Self {
        Self { settled, last: None }
    }

    /// A piece is handed on.
    pub(crate) fn pass(&mut self, piece: &OutputPiece<'_>) {
        self.last = Some(piece.position);
    }

    /// Up to where room may be given back of what was taken up to a position.
    pub(crate) fn free(&self, taken: u64) -> u64 {
        let settled = self.settled.0.load(Ordering::Acquire);
        match self.last {
            // Records begin at multiples of eight. A piece that is settled itself, and nothing behind it, stays: where
            // the record behind it begins is not known here, and half a record would be the end of all reading.
            Some(last) if settled <= last => (settled & !(RECORDS_AT - 1)).min(taken),
            _ => taken,
        }
    }
}

// === impl Readings ===

impl Readings {
    pub(crate) fn new(path: PathBuf, ring: String) -> Self {
        Self { path, ring }
    }

    /// What an agent before this one saved of the same ring; nothing where it cannot be read.
    pub(crate) fn load(&self) -> Vec<StreamState> {
        let Ok(bytes) = std::fs::read(&self.path) else { return Vec::new() };
        match serde_json::from_slice::<Saved>(&bytes) {
            Ok(saved) if saved.ring == self.ring => saved.states,
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "readings of output are damaged");
                Vec::new()
            }
        }
    }

    /// Replaces what was saved. A loss of power takes the ring too, so nothing is forced to the disk.
    pub(crate) fn save(&self, states: Vec<StreamState>) -> std::io::Result<()> {
        let saved = Saved { ring: self.ring.clone(), states };
        let new: &Path = &self.path.with_extension("new");
        std::fs::write(new, serde_json::to_vec(&saved).map_err(std::io::Error::other)?)?;
        std::fs::rename(new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(position: u64) -> OutputPiece<'static> {
        OutputPiece {
            pid: 1,
            fd: 1,
            file: kvprov_agent_common::FileIdentity { device: 0, open_file: 0, inode: 0 },
            wall: kvprov_model::clock::WallTime(0),
            position,
            offset: 0,
            bytes: b"",
            skipped: 0,
        }
    }

    #[test]
    fn without_output_all_room_is_free() {
        assert_eq!(Pieces::new(Settled::default()).free(70), 70);
    }

    #[test]
    fn a_piece_that_is_not_settled_keeps_its_room_and_what_follows() {
        let settled = Settled::default();
        let mut pieces = Pieces::new(settled.clone());
        pieces.pass(&piece(40));
        assert_eq!(pieces.free(70), 0);
        settled.reached(40);
        assert_eq!(pieces.free(70), 40);
        settled.reached(41);
        assert_eq!(pieces.free(70), 70);
    }

    #[test]
    fn room_is_given_back_up_to_the_begin_of_a_record_only() {
        let settled = Settled::default();
        let mut pieces = Pieces::new(settled.clone());
        pieces.pass(&piece(40));
        // All up to the piece at 40, and itself.
        settled.reached(41);
        pieces.pass(&piece(64));
        assert_eq!(pieces.free(80), 40);
        settled.reached(64);
        assert_eq!(pieces.free(80), 64);
    }

    #[test]
    fn readings_of_another_ring_are_not_taken_up() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("output.json");
        Readings::new(path.clone(), "one".to_owned()).save(Vec::new()).expect("saved");
        assert!(Readings::new(path, "two".to_owned()).load().is_empty());
    }
}
