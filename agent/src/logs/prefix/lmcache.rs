//! LMCache: `[2025-09-25 00:42:05,968] LMCache INFO: msg (file.py:1048:dotted.module)`, alone or behind a process,
//! the first bracket lost, the clock lost; older `INFO LMCache: msg [date] -- /path/file.py:409`.

use super::python::set_engine;
use super::scan::{blanks, eat, run};
use super::{Level, Peeled, Prefix, level, stamp};
use std::borrow::Cow;

const NAME: &str = "LMCache";

/// The present form.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let inner = text.strip_prefix('[').unwrap_or(text);
    let (stamp, rest) = match stamp::full(inner) {
        Some((stamp, rest)) => (Some(stamp), blanks(eat(rest, "]")?)),
        None => (None, text),
    };
    let rest = eat(rest, "LMCache ")?;
    let (level, rest) = level::word(rest)?;
    let rest = eat(blanks(rest), ":")?;
    prefix.level = Some(level);
    prefix.module.get_or_insert(Cow::Borrowed(NAME));
    prefix.spoken = true;
    if let Some(stamp) = stamp {
        set_engine(prefix, stamp);
    }
    Some(Peeled::Message(rest.strip_prefix(' ').unwrap_or(rest)))
}

/// The older form, behind its level.
pub(super) fn old<'a>(text: &'a str, level: Level, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let rest = eat(text, "LMCache:")?;
    prefix.level = Some(level);
    prefix.module = Some(Cow::Borrowed(NAME));
    prefix.spoken = true;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    // The clock stands behind the message.
    let Some((message, tail)) = rest.rsplit_once(" [") else { return Some(Peeled::Message(rest)) };
    let Some((stamp, after)) = stamp::full(tail) else { return Some(Peeled::Message(rest)) };
    let Some(after) = eat(after, "]") else { return Some(Peeled::Message(rest)) };
    set_engine(prefix, stamp);
    if let Some(path) = eat(after, " -- ") {
        prefix.module = Some(Cow::Borrowed(path.split(':').next().unwrap_or(NAME)));
    }
    Some(Peeled::Message(message))
}

/// ` (file.py:1048:dotted.module)` at the end.
pub(super) fn trailer<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> &'a str {
    let trimmed = text.trim_end();
    let Some(open) = trimmed.strip_suffix(')').and_then(|inner| inner.rfind('(')) else { return text };
    let inside = &trimmed[open + 1..trimmed.len() - 1];
    let mut parts = inside.splitn(3, ':');
    let (Some(file), Some(line), Some(module)) = (parts.next(), parts.next(), parts.next()) else {
        return text;
    };
    let is_line = run(line, 7, |b| b.is_ascii_digit()).is_some_and(|(_, rest)| rest.is_empty());
    let is_module =
        !module.is_empty() && module.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'_');
    if !is_line || !is_module || !file.ends_with(".py") || file.contains(' ') {
        return text;
    }
    prefix.module = Some(Cow::Borrowed(module));
    prefix.source_line = line.parse().ok();
    trimmed[..open].trim_end()
}
