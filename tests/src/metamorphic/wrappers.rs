//! What stands around the lines of an engine by the time somebody reads them: a container runtime, the node's journal, a
//! viewer of several streams, a formatter.

use super::Changed;
use super::logs::{Told, each_finely_dated, each_plain};
use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use jiff::ToSpan;
use regex::Regex;
use std::fmt::Write as _;
use toml::Table;

/// A part of a line that the runtime split, in bytes.
const PART: usize = 37;

pub(super) fn cri(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| _ = writeln!(out, "{} stderr F {}", rfc3339(line), line.text))
}

pub(super) fn cri_in_parts(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        let mut parts = parts(line.text).peekable();
        if parts.peek().is_none() {
            _ = writeln!(out, "{} stdout F ", rfc3339(line));
        }
        while let Some(part) = parts.next() {
            let tag = if parts.peek().is_some() { 'P' } else { 'F' };
            _ = writeln!(out, "{} stdout {tag} {part}", rfc3339(line));
        }
    })
}

pub(super) fn docker(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| docker_record(line, &format!("{}\n", line.text), out))
}

pub(super) fn docker_in_parts(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        let mut parts = parts(line.text).peekable();
        if parts.peek().is_none() {
            docker_record(line, "\n", out);
        }
        while let Some(part) = parts.next() {
            let end = if parts.peek().is_some() { "" } else { "\r\n" };
            docker_record(line, &format!("{part}{end}"), out);
        }
    })
}

pub(super) fn journal_iso(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| {
        let clock = line.at.strftime("%Y-%m-%dT%H:%M:%S+0000");
        _ = writeln!(out, "{clock} node-a engine[2281]: {}", line.text);
    })
}

/// Its clock has no year, so that the source has to state one.
pub(super) fn journal_short(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    if bundle.sources().any(|source| !source.contains_key("year")) {
        return None;
    }
    each_plain(bundle, |line, out| {
        let clock = line.local.strftime("%b %e %H:%M:%S");
        _ = writeln!(out, "{clock} node-a engine[2281]: {}", line.text);
    })
}

pub(super) fn journal_export(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        let record = serde_json::json!({
            "__REALTIME_TIMESTAMP": line.at.as_microsecond().to_string(),
            "_HOSTNAME": "node-a",
            "SYSLOG_IDENTIFIER": "engine",
            "_PID": "2281",
            "PRIORITY": "6",
            "MESSAGE": line.text,
        });
        _ = writeln!(out, "{record}");
    })
}

pub(super) fn kubectl(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| _ = writeln!(out, "[pod/engine-0/engine] {}", line.text))
}

pub(super) fn kubectl_dated(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        _ = writeln!(out, "[pod/engine-0/engine] {} {}", rfc3339(line), line.text);
    })
}

pub(super) fn stern(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| {
        _ = writeln!(out, "engine-6c7676b65c-xfqp6 engine {}", line.text);
    })
}

pub(super) fn compose(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| _ = writeln!(out, "engine-1  | {}", line.text))
}

pub(super) fn viewer(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    viewed(bundle, 0)
}

/// Of somebody two hours east of the engines: only lines with both clocks show it.
pub(super) fn viewer_elsewhere(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let begins =
        Regex::new(r"^(?:\([^()]*\) ?)*(?:(?:INFO|WARNING|ERROR|DEBUG) +\d\d-\d\d |\[20\d\d-\d\d-\d\d )")
            .ok()?;
    let logs = bundle.files_of_kind("log");
    let shows_it = |file: &String| {
        let text = bundle.files.get(file).and_then(|bytes| std::str::from_utf8(bytes).ok());
        text.is_some_and(|text| begins.is_match(text))
    };
    if logs.iter().all(shows_it) { viewed(bundle, 2) } else { None }
}

fn viewed(bundle: &Bundle, hours_ahead: i64) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        let shown = line.local.saturating_add(hours_ahead.hours());
        _ = writeln!(out, "{} | {}", shown.strftime("%Y-%m-%d %H:%M:%S%.3f"), line.text);
    })
}

/// The actor is vLLM's, so that engines have to speak; lines that name a process of their own are of another one.
pub(super) fn ray(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let is_engine = |worker: &Table| matches!(text(worker, "engine"), Some("vllm" | "sglang"));
    let are_engines = bundle.workers().all(is_engine);
    let names_process = |text: &[u8]| {
        text.split(|byte| *byte == b'\n').any(|line| line.starts_with(b"(") || line.starts_with(b"\x1b"))
    };
    if !are_engines || bundle.files_of_kind("log").iter().any(|file| names_process(&bundle.files[file])) {
        return None;
    }
    each_plain(bundle, |line, out| {
        _ = writeln!(out, "(RayWorkerWrapper pid=999, ip=192.0.2.7) {}", line.text);
    })
}

pub(super) fn formatter(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_finely_dated(bundle, |line, out| {
        let record = serde_json::json!({ "timestamp": rfc3339(line), "message": line.text });
        _ = writeln!(out, "{record}");
    })
}

pub(super) fn carriage_returns(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| _ = write!(out, "{}\r\n", line.text))
}

fn rfc3339(line: &Told<'_>) -> String {
    line.at.strftime("%Y-%m-%dT%H:%M:%S%.9fZ").to_string()
}

fn docker_record(line: &Told<'_>, log: &str, out: &mut String) {
    let record = serde_json::json!({ "log": log, "stream": "stderr", "time": rfc3339(line) });
    _ = writeln!(out, "{record}");
}

/// A text in parts, cut as a runtime cuts: by bytes, but never within a letter.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, behind) = rest.split_at(rest.ceil_char_boundary(PART.min(rest.len())));
        rest = behind;
        Some(part)
    })
}
