//! Times on clocks that must not be mixed.
//!
//! A node's wall clock, a boot's monotonic clock and the collector's receive clock are types of their own: a
//! subtraction across two of them does not compile. Joins go by ids; times of two nodes are only ever compared
//! after an offset was estimated.

use serde::{Deserialize, Serialize};

/// Nanoseconds per second.
pub const SECOND: i64 = 1_000_000_000;

/// Nanoseconds since the Unix epoch on the wall clock of one node. May be wrong, may step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub i64);

/// Nanoseconds since boot on one node, comparable only within one boot id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicTime(pub u64);

/// Nanoseconds since the Unix epoch on the collector's clock, when an observation arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ReceiveTime(pub i64);

// === impl WallTime ===

impl WallTime {
    /// From seconds since the Unix epoch; `None` for what no clock shows (NaN, infinities, out of range).
    pub fn from_unix_seconds(seconds: f64) -> Option<Self> {
        let nanos = seconds * 1e9;
        (nanos.is_finite() && nanos.abs() < 9.2e18).then_some(Self(nanos as i64))
    }

    /// The distance to an earlier time of the same node in nanoseconds; negative when `earlier` is later.
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// This time moved by a number of nanoseconds, clamped to the representable range.
    pub fn plus(self, nanos: i64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// RFC 3339 in UTC with milliseconds, as people and JSON see it.
    pub fn to_rfc3339(self) -> String {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(stamp) => format!("{stamp:.3}"),
            Err(_) => format!("{}ns", self.0),
        }
    }

    /// RFC 3339 in UTC with nanoseconds, for files that are read again.
    pub fn to_rfc3339_nanos(self) -> String {
        match jiff::Timestamp::from_nanosecond(i128::from(self.0)) {
            Ok(stamp) => format!("{stamp:.9}"),
            Err(_) => self.to_rfc3339(),
        }
    }

    /// Reads RFC 3339.
    pub fn parse_rfc3339(text: &str) -> Option<Self> {
        let stamp: jiff::Timestamp = text.trim().parse().ok()?;
        i64::try_from(stamp.as_nanosecond()).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3339_survives_the_round_trip() {
        let text = "2026-08-16T08:00:00.250Z";
        assert_eq!(WallTime::parse_rfc3339(text).map(WallTime::to_rfc3339).as_deref(), Some(text));
    }

    #[test]
    fn a_file_keeps_every_nanosecond() {
        let time = WallTime(1_796_000_000_123_456_789);
        assert_eq!(WallTime::parse_rfc3339(&time.to_rfc3339_nanos()), Some(time));
    }

    #[test]
    fn an_offset_is_applied() {
        assert_eq!(
            WallTime::parse_rfc3339("2026-08-16T16:00:00+08:00"),
            WallTime::parse_rfc3339("2026-08-16T08:00:00Z")
        );
    }

    #[test]
    fn what_no_clock_shows_is_no_time() {
        for seconds in [f64::NAN, f64::INFINITY, 1e30] {
            assert_eq!(WallTime::from_unix_seconds(seconds), None);
        }
    }
}
