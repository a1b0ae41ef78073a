//! Bytes of a peer on their way to messages, without input or output: room is asked for, filled, and looked through.
//!
//! Whole messages lie in one piece, so that nothing is copied. Invariant: what was handed out, and what growth leaves
//! behind, is overwritten.

use super::{Budget, Frame, Limits, ZmtpError};
use std::ops::Range;

/// Bytes that every connection may hold without asking for more.
pub const SMALL: usize = 256 << 10;
/// Room at the begin.
const FIRST: usize = 16 << 10;
/// Bytes that the heads of frames may add to a message.
const HEAD: usize = 9;

/// What is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// A message with all its frames.
    Message,
    /// A command.
    Command,
}

/// The bytes.
#[derive(Debug)]
pub struct Incoming {
    limits: Limits,
    budget: Budget,
    /// Taken of the budget.
    taken: usize,
    bytes: Vec<u8>,
    /// What came and was not handed out.
    begin: usize,
    end: usize,
    /// Up to where frames of the message under way were found, from `begin`.
    found: usize,
    /// Bodies of the frames, from `begin`.
    parts: Vec<Range<usize>>,
    /// A command or message is complete and was not dropped yet.
    complete: Option<Sort>,
}

// === impl Incoming ===

impl Incoming {
    /// Nothing came yet.
    pub fn new(limits: Limits, budget: Budget) -> Self {
        Self {
            limits,
            budget,
            taken: 0,
            bytes: vec![0; FIRST],
            begin: 0,
            end: 0,
            found: 0,
            parts: Vec::new(),
            complete: None,
        }
    }

    /// Room for the next bytes, never empty.
    ///
    /// # Errors
    /// When a message would need more memory than there is for it.
    pub fn room(&mut self) -> Result<&mut [u8], ZmtpError> {
        if self.end == self.bytes.len() {
            self.make_room()?;
        }
        Ok(&mut self.bytes[self.end..])
    }

    /// So many bytes came into [`Self::room`].
    pub fn came(&mut self, count: usize) {
        self.end = (self.end + count).min(self.bytes.len());
    }

    /// Takes bytes that are no frame, once there are so many.
    pub fn raw<const N: usize>(&mut self) -> Option<[u8; N]> {
        let raw = *self.bytes[self.begin..self.end].first_chunk::<N>()?;
        self.discard(N);
        Some(raw)
    }

    /// Looks whether something is complete; it stays so until [`Self::done`].
    ///
    /// # Errors
    /// For bytes that are no ZMTP or more than the limits allow.
    pub fn look(&mut self) -> Result<Option<Sort>, ZmtpError> {
        while self.complete.is_none() {
            let bytes = &self.bytes[self.begin..self.end];
            let Some(rest) = bytes.get(self.found..) else { return Ok(None) };
            let Some(frame) = Frame::read(rest, &self.limits)? else { return Ok(None) };
            if frame.command && !self.parts.is_empty() {
                return Err(ZmtpError::Malformed("a command inside a message"));
            }
            let body = self.found + frame.head..self.found + frame.head + frame.body;
            if body.end > self.limits.message + self.limits.frames * HEAD {
                return Err(ZmtpError::TooLarge("a message"));
            }
            if self.parts.len() >= self.limits.frames {
                return Err(ZmtpError::TooLarge("frames of a message"));
            }
            if bytes.len() < body.end {
                return Ok(None);
            }
            self.found = body.end;
            self.parts.push(body);
            if frame.command {
                self.complete = Some(Sort::Command);
            } else if !frame.more {
                self.complete = Some(Sort::Message);
            }
        }
        Ok(self.complete)
    }

    /// Frames of what is complete; of a command its body.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> + '_ {
        let parts: &[Range<usize>] = if self.complete.is_some() { &self.parts } else { &[] };
        parts.iter().map(|part| &self.bytes[self.begin + part.start..self.begin + part.end])
    }

    /// Drops what is complete.
    pub fn done(&mut self) {
        if self.complete.take().is_none() {
            return;
        }
        self.parts.clear();
        let count = std::mem::take(&mut self.found);
        self.discard(count);
        if self.begin == self.end && self.bytes.len() > SMALL {
            self.replace(FIRST);
        }
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    fn discard(&mut self, count: usize) {
        wipe(&mut self.bytes[self.begin..self.begin + count]);
        self.begin += count;
        if self.begin == self.end {
            self.begin = 0;
            self.end = 0;
        }
    }

    fn make_room(&mut self) -> Result<(), ZmtpError> {
        let waits = self.end - self.begin;
        if waits <= self.bytes.len() / 2 {
            self.bytes.copy_within(self.begin..self.end, 0);
            wipe(&mut self.bytes[waits..self.end]);
            self.begin = 0;
            self.end = waits;
            return Ok(());
        }
        // One message and the begin of the next.
        let most = self.limits.message + self.limits.frames * HEAD + FIRST;
        let size = self.bytes.len().saturating_mul(2).min(most);
        if size <= self.bytes.len() {
            return Err(ZmtpError::TooLarge("a message"));
        }
        if size > SMALL {
            let more = size - SMALL - self.taken;
            if !self.budget.take(more) {
                return Err(ZmtpError::NoRoom);
            }
            self.taken += more;
        }
        self.replace(size);
        Ok(())
    }

    /// Moves what waits into a piece of memory of this size, which holds it.
    fn replace(&mut self, size: usize) {
        let mut new = vec![0; size];
        let waits = self.end - self.begin;
        new[..waits].copy_from_slice(&self.bytes[self.begin..self.end]);
        wipe(&mut self.bytes);
        self.bytes = new;
        self.begin = 0;
        self.end = waits;
        let needed = size.saturating_sub(SMALL);
        self.budget.give(self.taken.saturating_sub(needed));
        self.taken = self.taken.min(needed);
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        wipe(&mut self.bytes);
        self.budget.give(self.taken);
    }
}

/// Overwrites what nobody may find later.
fn wipe(bytes: &mut [u8]) {
    bytes.fill(0);
    // Keeps the writes above, which nothing reads.
    std::hint::black_box(bytes);
}
