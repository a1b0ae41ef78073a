//! SGLang: `[2025-09-17 16:23:13 TP0] msg`; the rank is absent or a tuple (`DP6 TP6 EP6`), the first bracket may be
//! lost, a uvicorn access line may stand inside the form. No level, no logger, no process.

use super::python::{set_engine, uvicorn};
use super::scan::{eat, one_blank};
use super::{Peeled, Prefix, stamp};
use std::borrow::Cow;

/// The bracket.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let bracket = text.starts_with('[');
    let (stamp, rest) = stamp::full(text.strip_prefix('[').unwrap_or(text))?;
    // A lost bracket is only known by the one that closes; a clock alone has neither.
    let (ranks, rest) = rest.split_at(rest.bytes().take(64).position(|byte| byte == b']')?);
    let rank_like = ranks.split(' ').all(|rank| {
        rank.is_empty() || rank.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
    });
    if !rank_like || (!bracket && !ranks.is_empty() && !ranks.starts_with(' ')) {
        return None;
    }
    let rest = one_blank(eat(rest, "]")?);
    set_engine(prefix, stamp);
    let ranks = ranks.trim();
    if !ranks.is_empty() {
        prefix.rank = Some(Cow::Borrowed(ranks));
    }
    Some(uvicorn(rest, prefix).unwrap_or(Peeled::Message(rest)))
}
