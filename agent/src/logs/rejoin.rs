//! Lines that a terminal, or whoever pasted its text, broke: joined again before anything reads them.
//!
//! Only for texts of which a person may have made a copy; what an engine writes itself is not broken. A bare line carries
//! on the one before where the terminal's width shows it ([`super::columns`]), where both together hold an id that neither
//! holds ([`super::broken_id`]), or where both together are a message that neither is: more words of a template are in
//! them than in each. A line that is read whole and says something by itself is left alone.

use super::columns::{begins_anew, columns_of, width};
use super::names::Names;
use super::{broken_id, prefix};
use crate::source::Place;

/// Largest text that a person may have copied, in bytes.
pub const MAX_COPIED: u64 = 8 << 20;

/// Longest line that is joined again, in bytes.
const MAX_JOINED: usize = 64 << 10;

/// Shortest begin of an id that is taken for one.
const MIN_WORD: usize = 4;

/// Most lines that are joined where no width shows.
const MAX_PIECES: u64 = 12;

/// What a text shows of the terminal that it was copied from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Width of the terminal in characters, where it shows.
    pub columns: Option<usize>,
}

// === impl Copied ===

impl Copied {
    /// Looks at a whole text.
    pub fn of(text: &[u8]) -> Self {
        Self { columns: columns_of(text) }
    }
}

/// A line as it was before it was broken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rejoined {
    pub(super) text: String,
    /// Where it begins.
    pub(super) place: Place,
    /// Physical lines it takes.
    pub(super) lines: u64,
    /// The last of them is as long as the terminal is wide.
    is_full: bool,
}

/// How much of a message a template knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Known {
    /// Names the template.
    pub(super) template: usize,
    /// Bytes of its words in the message.
    pub(super) words: usize,
    /// The message ended before the template did.
    pub(super) cut: bool,
}

/// What a template knows of a message.
pub(super) type KnownOf<'k> = &'k mut dyn FnMut(&str) -> Option<Known>;

/// Joins lines.
#[derive(Debug)]
pub(super) struct Rejoiner {
    copied: Copied,
    /// The line that the next one may carry on.
    open: Option<Rejoined>,
    names: Names,
}

// === impl Rejoiner ===

impl Rejoiner {
    pub(super) fn of(copied: Copied) -> Self {
        Self { copied, open: None, names: Names::default() }
    }

    /// Takes the next physical line; gives the one before it, if that is whole.
    pub(super) fn add(&mut self, text: &str, place: Place, known: KnownOf<'_>) -> Option<Rejoined> {
        let is_full = Some(width(text.as_bytes())) == self.copied.columns;
        let before = self.open.take();
        let rest = self.names.split(text).map_or(text, |(_, rest)| rest);
        let glue = before.as_ref().and_then(|before| glue(before, rest, known));
        match (before, glue) {
            (Some(mut before), Some(glue)) => {
                before.text.push_str(glue);
                before.text.push_str(if glue.is_empty() { rest } else { rest.trim_start() });
                before.lines += 1;
                before.is_full = is_full;
                self.open = Some(before);
                None
            }
            (before, _) => {
                self.learn(text);
                self.open = Some(Rejoined { text: text.to_owned(), place, lines: 1, is_full });
                before
            }
        }
    }

    fn learn(&mut self, text: &str) {
        let plain = prefix::without_colours(text);
        let unwrapped = prefix::unwrap(&plain);
        self.names.learn(&prefix::peel(&unwrapped.payload, unwrapped.prefix).prefix);
    }

    /// Gives the last line.
    pub(super) fn finish(&mut self) -> Option<Rejoined> {
        self.open.take()
    }
}

