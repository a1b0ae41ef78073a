//! Lines that say what an earlier one said, in the same words and the same second: a flood.
//!
//! A waiting request is printed in every step of a scheduler. Such a line is a head that is known ([`super::prefix::Heads`])
//! and words by which a statement is known ([`super::fold::Folds`]); it is told by a comparison and a look into a table.
//!
//! Invariant: what is taken here would be read to the same end line by line. That the words stand behind the head as they
//! are, with nothing to be taken off, was seen when they were read last; a head at WARNING or worse, a name before the
//! line, anything that waits for a next line, and a clock other than the last one leave it to [`Interpreter::line`].

use super::clock::Stamps;
use super::counts::Outcome;
use super::fold::{Line, Moment};
use super::interpret::{Interpreter, Out};
use super::prefix::Level;
use crate::source::Place;

// === impl Interpreter ===

impl Interpreter<'_> {
    /// Takes a line if it repeats an earlier one; `false` changes nothing.
    pub(super) fn again(&mut self, line: &[u8], place: Place, out: &mut Out<'_>) -> bool {
        if self.held.is_some() || !self.undated.is_over() || !self.names.is_empty() || out.record.is_some() {
            return false;
        }
        let Some(known) = self.heads.known(line) else { return false };
        if known.level.is_some_and(|level| level >= Level::Warning) {
            return false;
        }
        let stamps = Stamps { wrapper: None, engine: known.engine };
        let Some(wall) = self.clock.same(stamps) else { return false };
        let Ok(words) = str::from_utf8(known.behind) else { return false };
        if !self.folds.again(words, Moment::of_line(place, wall), Line::Bytes, out.tell) {
            return false;
        }
        self.last_wall = Some(wall);
        out.counts.add(Outcome::Matched, 1);
        self.explainer.expire(place.position, out.tell);
        true
    }
}
