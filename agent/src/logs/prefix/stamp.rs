//! Clocks as lines print them.
//!
//! A stamp holds exactly what was printed: a date may lack its year or be absent, a zone mostly is. Placing it on
//! the time line is the work of [`crate::logs::clock`].

use super::scan::{eat, number};

/// A clock as printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Year, where printed.
    pub year: Option<i16>,
    /// Month from 1 and day of the month from 1.
    pub month_day: Option<(u8, u8)>,
    /// Nanoseconds since midnight, 0 to 86,400 s and one leap second.
    pub nanos_of_day: i64,
    /// Seconds east of UTC, where a zone was printed.
    pub offset_seconds: Option<i32>,
}

// === impl Stamp ===

impl Stamp {
    /// A moment that is whole: date, year and zone are known.
    pub fn is_zoned(&self) -> bool {
        self.year.is_some() && self.month_day.is_some() && self.offset_seconds.is_some()
    }

    /// Whole seconds since midnight.
    pub fn second_of_day(&self) -> i64 {
        self.nanos_of_day / 1_000_000_000
    }
}

/// `HH:MM:SS` with an optional fraction after `.` or `,` → nanoseconds of the day.
pub(super) fn time_of_day(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, rest) = number(eat(rest, ":")?, 2)?;
    let (second, rest) = number(eat(rest, ":")?, 2)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let whole = (i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second)) * 1_000_000_000;
    match fraction(rest) {
        Some((nanos, rest)) => Some((whole + nanos, rest)),
        None => Some((whole, rest)),
    }
}

/// `.123456` or `,123` → nanoseconds; digits beyond the ninth are dropped.
fn fraction(text: &str) -> Option<(i64, &str)> {
    let rest = text.strip_prefix(['.', ','])?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return None;
    }
    let mut nanos: i64 = 0;
    for place in 0..9 {
        let digit = if place < digits { i64::from(rest.as_bytes()[place] - b'0') } else { 0 };
        nanos = nanos * 10 + digit;
    }
    Some((nanos, &rest[digits..]))
}

fn date_is_possible(month: u32, day: u32) -> bool {
    (1..=12).contains(&month) && (1..=31).contains(&day)
}

/// `Z`, `+00:00`, `+0000`, `+00`, ` +0000`, ` UTC` → seconds east of UTC.
fn zone(text: &str) -> Option<(i32, &str)> {
    if let Some(rest) = text.strip_prefix('Z') {
        return Some((0, rest));
    }
    if let Some(rest) =
        text.strip_prefix(" UTC").filter(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
    {
        return Some((0, rest));
    }
    let signed = text.strip_prefix(' ').unwrap_or(text);
    let sign = match signed.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, rest) = number(&signed[1..], 2)?;
    let (minutes, rest) = match number(rest.strip_prefix(':').unwrap_or(rest), 2) {
        Some(read) => read,
        None if !text.starts_with(' ') => (0, rest),
        None => return None,
    };
    (hours <= 15 && minutes <= 59).then_some((sign * (hours as i32 * 3600 + minutes as i32 * 60), rest))
}

/// `YYYY-MM-DD` then `T` or a blank, then a time, then an optional zone. Slashes between the parts are read too.
pub(super) fn full(text: &str) -> Option<(Stamp, &str)> {
    let (year, rest) = number(text, 4)?;
    let separator = if rest.starts_with('/') { "/" } else { "-" };
    let (month, rest) = number(eat(rest, separator)?, 2)?;
    let (day, rest) = number(eat(rest, separator)?, 2)?;
    let rest = rest.strip_prefix(['T', ' ', '_'])?;
    if !date_is_possible(month, day) || !(1970..=2200).contains(&year) {
        return None;
    }
    let (nanos_of_day, rest) = time_of_day(rest)?;
    let (offset_seconds, rest) = match zone(rest) {
        Some((offset, rest)) => (Some(offset), rest),
        None => (None, rest),
    };
    let stamp = Stamp {
        year: i16::try_from(year).ok(),
        month_day: Some((month as u8, day as u8)),
        nanos_of_day,
        offset_seconds,
    };
    Some((stamp, rest))
}

