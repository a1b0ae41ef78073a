//! The line that a process is writing.

use crate::logs::MAX_LINE;
use kvprov_model::clock::WallTime;

/// A line whose end was not seen.
#[derive(Debug, Default)]
pub(super) struct OpenLine {
    bytes: Vec<u8>,
    /// Where its first byte is, and the position of the piece.
    begin: Option<(u64, u64, WallTime)>,
    /// A part of it was not captured.
    broken: bool,
    /// Bytes beyond [`MAX_LINE`].
    passed_by: u64,
}

/// A line.
#[derive(Debug)]
pub(super) struct Ended<'l> {
    pub(super) bytes: &'l [u8],
    pub(super) offset: u64,
    pub(super) wall: WallTime,
    pub(super) broken: bool,
}

// === impl OpenLine ===

impl OpenLine {
    /// Adds what does not end the line.
    pub(super) fn add(&mut self, bytes: &[u8], offset: u64, position: u64, wall: WallTime) {
        self.begin.get_or_insert((offset, position, wall));
        let room = MAX_LINE.saturating_sub(self.bytes.len()).min(bytes.len());
        self.bytes.extend_from_slice(&bytes[..room]);
        self.passed_by += (bytes.len() - room) as u64;
    }

    /// What follows was not captured.
    pub(super) fn break_off(&mut self, offset: u64, position: u64, wall: WallTime) {
        self.begin.get_or_insert((offset, position, wall));
        self.broken = true;
        self.bytes.clear();
    }

    /// Position of the piece in which it began.
    pub(super) fn began_in(&self) -> Option<u64> {
        self.begin.map(|(_, position, _)| position)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.begin.is_none()
    }

    /// Ends it.
    pub(super) fn end(&mut self, take: impl FnOnce(Ended<'_>)) {
        let Some((offset, _, wall)) = self.begin.take() else { return };
        let broken = std::mem::take(&mut self.broken) || self.passed_by > 0;
        self.passed_by = 0;
        take(Ended { bytes: &self.bytes, offset, wall, broken });
        self.bytes.clear();
        self.bytes.shrink_to(64 << 10);
    }
}
