//! Other grammars of the prefix that an engine itself prints before a message: of other releases, executors and terminals.

use super::Changed;
use super::logs::{each_finely_dated, each_plain, each_text};
use crate::bundle::Bundle;
use crate::verdict::Found;
use regex::{Captures, Regex};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// `(EngineCore_DP0 pid=271)` at the begin of a line.
const PROCESS: &str = r"(?m)^(\([A-Za-z_][\w:]*[^()\n]*pid=\d+[^()\n]*\)) ?";

/// vLLM's own prefix, with its process or without.
const VLLM: &str = r"(?m)^(?:\((?P<process>\w+) pid=(?P<pid>\d+)\) )?(?P<level>DEBUG|INFO|WARNING|ERROR) +(?P<clock>\d\d-\d\d \d\d:\d\d:\d\d) \[(?P<file>[\w./]+\.py):(?P<line>\d+)\] ?(?P<message>.*)$";

/// Rust tracing: clock, level, module.
const TRACING: &str = r"(?m)^(20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z) +(ERROR|WARN|INFO|DEBUG) ([\w:]+): ";

pub(super) fn process_twice(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, PROCESS, "${1} ${1} ")
}

pub(super) fn process_without_blank(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, PROCESS, "${1}")
}

/// Where one process speaks, its name says nothing.
pub(super) fn no_process(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let process = Regex::new(PROCESS).ok()?;
    each_text(bundle, |text| {
        let names: BTreeSet<&str> = process.find_iter(text).map(|found| found.as_str()).collect();
        (names.len() == 1).then(|| process.replace_all(text, "").into_owned())
    })
}

pub(super) fn padded_level(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^((?:\([^()\n]*\) )?(?:INFO|ERROR)) (\d\d-\d\d )", "${1}    ${2}")
}

pub(super) fn elided_path(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(\d\d:\d\d:\d\d \[)([\w]+\.py:\d+\])", "${1}distributed/.../v1/${2}")
}

pub(super) fn no_opening_bracket(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(\d\d:\d\d:\d\d )\[([\w]+\.py:\d+\])", "${1}${2}")
}

pub(super) fn coloured_level(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(
        bundle,
        r"(?m)^((?:\([^()\n]*\) )?)(INFO|WARNING|ERROR) (\d\d-\d\d [\d:]{8})",
        "\u{1b}[0;36m${1}\u{1b}[0;0m\u{1b}[33m${2}\u{1b}[0m \u{1b}[90m${3}\u{1b}[0m",
    )
}

/// The formatter of records that vLLM has since 0.32.
pub(super) fn vllm_records(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let vllm = Regex::new(VLLM).ok()?;
    each_finely_dated(bundle, |line, out| {
        let Some(found) = vllm.captures(line.text) else {
            _ = writeln!(out, "{}", line.text);
            return;
        };
        let part = |name: &str| found.name(name).map_or("", |part| part.as_str());
        let module = format!("vllm.{}", part("file").trim_end_matches(".py").replace('/', "."));
        let record = serde_json::json!({
            "asctime": line.local.strftime("%Y-%m-%d %H:%M:%S,057").to_string(),
            "levelname": part("level"),
            "name": module,
            "processName": if part("process").is_empty() { "MainProcess" } else { part("process") },
            "process": part("pid").parse::<u32>().unwrap_or(4711),
            "message": part("message"),
        });
        _ = writeln!(out, "{record}");
    })
}

/// The lines of a traceback behind the first without the prefix that the logger repeats.
pub(super) fn bare_tracebacks(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    let vllm = Regex::new(VLLM).ok()?;
    each_plain(bundle, |line, out| {
        let message = vllm.captures(line.text).and_then(|found| Some(found.name("message")?.as_str()));
        let goes_on = |text: &&str| text.starts_with("  ") || text.starts_with("Traceback (most recent");
        _ = writeln!(out, "{}", message.filter(goes_on).unwrap_or(line.text));
    })
}

