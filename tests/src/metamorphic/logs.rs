//! The log lines of a bundle, each with the time that it tells, so that they can be told in another form.
//!
//! A time is only needed to put a wrapper's clock before a line; it is read as an operator would read it, from the
//! first thing that looks like a clock, with year and zone as the source states them.

use super::{Changed, without_renaming};
use crate::bundle::{Bundle, text};
use jiff::civil::DateTime;
use jiff::tz::Offset;
use jiff::{Timestamp, ToSpan};
use regex::Regex;
use toml::{Table, Value};

/// A clock as an engine prints it.
const CLOCK: &str = r"(?x)
    (?P<year>20[12]\d)-(?P<m1>\d\d)-(?P<d1>\d\d)[T\ ](?P<t1>\d\d:\d\d:\d\d)(?P<utc>(?:\.\d+)?Z)?
  | (?:^|[^\d-])(?P<m2>\d\d)-(?P<d2>\d\d)\ (?P<t2>\d\d:\d\d:\d\d)
  | (?:^|it/s\])[^\[]*\[(?P<m4>\d\d)/(?P<d4>\d\d)/(?P<y4>20\d\d)-(?P<t4>\d\d:\d\d:\d\d)\]
  | \b[IWEF](?P<m3>\d\d)(?P<d3>\d\d)\ (?P<t3>\d\d:\d\d:\d\d)\.";

/// What a runtime, a viewer or a formatter of JSON has put before lines already.
const WRAPPED: &str = r"(?x)
    ^\s*\{
  | ^20\d\d-\d\d-\d\dT\S+[\ ](?:stdout|stderr)[\ ][FP]\b
  | ^\[pod/
  | ^[A-Z][a-z]{2}[\ ][\ \d]\d[\ ]\d\d:\d\d:\d\d\b
  | ^20\d\d-\d\d-\d\dT\S+[\ ]\S+[\ ][\w.-]+\[\d+\]:
  | ^20\d\d-\d\d-\d\d[\ ][\d:.,]+[\ ]\|
  | ^[a-z0-9][a-z0-9._-]*-\d+[\ ]+\|[\ ]
  | ^[a-z0-9-]+-[a-z0-9]+[\ ][a-z][a-z0-9-]*[\ ][({]";

/// A line to be told again.
pub(super) struct Told<'l> {
    /// The line without its end.
    pub(super) text: &'l str,
    /// When it was printed.
    pub(super) at: Timestamp,
    /// The same on the clock of its node, as a text wrapper without zone prints it.
    pub(super) local: DateTime,
    /// Its place in the file, from 0.
    pub(super) index: usize,
}

/// Tells every line of every log that nothing wraps yet; `None` where there is none or nothing changed.
pub(super) fn each_plain(bundle: &Bundle, tell: impl Fn(&Told<'_>, &mut String)) -> Option<Changed> {
    let wrapped = Regex::new(WRAPPED).ok()?;
    let clock = Regex::new(CLOCK).ok()?;
    let alone = bundle.sources().count() == 1;
    each_log(bundle, |text, source| {
        if text.lines().any(|line| wrapped.is_match(line)) {
            return None;
        }
        let zone = zone_of(source)?;
        let stated = source.get("year").and_then(Value::as_integer);
        let year = stated.or_else(|| text.lines().find_map(|line| year_of(&clock, line))).unwrap_or(2026);
        let read = |line: &str| local_of(&clock, line, year, zone);
        // A log without clocks gets any, but not where it would be ordered with others by them.
        let any = alone.then(|| DateTime::constant(2026, 8, 16, 8, 0, 0, 0));
        let mut local = text.lines().find_map(read).or(any)?;
        let mut told = String::with_capacity(text.len() * 2);
        for (index, line) in text.lines().enumerate() {
            local = read(line).unwrap_or(local);
            // No two lines of one stream have one time.
            let local = local.checked_add((index as i64 * 1000 + 211).nanoseconds()).ok()?;
            let at = zone.to_timestamp(local).ok()?;
            tell(&Told { text: line, at, local, index }, &mut told);
        }
        Some(told)
    })
}

/// The same for wrappers whose clock is finer than that of an engine. It would say more than anybody knows where
/// something else tells to a part of a second what came before what.
pub(super) fn each_finely_dated(bundle: &Bundle, tell: impl Fn(&Told<'_>, &mut String)) -> Option<Changed> {
    let only_logs = bundle.sources().all(|source| text(source, "kind") == Some("log"));
    let no_epochs = bundle.workers().all(|worker| !worker.contains_key("epoch"));
    if only_logs && no_epochs { each_plain(bundle, tell) } else { None }
}

/// Edits the text of every log; `None` where nothing changed.
pub(super) fn each_text(bundle: &Bundle, edit: impl Fn(&str) -> Option<String>) -> Option<Changed> {
    each_log(bundle, |text, _| edit(text))
}

fn each_log(bundle: &Bundle, edit: impl Fn(&str, &Table) -> Option<String>) -> Option<Changed> {
    let mut changed = bundle.clone();
    for source in bundle.sources().filter(|source| text(source, "kind") == Some("log")) {
        let Some(file) = text(source, "file") else { continue };
        let Some(Ok(old)) = bundle.files.get(file).map(|bytes| std::str::from_utf8(bytes)) else { continue };
        if let Some(new) = edit(old, source) {
            changed.files.insert(file.to_owned(), new.into_bytes());
        }
    }
    if changed == *bundle { None } else { without_renaming(changed) }
}

/// The zone of a source: UTC, or `±hh:mm`. Named zones are left alone.
fn zone_of(source: &Table) -> Option<Offset> {
    let Some(zone) = text(source, "timezone") else { return Some(Offset::UTC) };
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone.strip_prefix(['+', '-'])?.split_once(':')?;
    let seconds = hours.parse::<i32>().ok()? * 3600 + minutes.parse::<i32>().ok()? * 60;
    Offset::from_seconds(sign * seconds).ok()
}

/// The year that a line tells.
fn year_of(clock: &Regex, line: &str) -> Option<i64> {
    let found = clock.captures(line)?;
    found.name("year").or(found.name("y4"))?.as_str().parse().ok()
}

fn local_of(clock: &Regex, line: &str, year: i64, zone: Offset) -> Option<DateTime> {
    let found = clock.captures(line)?;
    let part = |name: &str| found.name(name).map(|part| part.as_str());
    let year = part("year").or(part("y4")).map_or_else(|| year.to_string(), str::to_owned);
    let month = part("m1").or(part("m2")).or(part("m3")).or(part("m4"))?;
    let day = part("d1").or(part("d2")).or(part("d3")).or(part("d4"))?;
    let time = part("t1").or(part("t2")).or(part("t3")).or(part("t4"))?;
    let read: DateTime = format!("{year}-{month}-{day}T{time}").parse().ok()?;
    if part("utc").is_some() {
        read.checked_add(i64::from(zone.seconds()).seconds()).ok()
    } else {
        Some(read)
    }
}
