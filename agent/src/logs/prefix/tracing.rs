//! Rust tracing and what looks like it: `2025-05-28T04:49:50.256Z  WARN crate::module: msg key=value` of Dynamo and
//! routers, spans before the module, `2025-09-17 08:22:52  INFO mod: src/server.rs:261: msg`, the Python side of
//! Dynamo `…Z  INFO module.func: msg`, and zap's console form with tabs (`…Z\tINFO\tlogger\tfile.go:12\tmsg`).

use super::python::{self, set_engine};
use super::scan::{eat, file_line, module_name, one_blank, some_blanks};
use super::{Level, Peeled, Prefix, level, stamp};
use std::borrow::Cow;

/// Clock, level, module.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::full(text)?;
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    if rest.starts_with('\t') {
        return zap(rest, stamp, prefix);
    }
    let rest = some_blanks(rest)?;
    // A wrapper's clock before an engine's own prefix looks the same up to the level.
    let mut probe = Prefix::default();
    if python::vllm(rest, &mut probe).is_some() || python::uvicorn(rest, &mut probe).is_some() {
        return None;
    }
    let (level, rest) = level::word(rest).or_else(|| bracketed(rest))?;
    let rest = match rest.strip_prefix(':') {
        Some(rest) => one_blank(rest),
        None => some_blanks(rest)?,
    };
    set_engine(prefix, stamp);
    prefix.level = Some(level);
    let rest = modules(rest, prefix);
    Some(Peeled::Message(rest))
}

fn bracketed(text: &str) -> Option<(Level, &str)> {
    let (level, rest) = level::word(eat(text, "[")?)?;
    Some((level, eat(rest, "]")?))
}

/// Spans and the module, each closed by `: `; the file that some routers add.
fn modules<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> &'a str {
    let mut rest = text;
    let mut named = false;
    for _ in 0..8 {
        if let Some((file, _, after)) = file_line(rest)
            && let Some(after) = eat(after, ": ")
        {
            prefix.module.get_or_insert(Cow::Borrowed(file));
            return after;
        }
        let Some((name, after)) = module_name(rest) else { break };
        if let Some(fields) = eat(after, "{") {
            // A span with its fields, which may hold anything but the end of the line.
            let Some(end) = fields.bytes().take(2048).position(|byte| byte == b'}') else { break };
            let after = fields[end + 1..].trim_start_matches(':');
            rest = one_blank(after);
            continue;
        }
        let Some(after) = eat(after, ": ") else { break };
        // A word and a colon may also begin the message: after a first name only a path is one more.
        let is_path = name.contains("::");
        let is_name =
            is_path || name.contains(['.', '_']) || !name.contains(|c: char| c.is_ascii_uppercase());
        if (named && !is_path) || !is_name {
            break;
        }
        prefix.module = Some(Cow::Borrowed(name));
        named = true;
        rest = after;
    }
    rest
}

/// zap's console encoder: fields by tabs, the last may be a JSON object.
fn zap<'a>(text: &'a str, stamp: stamp::Stamp, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let mut rest = text.strip_prefix('\t')?;
    let (word, after) = rest.split_once('\t')?;
    let level = Level::from_word(word.trim())?;
    rest = after;
    set_engine(prefix, stamp);
    prefix.level = Some(level);
    // Logger and caller stand before the message where they are configured.
    for _ in 0..2 {
        let Some((field, after)) = rest.split_once('\t') else { break };
        let is_caller = file_line(field).is_some_and(|(_, _, rest)| rest.is_empty());
        let is_logger = !field.contains(' ') && !after.is_empty() && !after.starts_with('{');
        if !is_caller && !is_logger {
            break;
        }
        prefix.module = Some(Cow::Borrowed(field.split(':').next().unwrap_or(field)));
        rest = after;
        if is_caller {
            break;
        }
    }
    Some(Peeled::Message(rest))
}
