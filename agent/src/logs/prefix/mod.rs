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
mod journal;
mod json;
mod level;
mod lmcache;
mod nixl;
mod noise;
mod process;
mod python;
mod scan;
mod sglang;
mod stamp;
mod tracing;
mod viewer;

pub use json::{JsonLine, error_of_answer};
pub use level::Level;
pub use noise::without_colours;
pub use stamp::Stamp;

use std::borrow::Cow;

/// Layers that are peeled off one line at most; more are message.
const MAX_LAYERS: usize = 12;

/// The process that speaks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its name as printed: `EngineCore_DP0`, `Worker_TP1_EP1`, `RayWorkerWrapper`.
    pub name: String,
    /// Its process id, where printed.
    pub pid: Option<u32>,
}

/// What stood before (and, for trailers, after) a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    /// Clock of the outermost wrapper.
    pub wrapper: Option<Stamp>,
    /// The engine's own clock.
    pub engine: Option<Stamp>,
    /// Severity; the engine's own word stands above a wrapper's.
    pub level: Option<Level>,
    /// The process that speaks; the innermost where two are named.
    pub process: Option<Process>,
    /// Rank label: `TP0`, `DP6 TP6 EP6`, `3`.
    pub rank: Option<String>,
    /// Logger, module or file.
    pub module: Option<String>,
    /// Line in the engine's source that spoke.
    pub source_line: Option<u32>,
    /// Pod and container, where several share a stream.
    pub pod: Option<String>,
    /// How often the line stands for itself (`[repeated 15x across cluster]`), at least 1.
    pub repeated: u32,
    /// Whether an engine's own prefix was there. Bare lines continue what came before.
    pub spoken: bool,
}

/// A physical line without the wrapper that may have split it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unwrapped<'a> {
    /// What the wrapper says.
    pub prefix: Prefix,
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
    pub prefix: Prefix,
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

impl Default for Prefix {
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

impl Prefix {
    /// The same statement of the same process: what a logger that repeats its prefix puts before each line of one
    /// message.
    pub fn continues(&self, first: &Self) -> bool {
        self.spoken
            && self.level == first.level
            && self.process == first.process
            && self.rank == first.rank
            && self.module == first.module
            && self.source_line == first.source_line
            && self.engine == first.engine
            && self.pod == first.pod
    }

    /// Whether both may be the same process: neither names one, or what both name is equal.
    pub fn may_be_process_of(&self, other: &Self) -> bool {
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

    fn set_place(&mut self, file: &str, line: u32) {
        self.module = Some(file.to_owned());
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
pub fn peel<'a>(text: &'a str, mut prefix: Prefix) -> Line<'a> {
    if let Some(parsed) = json::open(text.trim_start()) {
        match parsed {
            JsonLine::Record(record) => {
                record.fill(&mut prefix);
                let message = peel_text(&record.message, &mut prefix).to_owned();
                return Line { prefix, message: Cow::Owned(message), object: None };
            }
            JsonLine::Object(object) => {
                return Line { prefix, message: Cow::Borrowed(""), object: Some(object) };
            }
            JsonLine::Wrapper { .. } => {}
        }
    }
    let message = match noise::plain(text) {
        Cow::Borrowed(plain) => Cow::Borrowed(peel_text(plain, &mut prefix)),
        Cow::Owned(plain) => {
            // A JSON record may stand behind what was noise or a text wrapper.
            Cow::Owned(peel_text(&plain, &mut prefix).to_owned())
        }
    };
    if message.starts_with('{') && message.ends_with('}') {
        match json::open(&message) {
            Some(JsonLine::Record(record)) => {
                record.fill(&mut prefix);
                let inner = peel_text(&record.message, &mut prefix).to_owned();
                return Line { prefix, message: Cow::Owned(inner), object: None };
            }
            Some(JsonLine::Object(object)) if !prefix.spoken => {
                return Line { prefix, message: Cow::Borrowed(""), object: Some(object) };
            }
            _ => {}
        }
    }
    Line { prefix, message, object: None }
}

/// Peels text prefixes and trailers.
fn peel_text<'a>(text: &'a str, prefix: &mut Prefix) -> &'a str {
    let mut rest = text;
    for _ in 0..MAX_LAYERS {
        match layer(rest.trim_start_matches([' ', '\t']), prefix) {
            Some(Peeled::More(inner)) => rest = inner,
            Some(Peeled::Message(message)) => {
                rest = message;
                break;
            }
            None => break,
        }
    }
    let rest = process::repeated_suffix(rest, prefix);
    lmcache::trailer(rest, prefix).trim_end()
}

/// Tries every family on the start of a text.
fn layer<'a>(text: &'a str, prefix: &mut Prefix) -> Option<Peeled<'a>> {
    let first = *text.as_bytes().first()?;
    match first {
        b'(' => process::peel(text, prefix),
        b'<' => journal::kernel_level(text, prefix),
        b'[' => container::kubectl(text, prefix)
            .or_else(|| lmcache::peel(text, prefix))
            .or_else(|| sglang::peel(text, prefix))
            .or_else(|| process::rank_label(text, prefix))
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
fn named<'a>(text: &'a str, prefix: &mut Prefix) -> Option<Peeled<'a>> {
    if prefix.pod.is_some() || prefix.spoken {
        return None;
    }
    viewer::service(text, prefix).or_else(|| container::stern(text, prefix))
}

/// Whether a text begins with a prefix, so that what stands before it is one too. A name is followed by no further
/// name and a rank by no further rank, which bounds how deep this looks.
fn begins_with_prefix(text: &str, behind: Behind) -> bool {
    let rank = (behind == Behind::Rank).then(String::new);
    let mut probe = Prefix { pod: Some(String::new()), rank, ..Prefix::default() };
    layer(text, &mut probe).is_some()
}

/// What stands before a text that may begin with a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behind {
    /// The name of a pod or container.
    Name,
    /// A rank label.
    Rank,
}
