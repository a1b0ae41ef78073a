//! Heads of lines that came before. An engine prints many lines within one second from one place of its source, with the
//! same process, level, clock and place before each: such a head is read once and known by its bytes from then on.
//!
//! Invariant: what is read by a known head is what [`super::peel`] reads. Only the form of vLLM with its place is
//! remembered, behind a process or alone: its head ends in `] `, and nothing behind that says how the head is read.

use super::{Level, Line, Peeled, Prefix, Process, Stamp, noise, peel, peel_message, process, python};
use std::borrow::Cow;
use std::ops::Range;

/// Heads that are known at once: a few processes speak in turn.
const KNOWN: usize = 4;
/// What a head of the form ends in.
const END: &str = "] ";

/// Heads that came last.
#[derive(Debug, Default)]
pub(in crate::logs) struct Heads {
    known: [Head; KNOWN],
    /// The one that gives room to the next.
    oldest: usize,
    /// Whether the text that was read last is a head that is known now and its message, and nothing else.
    exact: bool,
}

/// A line that begins with a known head, as bytes.
#[derive(Debug)]
pub(in crate::logs) struct Known<'l> {
    /// Severity of the head.
    pub(in crate::logs) level: Option<Level>,
    /// The engine's clock in the head.
    pub(in crate::logs) engine: Option<Stamp>,
    /// What stands behind the head.
    pub(in crate::logs) behind: &'l [u8],
}

/// One head: its text, and what stands where in it.
#[derive(Debug, Default)]
struct Head {
    /// Empty where none is known.
    text: String,
    level: Option<Level>,
    engine: Option<Stamp>,
    process: Option<(Range<usize>, Option<u32>)>,
    rank: Option<Range<usize>>,
    module: Option<Range<usize>>,
    source_line: Option<u32>,
}

// === impl Heads ===

impl Heads {
    /// The same as [`super::peel`].
    pub(in crate::logs) fn peel<'a>(&mut self, text: &'a str, prefix: Prefix<'a>) -> Line<'a> {
        self.exact = false;
        let is_wrapped = prefix.wrapper.is_some() || prefix.level.is_some() || prefix.pod.is_some();
        if is_wrapped || !text.starts_with(|first: char| first == '(' || first.is_ascii_uppercase()) {
            return peel(text, prefix);
        }
        let Some((prefix_of_head, message)) = self.read(text).filter(|_| is_plain(text)) else {
            return peel(text, prefix);
        };
        let line = peel_message(message, prefix_of_head);
        self.exact = line.message == message;
        line
    }

    /// Whether what was read last is a known head, its message as it was found, and nothing else.
    pub(in crate::logs) fn was_exact(&self) -> bool {
        self.exact
    }

    /// A line by its bytes, if it begins with a known head.
    pub(in crate::logs) fn known<'l>(&self, line: &'l [u8]) -> Option<Known<'l>> {
        let mut heads = self.known.iter().filter(|head| !head.text.is_empty());
        heads.find_map(|head| {
            let behind = line.strip_prefix(head.text.as_bytes())?;
            Some(Known { level: head.level, engine: head.engine, behind })
        })
    }

    /// The head of a text and what follows it, if the text has a head of the form.
    fn read<'a>(&mut self, text: &'a str) -> Option<(Prefix<'a>, &'a str)> {
        let known = self.known.iter().find(|head| !head.text.is_empty() && text.starts_with(&head.text));
        if let Some(head) = known {
            return Some((head.prefix_of(text), &text[head.text.len()..]));
        }
        let (prefix, head, message) = vllm(text)?;
        self.known[self.oldest].become_that_of(head, &prefix);
        self.oldest = (self.oldest + 1) % KNOWN;
        Some((prefix, message))
    }
}

/// Whether neither colours nor progress stand in a text.
fn is_plain(text: &str) -> bool {
    matches!(noise::plain(text), Cow::Borrowed(plain) if plain.len() == text.len())
        && noise::behind_progress(text).is_none()
}

