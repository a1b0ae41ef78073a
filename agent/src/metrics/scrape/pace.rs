//! When an endpoint is read again.
//!
//! Reading an endpoint takes at most a hundredth of a processor, and its answers are waited for at most a fifth of the
//! time, whatever a page costs: a large or a slow page is read more seldom. Waiting alone is no work of ours, but it may be
//! work of the engine; most of it is the engine's other work, or a machine that is busy.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Of own processor time, the part that one endpoint may take is one in so many.
const WORK_SHARE: u32 = 100;
/// After the time between a question and the end of its answer, so many times as long passes without a question.
const WAIT_SHARE: u32 = 4;
/// However slow a page is, it is read this often.
const LONGEST: Duration = Duration::from_secs(600);
/// An endpoint that fails is asked again at the latest after this.
const LONGEST_FAILING: Duration = Duration::from_secs(60);
/// While a port does not listen it is looked at this often.
const LOOKS: Duration = Duration::from_millis(250);
/// Doublings of the wait of an endpoint that fails.
const DOUBLINGS: u32 = 6;

/// How the last try went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// It was read.
    Read,
    /// The port does not listen yet.
    Listen,
    /// It failed so many times in a row.
    Failed(u32),
}

/// What a try took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Spent {
    /// From the first look at a socket to the end of the answer.
    pub waited: Duration,
    /// Processor time of ours in it.
    pub worked: Duration,
}

/// The pace of all endpoints.
#[derive(Debug, Clone)]
pub struct Pace {
    interval: Duration,
    jitter: RandomState,
}

// === impl Pace ===

impl Pace {
    /// `interval`: between two pages that cost little.
    pub fn new(interval: Duration) -> Self {
        Self { interval, jitter: RandomState::new() }
    }

    /// How long to wait after a try. `seed` tells endpoints and tries apart.
    pub fn after(&self, wait: Wait, spent: Spent, seed: u64) -> Duration {
        let of_work = spent.worked.saturating_mul(WORK_SHARE);
        let fair = of_work.max(spent.waited.saturating_mul(WAIT_SHARE));
        match wait {
            Wait::Read => self.jittered(self.interval.max(fair).min(LONGEST), seed),
            Wait::Listen => LOOKS.max(fair).min(self.interval.max(LOOKS)),
            Wait::Failed(times) => {
                let doubled = self.interval.saturating_mul(1 << times.saturating_sub(1).min(DOUBLINGS));
                let limit = LONGEST_FAILING.max(self.interval);
                // Who does not answer in time is waited for, not worked for.
                self.jittered(doubled.max(of_work).min(limit), seed)
            }
        }
    }

    /// Up to a tenth less, so that endpoints of one start do not stay in step.
    fn jittered(&self, wait: Duration, seed: u64) -> Duration {
        let part = (self.jitter.hash_one(seed) % 1000) as u32;
        wait - wait / 10 * part / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn pace() -> Pace {
        Pace::new(Duration::from_secs(5))
    }

    fn waited(millis: u32) -> Spent {
        Spent { waited: MILLI * millis, worked: Duration::ZERO }
    }

    fn worked(millis: u32) -> Spent {
        Spent { waited: MILLI * millis, worked: MILLI * millis }
    }

    #[test]
    fn a_quick_page_is_read_every_interval_or_a_little_sooner() {
        for seed in 0..100 {
            let wait = pace().after(Wait::Read, worked(2), seed);
            assert!((4500 * MILLI..=5000 * MILLI).contains(&wait), "{wait:?}");
        }
    }

    #[test]
    fn a_page_that_costs_much_is_read_more_seldom() {
        for seed in 0..100 {
            let wait = pace().after(Wait::Read, worked(400), seed);
            assert!(wait >= 36_000 * MILLI, "{wait:?}");
            let wait = pace().after(Wait::Read, waited(2_000), seed);
            assert!((7_200 * MILLI..=8_000 * MILLI).contains(&wait), "{wait:?}");
        }
        assert!(pace().after(Wait::Read, worked(3_600_000), 1) <= LONGEST);
    }

    #[test]
    fn a_port_that_does_not_listen_is_looked_at_often_unless_looking_is_slow() {
        assert_eq!(pace().after(Wait::Listen, worked(1), 1), LOOKS);
        assert_eq!(pace().after(Wait::Listen, worked(30), 1), Duration::from_secs(3));
        assert_eq!(pace().after(Wait::Listen, worked(300), 1), Duration::from_secs(5));
    }

    #[test]
    fn an_endpoint_that_fails_is_asked_ever_more_seldom_but_not_given_up() {
        let waits: Vec<Duration> =
            (1..20).map(|times| pace().after(Wait::Failed(times), waited(1), 1)).collect();
        assert!(waits[0] <= Duration::from_secs(5));
        assert!(waits[18] > Duration::from_secs(50) && waits[18] <= LONGEST_FAILING);
    }
}
