//! What a line may need of lines above it that were not parsed: their clock, or the begin of its own message.
//!
//! Lines in which nothing matters are only counted, so they are looked at backwards when a line without a clock
//! asks, or one that is the rest of a wrapped message. At most [`MAX_LINES`] are looked at for a clock,
//! [`MAX_ABOVE`] for a begin. What a later region may ask for is carried over, so that the cutting into regions does
//! not matter.

use super::clock::Stamps;
use super::prefix;
use crate::source::Place;
use memchr::{memchr_iter, memrchr};

/// Lines above a line in which its clock is looked for.
const MAX_LINES: u64 = 256;
/// Bytes of a line in which its clock is looked for, unless it is a JSON object.
const HEAD: usize = 512;

/// Lines above a line that may hold the begin of its message.
const MAX_ABOVE: usize = 4;
/// Longest line that may be the begin of a wrapped message, in bytes.
const MAX_BEGIN: usize = 4096;

/// A line that was not parsed, above one that asks.
#[derive(Debug)]
pub(super) struct Above {
    /// Where it is.
    pub(super) place: Place,
    /// Its text.
    pub(super) text: String,
}

/// What was seen of the clocks of lines that were not parsed.
#[derive(Debug, Default)]
pub(super) struct Lookback {
    /// The last line that was parsed.
    parsed: u64,
    /// The last line of an earlier region with a clock, and the clock.
    carried: Option<(u64, Stamps)>,
    /// The last lines of earlier regions, each with its end.
    recent: Vec<u8>,
}

// === impl Lookback ===

impl Lookback {
    /// Behind a seam: nothing above line `line + 1` is looked at.
    pub(super) fn behind(line: u64) -> Self {
        Self { parsed: line, ..Self::default() }
    }

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
        self.remember(region);
    }

    /// Keeps the last lines of a region, together with earlier ones if it has few.
    fn remember(&mut self, region: &[u8]) {
        let mut from = region.len();
        let mut lines = 0;
        for line in lines_backwards(region).take(MAX_ABOVE) {
            if line.len() > MAX_BEGIN {
                // Nothing is joined over such a line.
                lines = MAX_ABOVE;
                break;
            }
            lines += 1;
            from = from.saturating_sub(line.len() + 1);
        }
        if lines == MAX_ABOVE {
            self.recent.clear();
        }
        self.recent.extend_from_slice(&region[from..]);
        let kept: usize = lines_backwards(&self.recent).take(MAX_ABOVE).map(|line| line.len() + 1).sum();
        let surplus = self.recent.len().saturating_sub(kept);
        self.recent.drain(..surplus);
    }

    /// Lines above `place` that were not parsed, nearest first; `above` holds the lines of the region before it.
    pub(super) fn above(&self, above: &[u8], place: Place) -> Vec<Above> {
        let unparsed = place.position.saturating_sub(self.parsed + 1).min(MAX_ABOVE as u64) as usize;
        let mut offset = place.offset;
        let mut position = place.position;
        lines_backwards(above)
            .chain(lines_backwards(&self.recent))
            .take(unparsed)
            .take_while(|line| line.len() <= MAX_BEGIN)
            .map(|line| {
                offset = offset.saturating_sub(line.len() as u64 + 1);
                position -= 1;
                let text = line.strip_suffix(b"\r").unwrap_or(line);
                Above { place: Place { position, offset }, text: String::from_utf8_lossy(text).into_owned() }
            })
            .collect()
    }
}

/// Whole lines from the last to the first, without their ends.
fn lines_backwards(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = Some(text.strip_suffix(b"\n").unwrap_or(text)).filter(|_| !text.is_empty());
    std::iter::from_fn(move || {
        let text = rest?;
        let start = memrchr(b'\n', text).map_or(0, |end| end + 1);
        rest = start.checked_sub(1).map(|end| &text[..end]);
        Some(&text[start..])
    })
}

/// The nearest line with a clock above line `line` and below line `oldest`.
fn nearest(above: &[u8], line: u64, oldest: u64) -> Option<(u64, Stamps)> {
    let mut number = line;
    for text in lines_backwards(above) {
        number -= 1;
        if number <= oldest {
            break;
        }
        if let Some(stamps) = clock_of(text) {
            return Some((number, stamps));
        }
    }
    None
}

/// The clock of a line that is not parsed.
pub(super) fn clock_of(line: &[u8]) -> Option<Stamps> {
    let head = &line[..line.len().min(HEAD)];
    let shown = if head.contains(&b'{') { line } else { head };
    if !may_hold_clock(head, shown) {
        return None;
    }
    let text = String::from_utf8_lossy(shown);
    let plain = prefix::without_colours(&text);
    let unwrapped = prefix::unwrap(&plain);
    Stamps::of(&unwrapped.prefix)
        .or_else(|| Stamps::of(&prefix::peel(&unwrapped.payload, unwrapped.prefix.clone()).prefix))
}

/// Whether a line may be dated, told from its bytes: most lines without a clock hold no time of day at all, and of JSON
/// objects only records of loggers are dated.
fn may_hold_clock(head: &[u8], shown: &[u8]) -> bool {
    let is_digit = |at: usize| head.get(at).is_some_and(u8::is_ascii_digit);
    let is_minute = |at: usize| at >= 2 && [at - 2, at - 1, at + 1, at + 2].into_iter().all(is_digit);
    let is_object = head.trim_ascii_start().starts_with(b"{");
    (!is_object && memchr_iter(b':', head).any(is_minute))
        || (head.contains(&b'{') && prefix::may_be_record(shown))
}
