//! Changes of a bundle that must not change its verdict.
//!
//! One file a change. A change gives `None` where a bundle has nothing to change. It is made on text, as a sceptical
//! operator with sed would make it, and knows nothing of how the readers work. Requests are compared under the renaming
//! that the change made.

mod broken;
mod evidence;
mod file_names;
mod logs;
mod nodes;
mod paths;
mod prefixes;
mod requests;
mod source_order;
mod split;
mod times;
mod workers;
mod wrappers;

pub use evidence::{ROUNDS, Weakened, without_evidence};

use crate::bundle::Bundle;
use crate::verdict::{Found, Verdict};
use std::collections::BTreeMap;

/// A changed bundle.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The bundle after the change.
    pub bundle: Bundle,
    /// Request ids before and after, where they differ.
    pub requests: BTreeMap<String, String>,
}

/// A change under which verdicts are equal.
#[derive(Debug, Clone, Copy)]
pub struct Change {
    /// What is changed, for people.
    pub name: &'static str,
    /// Makes the change; the findings say which requests there are.
    pub apply: fn(&Bundle, &[Found]) -> Option<Changed>,
}

/// All changes.
pub const CHANGES: [Change; 11] = [
    Change { name: "workers renamed", apply: workers::rename },
    Change { name: "nodes renamed", apply: nodes::rename },
    Change { name: "requests renamed", apply: requests::rename },
    Change { name: "store paths renamed", apply: paths::rename },
    Change { name: "files renamed", apply: file_names::rename },
    Change { name: "clocks a day and two hours later", apply: times::later },
    Change { name: "clocks three hours earlier", apply: times::earlier },
    Change { name: "sources listed in reverse", apply: source_order::reverse },
    Change { name: "workers listed in reverse", apply: source_order::reverse_workers },
    Change { name: "logs cut into two sources", apply: split::in_halves },
    Change { name: "logs split by process", apply: split::by_process },
];

/// Other grammars of what an engine prints before a message.
pub const PREFIXES: [Change; 23] = [
    Change { name: "the process named twice", apply: prefixes::process_twice },
    Change { name: "no blank behind the process", apply: prefixes::process_without_blank },
    Change { name: "the process not named", apply: prefixes::no_process },
    Change { name: "levels padded", apply: prefixes::padded_level },
    Change { name: "paths elided", apply: prefixes::elided_path },
    Change { name: "no opening bracket before the file", apply: prefixes::no_opening_bracket },
    Change { name: "levels in colour", apply: prefixes::coloured_level },
    Change { name: "records of vLLM's formatter", apply: prefixes::vllm_records },
    Change { name: "tracebacks without prefix", apply: prefixes::bare_tracebacks },
    Change { name: "ranks of SGLang as a tuple", apply: prefixes::sglang_ranks },
    Change { name: "SGLang's first bracket lost", apply: prefixes::sglang_no_bracket },
    Change { name: "LMCache's first bracket lost", apply: prefixes::lmcache_no_bracket },
    Change { name: "LMCache's older form", apply: prefixes::lmcache_old },
    Change { name: "LMCache's trailer on a line of its own", apply: prefixes::lmcache_trailer_below },
    Change { name: "two blanks in glog's prefix", apply: prefixes::glog_two_blanks },
    Change { name: "no blank behind glog's prefix", apply: prefixes::glog_no_blank },
    Change { name: "Rust tracing in colour", apply: prefixes::tracing_coloured },
    Change { name: "colours whose escape byte is lost", apply: prefixes::tracing_colours_without_escape },
    Change { name: "a rank before Rust tracing", apply: prefixes::tracing_ranked },
    Change { name: "access lines behind a process", apply: prefixes::access_behind_process },
    Change { name: "progress bars glued on", apply: prefixes::progress_bars },
    Change { name: "statements of several actors told once", apply: prefixes::repeated },
    Change { name: "carriage returns", apply: wrappers::carriage_returns },
];

/// What stands around the lines of an engine.
pub const WRAPPERS: [Change; 15] = [
    Change { name: "CRI", apply: wrappers::cri },
    Change { name: "CRI in parts", apply: wrappers::cri_in_parts },
    Change { name: "Docker json-file", apply: wrappers::docker },
    Change { name: "Docker json-file in parts", apply: wrappers::docker_in_parts },
    Change { name: "journald short-iso", apply: wrappers::journal_iso },
    Change { name: "journald short", apply: wrappers::journal_short },
    Change { name: "journald JSON", apply: wrappers::journal_export },
    Change { name: "kubectl with prefix", apply: wrappers::kubectl },
    Change { name: "kubectl with prefix and time", apply: wrappers::kubectl_dated },
    Change { name: "stern", apply: wrappers::stern },
    Change { name: "compose", apply: wrappers::compose },
    Change { name: "a viewer's clock", apply: wrappers::viewer },
    Change { name: "a viewer's clock of another zone", apply: wrappers::viewer_elsewhere },
    Change { name: "a Ray actor", apply: wrappers::ray },
    Change { name: "a formatter of JSON", apply: wrappers::formatter },
];

/// What a terminal or a person who pastes makes of a text, whatever stands around its lines.
pub const BREAKS: [Change; 2] = [
    Change { name: "every id broken in two", apply: broken::ids },
    Change { name: "broken by a terminal", apply: broken::terminal },
];

/// One change behind another.
pub fn one_behind_another(
    first: &Change,
    second: &Change,
    bundle: &Bundle,
    found: &[Found],
) -> Option<Changed> {
    let inner = (first.apply)(bundle, found)?;
    let outer = (second.apply)(&inner.bundle, found)?;
    Some(Changed { bundle: outer.bundle, requests: inner.requests })
}

/// What differs between the verdicts on a bundle and on its changed form; empty when nothing does.
pub fn differences(before: &[Found], after: &[Found], changed: &Changed) -> Vec<String> {
    let renamed = |id: &String| changed.requests.get(id).unwrap_or(id).clone();
    let mut expected: Vec<Verdict> = before
        .iter()
        .map(|found| {
            let verdict = found.verdict();
            Verdict { requests: verdict.requests.iter().map(renamed).collect(), ..verdict }
        })
        .collect();
    let mut lines = Vec::new();
    for verdict in after.iter().map(Found::verdict) {
        match expected.iter().position(|other| *other == verdict) {
            Some(index) => drop(expected.swap_remove(index)),
            None => lines.push(format!("new: {}", told(&verdict))),
        }
    }
    lines.extend(expected.iter().map(|verdict| format!("gone: {}", told(verdict))));
    lines.sort();
    lines
}

/// A bundle whose names or places changed, but no request.
fn without_renaming(bundle: Bundle) -> Option<Changed> {
    Some(Changed { bundle, requests: BTreeMap::new() })
}

fn told(verdict: &Verdict) -> String {
    format!(
        "{} {} cause={} count={:?} tokens={:?} requests={:?}",
        verdict.detector,
        verdict.confidence,
        verdict.cause.as_deref().unwrap_or("-"),
        verdict.count,
        verdict.tokens,
        verdict.requests
    )
}

/// Applies an edit of text to every file and to `incident.toml`. Files that are not UTF-8 stay as they are.
fn edit_text(bundle: &Bundle, edit: impl Fn(&str) -> String) -> Option<Bundle> {
    let mut edited = bundle.clone();
    edited.incident = edit(&bundle.incident.to_string()).parse().ok()?;
    for bytes in edited.files.values_mut() {
        if let Ok(text) = std::str::from_utf8(bytes) {
            *bytes = edit(text).into_bytes();
        }
    }
    Some(edited)
}
