//! The grammar of prefixes: what stands before the message of a line, peeled off layer by layer.
//!
//! A line of an engine reaches us behind any number of wrappers (container runtime, `kubectl`, journald, viewers,
//! Ray) and behind the engine's own prefix. [`unwrap`] opens what wraps a *physical* line and may have split a
//! longer one; [`peel`] takes the rest of the prefixes off a *logical* line. One file a family; each family gives
//! what is left, or nothing and changes nothing.
//!
//! Invariant: peeling never fails. What no family knows is message, so an unknown prefix costs level and clock but
//! never the match of the message behind it.
//! Source of the grammars: the releases named in the signature packs and captured logs.

mod container;
mod glog;
mod heads;
mod journal;
mod json;
mod level;
mod lmcache;
mod nixl;
mod noise;
mod process;
mod python;
mod recorded;
mod scan;
mod sglang;
mod stamp;
mod tensorrt;
mod tracing;
mod ucm;
mod viewer;

pub(super) use heads::Heads;
pub(super) use json::may_be_record;
pub use json::{JsonLine, error_of_answer};
pub use level::Level;
pub use noise::without_colours;
pub(super) use recorded::write as write_recorded;
pub use stamp::Stamp;

use std::borrow::Cow;

/// Layers that are peeled off one line at most; more are message.
const MAX_LAYERS: usize = 12;

/// The process that speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process<'a> {
    /// Its name as printed: `EngineCore_DP0`, `Worker_TP1_EP1`, `RayWorkerWrapper`.
    pub name: Cow<'a, str>,
    /// Its process id, where printed.
    pub pid: Option<u32>,
}

/// What stood before (and, for trailers, after) a message. Names are borrowed from the line, so that reading a prefix
/// allocates nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix<'a> {
    /// Clock of the outermost wrapper.
    pub wrapper: Option<Stamp>,
    /// The engine's own clock.
    pub engine: Option<Stamp>,
    /// Severity; the engine's own word stands above a wrapper's.
    pub level: Option<Level>,
    /// The process that speaks; the innermost where two are named.
    pub process: Option<Process<'a>>,
    /// Rank label: `TP0`, `DP6 TP6 EP6`, `3`.
    pub rank: Option<Cow<'a, str>>,
    /// Logger, module or file.
    pub module: Option<Cow<'a, str>>,
    /// Line in the engine's source that spoke.
    pub source_line: Option<u32>,
    /// Pod and container, where several share a stream.
    pub pod: Option<Cow<'a, str>>,
    /// How often the line stands for itself (`[repeated 15x across cluster]`), at least 1.
    pub repeated: u32,
    /// Whether an engine's own prefix was there. Bare lines continue what came before.
    pub spoken: bool,
}

/// A physical line without the wrapper that may have split it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwrapped<'a> {
    /// What the wrapper says.
    pub prefix: Prefix<'a>,
    /// `0` for standard output or unknown, `1` for standard error: parts join within one stream.
    pub stream: u8,
    /// Whether the next physical line of this stream goes on.
    pub partial: bool,
    /// What was wrapped.
    pub payload: Cow<'a, str>,
}

/// A logical line in parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Line<'a> {
    /// What stood before the message.
    pub prefix: Prefix<'a>,
    /// The message; empty for an object that is no log record.
    pub message: Cow<'a, str>,
    /// A JSON object that is data, not the wrapping of a message.
    pub object: Option<serde_json::Map<String, serde_json::Value>>,
}

/// What one family made of a text.
enum Peeled<'a> {
    /// Another prefix may follow.
    More(&'a str),
    /// What follows is message.
    Message(&'a str),
}

// === impl Prefix ===

impl Default for Prefix<'_> {
    fn default() -> Self {
        Self {
            wrapper: None,
            engine: None,
            level: None,
            process: None,
            rank: None,
            module: None,
            source_line: None,
            pod: None,
            repeated: 1,
            spoken: false,
        }
    }
}

