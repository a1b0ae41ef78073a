//! From the kernel's monotonic clock to the wall clock of the node.
//!
//! The kernel dates records by CLOCK_MONOTONIC. The offset between both clocks is sampled regularly: a step of the
//! wall clock (and the time a machine slept) is followed from the next sample on, and what was dated before keeps its
//! date. Smaller differences than [`TOLERANCE`] are the slew of a clock daemon or noise of the sample, and are left
//! until they add up, so that records of one moment do not change their order.

use kvprov_model::clock::WallTime;

/// Offsets that differ by no more than this are one, in nanoseconds.
const TOLERANCE: i64 = 1_000_000;

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub monotonic: u64,
    /// CLOCK_REALTIME in nanoseconds since the Unix epoch.
    pub wall: i64,
}

/// The offset in use.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    offset: i64,
}

// === impl Now ===

impl Now {
    /// Reads both clocks. Of a few readings the one counts between whose ends the least time passed.
    pub fn read() -> Self {
        let one = || {
            let before = nanos(rustix::time::ClockId::Monotonic);
            let wall = nanos(rustix::time::ClockId::Realtime);
            let after = nanos(rustix::time::ClockId::Monotonic);
            let middle = before + (after - before) / 2;
            (after - before, Self { monotonic: u64::try_from(middle).unwrap_or(0), wall })
        };
        let readings = [one(), one(), one()];
        readings.into_iter().min_by_key(|(took, _)| *took).map_or_else(|| one().1, |(_, now)| now)
    }

    fn offset(self) -> i64 {
        self.wall.saturating_sub(i64::try_from(self.monotonic).unwrap_or(i64::MAX))
    }
}

fn nanos(clock: rustix::time::ClockId) -> i64 {
    let time = rustix::time::clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

// === impl Clock ===

impl Clock {
    /// A clock that was sampled once.
    pub fn new(now: Now) -> Self {
        Self { offset: now.offset() }
    }

    /// Takes a sample; true when the wall clock was stepped.
    pub fn sample(&mut self, now: Now) -> bool {
        let stepped = (now.offset() - self.offset).abs() > TOLERANCE;
        if stepped {
            self.offset = now.offset();
        }
        stepped
    }

    /// The wall time of a moment, in whole microseconds so that it survives a recording.
    pub fn wall(&self, monotonic: u64) -> WallTime {
        let monotonic = i64::try_from(monotonic).unwrap_or(i64::MAX);
        WallTime(monotonic.saturating_add(self.offset).div_euclid(1000) * 1000)
    }

    /// The same as the seconds of a record.
    pub fn seconds(&self, monotonic: u64) -> f64 {
        crate::kernel::write::unix_seconds(self.wall(monotonic).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Now = Now { monotonic: 5_000_000_000, wall: 1_800_000_000_000_000_000 };

    #[test]
    fn noise_of_a_sample_moves_no_record() {
        let mut clock = Clock::new(START);
        assert!(!clock.sample(Now { monotonic: START.monotonic + 500, wall: START.wall + 900 }));
        assert_eq!(clock.wall(START.monotonic), WallTime(START.wall));
    }

    #[test]
    fn a_step_of_the_wall_clock_is_followed_and_so_is_slow_drift() {
        let mut clock = Clock::new(START);
        assert!(clock.sample(Now { monotonic: START.monotonic, wall: START.wall - 3_600_000_000_000 }));
        assert_eq!(clock.wall(START.monotonic), WallTime(START.wall - 3_600_000_000_000));
        let mut clock = Clock::new(START);
        let mut last = START.wall;
        for millis in 1..=20_i64 {
            last = START.wall + millis * 300_000;
            clock.sample(Now { monotonic: START.monotonic, wall: last });
        }
        assert!((clock.wall(START.monotonic).0 - last).abs() <= TOLERANCE);
    }

    #[test]
    fn the_seconds_of_a_record_are_its_wall_time() {
        let clock = Clock::new(START);
        for nanos in [0, 1, 999, 123_456_789, 999_999_999] {
            let at = START.monotonic + nanos;
            let again = WallTime::from_unix_seconds(clock.seconds(at)).map(|wall| wall.0);
            assert!((again.unwrap_or(0) - clock.wall(at).0).abs() < 1000);
        }
    }
}
