//! Reads the Prometheus text format, and forgives what pages in the field get wrong.
//!
//! Missing HELP and TYPE, unknown comments, exemplars, time stamps and escapes are read; a line that is no sample is
//! counted and the next one read. Invariant: borrows from the page and allocates only for the labels of one sample at
//! a time, so that a page of any size costs its own size once.

use std::borrow::Cow;

/// Samples with more labels are skipped; no engine comes near.
const MAX_LABELS: usize = 64;
/// Samples on longer lines are skipped, in bytes.
const MAX_LINE: usize = 64 * 1024;

/// One line of a page.
#[derive(Debug, Clone, PartialEq)]
pub enum Line<'p> {
    /// A family is announced by HELP or TYPE, whether or not it has samples.
    Family(&'p str),
    /// A value.
    Sample(Sample<'p>),
    /// Not readable; the reason is one to count.
    Bad(&'static str),
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'p> {
    /// Name as exposed.
    pub name: &'p str,
    /// Labels in the order of the page.
    pub labels: Vec<(&'p str, Cow<'p, str>)>,
    /// The value; may be NaN or infinite.
    pub value: f64,
    /// Unix milliseconds, where the page gives a time.
    pub timestamp_ms: Option<i64>,
}

/// The lines of a page that say something.
pub fn lines(page: &str) -> impl Iterator<Item = Line<'_>> {
    let whole = page.ends_with('\n');
    let mut rest = page.split('\n').peekable();
    std::iter::from_fn(move || {
        loop {
            let line = rest.next()?;
            let is_cut = rest.peek().is_none() && !whole;
            if let Some(found) = read_line(line.trim(), is_cut) {
                return Some(found);
            }
        }
    })
}

fn read_line(line: &str, is_cut: bool) -> Option<Line<'_>> {
    if line.is_empty() {
        return None;
    }
    if line.len() > MAX_LINE {
        return Some(Line::Bad("line too long"));
    }
    if let Some(comment) = line.strip_prefix('#') {
        let mut words = comment.split_ascii_whitespace();
        let keyword = words.next()?;
        let name = words.next()?;
        return matches!(keyword, "HELP" | "TYPE").then_some(Line::Family(name));
    }
    Some(match read_sample(line) {
        Ok((sample, number)) if !is_cut || is_surely_whole(number) => Line::Sample(sample),
        Ok(_) => Line::Bad("page cut in its last line"),
        Err(_) if is_cut => Line::Bad("page cut in its last line"),
        Err(reason) => Line::Bad(reason),
    })
}

/// Whether the number of a line without line end shows that it was not cut: a counter of 20480 that became 2048 would
/// look like a restart.
fn is_surely_whole(number: &str) -> bool {
    number.split_once('.').is_some_and(|(_, fraction)| !fraction.is_empty()) && !number.contains(['e', 'E'])
}

fn read_sample(line: &str) -> Result<(Sample<'_>, &str), &'static str> {
    let name_end = line.find(|c: char| c == '{' || c.is_ascii_whitespace()).ok_or("no sample")?;
    let (name, mut rest) = line.split_at(name_end);
    if name.is_empty() || !name.bytes().all(is_name_byte) || name.as_bytes()[0].is_ascii_digit() {
        return Err("no sample");
    }
    rest = rest.trim_start();
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    let mut words = rest.split_ascii_whitespace();
    let number = words.next().ok_or("sample without a value")?;
    let value = read_value(number).ok_or("sample without a value")?;
    let timestamp_ms = words.next().filter(|word| !word.starts_with('#')).and_then(|word| word.parse().ok());
    Ok((Sample { name, labels, value, timestamp_ms }, number))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':')
}

fn read_value(word: &str) -> Option<f64> {
    match word {
        "+Inf" | "Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        "NaN" | "Nan" => Some(f64::NAN),
        _ => word.parse().ok(),
    }
}

