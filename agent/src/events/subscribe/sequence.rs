//! Where a batch stands among the batches of its publisher.
//!
//! A publisher numbers its batches from 0 on, without gaps, for as long as it lives. A batch is told apart from another
//! of the same number by the time that its engine wrote into it: a number that comes again with another time is the
//! number of a publisher that began anew. Pure: numbers in, a judgement out.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Batches of which the times are remembered. Live and replayed batches overlap by those that were published between
/// a subscription and the answer to a request for replay.
const REMEMBERED: usize = 8192;

/// A batch by its number and its time. The time is the bits of a 64-bit float, which are compared for equality only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The number.
    pub seq: u64,
    /// The time that the engine wrote.
    pub time: u64,
}

/// How a batch follows those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is the next one, or the first of all.
    Next,
    /// It was taken before.
    Known,
    /// It is older than what is remembered: taken before, or of a publisher that began anew.
    Old,
    /// Batches are missing before it: so many, from this number on.
    Missing {
        /// The first that is missing.
        from: u64,
        /// How many.
        count: u64,
    },
    /// The publisher began anew.
    Anew,
}

/// What was taken of one publisher.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    last: Option<Mark>,
    recent: VecDeque<Mark>,
}

// === impl Sequence ===

impl Sequence {
    /// Goes on behind the last batch that an agent before this one took.
    pub fn after(last: Option<Mark>) -> Self {
        Self { last, recent: last.into_iter().collect() }
    }

    /// The last batch that was taken.
    pub fn last(&self) -> Option<Mark> {
        self.last
    }

    /// How a batch follows.
    pub fn judge(&self, mark: Mark) -> Step {
        let Some(last) = self.last else { return Step::Next };
        if mark.seq > last.seq {
            let count = mark.seq - last.seq - 1;
            return match count {
                0 => Step::Next,
                count => Step::Missing { from: last.seq + 1, count },
            };
        }
        // Numbers of those that are remembered rise by one, or by more over a gap.
        let at = self.recent.binary_search_by_key(&mark.seq, |known| known.seq);
        match at.ok().and_then(|at| self.recent.get(at)) {
            Some(known) if *known == mark => Step::Known,
            Some(_) => Step::Anew,
            None => Step::Old,
        }
    }

    /// A batch was taken.
    pub fn take(&mut self, mark: Mark) {
        if self.last.is_some_and(|last| mark.seq <= last.seq) {
            return;
        }
        if self.recent.len() >= REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(mark);
        self.last = Some(mark);
    }

    /// The publisher began anew: nothing of it was taken.
    pub fn begin_anew(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(seq: u64) -> Mark {
        Mark { seq, time: seq.wrapping_mul(10) }
    }

    fn taken(numbers: impl IntoIterator<Item = u64>) -> Sequence {
        let mut sequence = Sequence::default();
        for number in numbers {
            sequence.take(mark(number));
        }
        sequence
    }

    #[test]
    fn the_first_batch_may_have_any_number() {
        assert_eq!(Sequence::default().judge(mark(17)), Step::Next);
    }

    #[test]
    fn a_jump_says_what_is_missing() {
        let sequence = taken(0..3);
        assert_eq!(sequence.judge(mark(3)), Step::Next);
        assert_eq!(sequence.judge(mark(6)), Step::Missing { from: 3, count: 3 });
    }

    #[test]
    fn a_batch_that_comes_twice_is_known_and_one_of_its_number_is_not() {
        let sequence = taken(0..3);
        assert_eq!(sequence.judge(mark(1)), Step::Known);
        assert_eq!(sequence.judge(mark(2)), Step::Known);
        assert_eq!(sequence.judge(Mark { seq: 1, time: 77 }), Step::Anew);
    }

    #[test]
    fn after_a_restart_only_the_last_is_remembered() {
        let sequence = Sequence::after(Some(mark(9)));
        assert_eq!(sequence.judge(mark(10)), Step::Next);
        assert_eq!(sequence.judge(mark(9)), Step::Known);
        assert_eq!(sequence.judge(mark(8)), Step::Old);
        assert_eq!(sequence.judge(Mark { seq: 9, time: 1 }), Step::Anew);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let sequence = taken(0..(REMEMBERED as u64 + 5));
        assert_eq!(sequence.recent.len(), REMEMBERED);
        assert_eq!(sequence.judge(mark(4)), Step::Old);
        assert_eq!(sequence.judge(mark(5)), Step::Known);
    }

    #[test]
    fn a_publisher_that_began_anew_has_no_past() {
        let mut sequence = taken(0..3);
        sequence.begin_anew();
        assert_eq!(sequence.judge(mark(0)), Step::Next);
    }

    #[test]
    fn the_largest_number_is_no_overflow() {
        let sequence = taken([u64::MAX - 1]);
        assert_eq!(sequence.judge(mark(u64::MAX)), Step::Next);
        assert!(matches!(Sequence::after(Some(mark(0))).judge(mark(u64::MAX)), Step::Missing { .. }));
    }
}
