//! TensorRT-LLM: `[01/16/2026-06:20:17] [TRT-LLM] [RANK 0] [I] msg` of its Python side, where the rank may be absent;
//! `[TensorRT-LLM][ERROR][0] msg` of its C++ side, which prints no clock and mostly no rank.

use super::python::set_engine;
use super::scan::{eat, one_blank, run};
use super::{Level, Peeled, Prefix, level, stamp};
use std::borrow::Cow;

/// Both forms.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    python_side(text, prefix).or_else(|| native_side(text, prefix))
}

fn python_side<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, rest) = stamp::month_first(eat(text, "[")?)?;
    let rest = eat(rest, "] [TRT-LLM] [")?;
    let (rank, rest) = match eat(rest, "RANK ") {
        Some(ranked) => {
            let (rank, rest) = digits(ranked)?;
            (Some(rank), eat(rest, "] [")?)
        }
        None => (None, rest),
    };
    let level = Level::from_letter(*rest.as_bytes().first()?)?;
    let rest = one_blank(eat(rest.get(1..)?, "]")?);
    set_engine(prefix, stamp);
    speak(prefix, level, rank);
    Some(Peeled::Message(rest))
}

fn native_side<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (level, rest) = level::word(eat(text, "[TensorRT-LLM][")?)?;
    let rest = eat(rest, "]")?;
    let ranked = eat(rest, "[").and_then(digits).and_then(|(rank, rest)| Some((rank, eat(rest, "]")?)));
    let (rank, rest) = match ranked {
        Some((rank, rest)) => (Some(rank), rest),
        None => (None, rest),
    };
    speak(prefix, level, rank);
    Some(Peeled::Message(one_blank(rest)))
}

fn digits(text: &str) -> Option<(&str, &str)> {
    run(text, 5, |b| b.is_ascii_digit())
}

fn speak<'a>(prefix: &mut Prefix<'a>, level: Level, rank: Option<&'a str>) {
    prefix.level = Some(level);
    prefix.spoken = true;
    if let Some(rank) = rank {
        prefix.rank = Some(Cow::Borrowed(rank));
    }
}
