//! Container runtimes and their viewers: CRI, Docker json-file, journald export, `kubectl`, `stern`.
//!
//! CRI `2021-12-01T03:13:58.298476921Z stderr F msg` with `P` for a part; Docker
//! `{"log":"…\n","stream":"stderr","time":"…"}` whose `log` has no line end when it is a part; `kubectl logs
//! --prefix` `[pod/x/container] `; `stern` and the like `pod container `.

use super::scan::{eat, run, some_blanks};
use super::{Behind, JsonLine, Peeled, Prefix, Unwrapped, begins_with_prefix, json, noise, stamp};
use std::borrow::Cow;

/// Opens one physical line.
pub(super) fn unwrap(text: &str) -> Unwrapped<'_> {
    let mut prefix = Prefix::default();
    let mut rest = text;
    // A viewer may have put names before the runtime's line.
    for _ in 0..3 {
        if let Some((stamp, stream, partial, payload)) = cri(rest) {
            prefix.add_wrapper_stamp(stamp);
            return Unwrapped { prefix, stream, partial, payload: Cow::Borrowed(payload) };
        }
        if rest.starts_with('{') {
            if let Some(JsonLine::Wrapper(wrapper)) = json::open(rest) {
                if let Some(stamp) = wrapper.stamp {
                    prefix.add_wrapper_stamp(stamp);
                }
                prefix.level = wrapper.level;
                let partial = wrapper.partial;
                let stream = u8::from(wrapper.is_stderr);
                return Unwrapped { prefix, stream, partial, payload: Cow::Owned(wrapper.message) };
            }
            break;
        }
        let inner = match kubectl(rest, &mut prefix) {
            Some(Peeled::More(inner)) => inner,
            _ => match wrapped_names(rest, &mut prefix) {
                Some(inner) => inner,
                None => break,
            },
        };
        rest = inner;
    }
    Unwrapped { prefix, stream: 0, partial: false, payload: Cow::Borrowed(rest) }
}

/// `pod container ` before a runtime's own line.
fn wrapped_names<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<&'a str> {
    let (names, rest) = pod_and_container(text)?;
    if !rest.starts_with('{') && cri(rest).is_none() {
        return None;
    }
    prefix.pod = Some(Cow::Borrowed(names));
    Some(rest)
}

/// A CRI line: its clock, stream, whether it goes on, and what it holds.
fn cri(text: &str) -> Option<(stamp::Stamp, u8, bool, &str)> {
    if text.len() < 20 || text.as_bytes()[10] != b'T' {
        return None;
    }
    let (stamp, rest) = stamp::full(text)?;
    let rest = eat(rest, " std")?;
    let (stream, rest) = match eat(rest, "out ") {
        Some(rest) => (0, rest),
        None => (1, eat(rest, "err ")?),
    };
    let (tag, payload) = rest.split_once(' ').unwrap_or((rest, ""));
    let mut tags = tag.split(':');
    match tags.next()? {
        "F" => Some((stamp, stream, false, payload)),
        "P" => Some((stamp, stream, true, payload)),
        _ => None,
    }
}

/// A CRI line inside another wrapper; parts were joined before.
pub(super) fn cri_text<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (stamp, _, _, payload) = cri(text)?;
    prefix.add_wrapper_stamp(stamp);
    Some(Peeled::More(payload))
}

/// `[pod/decode-0/sglang] `.
pub(super) fn kubectl<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (names, rest) = eat(text, "[pod/")?.split_once(']')?;
    if names.len() > 320 || names.contains(' ') {
        return None;
    }
    prefix.pod = Some(Cow::Borrowed(names));
    Some(Peeled::More(rest.strip_prefix(' ').unwrap_or(rest)))
}

/// `decode-0 sglang ` before something that is a prefix.
pub(super) fn stern<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (pod, rest) = name(text)?;
    let rest = some_blanks(rest.strip_prefix(':').unwrap_or(rest))?;
    let of_pod =
        Some((pod, rest)).filter(|(pod, rest)| pod.contains('-') && begins_with_prefix(rest, Behind::Name));
    let of_container = || pod_and_container(text).filter(|(_, rest)| begins_with_prefix(rest, Behind::Name));
    let (names, rest) = match of_pod {
        // A prefix behind progress tells not where the names end.
        Some(named) if noise::behind_progress(rest).is_some() => of_container().unwrap_or(named),
        Some(named) => named,
        None => of_container()?,
    };
    prefix.pod = Some(Cow::Borrowed(names));
    Some(Peeled::More(rest))
}

fn pod_and_container(text: &str) -> Option<(&str, &str)> {
    let (pod, rest) = name(text)?;
    let rest = some_blanks(rest)?;
    let rest = eat(rest, "› ").unwrap_or(rest);
    let (_, after) = name(rest)?;
    let names = text.get(..text.len() - after.len())?;
    let after = some_blanks(after.strip_prefix(':').unwrap_or(after))?;
    // A pod's name has a dash: a set's ordinal or a replica's hash.
    (pod.contains('-')).then_some((names, after))
}

/// A name as Kubernetes allows it.
fn name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) =
        run(text, 253, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')?;
    (name.starts_with(|c: char| c.is_ascii_alphanumeric()) && !name.ends_with('-')).then_some((name, rest))
}
