//! What one process writes to one descriptor.

use super::open_line::{Ended, OpenLine};
use super::{Piece, offset_of};
use crate::logs::{Carry, LineCounts, LogReader};
use crate::source::{Losses, Sink};
use kvprov_model::clock::WallTime;

/// A process and descriptor.
#[derive(Debug)]
pub(super) struct Speaker<'p> {
    reader: LogReader<'p>,
    line: OpenLine,
    seam: Carry,
    /// Time of the first line behind the seam.
    since: Option<WallTime>,
    /// Pieces up to here lie before the seam.
    behind_seam: u64,
    /// The first piece behind the seam.
    first: Option<u64>,
    /// The newest piece.
    last: u64,
}

// === impl Speaker ===

impl<'p> Speaker<'p> {
    pub(super) fn new(reader: LogReader<'p>, seam: Carry, behind: u64) -> Self {
        Self {
            reader,
            line: OpenLine::default(),
            seam,
            since: None,
            behind_seam: behind,
            first: None,
            last: behind,
        }
    }

    pub(super) fn reader(&self) -> &LogReader<'p> {
        &self.reader
    }

    pub(super) fn reader_mut(&mut self) -> &mut LogReader<'p> {
        &mut self.reader
    }

    pub(super) fn seam(&self) -> &Carry {
        &self.seam
    }

    /// The newest piece before the seam.
    pub(super) fn behind_seam(&self) -> u64 {
        self.behind_seam
    }

    /// The newest piece taken.
    pub(super) fn behind(&self) -> u64 {
        self.last
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Takes a piece.
    pub(super) fn take(&mut self, piece: &Piece<'_>, losses: &mut Losses, sink: Sink<'_>) {
        let Piece { position, wall, .. } = *piece;
        self.first.get_or_insert(position);
        self.since.get_or_insert(wall);
        self.last = position;
        let mut at = 0;
        while let Some(end) = memchr::memchr(b'\n', &piece.bytes[at..]) {
            let Self { reader, line, .. } = self;
            let bytes = &piece.bytes[at..=at + end];
            if line.is_empty() {
                reader.line(bytes, offset_of(position, at), wall, sink);
            } else {
                line.add(bytes, offset_of(position, at), position, wall);
                line.end(|ended| read(reader, &ended, losses, sink));
            }
            at += end + 1;
        }
        let rest = &piece.bytes[at..];
        if !rest.is_empty() {
            self.line.add(rest, offset_of(position, at), position, wall);
        }
        if piece.skipped > 0 {
            self.line.break_off(offset_of(position, at), position, wall);
        }
    }

    /// Makes a seam if nothing is parted by it, or if that was so for too long. Gives the first piece that is needed
    /// after a restart.
    pub(super) fn settle(&mut self, now: WallTime, patience: i64, sink: Sink<'_>) -> Option<u64> {
        let is_late = self.since.is_some_and(|since| now.since(since) >= patience);
        // A seam lies between pieces; the open line is kept and its pieces are needed.
        if (self.line.is_empty() && self.reader.at_rest()) || is_late {
            if let Some(carry) = self.reader.seam(sink) {
                self.seam = carry;
            }
            self.since = None;
            match self.line.began_in() {
                Some(began) => {
                    // Lines that ended in that piece are read again, under the same ids.
                    self.behind_seam = began.saturating_sub(1);
                    self.first = Some(began);
                }
                None => {
                    self.behind_seam = self.last;
                    self.first = None;
                }
            }
        }
        self.first
    }

    /// Ends it: a last line without its end, and what waited.
    pub(super) fn finish(mut self, sink: Sink<'_>) -> LineCounts {
        let Self { reader, line, .. } = &mut self;
        let mut losses = Losses::default();
        line.end(|ended| read(reader, &ended, &mut losses, sink));
        reader.finish(sink);
        *reader.counts()
    }
}

fn read(reader: &mut LogReader<'_>, ended: &Ended<'_>, losses: &mut Losses, sink: Sink<'_>) {
    if ended.broken {
        // What is left of it might say something else than the whole.
        losses.one("line of which a part was not captured");
        return;
    }
    reader.line(ended.bytes, ended.offset, ended.wall, sink);
}