pub(super) fn sglang_ranks(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^(\[20\d\d-\d\d-\d\d [\d:]{8}) TP(\d+)\]", "${1} DP${2} TP${2} EP${2}]")
}

pub(super) fn sglang_no_bracket(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^\[(20\d\d-\d\d-\d\d [\d:]{8}(?: [A-Z]+\d+)*\])", "${1}")
}

pub(super) fn lmcache_no_bracket(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"\[(20\d\d-\d\d-\d\d [\d:]{8},\d+\] LMCache )", "${1}")
}

/// `LEVEL LMCache: msg [date] -- /path/file.py:409`, as before 0.3.
pub(super) fn lmcache_old(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(
        bundle,
        r"(?m)\[(20\d\d-\d\d-\d\d [\d:]{8},\d+)\] LMCache (\w+): (.*) \((\w+\.py):(\d+):[\w.]+\)$",
        "${2} LMCache: ${3} [${1}] -- /workspace/LMCache/lmcache/${4}:${5}",
    )
}

pub(super) fn lmcache_trailer_below(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^(.*\] LMCache .*) (\(\w+\.py:\d+:[\w.]+\))$", "${1}\n${2}")
}

pub(super) fn glog_two_blanks(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^([IWEF]\d{4} [\d:.]+) +(\d+) ([\w.]+:\d+\])", "${1}  ${2}  ${3}")
}

pub(super) fn glog_no_blank(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^([IWEF]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\]) ", "${1}")
}

pub(super) fn tracing_coloured(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    tracing(bundle, "\u{1b}")
}

pub(super) fn tracing_colours_without_escape(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    tracing(bundle, "")
}

pub(super) fn tracing_ranked(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, &format!("{TRACING}()"), "0: ${1}  ${2} ${3}: ")
}

pub(super) fn access_behind_process(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    replaced(bundle, r"(?m)^(INFO:     \d)", "(APIServer pid=1) ${1}")
}

/// A progress bar writes no line end: the next line hangs on to it.
pub(super) fn progress_bars(bundle: &Bundle, _: &[Found]) -> Option<Changed> {
    each_plain(bundle, |line, out| {
        let bar = if line.index % 3 == 0 && line.text.contains(":") && !line.text.starts_with([' ', '\t']) {
            "\rLoading shards:  45%|████▌     | 9/20 [00:01<00:02,  5.10it/s]"
        } else {
            ""
        };
        _ = writeln!(out, "{bar}{}", line.text);
    })
}

/// Ray tells once what several actors said; the count of requests is that of the ids.
pub(super) fn repeated(bundle: &Bundle, found: &[Found]) -> Option<Changed> {
    let ids: BTreeSet<&str> = found.iter().flat_map(|found| &found.requests).map(String::as_str).collect();
    each_plain(bundle, |line, out| {
        let names_one = ids.iter().any(|id| line.text.contains(*id));
        let closed = !line.text.ends_with([',', '-', '…']);
        let suffix = if names_one && closed { " [repeated 4x across cluster]" } else { "" };
        _ = writeln!(out, "{}{suffix}", line.text);
    })
}

fn tracing(bundle: &Bundle, escape: &str) -> Option<Changed> {
    let tracing = Regex::new(TRACING).ok()?;
    each_text(bundle, |text| {
        let coloured = tracing.replace_all(text, |found: &Captures<'_>| {
            let (clock, level, module) = (&found[1], &found[2], &found[3]);
            format!(
                "{escape}[2m{clock}{escape}[0m {escape}[33m{level:>5}{escape}[0m {escape}[2m{module}{escape}[0m{escape}[2m:{escape}[0m "
            )
        });
        Some(coloured.into_owned())
    })
}

fn replaced(bundle: &Bundle, pattern: &str, with: &str) -> Option<Changed> {
    let pattern = Regex::new(pattern).ok()?;
    each_text(bundle, |text| Some(pattern.replace_all(text, with).into_owned()))
}