/// Reads the form, as the layers of [`super::peel`] would: the prefix, its text and what follows.
fn vllm(text: &str) -> Option<(Prefix<'_>, &str, &str)> {
    let mut prefix = Prefix::default();
    let rest = match text.starts_with('(').then(|| process::peel(text, &mut prefix)) {
        Some(Some(Peeled::More(rest))) => rest.trim_start_matches([' ', '\t']),
        None => text,
        Some(_) => return None,
    };
    let Some(Peeled::Message(message)) = python::vllm(rest, &mut prefix) else { return None };
    // An older form has more behind its message.
    let head = text.strip_suffix(message)?;
    let is_of_form = prefix.engine.is_some() && prefix.source_line.is_some() && head.ends_with(END);
    is_of_form.then_some((prefix, head, message))
}

// === impl Head ===

impl Head {
    fn become_that_of(&mut self, text: &str, prefix: &Prefix<'_>) {
        let place = |name: &Cow<'_, str>| place_in(text, name);
        self.text.clear();
        self.text.push_str(text);
        self.level = prefix.level;
        self.engine = prefix.engine;
        self.process = prefix.process.as_ref().map(|process| (place(&process.name), process.pid));
        self.rank = prefix.rank.as_ref().map(place);
        self.module = prefix.module.as_ref().map(place);
        self.source_line = prefix.source_line;
    }

    /// The prefix of a text that begins with this head.
    fn prefix_of<'a>(&self, text: &'a str) -> Prefix<'a> {
        let name = |place: &Range<usize>| Cow::Borrowed(text.get(place.clone()).unwrap_or_default());
        Prefix {
            level: self.level,
            engine: self.engine,
            process: self.process.as_ref().map(|(place, pid)| Process { name: name(place), pid: *pid }),
            rank: self.rank.as_ref().map(name),
            module: self.module.as_ref().map(name),
            source_line: self.source_line,
            spoken: true,
            ..Prefix::default()
        }
    }
}

/// Where a name that was read off a text stands in it: the form borrows all of its names.
fn place_in(text: &str, name: &str) -> Range<usize> {
    let begin = name.as_ptr().addr().saturating_sub(text.as_ptr().addr());
    begin..begin + name.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_a_known_head_a_line_reads_as_by_the_layers() {
        let mut heads = Heads::default();
        let lines = [
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] r-1 is waiting",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] r-2 is waiting",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] ",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] {\"a\": 1}",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] 42% |##| 4/9 1it/s] x",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] \u{1b}[2mx\u{1b}[0m",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] x (f.py:7:a.b)",
            "(EngineCore_DP0 pid=271) DEBUG 11-29 15:41:07 [v1/core/sched/scheduler.py:12] y",
            "(W rank=4 pid=2) (W rank=4 pid=2) INFO 2026-11-29 15:41:07 [a.py:1] x [repeated 9x across cluster]",
            "(W rank=4 pid=2) INFO 2026-11-29 15:41:07 [a.py:1] x [repeated 9x across cluster]",
            "(W rank=4 pid=2) INFO 2026-11-29 15:41:07 [a.py:1] INFO 2026-11-29 15:41:07 [a.py:1] x",
            "INFO 11-29 15:41:07 a.py:1] x",
            "INFO 11-29 15:41:07 a.py:1]  x",
            "INFO 11-29 15:41:07 a.py:1]x",
            "INFO 11-29 15:41:07 x",
            "INFO LMCache: \u{e9}\u{e9} stored [2026-11-29 15:41:07,123] -- /\u{e9}/a.py:409",
            "INFO:     127.0.0.1:80 - \"GET /health HTTP/1.1\" 200 OK",
            "[2026-11-29 15:41:07 TP0] x",
        ];
        for line in lines.iter().chain(lines.iter().rev()) {
            assert_eq!(heads.peel(line, Prefix::default()), peel(line, Prefix::default()), "{line}");
        }
        let named = Prefix { pod: Some(Cow::Borrowed("a-0")), ..Prefix::default() };
        assert_eq!(heads.peel(lines[0], named.clone()), peel(lines[0], named));
    }
}
