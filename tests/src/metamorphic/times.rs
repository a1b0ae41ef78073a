//! All clocks of a bundle are moved by the same span: those of log lines in every grammar, of `incident.toml`, of
//! kernel records, events and proxies.
//!
//! A bundle stays unchanged where a clock would move into another year, since many clocks print none.

use super::{Changed, edit_text, without_renaming};
use crate::bundle::Bundle;
use crate::verdict::Found;
use jiff::civil::DateTime;
use jiff::{Span, ToSpan};
use regex::{Captures, Regex};
use std::cell::Cell;
use toml::Value;

/// A date with year; a date without; glog's; TensorRT-LLM's; a JSON number of unix seconds under `ts` or `t`; the same as a metric, in both ways to write it.
const CLOCKS: &str = r#"(?mx)
    (?P<year>20[12]\d)-(?P<m1>\d\d)-(?P<d1>\d\d)(?P<s1>[T\ ])(?P<t1>\d\d:\d\d:\d\d)
  | (?P<before>^|[^\d-])(?P<m2>\d\d)-(?P<d2>\d\d)\ (?P<t2>\d\d:\d\d:\d\d)
  | (?P<glog>\b[IWEF])(?P<m3>\d\d)(?P<d3>\d\d)\ (?P<t3>\d\d:\d\d:\d\d)(?P<point>\.)
  | (?P<m4>\d\d)/(?P<d4>\d\d)/(?P<y4>20[12]\d)-(?P<t4>\d\d:\d\d:\d\d)
  | (?P<key>"(?:ts|t)":\ ?)(?P<unix>1[5-9]\d{8})\b
  | (?P<blank>\}\ )(?P<metric>1[67]\d{8})(?P<rest>(?:\.\d+)?$)
  | (?P<space>\}\ )(?P<large>1\.[67]\d+e\+09)$
"#;

pub(super) fn later(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    shifted(bundle, 26 * 3600)
}

pub(super) fn earlier(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    shifted(bundle, -3 * 3600)
}

fn shifted(bundle: &Bundle, seconds: i64) -> Option<Changed> {
    let clocks = Regex::new(CLOCKS).ok()?;
    // A year-less date is moved in the year that the bundle gives it: what follows February depends on it.
    let year =
        bundle.sources().find_map(|source| source.get("year").and_then(Value::as_integer)).unwrap_or(2026);
    let shift =
        Shift { span: seconds.seconds(), seconds, year, seen: Cell::new(false), crossed: Cell::new(false) };
    let changed = edit_text(bundle, |text| {
        clocks.replace_all(text, |found: &Captures<'_>| shift.apply(found)).into_owned()
    })?;
    if shift.crossed.get() || !shift.seen.get() { None } else { without_renaming(changed) }
}

struct Shift {
    span: Span,
    seconds: i64,
    year: i64,
    seen: Cell<bool>,
    crossed: Cell<bool>,
}

impl Shift {
    fn apply(&self, found: &Captures<'_>) -> String {
        let part = |name: &str| found.name(name).map_or("", |part| part.as_str());
        let moved = if found.name("year").is_some() {
            self.date(part("year"), part("m1"), part("d1"), part("t1"))
                .map(|new| format!("{}{}{}", new.strftime("%Y-%m-%d"), part("s1"), new.strftime("%H:%M:%S")))
        } else if found.name("m2").is_some() {
            self.date(&self.year.to_string(), part("m2"), part("d2"), part("t2"))
                .map(|new| format!("{}{}", part("before"), new.strftime("%m-%d %H:%M:%S")))
        } else if found.name("m3").is_some() {
            self.date(&self.year.to_string(), part("m3"), part("d3"), part("t3"))
                .map(|new| format!("{}{}{}", part("glog"), new.strftime("%m%d %H:%M:%S"), part("point")))
        } else if found.name("m4").is_some() {
            self.date(part("y4"), part("m4"), part("d4"), part("t4"))
                .map(|new| new.strftime("%m/%d/%Y-%H:%M:%S").to_string())
        } else if found.name("unix").is_some() {
            self.unix(part("unix")).map(|new| format!("{}{new}", part("key")))
        } else if found.name("large").is_some() {
            part("large").parse::<f64>().ok().map(|old| {
                self.seen.set(true);
                format!("{}{:.6}", part("space"), old + self.seconds as f64)
            })
        } else {
            self.unix(part("metric")).map(|new| format!("{}{new}{}", part("blank"), part("rest")))
        };
        // What only looks like a clock (month 13) stays.
        moved.unwrap_or_else(|| part_zero(found))
    }

    fn date(&self, year: &str, month: &str, day: &str, time: &str) -> Option<DateTime> {
        let old: DateTime = format!("{year}-{month}-{day}T{time}").parse().ok()?;
        let new = old.checked_add(self.span).ok()?;
        self.seen.set(true);
        if new.year() != old.year() {
            self.crossed.set(true);
        }
        Some(new)
    }

    fn unix(&self, digits: &str) -> Option<i64> {
        self.seen.set(true);
        digits.parse::<i64>().ok()?.checked_add(self.seconds)
    }
}

fn part_zero(found: &Captures<'_>) -> String {
    found.get(0).map_or("", |whole| whole.as_str()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(text: &str) -> Option<String> {
        let mut bundle = Bundle::default();
        bundle.files.insert("d.log".to_owned(), text.as_bytes().to_vec());
        let changed = later(&bundle, &[])?;
        String::from_utf8(changed.bundle.files.get("d.log")?.clone()).ok()
    }

    #[test]
    fn clocks_of_every_grammar_move() {
        for (before, after) in [
            ("[2025-09-17 16:23:13 TP1] x", "[2025-09-18 18:23:13 TP1] x"),
            (
                "(APIServer pid=1) INFO 06-30 23:00:10 [a.py:1] x",
                "(APIServer pid=1) INFO 07-02 01:00:10 [a.py:1] x",
            ),
            ("I0320 11:44:26.698262  1822 x", "I0321 13:44:26.698262  1822 x"),
            ("[05/28/2025-04:49:50] [TRT-LLM] [E] x", "[05/29/2025-06:49:50] [TRT-LLM] [E] x"),
            ("2025-05-28T04:49:50.256Z  WARN x", "2025-05-29T06:49:50.256Z  WARN x"),
            (r#"{"ts":1778328012.0,"seq":0}"#, r#"{"ts":1778421612.0,"seq":0}"#),
            (r#"a{b="c"} 1778328040.0"#, r#"a{b="c"} 1778421640.0"#),
            (r#"a{b="c"} 1.778328040e+09"#, r#"a{b="c"} 1778421640.000000"#),
        ] {
            assert_eq!(moved(before).as_deref(), Some(after));
        }
    }

    #[test]
    fn a_number_inside_an_id_is_no_clock() {
        assert_eq!(moved("id 1778328012 and 2025-13-45 00:00:00"), None);
    }

    #[test]
    fn nothing_moves_into_another_year() {
        assert_eq!(moved("INFO 12-31 10:00:00 [a.py:1] x"), None);
    }
}
