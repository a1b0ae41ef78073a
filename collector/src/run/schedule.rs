//! When which subject is evaluated.
//!
//! A subject that an observation concerns is evaluated within a moment, and so is one that waited for a node that has been
//! heard now. One that was concerned lately is looked at again for some minutes, ever more rarely. A subject that takes long rests
//! a multiple of that before the next time, so that the cost is bounded by a share of the time, never by the number of
//! observations. Whoever has been due longest comes first, so that nobody starves.
//!
//! Input: instants, from a clock that the caller has. Nothing here asks one.

use crate::ledger::Subject;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Observations that belong together come within this time; evaluating after each would be waste.
const GATHER: Duration = Duration::from_millis(150);
/// A subject that another one's observations may concern is due after this time.
const RELATED: Duration = Duration::from_millis(700);
/// Looking again begins with this pause and becomes rarer.
const AGAIN: Duration = Duration::from_millis(800);
const AGAIN_AT_MOST: Duration = Duration::from_secs(10);
/// How long a subject is looked at again after the last observation that concerned it. Longer than any detector waits
/// for an outcome.
const WATCHED: Duration = Duration::from_secs(300);
/// Every subject is looked at this often, whatever happens: a node that was behind by more than [`WATCHED`] settles late.
const SWEEP: Duration = Duration::from_secs(300);
/// A subject rests this many times as long as its evaluation took, as long as that is no longer than [`REST_GLADLY`];
const REST_LONG: u32 = 19;
/// in any case it rests this many times as long.
const REST: u32 = 6;
const REST_GLADLY: Duration = Duration::from_millis(2_500);
/// Evaluations of a subject without any observation may take one part in this many of the time.
const IDLE_REST: u32 = 80;
/// Subjects are evaluated together, which shares what is read, as long as they are expected to take no longer.
const TOGETHER: Duration = Duration::from_millis(200);
/// What a subject is taken to cost before its first evaluation.
const UNKNOWN: Duration = Duration::from_millis(50);
/// Subjects evaluated together.
const TOGETHER_AT_MOST: usize = 16;

/// Why a subject is to be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concern {
    /// An observation speaks of it.
    Direct,
    /// An observation speaks of something that it may depend on.
    Related,
}

#[derive(Debug, Clone)]
struct Entry {
    due: Instant,
    /// When its last evaluation ended.
    last: Option<Instant>,
    /// What its last evaluation took.
    cost: Duration,
    /// The pause before it is looked at again.
    pause: Duration,
    concerned: Instant,
}

/// The subjects and when they are due.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<Subject, Entry>,
}

// === impl Schedule ===

impl Schedule {
    /// An observation concerns a subject.
    pub fn concern(&mut self, subject: &Subject, concern: Concern, now: Instant) {
        let delay = match concern {
            Concern::Direct => GATHER,
            Concern::Related => RELATED,
        };
        let Some(entry) = self.entries.get_mut(subject) else {
            let entry = Entry { due: now + delay, last: None, cost: UNKNOWN, pause: AGAIN, concerned: now };
            self.entries.insert(subject.clone(), entry);
            return;
        };
        let rested = entry.last.map_or(now, |last| last + rest(entry.cost));
        entry.due = entry.due.min((now + delay).max(rested));
        entry.pause = AGAIN;
        entry.concerned = now;
    }

    /// An observation may concern every subject that passes.
    pub fn concern_all(&mut self, now: Instant, passes: impl Fn(&Subject) -> bool) {
        let subjects: Vec<Subject> = self.entries.keys().filter(|subject| passes(subject)).cloned().collect();
        for subject in subjects {
            self.concern(&subject, Concern::Related, now);
        }
    }

    /// The subjects to evaluate now, together; empty when none is due.
    pub fn due(&self, now: Instant) -> Vec<Subject> {
        let mut due: Vec<(&Subject, &Entry)> =
            self.entries.iter().filter(|(_, entry)| entry.due <= now).collect();
        due.sort_by_key(|(_, entry)| entry.due);
        let mut expected = Duration::ZERO;
        let mut taken = Vec::new();
        for (subject, entry) in due.into_iter().take(TOGETHER_AT_MOST) {
            expected += entry.cost;
            if !taken.is_empty() && expected > TOGETHER {
                break;
            }
            taken.push(subject.clone());
        }
        taken
    }

