//! Lines broken by a terminal, or by a person who pasted its text.

use super::Changed;
use super::logs::{each_plain, each_text};
use crate::bundle::Bundle;
use crate::verdict::Found;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Width of the terminal, in characters.
const COLUMNS: usize = 100;

/// Shortest id that is broken.
const MIN_ID: usize = 12;

/// Every id of a request in two.
pub(super) fn ids(bundle: &Bundle, found: &[Found]) -> Option<Changed> {
    let ids: BTreeSet<&str> = found
        .iter()
        .flat_map(|found| &found.requests)
        .map(String::as_str)
        .filter(|id| id.len() >= MIN_ID && id.is_ascii())
        .collect();
    each_plain(bundle, |line, out| {
        let mut text = line.text.to_owned();
        // The longest first: a shorter one may be a part of it.
        let longest = ids.iter().filter(|id| text.contains(**id)).max_by_key(|id| id.len());
        if let Some(id) = longest {
            let (begin, rest) = id.split_at(id.len() / 2);
            text = text.replace(*id, &format!("{begin}\n{rest}"));
        }
        _ = writeln!(out, "{text}");
    })
}

/// Everything that is longer than a terminal is wide; unlike lines have to be, or nothing shows the width.
pub(super) fn terminal(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_text(bundle, |text| {
        let letters =
            |line: &str| line.chars().take(COLUMNS).filter(char::is_ascii_alphabetic).collect::<String>();
        let is_long = |line: &&str| line.chars().count() > COLUMNS;
        let unlike: BTreeSet<String> = text
            .lines()
            .filter(is_long)
            .map(|line| letters(line).replace(|letter: char| letter.is_ascii_hexdigit(), ""))
            .collect();
        if unlike.len() < 2 {
            return None;
        }
        let mut broken = String::with_capacity(text.len() * 2);
        for line in text.lines() {
            let letters: Vec<char> = line.chars().collect();
            for part in letters.chunks(COLUMNS) {
                broken.extend(part);
                broken.push('\n');
            }
            if letters.is_empty() {
                broken.push('\n');
            }
        }
        Some(broken)
    })
}
