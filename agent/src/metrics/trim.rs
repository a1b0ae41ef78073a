//! A page as it is kept: only what a pack knows, in one form, read while it comes.
//!
//! Input: pieces of a page, whatever its size. Output: the samples of metrics that packs know and the start of the
//! process, one a line. Invariants: memory is that of what is kept and of one line; a value of a label that no pack names
//! is kept as a hash, so that nobody's text reaches a disk; a page of which a known line is damaged gives nothing, since
//! a counter that is out of sight must not look like one that is new.

use super::exposition::{self, Line, Sample};
use super::meanings::Meanings;
use super::page::{PROCESS_START, TOLD_LABELS};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// Longest line that is read, in bytes; as that of a whole page.
const MAX_LINE: usize = 64 * 1024;
/// Bytes of a page that are kept.
const MAX_KEPT: usize = 8 << 20;

/// Trims one page.
pub struct Trim<'m> {
    meanings: &'m dyn Meanings,
    /// The begin of a line whose end has not come.
    open: Vec<u8>,
    /// The open line is longer than is read.
    overlong: bool,
    kept: String,
    damage: Option<&'static str>,
}

// === impl Trim ===

impl<'m> Trim<'m> {
    /// Before the first piece.
    pub fn new(meanings: &'m dyn Meanings) -> Self {
        Self { meanings, open: Vec::new(), overlong: false, kept: String::new(), damage: None }
    }

    /// Takes the next piece.
    pub fn feed(&mut self, mut piece: &[u8]) {
        while let Some(end) = memchr::memchr(b'\n', piece) {
            let (line, rest) = piece.split_at(end + 1);
            piece = rest;
            if self.open.is_empty() && !self.overlong {
                self.line(line);
                continue;
            }
            self.keep_open(line);
            let whole = std::mem::take(&mut self.open);
            self.line(&whole);
            self.overlong = false;
            self.open = whole;
            self.open.clear();
        }
        self.keep_open(piece);
    }

    /// What is kept of the page.
    ///
    /// # Errors
    /// What was damaged, as a reason to count.
    pub fn finish(mut self) -> Result<String, &'static str> {
        let rest = std::mem::take(&mut self.open);
        self.line(&rest);
        match self.damage {
            Some(damage) => Err(damage),
            None => Ok(self.kept),
        }
    }

    fn keep_open(&mut self, piece: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.open.len());
        self.overlong |= piece.len() > room;
        self.open.extend_from_slice(&piece[..piece.len().min(room)]);
    }

    fn line(&mut self, line: &[u8]) {
        if !self.is_known(line) || self.damage.is_some() {
            return;
        }
        if self.overlong || line.len() > MAX_LINE {
            self.damage = Some("line too long");
            return;
        }
        for read in exposition::lines(&String::from_utf8_lossy(line)) {
            match read {
                Line::Sample(sample) => self.keep(&sample),
                Line::Bad(reason) => self.damage = Some(reason),
                Line::Family(_) => {}
            }
        }
        if self.kept.len() > MAX_KEPT {
            self.damage = Some("too many series");
        }
    }

    /// Whether the line is of a metric that a pack knows.
    fn is_known(&self, line: &[u8]) -> bool {
        let line = line.trim_ascii_start();
        let end = line.iter().position(|byte| *byte == b'{' || byte.is_ascii_whitespace());
        let name = &line[..end.unwrap_or(line.len())];
        match std::str::from_utf8(name) {
            Ok("") => false,
            Ok(name) => !name.starts_with('#') && (name == PROCESS_START || self.meanings.knows(name)),
            Err(_) => false,
        }
    }

    fn keep(&mut self, sample: &Sample<'_>) {
        self.kept.push_str(sample.name);
        for (at, (label, value)) in sample.labels.iter().enumerate() {
            self.kept.push(if at == 0 { '{' } else { ',' });
            let is_told = TOLD_LABELS.contains(label) || self.meanings.names_label(sample.name, label);
            let is_number = value.len() <= 20 && value.bytes().all(|byte| byte.is_ascii_digit());
            self.kept.push_str(label);
            self.kept.push_str("=\"");
            if is_told || is_number {
                quote(value, &mut self.kept);
            } else {
                self.kept.push('#');
                for byte in &Sha256::digest(value.as_bytes())[..8] {
                    // Writing to a text does not fail.
                    let _ = write!(self.kept, "{byte:02x}");
                }
            }
            self.kept.push('"');
        }
        let end = if sample.labels.is_empty() { "" } else { "}" };
        // The shortest text that reads as this very number.
        let _ = writeln!(self.kept, "{end} {}", sample.value);
    }
}

