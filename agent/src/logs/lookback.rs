//! The clock of a line that has none: that of the nearest line above which has one.
//!
//! Lines in which nothing matters are not parsed, so they are looked at backwards when a line without a clock asks.
//! Each is looked at once at most, and at most [`MAX_LINES`] above the line that asks.

use super::clock::Stamps;
use super::prefix;
use memchr::memrchr;

/// Lines above a line in which its clock is looked for.
const MAX_LINES: u64 = 256;
/// Bytes of a line in which its clock is looked for, unless it is a JSON object.
const HEAD: usize = 512;

/// What was seen of the clocks of lines that were not parsed.
#[derive(Debug, Default)]
pub(super) struct Lookback {
    /// The last line that was parsed.
    parsed: u64,
    /// The last line of an earlier region with a clock, and the clock.
    carried: Option<(u64, Stamps)>,
}

// === impl Lookback ===

impl Lookback {
    /// The clock above line `line`; `above` holds the lines of the region before it.
    pub(super) fn before(&self, above: &[u8], line: u64) -> Option<Stamps> {
        let oldest = self.parsed.max(line.saturating_sub(MAX_LINES + 1));
        match nearest(above, line, oldest) {
            Some((_, stamps)) => Some(stamps),
            None => self.carried.filter(|(carried, _)| *carried > oldest).map(|(_, stamps)| stamps),
        }
    }

    /// Line `line` was parsed.
    pub(super) fn passed(&mut self, line: u64) {
        self.parsed = line;
    }

    /// A region ends with line `last`; what a line of the next may ask for is kept.
    pub(super) fn end_of_region(&mut self, region: &[u8], last: u64) {
        let oldest = self.parsed.max(last.saturating_sub(MAX_LINES));
        if let Some(found) = nearest(region, last + 1, oldest) {
            self.carried = Some(found);
        }
    }
}

/// The nearest line with a clock above line `line` and below line `oldest`.
fn nearest(above: &[u8], line: u64, oldest: u64) -> Option<(u64, Stamps)> {
    let mut rest = above.strip_suffix(b"\n").unwrap_or(above);
    let mut number = line;
    while number > oldest + 1 && !rest.is_empty() {
        number -= 1;
        let start = memrchr(b'\n', rest).map_or(0, |end| end + 1);
        if let Some(stamps) = clock_of(&rest[start..]) {
            return Some((number, stamps));
        }
        rest = &rest[..start.saturating_sub(1)];
    }
    None
}

fn clock_of(line: &[u8]) -> Option<Stamps> {
    // Most lines without a clock hold no time of day at all.
    let head = &line[..line.len().min(HEAD)];
    let shown = if head.contains(&b'{') { line } else { head };
    if memchr::memchr(b':', head).is_none() || !head.iter().any(u8::is_ascii_digit) {
        return None;
    }
    let text = String::from_utf8_lossy(shown);
    let plain = prefix::without_colours(&text);
    let unwrapped = prefix::unwrap(&plain);
    Stamps::of(&unwrapped.prefix)
        .or_else(|| Stamps::of(&prefix::peel(&unwrapped.payload, unwrapped.prefix.clone()).prefix))
}
