//! Joins lines that a container runtime split: CRI parts, Docker records without a line end.
//!
//! Bounded: a whole grows to [`MAX_WHOLE`] bytes and [`MAX_STREAMS`] streams are open at once; what is beyond is
//! dropped and counted.

use super::prefix::{Prefix, Unwrapped};
use crate::source::Place;
use std::collections::VecDeque;

/// Longest joined line in bytes.
const MAX_WHOLE: usize = 1 << 20;
/// Streams (pod, standard output or error) with an open line at once.
const MAX_STREAMS: usize = 16;

/// A logical line.
#[derive(Debug)]
pub(super) struct Whole {
    /// Prefix by the wrapper of the first part.
    pub(super) prefix: Prefix<'static>,
    /// Where the first part is.
    pub(super) place: Place,
    /// The text.
    pub(super) text: String,
    /// Physical lines it took.
    pub(super) lines: u64,
    stream: u8,
}

/// Open lines.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    open: VecDeque<Whole>,
    /// Parts dropped so far.
    pub(super) dropped: u64,
}

// === impl Whole ===

impl Whole {
    /// A line that is whole by itself.
    pub(super) fn of(line: Unwrapped<'_>, place: Place, lines: u64) -> Self {
        let Unwrapped { prefix, stream, payload, .. } = line;
        Self { prefix: prefix.into_owned(), place, text: payload.into_owned(), lines, stream }
    }
}

// === impl Assembly ===

impl Assembly {
    /// Whether some stream has an open line.
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Adds a line that is a part or may end one, of so many physical lines; gives the logical line when it is whole.
    pub(super) fn add(&mut self, line: Unwrapped<'_>, place: Place, lines: u64) -> Option<Whole> {
        let Unwrapped { prefix, stream, partial, payload } = line;
        let known = self.open.iter().position(|open| open.stream == stream && open.prefix.pod == prefix.pod);
        let mut whole = match known.and_then(|at| self.open.remove(at)) {
            Some(mut whole) => {
                whole.lines += lines;
                if whole.text.len() + payload.len() <= MAX_WHOLE {
                    whole.text.push_str(&payload);
                } else {
                    self.dropped += 1;
                }
                whole
            }
            None => Whole::of(Unwrapped { prefix, stream, partial, payload }, place, lines),
        };
        if !partial {
            return Some(whole);
        }
        if whole.text.len() > MAX_WHOLE {
            whole.text.clear();
            self.dropped += 1;
        }
        self.open.push_back(whole);
        if self.open.len() > MAX_STREAMS {
            self.open.pop_front().inspect(|whole| self.dropped += whole.lines)
        } else {
            None
        }
    }

    /// Gives what never ended.
    pub(super) fn finish(&mut self) -> impl Iterator<Item = Whole> + use<> {
        std::mem::take(&mut self.open).into_iter()
    }
}