fn quote(value: &str, out: &mut String) {
    for c in value.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use kvprov_packs::{MetricType, Version};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    struct Lab;

    impl Meanings for Lab {
        fn meaning(&self, name: &str, _: &[(&str, &str)], _: Option<&Version>) -> Option<(&str, MetricType)> {
            (name == "hits_total").then_some(("prefix.hits", MetricType::Counter))
        }

        fn facts(&self, _: &str, _: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
            None
        }

        fn knows(&self, name: &str) -> bool {
            name == "hits_total"
        }

        fn names_label(&self, _: &str, label: &str) -> bool {
            label == "source"
        }
    }

    fn trimmed(page: &str, piece: usize) -> Result<String, &'static str> {
        let mut trim = Trim::new(&Lab);
        page.as_bytes().chunks(piece).for_each(|piece| trim.feed(piece));
        trim.finish()
    }

    #[test]
    fn what_no_pack_knows_is_left_out() {
        let page = "# TYPE hits_total counter\nhits_total 5\nother_total 7\nprocess_start_time_seconds 1.5\n";
        assert_eq!(trimmed(page, 7).unwrap(), "hits_total 5\nprocess_start_time_seconds 1.5\n");
    }

    #[test]
    fn a_label_that_no_pack_names_is_kept_as_a_hash() {
        let page = "hits_total{source=\"a\\\"b\",who=\"somebody's words\",rank=\"12\",model_name=\"m\"} 5\n";
        let kept = trimmed(page, 1000).unwrap();
        assert!(!kept.contains("words"), "{kept}");
        assert!(kept.starts_with("hits_total{source=\"a\\\"b\",who=\"#"), "{kept}");
        assert!(kept.ends_with(",rank=\"12\",model_name=\"m\"} 5\n"), "{kept}");
    }

    #[test]
    fn a_damaged_line_of_a_known_metric_spoils_the_page_and_another_does_not() {
        assert!(trimmed("hits_total{a=\"1\" 5\n", 9).is_err());
        assert!(trimmed("hits_total 5\nhits_total 20", 9).is_err(), "cut in its last line");
        assert!(trimmed(&format!("hits_total{{a=\"{}\"}} 5\n", "x".repeat(70_000)), 999).is_err());
        assert_eq!(trimmed("other{ 5\nhits_total 5\n<html>\n", 9).unwrap(), "hits_total 5\n");
        assert_eq!(
            trimmed(&format!("{}\nhits_total 5\n", "x".repeat(200_000)), 999).unwrap(),
            "hits_total 5\n"
        );
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(page in "((hits_total|x)[{]?(a=\"[a-z\\\\]{0,3}\")?[}]? ?[0-9.]{0,4}\n?){0,6}", piece in 1usize..9) {
            prop_assert_eq!(trimmed(&page, piece), trimmed(&page, 1000));
        }

        #[test]
        fn a_number_survives(value in any::<f64>()) {
            let kept = trimmed(&format!("hits_total {value}\n"), 1000).unwrap();
            let read: f64 = kept.trim_end().rsplit(' ').next().unwrap().parse().unwrap();
            prop_assert!(read.to_bits() == value.to_bits() || read.is_nan() && value.is_nan());
        }
    }
}