/// What stands between a line and the next, which carries it on; `None` where it does not.
fn glue(before: &Rejoined, next: &str, known: KnownOf<'_>) -> Option<&'static str> {
    if next.trim().is_empty() || before.text.len() + next.len() > MAX_JOINED {
        return None;
    }
    // Whatever a row inside an object's text looks like, it is none of its own.
    if before.is_full && is_open_object(&before.text) && !next.starts_with("{\"") {
        return Some("");
    }
    // `… for request ` and `2: …` are no line and one of rank 2: nobody ends a line in a blank.
    if before.is_full && before.text.ends_with(' ') && begins_with_number(next) {
        return Some("");
    }
    if begins_anew(next) {
        return None;
    }
    if before.is_full {
        return Some("");
    }
    if before.lines >= MAX_PIECES {
        return None;
    }
    if broken_id::completes(&before.text, next) && !next.starts_with([' ', '\t']) {
        return Some("");
    }
    let (first, is_word) = message_of(&before.text, known);
    let second = known(next.trim());
    // A number that goes on before the trailer of the logger is one number.
    let is_number = ends_in_digit(&before.text) && is_rest_of_number(next);
    ["", " "].into_iter().find(|glue| {
        let (Some(joined), _) = message_of(&format!("{}{glue}{next}", before.text), known) else {
            return false;
        };
        let is_same = first.is_some_and(|first| first.template == joined.template);
        let words = |known: Option<Known>| known.map_or(0, |known| known.words);
        let is_more = joined.words > words(first) && joined.words > words(second);
        let completes = first.is_some_and(|first| first.cut) && is_same && !joined.cut;
        // Nobody logs one word: it is the begin of the id that the message begins with.
        let begins_in_id = is_word && second.is_some_and(|second| second.template == joined.template);
        is_more
            || (completes && words(second) < joined.words)
            || (glue.is_empty() && ((is_number && is_same) || begins_in_id))
    })
}

/// What a template knows of a line's message, and whether that is one word behind a prefix.
fn message_of(line: &str, known: KnownOf<'_>) -> (Option<Known>, bool) {
    let plain = prefix::without_colours(line);
    let unwrapped = prefix::unwrap(&plain);
    let peeled = prefix::peel(&unwrapped.payload, unwrapped.prefix);
    if peeled.object.is_some() {
        return (None, false);
    }
    let message = peeled.message.trim_end();
    let is_word = peeled.prefix.spoken && message.len() >= MIN_WORD && !message.contains([' ', '\t']);
    (known(message), is_word)
}

/// An object whose end is still to come.
fn is_open_object(text: &str) -> bool {
    text.starts_with("{\"") && !text.trim_end().ends_with('}')
}

/// `2: …`, which may be the label of a rank or the end of a sentence.
fn begins_with_number(text: &str) -> bool {
    let rest = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    rest.len() < text.len() && rest.starts_with(": ")
}

fn ends_in_digit(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

/// `6 (vllm_v1_adapter.py:480:lmcache.integration.vllm.vllm_v1_adapter)`.
fn is_rest_of_number(text: &str) -> bool {
    let rest = text.trim_start_matches(|digit: char| digit.is_ascii_digit());
    rest.len() < text.len()
        && rest.starts_with(" (")
        && rest.contains(".py:")
        && rest.trim_end().ends_with(')')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::columns::tests::{LOG, broken};

    /// Templates of these tests: words that a message holds, in order.
    const TEMPLATES: [&[&str]; 3] =
        [&["Releasing expired KV blocks for request ", " which"], &["KV blocks"], &["num expected tokens: "]];

    fn known(message: &str) -> Option<Known> {
        let of = |(template, words): (usize, &&[&str])| {
            let (mut at, mut found, mut cut) = (0, 0, false);
            for word in *words {
                match message[at..].find(word) {
                    Some(begin) => {
                        at += begin + word.len();
                        found += word.len();
                    }
                    None if found > 16 => cut = true,
                    None => return None,
                }
            }
            Some(Known { template, words: found, cut })
        };
        TEMPLATES.iter().enumerate().filter_map(of).max_by_key(|known| known.words)
    }

    fn rejoined(text: &str, columns: Option<usize>) -> Vec<Rejoined> {
        let mut rejoiner = Rejoiner::of(Copied { columns });
        let mut whole: Vec<Rejoined> = Vec::new();
        for (position, line) in (1..).zip(text.lines()) {
            whole.extend(rejoiner.add(line, Place { position, offset: 0 }, &mut known));
        }
        whole.extend(rejoiner.finish());
        whole
    }

    fn texts(text: &str, columns: Option<usize>) -> Vec<String> {
        rejoined(text, columns).into_iter().map(|line| line.text).collect()
    }

    #[test]
    fn lines_of_a_terminal_are_whole_again() {
        for columns in [60, 72, 80, 100] {
            assert_eq!(texts(&broken(LOG, columns), Some(columns)), LOG.lines().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_joined_line_stands_where_it_began_and_counts_what_it_took() {
        let lines = rejoined(&broken(LOG, 60), Some(60));
        let places: Vec<(u64, u64)> = lines.iter().map(|line| (line.place.position, line.lines)).collect();
        assert_eq!(places, [(1, 2), (3, 1), (4, 2), (6, 2)]);
    }

    #[test]
    fn a_line_that_happens_to_be_full_ends_where_another_begins() {
        let full = format!("INFO 10-16 17:22:59 [worker.py:815] {}", "x".repeat(64));
        let text = format!("{full}\n{}", LOG.lines().next().unwrap_or_default());
        assert_eq!(texts(&text, Some(100)).len(), 2);
    }

    #[test]
    fn an_object_goes_on_to_its_end_whatever_its_rows_look_like() {
        let object = format!("{{\"MESSAGE\":\"{}2: [engine] INFO 10-16 17:22:59 it\"}}", "x".repeat(48));
        let next = "{\"MESSAGE\":\"another\"}";
        let text = format!("{}\n{}\n{next}", &object[..60], &object[60..]);
        assert_eq!(texts(&text, Some(60)), [&object, next]);
    }

    #[test]
    fn a_number_behind_a_blank_is_no_rank() {
        let line =
            format!("ERROR 10-16 17:22:59 [w.py:1] {} of request 2: [engine] it failed", "x".repeat(18));
        let text = format!("{}\n{}", &line[..60], &line[60..]);
        assert_eq!(texts(&text, Some(60)), [line]);
        assert_eq!(texts("ERROR 10-16 17:22:59 [w.py:1] of request \n2: [engine] it failed", None).len(), 2);
    }

    #[test]
    fn a_message_broken_anywhere_is_whole_again() {
        let line =
            "INFO 08-16 08:09:07 [w.py:1] Releasing expired KV blocks for request cmpl-7 which nobody read";
        let begin = line.find("Releasing").unwrap_or_default();
        for at in begin + 4..line.len() - 18 {
            let text = format!("{}\n{}", &line[..at], &line[at..]);
            assert_eq!(texts(&text, None), [line], "{text}");
        }
    }

    #[test]
    fn a_number_that_goes_on_before_the_trailer_is_one() {
        let broken = "[2025-09-24 07:10:25,908] LMCache ERROR: num expected tokens: 25\n6 (adapter.py:480:lmcache.adapter)";
        assert_eq!(texts(broken, None), [broken.replace('\n', "")]);
    }

    #[test]
    fn other_lines_stay_by_themselves() {
        for text in [
            "INFO 08-16 08:09:07 [w.py:1] The engine starts\nnobody knows this line",
            "INFO 08-16 08:09:07 [w.py:1] KV blocks: 12\nKV blocks: 13",
            "INFO 08-16 08:09:07 [w.py:1] num expected tokens: 25\n6 blocks are free",
            "INFO 08-16 08:09:07 [w.py:1] Releasing expi\n\nred KV blocks for request cmpl-7 which",
            "ERROR 08-16 08:09:07 [w.py:1] It failed\nTraceback (most recent call last):\n  File \"x.py\", line 3",
        ] {
            assert_eq!(texts(text, None), text.lines().collect::<Vec<_>>());
        }
    }
}
