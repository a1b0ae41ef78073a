//! Places printed clocks on the time line.
//!
//! Best first: a wrapper's clock that is whole; an engine's clock that is whole; an engine's clock in the source's
//! time zone, its year from the line, the wrapper, the source's setting, an earlier line or the file's age; a
//! wrapper's clock likewise. A file that nothing dates stays undated.
//!
//! Invariant: times are placed as printed. A clock that goes back is kept as it is; only a jump of half a year or
//! more in a clock without a year is taken for the turn of a year.

use super::prefix::{Prefix, Stamp};
use jiff::civil::Date;
use kvprov_model::clock::{SECOND, WallTime};

/// The clocks of one line, unplaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamps {
    /// The wrapper's.
    pub wrapper: Option<Stamp>,
    /// The engine's.
    pub engine: Option<Stamp>,
}

/// What is known about the clocks of a source, and what its lines have told so far.
#[derive(Debug, Clone)]
pub struct ClockPlacer {
    zone_seconds: i32,
    declared_year: Option<i16>,
    modified: Option<WallTime>,
    /// Year and month of the last line placed.
    reached: Option<(i16, u8)>,
    /// By how much a wrapper's clock without a zone is ahead of the engine's, as the last line with both showed it.
    ahead: i64,
    /// The clocks that were placed last, and where: lines of one second stand together.
    last: Option<(Stamps, WallTime)>,
}

/// Zones differ by quarters of an hour, and by less than a day.
const QUARTER: i64 = 900 * SECOND;
const FARTHEST: i64 = 26 * 3600 * SECOND;
/// How late a viewer may have taken a line.
const TAKEN_AFTER: i64 = 300 * SECOND;

/// Months by which a clock without a year must jump before it is taken for the turn of a year.
const TURN_OF_YEAR: i16 = 6;
/// How far behind the file's age a line may be dated, for files written in another zone.
const SLACK: i64 = 26 * 3600 * SECOND;

// === impl Stamps ===

impl Stamps {
    /// The clocks of a prefix, if it has any.
    pub fn of(prefix: &Prefix<'_>) -> Option<Self> {
        (prefix.wrapper.is_some() || prefix.engine.is_some())
            .then_some(Self { wrapper: prefix.wrapper, engine: prefix.engine })
    }
}

// === impl ClockPlacer ===

impl ClockPlacer {
    /// A placer for a source whose local clocks are `zone_seconds` east of UTC; `year` and `modified` (the file's
    /// age) help clocks without a year.
    pub fn new(zone_seconds: i32, year: Option<i16>, modified: Option<WallTime>) -> Self {
        Self { zone_seconds, declared_year: year, modified, reached: None, ahead: 0, last: None }
    }

    /// Year and month of the last line placed.
    pub(super) fn reached(&self) -> Option<(i16, u8)> {
        self.reached
    }

    /// Goes on behind a line of this year and month.
    pub(super) fn go_on(&mut self, reached: Option<(i16, u8)>) {
        self.reached = reached;
        self.ahead = 0;
        self.last = None;
    }

    /// Notes when the source was last written.
    pub(super) fn written(&mut self, when: WallTime) {
        self.modified = Some(when);
    }

    /// The time of a line that has the clocks of the line before it.
    pub(super) fn same(&self, stamps: Stamps) -> Option<WallTime> {
        self.last.filter(|(last, _)| *last == stamps).map(|(_, wall)| wall)
    }

    /// The time of a line.
    pub fn place(&mut self, stamps: Stamps) -> Option<WallTime> {
        if let Some(wall) = self.same(stamps) {
            return Some(wall);
        }
        let wall = self.place_new(stamps);
        self.last = wall.map(|wall| (stamps, wall));
        wall
    }

