//! When a child that ended is started again.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// A life as long as this was a good one.
const GOOD: Duration = Duration::from_secs(2);
/// Delay after the first short life, in milliseconds; it doubles with each.
const FIRST: u64 = 50;
/// Longest delay.
const LONGEST: Duration = Duration::from_secs(5);

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It ended as it should.
    Done,
    /// It never worked: a mistake in its arguments, an address that is in use.
    CannotStart,
    /// Start it again after this delay.
    Again(Duration),
}

/// What is remembered of its lives.
#[derive(Debug, Clone, Copy, Default)]
pub struct Backoff {
    lives: u64,
    short: u32,
}

// === impl Backoff ===

impl Backoff {
    /// It ended after this time with this status.
    pub fn ended(&mut self, lived: Duration, status: ExitStatus) -> Verdict {
        self.lives += 1;
        if status.success() {
            return Verdict::Done;
        }
        let short = lived < GOOD;
        // A signal is a crash, or somebody who kills: no reason to give up.
        if self.lives == 1 && short && status.signal().is_none() {
            return Verdict::CannotStart;
        }
        self.short = if short { self.short.saturating_add(1) } else { 0 };
        let doubled = FIRST << self.short.saturating_sub(1).min(10);
        Verdict::Again(if self.short == 0 {
            Duration::ZERO
        } else {
            Duration::from_millis(doubled).min(LONGEST)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn killed() -> ExitStatus {
        ExitStatus::from_raw(9)
    }

    fn failed() -> ExitStatus {
        ExitStatus::from_raw(1 << 8)
    }

    #[test]
    fn one_that_lived_well_comes_back_at_once() {
        let mut backoff = Backoff::default();
        for _ in 0..100 {
            assert_eq!(backoff.ended(Duration::from_secs(60), killed()), Verdict::Again(Duration::ZERO));
        }
    }

    #[test]
    fn short_lives_make_the_delay_grow_to_a_limit() {
        let mut backoff = Backoff::default();
        let delays: Vec<Verdict> = (0..100).map(|_| backoff.ended(Duration::ZERO, killed())).collect();
        assert_eq!(delays[0], Verdict::Again(Duration::from_millis(50)));
        assert_eq!(delays[1], Verdict::Again(Duration::from_millis(100)));
        assert_eq!(delays[99], Verdict::Again(LONGEST));
    }

    #[test]
    fn a_good_life_resets_the_delay() {
        let mut backoff = Backoff::default();
        for _ in 0..10 {
            backoff.ended(Duration::ZERO, killed());
        }
        backoff.ended(GOOD, killed());
        assert_eq!(backoff.ended(Duration::ZERO, killed()), Verdict::Again(Duration::from_millis(50)));
    }

    #[test]
    fn one_that_fails_at_its_first_start_is_given_up() {
        assert_eq!(Backoff::default().ended(Duration::ZERO, failed()), Verdict::CannotStart);
        let mut later = Backoff::default();
        later.ended(Duration::ZERO, killed());
        assert!(matches!(later.ended(Duration::ZERO, failed()), Verdict::Again(_)));
        assert!(matches!(Backoff::default().ended(GOOD, failed()), Verdict::Again(_)));
    }

    #[test]
    fn one_that_ends_well_is_done() {
        assert_eq!(Backoff::default().ended(Duration::ZERO, ExitStatus::default()), Verdict::Done);
    }
}
