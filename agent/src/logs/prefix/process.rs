//! Who speaks: `(EngineCore_DP0 pid=271) ` of vLLM and Ray, doubled, without the blank behind it, with further
//! `key=value`; rank labels `0: `, `[rank0]: `, `rank0: `, `[P10] `; Ray's suffix
//! `[repeated 15x across cluster]`.

use super::scan::{eat, one_blank, run};
use super::{Behind, Peeled, Prefix, Process, begins_with_prefix};
use std::borrow::Cow;

/// `(NAME pid=N, key=value)`.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let close = memchr::memchr(b')', &text.as_bytes()[..text.len().min(256)])?;
    let inside = text.get(1..close)?;
    let belongs = |b: u8| {
        let sign = matches!(
            b,
            b' ' | b'_' | b'-' | b'.' | b':' | b'=' | b',' | b'#' | b'<' | b'>' | b'/' | b'@' | b'[' | b']'
        );
        b.is_ascii_alphanumeric() || sign
    };
    if !inside.bytes().all(belongs) {
        return None;
    }
    let pid_at = inside.as_bytes().windows(4).position(|word| word == b"pid=")?;
    let digits = &inside[pid_at + 4..];
    let pid = digits[..digits.bytes().take_while(u8::is_ascii_digit).count()].parse().ok()?;
    let mut name = inside[..pid_at].trim_end_matches([' ', ',']);
    // `VllmWorker rank=4 engine_index=0`: the name is the first word, the rank stands beside it.
    if let Some((word, settings)) = name.split_once(' ') {
        if let Some(rank) = settings.split(' ').find_map(|setting| setting.strip_prefix("rank=")) {
            prefix.rank = Some(Cow::Borrowed(rank));
        }
        name = word;
    }
    prefix.process = Some(Process { name: Cow::Borrowed(name), pid: Some(pid) });
    prefix.spoken = true;
    Some(Peeled::More(one_blank(&text[close + 1..])))
}

/// `0: ` of srun, `[rank0]: ` of torchrun, where a prefix follows or the form allows nothing else.
pub(super) fn rank_label<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    if prefix.rank.is_some() {
        return None;
    }
    let (inner, close) = match text.strip_prefix('[') {
        Some(inner) => (inner, "]:"),
        None => (text, ":"),
    };
    let named = inner.strip_prefix("rank").or_else(|| inner.strip_prefix("default"));
    let (digits, rest) = run(named.unwrap_or(inner), 5, |b| b.is_ascii_digit())?;
    let rest = eat(rest, close)?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    if named.is_none() && !begins_with_prefix(rest.trim_start(), Behind::Rank) {
        return None;
    }
    prefix.rank.get_or_insert(Cow::Borrowed(digits));
    Some(Peeled::More(rest))
}

/// `[P10] ` of a program that numbers its processes, where a prefix follows.
pub(super) fn numbered<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    if prefix.rank.is_some() {
        return None;
    }
    let (digits, rest) = run(text.strip_prefix("[P")?, 3, |b| b.is_ascii_digit())?;
    let rest = eat(rest, "] ")?;
    if !begins_with_prefix(rest, Behind::Rank) {
        return None;
    }
    prefix.rank = Some(Cow::Borrowed(digits));
    Some(Peeled::More(rest))
}

/// `[repeated 15x across cluster]` at the end; Ray may add how to turn it off.
pub(super) fn repeated_suffix<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> &'a str {
    // Ray ends with the bracket, or with a word of advice in parentheses.
    if !text.trim_end().ends_with([']', ')']) {
        return text;
    }
    let Some(at) = text.rfind("[repeated ") else { return text };
    let Some((digits, rest)) = run(&text[at + "[repeated ".len()..], 9, |b| b.is_ascii_digit()) else {
        return text;
    };
    if !rest.starts_with("x across") {
        return text;
    }
    // The line itself was printed once more than it was held back, but Ray counts all.
    prefix.repeated = digits.parse().unwrap_or(1).max(1);
    text[..at].trim_end()
}