/// Reads labels up to the closing brace and gives what follows it.
fn read_labels<'p>(
    mut rest: &'p str,
    labels: &mut Vec<(&'p str, Cow<'p, str>)>,
) -> Result<&'p str, &'static str> {
    loop {
        rest = rest.trim_start_matches(|c: char| c == ',' || c.is_ascii_whitespace());
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (name, after) = rest.split_once('=').ok_or("labels not closed")?;
        let name = name.trim();
        if name.is_empty() || !name.bytes().all(|byte| is_name_byte(byte) || byte == b'.') {
            return Err("no label name");
        }
        let quoted = after.trim_start().strip_prefix('"').ok_or("label without quotes")?;
        let (value, after) = read_quoted(quoted).ok_or("labels not closed")?;
        if labels.len() == MAX_LABELS {
            return Err("too many labels");
        }
        labels.push((name, value));
        rest = after;
    }
}

/// Reads up to the closing quote. A backslash that escapes nothing known stands for itself.
fn read_quoted(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let stop = text.find(['"', '\\'])?;
    if text.as_bytes()[stop] == b'"' {
        return Some((Cow::Borrowed(&text[..stop]), &text[stop + 1..]));
    }
    let mut value = text[..stop].to_owned();
    let mut chars = text[stop..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((Cow::Owned(value), &text[stop + at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped @ ('"' | '\\') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use proptest::prelude::*;

    fn samples(page: &str) -> Vec<Sample<'_>> {
        lines(page)
            .filter_map(|line| match line {
                Line::Sample(sample) => Some(sample),
                _ => None,
            })
            .collect()
    }

    fn bad(page: &str) -> Vec<&'static str> {
        lines(page)
            .filter_map(|line| match line {
                Line::Bad(reason) => Some(reason),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn a_sample_needs_no_help_and_no_type() {
        let page = "vllm:x_total{engine=\"0\", source=\"a,b}\"} 3.5e2 1700000000000 # {id=\"1\"} 1\n";
        let found = samples(page);
        assert_eq!(found[0].name, "vllm:x_total");
        assert_eq!(found[0].value, 350.0);
        assert_eq!(found[0].timestamp_ms, Some(1_700_000_000_000));
        assert_eq!(found[0].labels[1], ("source", Cow::Borrowed("a,b}")));
    }

    #[test]
    fn escapes_in_labels_are_read() {
        let found = samples("x{p=\"a\\\\b\\\"c\\nd\\q\"} 1\n");
        assert_eq!(found[0].labels[0].1, "a\\b\"c\nd\\q");
    }

    #[test]
    fn a_family_without_samples_is_announced() {
        assert_eq!(lines("# TYPE a counter\n# just words\n").collect::<Vec<_>>(), vec![Line::Family("a")]);
    }

    #[test]
    fn a_bad_line_does_not_hide_the_next() {
        let page = "a{x=\"1\" 5\n<html>\nb 1\nc\n";
        assert_eq!(samples(page).len(), 1);
        assert_eq!(bad(page), ["labels not closed", "no sample", "no sample"]);
    }

    #[test]
    fn a_number_that_may_be_cut_is_not_read() {
        assert_eq!(bad("a 20\nb 2048"), ["page cut in its last line"]);
        assert_eq!(samples("a 20\nb 2048.0").len(), 2);
    }

    #[test]
    fn nan_and_infinities_are_values() {
        let found = samples("a NaN\nb +Inf\nc -Inf\n");
        assert!(found[0].value.is_nan() && found[1].value.is_infinite() && found[2].value < 0.0);
    }

    proptest! {
        #[test]
        fn no_page_makes_it_panic(page in "\\PC{0,200}") {
            let _ = lines(&page).count();
        }

        #[test]
        fn nothing_like_a_page_makes_it_panic(
            page in "([a-z:_]{0,4}[{]?([a-z]=\"[a-z\\\\\",}\n]{0,6}\"?,?){0,3}[}]? ?[0-9.eNaIf+-]{0,4}\n?){0,8}"
        ) {
            let _ = lines(&page).count();
        }
    }
}