    /// When the next subject is due.
    pub fn next(&self) -> Option<Instant> {
        self.entries.values().map(|entry| entry.due).min()
    }

    /// Some subjects were evaluated together.
    pub fn evaluated(&mut self, subjects: &[Subject], took: Duration, now: Instant) {
        let cost = took / u32::try_from(subjects.len().max(1)).unwrap_or(u32::MAX);
        for subject in subjects {
            let Some(entry) = self.entries.get_mut(subject) else { continue };
            entry.last = Some(now);
            entry.cost = cost;
            let watched = now.duration_since(entry.concerned) < WATCHED;
            entry.due = if watched {
                now + entry.pause.max(cost * IDLE_REST)
            } else {
                now + SWEEP.max(cost * IDLE_REST)
            };
            entry.pause = (entry.pause * 3 / 2).min(AGAIN_AT_MOST);
        }
    }

    /// A subject is no longer there.
    pub fn forget(&mut self, subject: &Subject) {
        self.entries.remove(subject);
    }

    /// Every subject that is known.
    pub fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.entries.keys()
    }

    /// Subjects that are due and wait.
    pub fn waiting(&self, now: Instant) -> usize {
        self.entries.values().filter(|entry| entry.due <= now).count()
    }
}

fn rest(cost: Duration) -> Duration {
    (cost * REST_LONG).min(REST_GLADLY).max(cost * REST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::id::WorkerId;

    fn worker(name: &str) -> Subject {
        Subject::Worker(WorkerId::from(name))
    }

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn a_concerned_subject_is_due_within_a_moment_however_much_comes() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for ms in 0..300 {
            schedule.concern(&worker("a"), Concern::Direct, now + MS(ms));
        }
        assert!(schedule.due(now).is_empty());
        assert_eq!(schedule.due(now + MS(300)), [worker("a")]);
    }

    #[test]
    fn a_subject_is_looked_at_again_and_ever_more_rarely() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.concern(&worker("a"), Concern::Direct, start);
        let mut times = Vec::new();
        while let Some(due) = schedule.next().filter(|due| *due < start + MS(600_000)) {
            schedule.evaluated(&[worker("a")], MS(1), due);
            times.push(due.duration_since(start));
        }
        assert!(times[1] < MS(1_500), "{times:?}");
        assert!((30..60).contains(&times.len()), "{}", times.len());
    }

    #[test]
    fn a_subject_that_takes_long_rests_in_proportion() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.concern(&worker("a"), Concern::Direct, start);
        let (mut now, mut busy) = (start, Duration::ZERO);
        while now < start + MS(60_000) {
            now += MS(10);
            schedule.concern(&worker("a"), Concern::Direct, now);
            if !schedule.due(now).is_empty() {
                now += MS(2_000);
                busy += MS(2_000);
                schedule.evaluated(&[worker("a")], MS(2_000), now);
            }
        }
        assert!(busy < MS(18_000), "{busy:?}");
    }

    #[test]
    fn who_waited_longest_comes_first_and_an_expensive_one_goes_alone() {
        let (mut schedule, now) = (Schedule::default(), Instant::now());
        for name in ["a", "b"] {
            schedule.concern(&worker(name), Concern::Direct, now);
            schedule.evaluated(&[worker(name)], MS(150), now);
        }
        schedule.concern(&worker("b"), Concern::Direct, now + MS(3_000));
        schedule.concern(&worker("a"), Concern::Direct, now + MS(3_001));
        assert_eq!(schedule.due(now + MS(4_000)), [worker("b")]);
    }

    #[test]
    fn a_quiet_subject_is_swept_now_and_then() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        schedule.concern(&worker("a"), Concern::Direct, start);
        schedule.evaluated(&[worker("a")], MS(1), start + WATCHED + MS(1));
        assert_eq!(schedule.next(), Some(start + WATCHED + MS(1) + SWEEP));
    }
}
