//! Lines as they may be kept: a recording is read as the log it was made of, and holds nothing that nobody may keep.
//!
//! Every statement of a log becomes one line, at the same number where that is possible: the parts of its prefix in a
//! form of our own, the time that was found for it, and the message rebuilt from its template. A message that no
//! template knows becomes a hash where it is a trouble, and a filler otherwise; lines in which nothing matters become
//! empty. A rebuilt message is read again before it is kept: what would then say something else is kept as unknown, and
//! counted.
//!
//! Invariant: of a message only the template's own text and values of typed placeholders are kept. Names of modules,
//! processes and pods are kept without anything that such names do not hold.

mod kept;

use super::emit::Statement;
use super::interpret::{Interpreter, Out};
use super::prefix::{Prefix, write_recorded};
use super::trouble;
use kept::Kept;
use kvprov_model::clock::WallTime;
use kvprov_packs::Match;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Lines that are held back, since an earlier one may turn out to begin a message.
const HELD_BACK: u64 = 64;
/// Lines that wait to be taken.
const MAX_WAITING: usize = 1 << 16;
/// Templates of which is counted that they could not be rebuilt.
const MAX_REFUSED: usize = 1000;
/// Stands for a message of which nothing is kept.
const FILLER: &str = "…";

/// Lines on their way into a recording.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    lines: BTreeMap<u64, Vec<String>>,
    /// Lines that were written.
    written: u64,
    refused: BTreeMap<String, u64>,
}

// === impl Recorder ===

impl Recorder {
    /// Records what follows line `line`.
    pub(super) fn behind(line: u64) -> Self {
        Self { written: line, ..Self::default() }
    }

    /// Writes lines up to a little before line `read`, or all.
    pub(super) fn write(&mut self, read: u64, all: bool, out: &mut Vec<u8>) {
        let to = if all { read } else { read.saturating_sub(HELD_BACK) };
        while self.written < to {
            self.written += 1;
            // What is late comes with the next line.
            let mut texts = Vec::new();
            while let Some(first) = self.lines.first_entry().filter(|first| *first.key() <= self.written) {
                texts.extend(first.remove());
            }
            for text in &texts {
                out.extend_from_slice(text.as_bytes());
                out.push(b'\n');
            }
            if texts.is_empty() {
                out.push(b'\n');
            }
        }
        if all {
            for text in std::mem::take(&mut self.lines).into_values().flatten() {
                out.extend_from_slice(text.as_bytes());
                out.push(b'\n');
            }
        }
    }

    pub(super) fn refused(&self) -> Vec<(String, u64)> {
        self.refused.iter().map(|(template, count)| (template.clone(), *count)).collect()
    }

    fn add(&mut self, line: u64, text: String) {
        if self.lines.len() >= MAX_WAITING {
            *self.refused.entry("recorded lines that nobody took".to_owned()).or_default() += 1;
            return;
        }
        self.lines.entry(line).or_default().push(text);
    }

    fn statement(&mut self, statement: &Statement<'_>, message: &str) {
        let mut text = write_recorded(&statement.prefix, statement.wall, trouble::plain_name_of);
        text.push_str(message);
        self.add(statement.place.position, text.trim_end().to_owned());
    }

    /// A message without meaning.
    pub(super) fn ignored(&mut self, statement: &Statement<'_>) {
        let message = match &*statement.message {
            "" => "",
            message if trouble::is_continuation(message) => " …",
            _ => FILLER,
        };
        self.statement(statement, message);
    }

    /// A trouble.
    pub(super) fn unmatched(&mut self, statement: &Statement<'_>) {
        self.statement(statement, &trouble::hashed(&statement.message));
    }

    /// Data.
    pub(super) fn object(&mut self, line: u64, wall: Option<WallTime>, object: Option<Map<String, Value>>) {
        let Some(object) = object else { return };
        let mut text = write_recorded(&Prefix::default(), wall, str::to_owned);
        text.push_str(&Value::Object(object).to_string());
        self.add(line, text);
    }
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    /// Records a statement that was known by its words.
    pub(super) fn record_words(&mut self, statement: &Statement<'_>, out: &mut Out<'_>) {
        if out.record.is_none() {
            return;
        }
        if let Some(found) = self.find(&statement.message) {
            self.record_known(statement, &found, out);
        }
    }

    /// Records a statement that a template knows.
    pub(super) fn record_known(&mut self, statement: &Statement<'_>, found: &Match<'p>, out: &mut Out<'_>) {
        let Some(record) = &mut out.record else { return };
        let wanted = Kept::of(found);
        let pieces = found.pieces();
        // A message that was cut is rebuilt up to where it may have been cut.
        let tries = if found.cut { 0..pieces } else { 0..1 };
        for left_out in tries {
            let whole = found.rebuilt(pieces - left_out);
            // Text behind the message may belong to the match: something stands for it.
            for message in [whole.trim_end().to_owned(), format!("{whole}{FILLER}")] {
                if self.find(&message).is_some_and(|again| Kept::of(&again) == wanted) {
                    record.statement(statement, &message);
                    return;
                }
            }
        }
        if record.refused.len() < MAX_REFUSED || record.refused.contains_key(&found.template.id) {
            *record.refused.entry(found.template.id.clone()).or_default() += 1;
        }
        record.ignored(statement);
    }
}
