//! The log of one worker arrives as two sources: rotated in the middle, or one file for each group of processes.

use super::{Changed, without_renaming};
use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use regex::bytes::Regex;
use toml::{Table, Value};

/// A clock near the start of a line: where it differs from that of the line before, an event has ended.
const STAMP: &str = r"^.{0,60}?(\d\d-\d\d[T ]\d\d:\d\d:\d\d|[IWEF]\d{4} \d\d:\d\d:\d\d)";

/// Lines of the process that speaks to clients.
const FRONT: &str = r"^\(APIServer pid=\d+\)";

pub(super) fn in_halves(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let stamp = Regex::new(STAMP).ok()?;
    each_log(bundle, |bytes| {
        let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
        let clock =
            |line: &[u8]| stamp.captures(line).and_then(|found| Some(found.get(1)?.as_bytes().to_vec()));
        let middle = lines.len() / 2;
        let cut = (1..lines.len())
            .filter(|index| match (clock(lines[index - 1]), clock(lines[*index])) {
                (Some(before), Some(after)) => before != after,
                _ => false,
            })
            .min_by_key(|index| index.abs_diff(middle))?;
        Some((lines[..cut].concat(), lines[cut..].concat()))
    })
}

pub(super) fn by_process(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let front = Regex::new(FRONT).ok()?;
    let stamp = Regex::new(STAMP).ok()?;
    each_log(bundle, |bytes| {
        let (mut of_front, mut of_others) = (Vec::new(), Vec::new());
        let mut in_front = false;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            // A line without a clock stays with the one before, which dates it.
            in_front = if stamp.is_match(line) { front.is_match(line) } else { in_front };
            if in_front { &mut of_front } else { &mut of_others }.extend_from_slice(line);
        }
        (!of_front.is_empty() && !of_others.is_empty()).then_some((of_front, of_others))
    })
}

/// Replaces every log that `split` can split by two sources of the same worker.
fn each_log(bundle: &Bundle, split: impl Fn(&[u8]) -> Option<(Vec<u8>, Vec<u8>)>) -> Option<Changed> {
    let mut changed = bundle.clone();
    let mut sources = Vec::new();
    let mut any = false;
    for source in bundle.sources() {
        let parts = text(source, "file")
            .filter(|_| text(source, "kind") == Some("log"))
            .and_then(|file| Some((file, split(bundle.files.get(file)?)?)));
        let Some((file, (first, second))) = parts else {
            sources.push(Value::Table(source.clone()));
            continue;
        };
        any = true;
        changed.files.remove(file);
        for (part, bytes) in [("1", first), ("2", second)] {
            let name = format!("{file}.{part}");
            let mut table: Table = source.clone();
            table.insert("file".to_owned(), Value::String(name.clone()));
            sources.push(Value::Table(table));
            changed.files.insert(name, bytes);
        }
    }
    changed.incident.insert("source".to_owned(), Value::Array(sources));
    if any { without_renaming(changed) } else { None }
}
