//! Viewers and collectors of several streams: `2025-05-30 09:53:45.386 | msg` with a clock of their own zone,
//! `vllm-1  | msg` of compose files, `│ msg   │` of a frame on the screen, `   123\tmsg` of a numbered listing.

use super::scan::{blanks, eat, one_blank, run, some_blanks};
use super::{Behind, Level, Peeled, Prefix, begins_with_prefix, level, stamp};
use std::borrow::Cow;

/// A clock and a bar; behind it may stand a level and another bar (loguru).
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(text)?;
    let rest = eat(blanks(rest), "|")?;
    let rest = blanks(rest);
    if let Some((level, rest)) = level::word(rest)
        && let Some(rest) = eat(blanks(rest), "| ")
    {
        return Some(Peeled::Message(loguru(rest, stamp, level, prefix)));
    }
    prefix.add_wrapper_stamp(stamp);
    Some(Peeled::More(rest))
}

/// `module:function:line - msg`.
fn loguru<'a>(text: &'a str, stamp: stamp::Stamp, level: Level, prefix: &mut Prefix<'a>) -> &'a str {
    prefix.engine = Some(stamp);
    prefix.level = Some(level);
    prefix.spoken = true;
    match text.split_once(" - ") {
        Some((place, message)) if !place.contains(' ') && place.len() < 256 => {
            prefix.module = place.split(':').next().map(Cow::Borrowed);
            message
        }
        _ => text,
    }
}

/// `vllm-1  | `.
pub(super) fn service<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (name, rest) = run(text, 128, |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))?;
    let rest = eat(some_blanks(rest)?, "|")?;
    prefix.pod = Some(Cow::Borrowed(name));
    Some(Peeled::More(rest.strip_prefix(' ').unwrap_or(rest)))
}

/// A line of a frame, as it is copied off the screen.
pub(super) fn framed(text: &str) -> Option<Peeled<'_>> {
    let inner = eat(text, "│")?.trim_end().strip_suffix('│')?;
    Some(Peeled::More(one_blank(inner).trim_end()))
}

/// The number of a line and a tab, where a prefix follows.
pub(super) fn numbered<'a>(text: &'a str, prefix: &Prefix<'a>) -> Option<Peeled<'a>> {
    if prefix.rank.is_some() {
        return None;
    }
    let (_, rest) = run(text, 7, |b| b.is_ascii_digit())?;
    let rest = eat(rest, "\t")?;
    begins_with_prefix(rest, Behind::Rank).then_some(Peeled::More(rest))
}

/// A full clock alone, as `kubectl logs --timestamps` puts it.
pub(super) fn stamped<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(text)?;
    let rest = match some_blanks(rest) {
        // One blank belongs to the wrapper; more belong to what it wraps.
        Some(_) => &rest[1..],
        None if rest.is_empty() => rest,
        None => return None,
    };
    if prefix.wrapper.is_some() {
        prefix.engine.get_or_insert(stamp);
    } else {
        prefix.add_wrapper_stamp(stamp);
    }
    Some(Peeled::More(rest))
}
