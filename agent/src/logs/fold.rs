//! Folds statements that an engine prints by the thousand.
//!
//! The first of equal statements is told at once; those that follow are counted and told together, at the place and
//! time of the last, every minute of the log's own time and at the end. `times` of each observation counts the
//! statements it stands for that none before it counted, so that sums are right; first and last observation give the
//! span. Bounded: the statement that was silent longest makes room. A statement that came in the same words twice
//! running is known by its words from then on, so that the thousandth costs neither a match nor an allocation.

use super::emit::{OWN, PER_STATEMENT, Statement, Telling};
use crate::source::Place;
use foldhash::fast::RandomState;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::Body;
use kvprov_model::value::Value;
use std::collections::HashMap;

/// Statements remembered at once.
const MAX_OPEN: usize = 4096;
/// Log time after which what was counted is told.
const INTERVAL: i64 = 60 * SECOND;

/// Statements that were told once.
#[derive(Debug, Default)]
pub(super) struct Folds {
    open: HashMap<String, Open, RandomState>,
    /// Keys of statements by the words in which they came last.
    by_words: HashMap<Box<str>, String, RandomState>,
    clock: u64,
}

/// A message as printed, where it alone tells all that the statement says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Words<'s> {
    /// The message.
    pub(super) text: &'s str,
    /// It counts at a warning or worse only, wherever it does not stand alone.
    pub(super) severe: bool,
}

/// Where, when and how often a statement was made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    place: Place,
    index: u32,
    wall: Option<WallTime>,
    times: i64,
    /// Whether the engine says that nothing is amiss.
    low: bool,
}

/// How the line of a statement was read.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line {
    /// Prefix by prefix. `exact`: it is a head and the words, and nothing else.
    Read { exact: bool },
    /// As a known head and the bytes behind it: that these are the words was seen of an earlier line.
    Bytes,
}

#[derive(Debug)]
struct Open {
    telling: Telling,
    untold: i64,
    told_at: Option<WallTime>,
    used: u64,
    /// The message as printed, where it alone tells all that the statement says.
    words: String,
    severe: bool,
    /// Whether it is found by them.
    by_words: bool,
    /// Whether a line came that was a known head and these words, and nothing else.
    exact: bool,
}

// === impl Moment ===

impl Moment {
    /// That of a line which is one statement.
    pub(super) fn of_line(place: Place, wall: WallTime) -> Self {
        Self { place, index: OWN, wall: Some(wall), times: 1, low: true }
    }

    /// That of a statement.
    pub(super) fn of(statement: &Statement<'_>) -> Self {
        Self {
            place: statement.place,
            index: statement.ordinal * PER_STATEMENT + OWN,
            wall: statement.wall,
            times: i64::from(statement.prefix.repeated),
            low: statement.prefix.is_low_by_itself(),
        }
    }
}

// === impl Folds ===

impl Folds {
    /// Takes one statement; `tell` gets what is to be told now. `words`: the message, if another one in the same words
    /// says the same.
    pub(super) fn add(
        &mut self,
        key: String,
        telling: Telling,
        times: i64,
        words: Option<Words<'_>>,
        tell: &mut dyn FnMut(Telling),
    ) {
        self.clock += 1;
        if let Some(open) = self.open.get_mut(&key) {
            let wall = telling.wall;
            open.telling = telling;
            open.repeat(times, wall, self.clock, tell);
            if words.is_some_and(|words| words.text == open.words) {
                if !open.by_words {
                    open.by_words = true;
                    open.exact = false;
                    self.by_words.insert(open.words.as_str().into(), key);
                }
                return;
            }
            if open.by_words {
                open.by_words = false;
                self.by_words.remove(open.words.as_str());
            }
            open.words.clear();
            open.words.push_str(words.map_or("", |words| words.text));
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.make_room(tell);
        }
        let mut first = telling.clone();
        set_times(&mut first.body, times, times > 1);
        let told_at = telling.wall;
        tell(first);
        let severe = words.is_some_and(|words| words.severe);
        let words = words.map_or("", |words| words.text).to_owned();
        let used = self.clock;
        let open = Open { telling, untold: 0, told_at, used, words, severe, by_words: false, exact: false };
        self.open.insert(key, open);
    }

    /// Takes a statement if it is known by its words; `tell` gets what is to be told now.
    pub(super) fn again(
        &mut self,
        words: &str,
        moment: Moment,
        line: Line,
        tell: &mut dyn FnMut(Telling),
    ) -> bool {
        if self.by_words.is_empty() {
            return false;
        }
        let Some(open) = self.by_words.get(words).and_then(|key| self.open.get_mut(key)) else {
            return false;
        };
        if open.severe && moment.low {
            return false;
        }
        match line {
            Line::Read { exact } => open.exact |= exact,
            Line::Bytes if !open.exact => return false,
            Line::Bytes => {}
        }
        self.clock += 1;
        open.telling.place = moment.place;
        open.telling.index = moment.index;
        open.telling.wall = moment.wall;
        open.repeat(moment.times, moment.wall, self.clock, tell);
        true
    }

    /// From here on the same words may mean something else.
    pub(super) fn forget_words(&mut self) {
        self.by_words.clear();
        for open in self.open.values_mut() {
            open.by_words = false;
            open.words.clear();
        }
    }

    /// Whether a statement was told before.
    pub(super) fn knows(&self, key: &str) -> bool {
        self.open.contains_key(key)
    }

