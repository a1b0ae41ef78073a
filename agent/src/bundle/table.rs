//! Typed access to a TOML table that knows the line of everything and goes on after an error.

use crate::bundle::problem::Problem;
use kvprov_model::clock::WallTime;
use kvprov_model::expected::{Expectation, Flaw, read_statement};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A TOML file: its name for people and where its lines begin.
pub(crate) struct Document<'t> {
    /// As people know it.
    pub name: &'t str,
    line_starts: Vec<usize>,
}

/// One table of a document, and the problems found on the way.
pub(crate) struct Table<'d, 't> {
    document: &'d Document<'t>,
    table: &'d DeTable<'t>,
    /// What the table is, for messages: `[[worker]]`.
    what: &'static str,
    /// Line from 1.
    pub line: u64,
}

// === impl Document ===

impl<'t> Document<'t> {
    pub(crate) fn new(name: &'t str, text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { name, line_starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// Line from 1.
    pub(crate) fn line(&self, span: &Range<usize>) -> u64 {
        self.line_starts.partition_point(|start| *start <= span.start) as u64
    }

    pub(crate) fn place(&self, span: &Range<usize>) -> String {
        format!("{}:{}", self.name, self.line(span))
    }
}

// === impl Table ===

impl<'d, 't> Table<'d, 't> {
    pub(crate) fn new(
        document: &'d Document<'t>,
        table: &'d DeTable<'t>,
        span: &Range<usize>,
        what: &'static str,
    ) -> Self {
        Self { document, table, what, line: document.line(span) }
    }

    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.document.name, self.line)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&'d Spanned<DeValue<'t>>> {
        self.table.get(key)
    }

    /// The table as a statement of what a name should mean.
    pub(crate) fn expectation(&self) -> Result<Expectation, Flaw> {
        read_statement(self.table, self.line, &|span| self.document.line(span))
    }

    /// Warns of keys that mean nothing here.
    pub(crate) fn check_keys(&self, known: &[&str], problems: &mut Vec<Problem>) {
        for key in self.table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                problems.push(Problem::new(
                    self.document.place(&key.span()),
                    format!("{} has no key {:?}, it was ignored", self.what, short(key.get_ref())),
                    format!("use one of {}", known.join(", ")),
                ));
            }
        }
    }

    fn wrong(&self, key: &str, value: &Spanned<DeValue<'t>>, expected: &str) -> Problem {
        Problem::new(
            self.document.place(&value.span()),
            format!("{key} of {} is {}, it was ignored", self.what, value.get_ref().type_str()),
            format!("give {expected}"),
        )
    }

    /// A text; numbers and flags are read as text.
    pub(crate) fn text(&self, key: &str, problems: &mut Vec<Problem>) -> Option<String> {
        let value = self.get(key)?;
        let text = scalar_text(value.get_ref());
        if text.is_none() {
            problems.push(self.wrong(key, value, "a text in quotes"));
        }
        text.filter(|text| !text.is_empty())
    }

    /// An integer.
    pub(crate) fn integer(&self, key: &str, problems: &mut Vec<Problem>) -> Option<i64> {
        let value = self.get(key)?;
        let number = scalar_text(value.get_ref()).and_then(|text| text.trim().parse().ok());
        if number.is_none() {
            problems.push(self.wrong(key, value, "an integer"));
        }
        number
    }

    /// A time: RFC 3339 as text or TOML date; without an offset it is UTC.
    pub(crate) fn time(&self, key: &str, problems: &mut Vec<Problem>) -> Option<WallTime> {
        let value = self.get(key)?;
        let time = scalar_text(value.get_ref()).and_then(|text| parse_time(&text));
        if time.is_none() {
            problems.push(Problem::new(
                self.document.place(&value.span()),
                format!("{key} of {} is no time, it was ignored", self.what),
                "give a time like \"2026-08-16T08:00:00Z\"",
            ));
        }
        time
    }

    /// Seconds east of UTC from `+08:00`, `Z`, `UTC` or the name of a zone.
    pub(crate) fn zone(&self, key: &str, problems: &mut Vec<Problem>) -> Option<i32> {
        let value = self.get(key)?;
        let zone = scalar_text(value.get_ref()).and_then(|text| parse_zone(&text));
        if zone.is_none() {
            problems.push(Problem::new(
                self.document.place(&value.span()),
                format!("{key} of {} is no time zone, UTC was taken", self.what),
                "give an offset like \"+08:00\"",
            ));
        }
        zone
    }

    /// A table inside.
    pub(crate) fn table(&self, key: &str, problems: &mut Vec<Problem>) -> Option<&'d DeTable<'t>> {
        let value = self.get(key)?;
        let table = value.get_ref().as_table();
        if table.is_none() {
            problems.push(self.wrong(key, value, "a table { … }"));
        }
        table
    }

    /// A list of tables: `[[key]]`; one `[key]` is read as a list of one.
    pub(crate) fn tables(
        &self,
        key: &str,
        what: &'static str,
        problems: &mut Vec<Problem>,
    ) -> Vec<Table<'d, 't>> {
        let Some(value) = self.get(key) else { return Vec::new() };
        let one = |value: &'d Spanned<DeValue<'t>>, problems: &mut Vec<Problem>| {
            let table = value.get_ref().as_table();
            if table.is_none() {
                problems.push(self.wrong(key, value, "tables"));
            }
            table.map(|table| Table::new(self.document, table, &value.span(), what))
        };
        match value.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(|item| one(item, problems)).collect(),
            _ => one(value, problems).into_iter().collect(),
        }
    }
}

/// Text, number, flag or date as text.
pub(crate) fn scalar_text(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().replace('_', "")),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix()).ok().map(|number| number.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().replace('_', "")),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(time) => Some(time.to_string()),
        DeValue::Array(_) | DeValue::Table(_) => None,
    }
}

fn parse_time(text: &str) -> Option<WallTime> {
    let text = text.trim();
    WallTime::parse_rfc3339(text).or_else(|| WallTime::parse_rfc3339(&format!("{text}Z")))
}

fn parse_zone(text: &str) -> Option<i32> {
    let text = text.trim();
    if matches!(text, "Z" | "z" | "UTC" | "utc" | "GMT") {
        return Some(0);
    }
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (hours, minutes) = match digits.len() {
        1 | 2 => (digits.parse::<i32>().ok()?, 0),
        4 => (digits[..2].parse().ok()?, digits[2..].parse().ok()?),
        _ => return None,
    };
    (hours <= 18 && minutes < 60).then_some(sign * (hours * 3600 + minutes * 60))
}

fn short(text: &str) -> String {
    text.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_seconds_east_of_utc() {
        let pairs = [("+08:00", 28_800), ("-0530", -19_800), ("Z", 0), ("+9", 32_400)];
        for (text, seconds) in pairs {
            assert_eq!(parse_zone(text), Some(seconds), "{text}");
        }
        for text in ["", "8", "+", "+99:00", "+08:99", "+é8", "east"] {
            assert_eq!(parse_zone(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_without_an_offset_is_utc() {
        assert_eq!(parse_time("2026-08-16T08:00:00"), parse_time("2026-08-16T08:00:00Z"));
        assert_eq!(parse_time("2026-08-16 08:00:00"), parse_time("2026-08-16T10:00:00+02:00"));
        assert_eq!(parse_time("yesterday"), None);
    }
}