    fn place_new(&mut self, stamps: Stamps) -> Option<WallTime> {
        let Stamps { wrapper, engine } = stamps;
        let whole = [wrapper, engine].into_iter().flatten().find(Stamp::is_zoned);
        if let Some(stamp) = whole {
            // The engine's own clock may be the one without a year on a later line.
            return self.place_one(stamp, None);
        }
        let by_wrapper = wrapper.and_then(|stamp| self.place_one(stamp, engine));
        let by_engine = engine.and_then(|stamp| self.place_one(stamp, wrapper));
        if let (Some(by_wrapper), Some(by_engine)) = (by_wrapper, by_engine) {
            self.compare(by_wrapper, by_engine);
        }
        by_engine.or_else(|| by_wrapper.map(|wall| wall.plus(-self.ahead)))
    }

    /// Learns in how far another zone a wrapper's clock is.
    fn compare(&mut self, wrapper: WallTime, engine: WallTime) {
        let apart = wrapper.since(engine);
        // A line is taken when it was printed or a little later.
        let zones = (apart - TAKEN_AFTER / 2 + QUARTER / 2).div_euclid(QUARTER) * QUARTER;
        if zones.abs() <= FARTHEST && (apart - zones).abs() <= TAKEN_AFTER {
            self.ahead = zones;
        }
    }

    fn place_one(&mut self, stamp: Stamp, beside: Option<Stamp>) -> Option<WallTime> {
        let (month, day) = stamp.month_day?;
        let year = match stamp.year {
            Some(year) => year,
            None => beside
                .and_then(|other| Some(turned(other.year?, other.month_day?.0, month)))
                .or_else(|| self.reached.map(|(year, reached)| turned(year, reached, month)))
                .or(self.declared_year)
                .or_else(|| self.year_by_age(stamp))?,
        };
        let wall = wall_time(year, month, day, &stamp, self.zone_seconds)?;
        self.reached = Some((year, month));
        Some(wall)
    }

    /// The last year in which the line would not be newer than the file.
    fn year_by_age(&self, stamp: Stamp) -> Option<i16> {
        let (month, day) = stamp.month_day?;
        let modified = self.modified?;
        let year = jiff::Timestamp::from_nanosecond(i128::from(modified.0))
            .ok()
            .map(|moment| jiff::tz::Offset::UTC.to_datetime(moment).year())?;
        [year + 1, year, year - 1, year - 2, year - 3, year - 4].into_iter().find(|year| {
            wall_time(*year, month, day, &stamp, self.zone_seconds)
                .is_some_and(|wall| wall.since(modified) <= SLACK)
        })
    }
}

/// The year of a month that is next to a month of a known year.
fn turned(year: i16, reached: u8, month: u8) -> i16 {
    match i16::from(reached) - i16::from(month) {
        jump if jump >= TURN_OF_YEAR => year + 1,
        jump if jump <= -TURN_OF_YEAR => year - 1,
        _ => year,
    }
}

