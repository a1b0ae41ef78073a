//! Loggers of Python programs: vLLM `INFO 08-22 10:11:12 [file.py:123] msg` (V0 without the opening bracket, level
//! padded, path elided), uvicorn `INFO:     msg`, `LEVEL:logger:msg`, `date - logger - LEVEL - msg`, `[LEVEL] msg`.

use super::scan::{blanks, eat, file_line, module_name, one_blank, run, some_blanks};
use super::{Peeled, Prefix, Stamp, level, lmcache, stamp};
use std::borrow::Cow;

/// vLLM, V1 and V0.
pub(super) fn vllm<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (level, rest) = level::word(text)?;
    let rest = some_blanks(rest)?;
    let Some((stamp, rest)) = stamp::dated(rest) else {
        return lmcache::old(rest, level, prefix);
    };
    let rest = blanks(rest);
    let (place, rest) = place(rest);
    prefix.level = Some(level);
    set_engine(prefix, stamp);
    if let Some((file, line)) = place {
        prefix.set_place(Cow::Borrowed(file), line);
    }
    Some(Peeled::Message(rest))
}

/// `[file.py:123] ` with either bracket lost or the whole thing absent.
fn place(text: &str) -> (Option<(&str, u32)>, &str) {
    let inner = text.strip_prefix('[').unwrap_or(text);
    match file_line(inner) {
        Some((file, line, rest)) if rest.starts_with(']') => (Some((file, line)), one_blank(&rest[1..])),
        _ => (None, text),
    }
}

/// `INFO:     127.0.0.1:80 - "GET /health HTTP/1.1" 200 OK` and `WARNING:logger.name:msg`.
pub(super) fn uvicorn<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (level, rest) = level::word(text)?;
    let rest = eat(rest, ":")?;
    if rest.starts_with(' ') {
        prefix.level = Some(level);
        prefix.spoken = true;
        return Some(Peeled::Message(blanks(rest)));
    }
    let (name, rest) = run(rest, 200, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))?;
    let rest = eat(rest, ":")?;
    prefix.level = Some(level);
    prefix.module = Some(Cow::Borrowed(name));
    prefix.spoken = true;
    Some(Peeled::Message(rest))
}

/// `2025-05-30 09:53:45,386 - logger - LEVEL - msg`.
pub(super) fn dashed<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(text)?;
    let rest = eat(rest, " - ")?;
    let (name, level, rest) = match level::word(rest) {
        Some((level, rest)) => {
            let rest = eat(blanks(rest), "- ")?;
            (None, level, rest)
        }
        None => {
            let (name, rest) = module_name(rest)?;
            let (level, rest) = level::word(eat(rest, " - ")?)?;
            (Some(name), level, eat(blanks(rest), "- ")?)
        }
    };
    set_engine(prefix, stamp);
    prefix.level = Some(level);
    if let Some(name) = name {
        prefix.module = Some(Cow::Borrowed(name));
    }
    Some(Peeled::Message(rest))
}

/// `[WARNING] msg`.
pub(super) fn bracketed_level<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (level, rest) = level::word(eat(text, "[")?)?;
    let rest = eat(rest.trim_start_matches(' '), "]")?;
    prefix.level = Some(level);
    prefix.spoken = true;
    Some(Peeled::Message(rest.strip_prefix(':').unwrap_or(rest)))
}

/// Notes an engine's own clock.
pub(super) fn set_engine(prefix: &mut Prefix<'_>, stamp: Stamp) {
    prefix.engine = Some(stamp);
    prefix.spoken = true;
}