/// `MM-DD HH:MM:SS`.
pub(super) fn month_day(text: &str) -> Option<(Stamp, &str)> {
    let (month, rest) = number(text, 2)?;
    let (day, rest) = number(eat(rest, "-")?, 2)?;
    let (nanos_of_day, rest) = time_of_day(eat(rest, " ")?)?;
    let stamp =
        Stamp { year: None, month_day: Some((month as u8, day as u8)), nanos_of_day, offset_seconds: None };
    date_is_possible(month, day).then_some((stamp, rest))
}

/// `MM/DD/YYYY-HH:MM:SS`.
pub(super) fn month_first(text: &str) -> Option<(Stamp, &str)> {
    let (month, rest) = number(text, 2)?;
    let (day, rest) = number(eat(rest, "/")?, 2)?;
    let (year, rest) = number(eat(rest, "/")?, 4)?;
    let (nanos_of_day, rest) = time_of_day(eat(rest, "-")?)?;
    let stamp = Stamp {
        year: i16::try_from(year).ok(),
        month_day: Some((month as u8, day as u8)),
        nanos_of_day,
        offset_seconds: None,
    };
    (date_is_possible(month, day) && (1970..=2200).contains(&year)).then_some((stamp, rest))
}

/// `MM-DD HH:MM:SS` with an optional `YYYY-` or `YY-` before it, as loggers of engines write it.
pub(super) fn dated(text: &str) -> Option<(Stamp, &str)> {
    full(text).or_else(|| month_day(text))
}

/// `Jan  5 09:00:00` of syslog.
pub(super) fn syslog(text: &str) -> Option<(Stamp, &str)> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let month = MONTHS.iter().position(|name| text.starts_with(name))? + 1;
    let rest = eat(text.get(3..)?, " ")?;
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let digits = rest.bytes().take(2).take_while(u8::is_ascii_digit).count();
    let day: u32 = rest.get(..digits)?.parse().ok()?;
    let (nanos_of_day, rest) = time_of_day(eat(&rest[digits..], " ")?)?;
    if !date_is_possible(month as u32, day) {
        return None;
    }
    let stamp =
        Stamp { year: None, month_day: Some((month as u8, day as u8)), nanos_of_day, offset_seconds: None };
    Some((stamp, rest))
}

/// `MMDD HH:MM:SS.ffffff` or `YYYYMMDD HH:MM:SS.ffffff` of glog.
pub(super) fn glog(text: &str) -> Option<(Stamp, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (year, text) = match digits {
        4 => (None, text),
        8 => {
            let (year, rest) = number(text, 4)?;
            (i16::try_from(year).ok(), rest)
        }
        _ => return None,
    };
    let (month, rest) = number(text, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (nanos_of_day, rest) = time_of_day(eat(rest, " ")?)?;
    let stamp = Stamp { year, month_day: Some((month as u8, day as u8)), nanos_of_day, offset_seconds: None };
    date_is_possible(month, day).then_some((stamp, rest))
}

/// Seconds since the epoch, with or without a fraction; milli-, micro- and nanoseconds are told by their size.
pub(super) fn epoch(seconds: f64) -> Option<Stamp> {
    let seconds = match seconds {
        s if s >= 1e17 => s / 1e9,
        s if s >= 1e14 => s / 1e6,
        s if s >= 1e11 => s / 1e3,
        s => s,
    };
    if !(0.0..7.2e9).contains(&seconds) {
        return None;
    }
    let moment = jiff::Timestamp::from_nanosecond((seconds * 1e9) as i128).ok()?;
    let civil = jiff::tz::Offset::UTC.to_datetime(moment);
    let nanos = i64::from(civil.hour()) * 3600 + i64::from(civil.minute()) * 60 + i64::from(civil.second());
    Some(Stamp {
        year: Some(civil.year()),
        month_day: Some((civil.month() as u8, civil.day() as u8)),
        nanos_of_day: nanos * 1_000_000_000 + i64::from(civil.subsec_nanosecond()),
        offset_seconds: Some(0),
    })
}
