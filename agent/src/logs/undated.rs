//! The begin of a source: what was said before the first clock is dated by it.
//!
//! Bounded: at most [`MAX_LINES`] lines wait.

use super::emit::Telling;
use kvprov_model::clock::WallTime;

/// Lines at the begin of a source that wait for the first clock.
const MAX_LINES: u32 = 64;

/// Tellings that wait for the first clock.
#[derive(Debug, Default)]
pub(super) struct Undated {
    over: bool,
    lines: u32,
    waiting: Vec<Telling>,
}

// === impl Undated ===

impl Undated {
    /// Whether tellings no longer wait.
    pub(super) fn is_over(&self) -> bool {
        self.over
    }

    /// At the begin of a source, or behind it.
    pub(super) fn begun(over: bool) -> Self {
        Self { over, ..Self::default() }
    }

    /// Whether something waits.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// What waits.
    pub(super) fn take(&mut self) -> Vec<Telling> {
        std::mem::take(&mut self.waiting)
    }

    /// Puts back what waits, with what the next line added; tells it when a clock is known or too many lines waited.
    pub(super) fn next_line(
        &mut self,
        waiting: Vec<Telling>,
        wall: Option<WallTime>,
        tell: &mut dyn FnMut(Telling),
    ) {
        self.lines += 1;
        if wall.is_some() || self.lines >= MAX_LINES {
            self.over = true;
            date(waiting, wall, tell);
        } else {
            self.waiting = waiting;
        }
    }

    /// Tells what waits, dated if a clock is known.
    pub(super) fn release(&mut self, wall: Option<WallTime>, tell: &mut dyn FnMut(Telling)) {
        date(self.take(), wall, tell);
    }
}

fn date(undated: Vec<Telling>, wall: Option<WallTime>, tell: &mut dyn FnMut(Telling)) {
    for mut telling in undated {
        telling.wall = telling.wall.or(wall);
        tell(telling);
    }
}