    /// Whether statements were counted that are not told.
    pub(super) fn has_untold(&self) -> bool {
        self.open.values().any(|open| open.untold > 0)
    }

    /// Statements remembered.
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// Tells all that was counted.
    pub(super) fn finish(&mut self, tell: &mut dyn FnMut(Telling)) {
        self.by_words.clear();
        let mut last: Vec<Telling> = self.open.drain().filter_map(|(_, mut open)| open.take()).collect();
        last.sort_by_key(|telling| telling.place.offset);
        last.into_iter().for_each(tell);
    }

    /// Forgets the quarter that was silent longest, so that room is made rarely.
    fn make_room(&mut self, tell: &mut dyn FnMut(Telling)) {
        let mut by_use: Vec<(u64, String)> =
            self.open.iter().map(|(key, open)| (open.used, key.clone())).collect();
        by_use.sort_unstable();
        for (_, key) in by_use.into_iter().take(MAX_OPEN / 4) {
            let Some(mut open) = self.open.remove(&key) else { continue };
            if open.by_words {
                self.by_words.remove(open.words.as_str());
            }
            if let Some(folded) = open.take() {
                tell(folded);
            }
        }
    }
}

// === impl Open ===

impl Open {
    /// Counts the statement once more, and tells what was counted when that is due.
    fn repeat(&mut self, times: i64, wall: Option<WallTime>, clock: u64, tell: &mut dyn FnMut(Telling)) {
        self.untold = self.untold.saturating_add(times);
        self.used = clock;
        let due = match (wall, self.told_at) {
            (Some(now), Some(told)) => now.since(told) >= INTERVAL,
            _ => false,
        };
        if due {
            self.told_at = wall;
            if let Some(folded) = self.take() {
                tell(folded);
            }
        }
    }

    fn take(&mut self) -> Option<Telling> {
        if self.untold == 0 {
            return None;
        }
        let mut folded = self.telling.clone();
        folded.index += super::emit::FOLDED;
        set_times(&mut folded.body, self.untold, true);
        self.untold = 0;
        Some(folded)
    }
}

/// Sets how often a statement was made, on kinds that count it.
pub(super) fn set_times(body: &mut Body, times: i64, said: bool) {
    if said {
        // Kinds without the attribute tell each statement by itself.
        let _ = body.set("times", Value::Int(times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::observation::Transfer;

    const READ: Line = Line::Read { exact: false };
    const WORDS: &str = "r1 is still waiting";

    fn moment(second: i64) -> Moment {
        let place = Place { position: second as u64, offset: second as u64 };
        Moment { place, index: 0, wall: Some(WallTime(second * SECOND)), times: 1, low: false }
    }

    fn said(folds: &mut Folds, words: &str, second: i64) -> Vec<Telling> {
        let Moment { place, index, wall, times, .. } = moment(second);
        let body = Body::Transfer(Transfer::default());
        let telling = Telling { place, index, wall, says: words.to_owned(), body };
        let mut told = Vec::new();
        let words = Words { text: words, severe: false };
        folds.add("key".to_owned(), telling, times, Some(words), &mut |telling| told.push(telling));
        told
    }

    /// Whether the words are known, and what is told of them.
    fn again(folds: &mut Folds, words: &str, second: i64, line: Line) -> (bool, Vec<Telling>) {
        let mut told = Vec::new();
        let known = folds.again(words, moment(second), line, &mut |telling| told.push(telling));
        (known, told)
    }

    fn knows(folds: &mut Folds, second: i64, line: Line) -> bool {
        again(folds, WORDS, second, line).0
    }

    #[test]
    fn a_statement_that_came_twice_in_the_same_words_is_known_by_them() {
        let mut folds = Folds::default();
        assert_eq!(said(&mut folds, WORDS, 0).len(), 1);
        assert!(!knows(&mut folds, 1, READ));
        assert!(said(&mut folds, WORDS, 1).is_empty());
        assert!(matches!(again(&mut folds, WORDS, 2, READ), (true, told) if told.is_empty()));
        let (_, due) = again(&mut folds, WORDS, 61, READ);
        assert_eq!((due[0].says.as_str(), due[0].wall), (WORDS, Some(WallTime(61 * SECOND))));
    }

    #[test]
    fn other_words_or_another_speaker_make_it_unknown_again() {
        let mut folds = Folds::default();
        said(&mut folds, WORDS, 0);
        said(&mut folds, WORDS, 1);
        said(&mut folds, "r1 is still waiting for 7 blocks", 2);
        assert!(!knows(&mut folds, 3, READ));
        said(&mut folds, WORDS, 4);
        said(&mut folds, WORDS, 5);
        assert!(knows(&mut folds, 6, READ));
        folds.forget_words();
        assert!(!knows(&mut folds, 7, READ));
    }

    #[test]
    fn by_its_bytes_only_a_line_is_known_that_was_seen_to_be_its_words_alone() {
        let mut folds = Folds::default();
        said(&mut folds, WORDS, 0);
        said(&mut folds, WORDS, 1);
        assert!(!knows(&mut folds, 2, Line::Bytes));
        assert!(knows(&mut folds, 2, READ));
        assert!(!knows(&mut folds, 3, Line::Bytes));
        assert!(knows(&mut folds, 4, Line::Read { exact: true }));
        assert!(knows(&mut folds, 5, Line::Bytes));
        folds.forget_words();
        assert!(!knows(&mut folds, 6, Line::Bytes));
    }
}
