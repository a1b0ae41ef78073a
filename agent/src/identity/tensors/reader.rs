//! Reads a header from its begin, piece by piece and up to a bound.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Bytes that are read from the file at once.
const PIECE: usize = 64 << 10;

/// A header that is being read.
#[derive(Debug)]
pub(super) struct HeaderReader<'f> {
    file: &'f File,
    /// The header ends before this.
    limit: u64,
    buffer: Vec<u8>,
    /// Where the buffer begins in the file, and what of it was taken.
    at: u64,
    taken: usize,
}

// === impl HeaderReader ===

impl<'f> HeaderReader<'f> {
    pub(super) fn new(file: &'f File, size: u64, longest: u64) -> Self {
        Self { file, limit: size.min(longest), buffer: Vec::new(), at: 0, taken: 0 }
    }

    /// Bytes that were taken since the begin of the file.
    pub(super) fn position(&self) -> u64 {
        self.at + self.taken as u64
    }

    /// The next bytes; `None` where the header ends before.
    pub(super) fn bytes(&mut self, count: u64) -> Option<&[u8]> {
        let end = self.position().checked_add(count).filter(|end| *end <= self.limit)?;
        let count = usize::try_from(count).ok()?;
        if self.buffer.len() - self.taken < count {
            self.buffer.drain(..self.taken);
            self.at += self.taken as u64;
            self.taken = 0;
            let mut have = self.buffer.len();
            let left = usize::try_from(self.limit - self.at).ok()?;
            self.buffer.resize(count.max(PIECE).min(left), 0);
            while have < self.buffer.len() {
                match self.file.read_at(&mut self.buffer[have..], self.at + have as u64) {
                    Ok(read) if read > 0 => have += read,
                    _ => break,
                }
            }
            self.buffer.truncate(have);
            if have < count {
                return None;
            }
        }
        debug_assert_eq!(self.position() + count as u64, end);
        let begin = self.taken;
        self.taken += count;
        self.buffer.get(begin..self.taken)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes(8)?.try_into().ok().map(u64::from_le_bytes)
    }
}
