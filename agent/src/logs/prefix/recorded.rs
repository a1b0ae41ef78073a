//! Lines that were recorded: `kvprov1 w=2026-01-02T10:00:00.000000000Z L=WARNING m=worker.py | message`. The fields are
//! those of a prefix, so that a recorded line is read as the one it stands for. Values hold no blank: what is no plain
//! letter is written as `%20`.

use super::{Level, Peeled, Prefix, Process, Stamp, stamp};
use kvprov_model::clock::WallTime;
use std::borrow::Cow;
use std::fmt::Write as _;

const BEGIN: &str = "kvprov1 ";
const END: &str = "| ";

/// The prefix of a recorded line. `wall` is when it was said, as far as known; names are cleaned by `name`.
/// Ranks hold blanks and nothing free.
pub(in crate::logs) fn write(
    prefix: &Prefix<'_>,
    wall: Option<WallTime>,
    name: impl Fn(&str) -> String,
) -> String {
    let mut text = BEGIN.to_owned();
    let mut field = |key: char, value: String| {
        let _ = write!(text, "{key}={value} ");
    };
    if let Some(wall) = wall.and_then(printed) {
        field('w', wall);
    }
    if let Some(stamp) = prefix.engine {
        field('e', printed_stamp(&stamp));
    }
    if let Some(level) = prefix.level {
        field('L', level.as_str().to_ascii_uppercase());
    }
    if let Some(process) = &prefix.process {
        let pid = process.pid.map(|pid| pid.to_string()).unwrap_or_default();
        field('p', format!("{},{pid}", encoded(&name(&process.name))));
    }
    if let Some(rank) = &prefix.rank {
        field('r', encoded(rank));
    }
    for (key, value) in [('m', &prefix.module), ('d', &prefix.pod)] {
        if let Some(value) = value {
            field(key, encoded(&name(value)));
        }
    }
    if let Some(line) = prefix.source_line {
        field('l', line.to_string());
    }
    if prefix.repeated > 1 {
        field('x', prefix.repeated.to_string());
    }
    if prefix.spoken {
        field('s', "1".to_owned());
    }
    text.push_str(END);
    text
}

/// Reads it.
pub(super) fn peel<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let mut rest = text.strip_prefix(BEGIN)?;
    loop {
        if let Some(message) = rest.strip_prefix(END).or_else(|| (rest == "|").then_some("")) {
            return Some(Peeled::Message(message));
        }
        let (field, after) = rest.split_once(' ')?;
        let (key, value) = field.split_once('=')?;
        rest = after;
        match key {
            "w" => prefix.wrapper = stamp::full(value).map(|(stamp, _)| stamp),
            "e" => prefix.engine = read_stamp(value),
            "L" => prefix.level = Level::from_word(value),
            "p" => {
                let (name, pid) = value.rsplit_once(',')?;
                prefix.process = Some(Process { name: decoded(name), pid: pid.parse().ok() });
            }
            "r" => prefix.rank = Some(decoded(value)),
            "m" => prefix.module = Some(decoded(value)),
            "d" => prefix.pod = Some(decoded(value)),
            "l" => prefix.source_line = value.parse().ok(),
            "x" => prefix.repeated = value.parse().unwrap_or(1).max(1),
            "s" => prefix.spoken = true,
            _ => {}
        }
    }
}

fn printed(wall: WallTime) -> Option<String> {
    let moment = jiff::Timestamp::from_nanosecond(i128::from(wall.0)).ok()?;
    let civil = jiff::tz::Offset::UTC.to_datetime(moment);
    let (date, time) = (civil.date(), civil.time());
    (1970..=2200).contains(&date.year()).then(|| {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:09}Z",
            date.year(),
            date.month(),
            date.day(),
            time.hour(),
            time.minute(),
            time.second(),
            time.subsec_nanosecond()
        )
    })
}

/// As printed, what is absent left out: `2026/1/2/36000000000000/0`.
fn printed_stamp(stamp: &Stamp) -> String {
    let year = stamp.year.map(|year| year.to_string()).unwrap_or_default();
    let (month, day) =
        stamp.month_day.map(|(month, day)| (month.to_string(), day.to_string())).unwrap_or_default();
    let zone = stamp.offset_seconds.map(|zone| zone.to_string()).unwrap_or_default();
    format!("{year}/{month}/{day}/{}/{zone}", stamp.nanos_of_day)
}

fn read_stamp(text: &str) -> Option<Stamp> {
    let parts: Vec<&str> = text.split('/').collect();
    let [year, month, day, nanos, zone] = parts.as_slice() else { return None };
    let month_day = match (month.parse(), day.parse()) {
        (Ok(month), Ok(day)) if (1..=12).contains(&month) && (1..=31).contains(&day) => Some((month, day)),
        _ => None,
    };
    Some(Stamp {
        year: year.parse().ok(),
        month_day,
        nanos_of_day: nanos.parse().ok().filter(|nanos| (0..=86_401_000_000_000).contains(nanos))?,
        offset_seconds: zone.parse().ok().filter(|zone| (-86_400..=86_400).contains(zone)),
    })
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:/<>@#+-".contains(&byte)
}

fn encoded(value: &str) -> String {
    value.bytes().fold(String::with_capacity(value.len()), |mut text, byte| {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
        text
    })
}

fn decoded(value: &str) -> Cow<'_, str> {
    if !value.contains('%') {
        return Cow::Borrowed(value);
    }
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match (first, code.and_then(|code| u8::from_str_radix(code, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}