impl<'a> Prefix<'a> {
    /// The same with names of its own, to be kept beyond the line.
    pub fn into_owned(self) -> Prefix<'static> {
        let own = |name: Option<Cow<'a, str>>| name.map(|name| Cow::Owned(name.into_owned()));
        Prefix {
            wrapper: self.wrapper,
            engine: self.engine,
            level: self.level,
            process: self
                .process
                .map(|process| Process { name: Cow::Owned(process.name.into_owned()), pid: process.pid }),
            rank: own(self.rank),
            module: own(self.module),
            source_line: self.source_line,
            pod: own(self.pod),
            repeated: self.repeated,
            spoken: self.spoken,
        }
    }

    /// The same statement of the same process: what a logger that repeats its prefix puts before each line of one
    /// message.
    pub fn continues(&self, first: &Prefix<'_>) -> bool {
        self.spoken
            && self.level == first.level
            && self.process == first.process
            && self.rank == first.rank
            && self.module == first.module
            && self.source_line == first.source_line
            && self.engine == first.engine
            && self.pod == first.pod
    }

    /// Whether the engine itself says that nothing is amiss. A wrapper says so of everything on standard output; only the
    /// forms that print their own clock and place are taken at their word.
    pub fn is_low_by_itself(&self) -> bool {
        self.level.is_some_and(|level| level < Level::Warning)
            && self.engine.is_some()
            && self.source_line.is_some()
    }

    /// Whether a line behind a message has no prefix of its own: nothing, or only the process that a wrapper puts before
    /// every line.
    pub fn is_bare_behind(&self, first: &Prefix<'_>) -> bool {
        let names_only_process = self.level.is_none() && self.engine.is_none() && self.module.is_none();
        !self.spoken
            || (names_only_process
                && self.process.is_some()
                && self.process == first.process
                && self.pod == first.pod)
    }

    /// Whether both may be the same process: neither names one, or what both name is equal.
    pub fn may_be_process_of(&self, other: &Prefix<'_>) -> bool {
        let pods = match (&self.pod, &other.pod) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let ranks = match (&self.rank, &other.rank) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let processes = match (&self.process, &other.process) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        pods && ranks && processes
    }

    fn set_place(&mut self, file: Cow<'a, str>, line: u32) {
        self.module = Some(file);
        self.source_line = Some(line);
    }

    fn add_wrapper_stamp(&mut self, stamp: Stamp) {
        self.wrapper.get_or_insert(stamp);
    }
}

/// Opens the wrappers that can split a line: CRI, Docker and journald JSON, behind `kubectl` and the like.
pub fn unwrap(text: &str) -> Unwrapped<'_> {
    container::unwrap(text)
}

/// Takes every prefix and trailer off a logical line; `prefix` is what [`unwrap`] found.
pub fn peel<'a>(text: &'a str, mut prefix: Prefix<'a>) -> Line<'a> {
    if let Some(parsed) = json::open(text.trim_start()) {
        match parsed {
            JsonLine::Record(record) => return of_record(record, prefix),
            JsonLine::Object(object) => {
                return Line { prefix, message: Cow::Borrowed(""), object: Some(object) };
            }
            JsonLine::Wrapper { .. } => {}
        }
    }
    let message = match noise::plain(text) {
        Cow::Borrowed(plain) => Cow::Borrowed(peel_text(plain, &mut prefix)),
        Cow::Owned(plain) => {
            let (peeled, message) = peel_owned(&plain, prefix);
            prefix = peeled;
            Cow::Owned(message)
        }
    };
    of_message(message, prefix)
}

/// What follows the last prefix: a message with its trailers.
fn peel_message<'a>(rest: &'a str, mut prefix: Prefix<'a>) -> Line<'a> {
    let message = without_trailers(rest, &mut prefix);
    of_message(Cow::Borrowed(message), prefix)
}

/// A JSON record may stand behind what was noise or a text wrapper.
fn of_message<'a>(message: Cow<'a, str>, prefix: Prefix<'a>) -> Line<'a> {
    if message.starts_with('{') && message.ends_with('}') {
        match json::open(&message) {
            Some(JsonLine::Record(record)) => return of_record(record, prefix),
            Some(JsonLine::Object(object)) if !prefix.spoken => {
                return Line { prefix, message: Cow::Borrowed(""), object: Some(object) };
            }
            _ => {}
        }
    }
    Line { prefix, message, object: None }
}

/// A logger's record: its own fields, and what stands before its message.
fn of_record<'a>(mut record: json::Record, mut prefix: Prefix<'a>) -> Line<'a> {
    record.fill(&mut prefix);
    let (prefix, message) = peel_owned(&record.message, prefix);
    Line { prefix, message: Cow::Owned(message), object: None }
}

