//! syslog and journald: `Jan  5 09:00:00 node-a vllm[2281]: msg` and the iso, precise, unix and full outputs;
//! `<4>` priorities of the kernel's log and of Ray's standard error.

use super::scan::{eat, run, some_blanks};
use super::{Level, Peeled, Prefix, stamp};

/// `<4>`.
pub(super) fn kernel_level<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let (digits, rest) = run(eat(text, "<")?, 3, |b| b.is_ascii_digit())?;
    let rest = eat(rest, ">")?;
    let priority: u32 = digits.parse().ok().filter(|priority| *priority < 192)?;
    prefix.level = Some(Level::from_priority(priority));
    // RFC 5424 goes on with its version.
    Some(Peeled::More(rest.strip_prefix("1 ").filter(|rest| stamp::full(rest).is_some()).unwrap_or(rest)))
}

/// A clock, a host and who speaks.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let without_weekday = match text.as_bytes() {
        [a, b, c, b' ', ..] if a.is_ascii_uppercase() && b.is_ascii_lowercase() && c.is_ascii_lowercase() => {
            match text[..3].as_ref() {
                "Mon" | "Tue" | "Wed" | "Thu" | "Fri" | "Sat" | "Sun" => &text[4..],
                _ => text,
            }
        }
        _ => text,
    };
    let (stamp, rest, sure) = if let Some((stamp, rest)) = stamp::syslog(without_weekday) {
        (stamp, rest, true)
    } else if let Some((stamp, rest)) = stamp::full(without_weekday) {
        (stamp, rest, without_weekday.len() < text.len())
    } else {
        let (seconds, rest) = run(text, 20, |b| b.is_ascii_digit() || b == b'.')?;
        if seconds.find('.') != Some(10) {
            return None;
        }
        (stamp::epoch(seconds.parse().ok()?)?, rest, false)
    };
    let rest = some_blanks(rest)?;
    let (_host, rest) =
        run(rest, 255, |b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))?;
    let rest = eat(rest, " ")?;
    let (_ident, rest) = run(rest, 255, |b| b.is_ascii_alphanumeric() || b"-._@/()".contains(&b))?;
    let rest = match rest.strip_prefix('[') {
        Some(inner) => {
            let (_, rest) = run(inner, 10, |b| b.is_ascii_digit())?;
            eat(rest, "]")?
        }
        // Without a process id only a clock that nothing else uses makes it syslog.
        None if sure => rest,
        // RFC 5424: host, name, process id, message id, structured data.
        None => return rfc5424(rest).inspect(|_| prefix.add_wrapper_stamp(stamp)),
    };
    let rest = eat(rest, ":")?;
    prefix.add_wrapper_stamp(stamp);
    Some(Peeled::More(rest.strip_prefix(' ').unwrap_or(rest)))
}

fn rfc5424(text: &str) -> Option<Peeled<'_>> {
    let (_, rest) = run(some_blanks(text)?, 10, |b| b.is_ascii_digit() || b == b'-')?;
    let (_, rest) = run(eat(rest, " ")?, 32, |b| b.is_ascii_graphic())?;
    Some(Peeled::More(eat(rest, " - ")?))
}
