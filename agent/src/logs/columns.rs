//! Text that was copied from a terminal: what is longer than a line of it goes on in the next one, broken anywhere.
//!
//! Nothing marks such a break. It shows in the text as a whole: no line is longer than the terminal is wide, lines of
//! unlike messages are exactly as long, and what follows those has no prefix. A text that does not show it is read
//! as it stands.

use super::prefix;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Widths of terminals, in characters.
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=400;

/// Unlike messages that have to be exactly as long as the longest line.
const MIN_SHAPES: usize = 2;

/// The width of the terminal that broke the lines of a text, in characters; `None` where nothing shows one.
pub(super) fn columns_of(text: &[u8]) -> Option<usize> {
    let lines = || text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let columns = lines().map(width).max().filter(|columns| WIDTHS.contains(columns))?;
    let mut shapes = HashSet::new();
    let (mut goes_on, mut ends) = (0_usize, 0_usize);
    let mut lines = lines().peekable();
    while let Some(line) = lines.next() {
        let Some(next) = lines.peek() else { break };
        if width(line) != columns || is_frame(line) {
            continue;
        }
        let next = String::from_utf8_lossy(next);
        if next.is_empty() || begins_anew(&next) {
            ends += 1;
        } else {
            goes_on += 1;
            shapes.insert(shape(line));
        }
    }
    // A line may happen to be as long as the terminal is wide.
    (shapes.len() >= MIN_SHAPES && goes_on > ends * 4).then_some(columns)
}

/// Characters of a line.
pub(super) fn width(line: &[u8]) -> usize {
    line.iter().filter(|byte| (**byte & 0xc0) != 0x80).count()
}

/// Whether a line has a prefix or is an object, so that it carries on nothing.
pub(super) fn begins_anew(line: &str) -> bool {
    let plain = prefix::without_colours(line);
    let unwrapped = prefix::unwrap(&plain);
    let wrapped = unwrapped.prefix.wrapper.is_some() || unwrapped.prefix.pod.is_some();
    if wrapped || plain.starts_with("{\"") || plain.starts_with("Traceback (") {
        return true;
    }
    let peeled = prefix::peel(&unwrapped.payload, unwrapped.prefix.clone());
    peeled.prefix.spoken || peeled.prefix.wrapper.is_some()
}

/// A ruled line or one of a table: those are as long as each other by intent.
fn is_frame(line: &[u8]) -> bool {
    let text = String::from_utf8_lossy(line);
    let last = text.trim_end().chars().last();
    last.is_none_or(|last| "|+=*#─═│║╗╝┐┘█".contains(last) || text.ends_with(&String::from(last).repeat(4)))
}

/// What messages have in common that differ in their numbers and ids.
fn shape(line: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let letters = line.iter().filter(|byte| byte.is_ascii_alphabetic() && !byte.is_ascii_hexdigit());
    letters.for_each(|byte| byte.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
pub(super) mod tests {
    use super::columns_of;

    pub(in crate::logs) const LOG: &str = "\
INFO 10-16 17:22:56 [worker.py:815] Releasing the blocks of a request that nobody came for, after 480 seconds
Short line without any prefix
ERROR 10-16 17:22:57 [connector.py:12] The transfer of the blocks from the other side failed, which nobody had expected
ERROR 10-16 17:22:58 [scheduler.py:1284] The request goes on with what it has and computes all else by itself, late
";

    pub(in crate::logs) fn broken(text: &str, columns: usize) -> String {
        let mut broken = String::new();
        for line in text.lines() {
            let letters: Vec<char> = line.chars().collect();
            for part in letters.chunks(columns) {
                broken.extend(part);
                broken.push('\n');
            }
        }
        broken
    }

    #[test]
    fn the_width_shows_in_what_was_broken() {
        for columns in [60, 72, 80, 100] {
            let broken = broken(LOG, columns);
            assert_eq!(columns_of(broken.as_bytes()), Some(columns));
            assert_eq!(columns_of(broken.replace('\n', "\r\n").as_bytes()), Some(columns));
        }
    }

    #[test]
    fn nothing_shows_a_width_in_other_texts() {
        let repeated =
            "ERROR 10-16 17:22:56 [worker.py:8] Handshake failed for request cmpl-8f07dfc0-52ea\nTraceback\n";
        let table = "╔══════════════════════════════════════════════════════════════════════════╗\n\
                     ║ a table of settings                                                      ║\n\
                     ║ another row of that table, which is exactly as long as the one before it ║\n";
        let narrow = broken(LOG, 40);
        for text in [LOG, "", "\n\n", &repeated.repeat(5), table, &narrow] {
            assert_eq!(columns_of(text.as_bytes()), None, "{text}");
        }
    }
}