/// Peels a text that does not outlive the line.
fn peel_owned<'a>(text: &str, prefix: Prefix<'a>) -> (Prefix<'a>, String) {
    let mut inner: Prefix<'_> = prefix;
    let message = peel_text(text, &mut inner).to_owned();
    (inner.into_owned(), message)
}

/// Peels text prefixes and trailers.
fn peel_text<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> &'a str {
    let mut rest = text;
    for _ in 0..MAX_LAYERS {
        match layer(rest.trim_start_matches([' ', '\t']), prefix) {
            Some(Peeled::More(inner)) => rest = inner,
            Some(Peeled::Message(message)) => {
                let Some(behind) = noise::behind_progress(message) else {
                    rest = message;
                    break;
                };
                // A line of its own hangs on to one that showed progress.
                let Prefix { wrapper, pod, .. } = std::mem::take(prefix);
                *prefix = Prefix { wrapper, pod, ..Prefix::default() };
                rest = behind;
            }
            None => match noise::behind_progress(rest) {
                Some(behind) => rest = behind,
                None => break,
            },
        }
    }
    without_trailers(rest, prefix)
}

fn without_trailers<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> &'a str {
    let rest = process::repeated_suffix(text, prefix);
    lmcache::trailer(rest, prefix).trim_end()
}

/// Tries every family on the start of a text.
fn layer<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    let first = *text.as_bytes().first()?;
    if let Some(peeled) = recorded::peel(text, prefix) {
        return Some(peeled);
    }
    match first {
        b'(' => process::peel(text, prefix),
        // The first byte of a frame.
        0xe2 => viewer::framed(text),
        b'<' => journal::kernel_level(text, prefix),
        b'[' => container::kubectl(text, prefix)
            .or_else(|| lmcache::peel(text, prefix))
            .or_else(|| ucm::peel(text, prefix))
            .or_else(|| sglang::peel(text, prefix))
            .or_else(|| tensorrt::peel(text, prefix))
            .or_else(|| process::rank_label(text, prefix))
            .or_else(|| process::numbered(text, prefix))
            .or_else(|| python::bracketed_level(text, prefix)),
        b'0'..=b'9' => lmcache::peel(text, prefix)
            .or_else(|| sglang::peel(text, prefix))
            .or_else(|| nixl::peel(text, prefix))
            .or_else(|| container::cri_text(text, prefix))
            .or_else(|| python::dashed(text, prefix))
            .or_else(|| journal::peel(text, prefix))
            .or_else(|| viewer::peel(text, prefix))
            .or_else(|| tracing::peel(text, prefix))
            .or_else(|| viewer::stamped(text, prefix))
            .or_else(|| process::rank_label(text, prefix))
            .or_else(|| viewer::numbered(text, prefix))
            .or_else(|| named(text, prefix)),
        _ => python::vllm(text, prefix)
            .or_else(|| lmcache::peel(text, prefix))
            .or_else(|| glog::peel(text, prefix))
            .or_else(|| python::uvicorn(text, prefix))
            .or_else(|| journal::peel(text, prefix))
            .or_else(|| process::rank_label(text, prefix))
            .or_else(|| named(text, prefix)),
    }
}

/// Names of pods, containers and services before anything that is a prefix of its own.
fn named<'a>(text: &'a str, prefix: &mut Prefix<'a>) -> Option<Peeled<'a>> {
    if prefix.pod.is_some() || prefix.spoken {
        return None;
    }
    viewer::service(text, prefix).or_else(|| container::stern(text, prefix))
}

/// Whether a text begins with a prefix, so that what stands before it is one too. A name is followed by no further
/// name and a rank by no further rank, which bounds how deep this looks.
fn begins_with_prefix(text: &str, behind: Behind) -> bool {
    let rank = (behind == Behind::Rank).then_some(Cow::Borrowed(""));
    let mut probe = Prefix { pod: Some(Cow::Borrowed("")), rank, ..Prefix::default() };
    layer(text, &mut probe).is_some()
        || noise::behind_progress(text).is_some_and(|behind| layer(behind, &mut probe).is_some())
}

/// What stands before a text that may begin with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// The name of a pod or container.
    Name,
    /// A rank label.
    Rank,
}