fn wall_time(year: i16, month: u8, day: u8, stamp: &Stamp, zone_seconds: i32) -> Option<WallTime> {
    let date = Date::new(year, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    let midnight = jiff::tz::Offset::UTC.to_timestamp(date.at(0, 0, 0, 0)).ok()?.as_second();
    let offset = i64::from(stamp.offset_seconds.unwrap_or(zone_seconds));
    let seconds = midnight.checked_sub(offset)?;
    seconds.checked_mul(SECOND)?.checked_add(stamp.nanos_of_day).map(WallTime)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::super::prefix::{peel, unwrap};
    use super::*;

    fn placed(placer: &mut ClockPlacer, line: &str) -> Option<String> {
        let unwrapped = unwrap(line);
        let stamps = Stamps::of(&peel(&unwrapped.payload, unwrapped.prefix).prefix)?;
        placer.place(stamps).map(WallTime::to_rfc3339)
    }

    #[test]
    fn a_whole_wrapper_clock_stands_above_the_engines_own() {
        let mut placer = ClockPlacer::new(8 * 3600, None, None);
        let line = "[pod/d/s] 2025-09-17T08:23:13.000412348Z [2025-09-17 16:23:14 TP2] x";
        assert_eq!(placed(&mut placer, line).as_deref(), Some("2025-09-17T08:23:13.000Z"));
    }

    #[test]
    fn an_engines_clock_is_read_in_the_zone_of_its_source() {
        let mut placer = ClockPlacer::new(8 * 3600, None, None);
        let line = "[2025-09-17 16:23:13 TP2] x";
        assert_eq!(placed(&mut placer, line).as_deref(), Some("2025-09-17T08:23:13.000Z"));
    }

    #[test]
    fn a_viewers_clock_lends_its_year_but_not_its_zone() {
        let mut placer = ClockPlacer::new(0, None, None);
        let line = "2025-05-30 09:53:45.386 | INFO 05-30 07:53:45 [x.py:1] x";
        assert_eq!(placed(&mut placer, line).as_deref(), Some("2025-05-30T07:53:45.000Z"));
    }

    #[test]
    fn a_viewers_clock_alone_is_read_in_the_zone_that_lines_with_both_show() {
        let mut placer = ClockPlacer::new(0, None, None);
        let mut at = |line: &str| placed(&mut placer, line).unwrap();
        assert_eq!(at("2025-05-30 09:53:44.000 | x"), "2025-05-30T09:53:44.000Z", "nothing shows it yet");
        assert_eq!(
            at("2025-05-30 09:53:45.386 | INFO 05-30 07:53:45 [x.py:1] x"),
            "2025-05-30T07:53:45.000Z"
        );
        assert_eq!(at("2025-05-30 09:53:46.000 | x"), "2025-05-30T07:53:46.000Z");
        // Of one zone, and taken some seconds late.
        assert_eq!(
            at("2025-05-30 09:53:59.000 | INFO 05-30 09:53:45 [x.py:1] x"),
            "2025-05-30T09:53:45.000Z"
        );
        assert_eq!(at("2025-05-30 09:54:00.000 | x"), "2025-05-30T09:54:00.000Z");
    }

    #[test]
    fn the_year_turns_within_a_file_and_a_late_line_does_not_turn_it_again() {
        let mut placer = ClockPlacer::new(0, Some(2025), None);
        let mut at = |clock: &str| placed(&mut placer, &format!("INFO {clock} [x.py:1] x")).unwrap();
        assert_eq!(at("12-31 23:59:59"), "2025-12-31T23:59:59.000Z");
        assert_eq!(at("01-01 00:00:01"), "2026-01-01T00:00:01.000Z");
        assert_eq!(at("12-31 23:59:59"), "2025-12-31T23:59:59.000Z");
        assert_eq!(at("01-01 00:00:02"), "2026-01-01T00:00:02.000Z");
    }

    #[test]
    fn a_file_lends_the_last_year_in_which_it_could_have_been_written() {
        let modified = WallTime::parse_rfc3339("2026-01-02T00:00:00Z");
        let mut placer = ClockPlacer::new(0, None, modified);
        let mut at = |clock: &str| placed(&mut placer, &format!("INFO {clock} [x.py:1] x")).unwrap();
        assert_eq!(at("12-31 23:59:59"), "2025-12-31T23:59:59.000Z");
        assert_eq!(at("01-01 00:00:01"), "2026-01-01T00:00:01.000Z");
    }

    #[test]
    fn a_file_that_nothing_dates_stays_undated() {
        let mut placer = ClockPlacer::new(0, None, None);
        assert_eq!(placed(&mut placer, "INFO 12-31 23:59:59 [x.py:1] x"), None);
        assert_eq!(placed(&mut placer, "INFO 02-31 23:59:59 [x.py:1] x"), None);
    }

    #[test]
    fn a_clock_that_goes_back_is_kept() {
        let mut placer = ClockPlacer::new(0, Some(2025), None);
        assert!(
            placed(&mut placer, "INFO 05-02 10:00:00 [x.py:1] x")
                > placed(&mut placer, "INFO 05-01 10:00:00 [x.py:1] x")
        );
    }
}
