//! Pauses between attempts: each twice the one before, within bounds, spread at random so that a fleet of agents does
//! not come back all at once.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Longest pause that a receiver may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// The pauses.
#[derive(Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    random: RandomState,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        let first = first.max(Duration::from_millis(1));
        Self { first, longest: longest.max(first), failures: 0, random: RandomState::new() }
    }

    /// The next pause; at least what the receiver asked for.
    pub(crate) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let doubled = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        // Between a half and the whole of it.
        let spread = (self.random.hash_one(self.failures) % 1024) as u32;
        let pause = doubled / 2 + doubled / 2048 * spread;
        pause.max(asked.unwrap_or_default().min(LONGEST_ASKED))
    }

    /// An attempt went well.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Attempts that failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let pauses: Vec<u128> = (0..40).map(|_| backoff.next(None).as_millis()).collect();
        assert!((50..=100).contains(&pauses[0]) && (100..=200).contains(&pauses[1]), "{pauses:?}");
        assert!(pauses[4..].iter().all(|pause| (500..=1000).contains(pause)), "{pauses:?}");
        backoff.reset();
        assert!(backoff.next(None) <= Duration::from_millis(100));
    }

    #[test]
    fn a_receiver_may_ask_for_more_but_not_for_ever() {
        let mut backoff = Backoff::new(Duration::from_millis(1), Duration::from_secs(1));
        assert_eq!(backoff.next(Some(Duration::from_secs(7))), Duration::from_secs(7));
        assert_eq!(backoff.next(Some(Duration::from_secs(1 << 40))), LONGEST_ASKED);
    }
}
