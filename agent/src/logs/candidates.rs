//! Which lines may matter, told from raw bytes without parsing, copying or allocating.
//!
//! Two searches run over a chunk: anchors of the templates, and words of severity. A line with such a word matters
//! only if it also names a KV module. Invariant: whether a line is a candidate depends on the line alone, never on
//! where a chunk was cut.
//!
//! Lines of templates without meaning are candidates only where they are asked for: most lines of a healthy engine are
//! such.

use aho_corasick::{AhoCorasick, MatchKind};
use kvprov_packs::{Matcher, Reach};
use memchr::{memchr, memrchr};
use std::sync::LazyLock;

/// Words of severity in capitals as text prints them, in JSON, and the file endings by which glog is known.
const LEVELS: &[&str] = &[
    "WARN",
    "ERROR",
    "CRITICAL",
    "FATAL",
    "\"warn",
    "\"error",
    "\terror\t",
    "\twarn\t",
    ".cpp:",
    ".cc:",
    ".h:",
];
/// The first of [`LEVELS`] that only says that glog may speak.
const FIRST_FILE: usize = 8;

/// Parts of names of loggers, modules and files that handle KV.
const MODULES: &[&str] = &[
    "nixl",
    "mooncake",
    "kv_transfer",
    "kv_connector",
    "lmcache",
    "hicache",
    "disaggregation",
    "kv_cache",
    "offload",
    "kv_router",
    "kv_load",
    "kvcache",
    "kvbm",
    "transfer_engine",
    "master_service",
    "master_client",
    "client_service",
];

/// Engines that do nothing but KV.
const KV_ENGINES: &[&str] = &["mooncake", "lmcache", "nixl"];

/// Built once; the list is constant and small, so that building it cannot fail.
static MODULE_SEARCH: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::builder().ascii_case_insensitive(true).build(MODULES).ok());

/// The searches.
#[derive(Debug, Clone)]
pub(super) struct Candidates<'p> {
    matcher: &'p Matcher,
    /// [`LEVELS`], and behind them anchors too short for the search for anchors.
    levels: Option<AhoCorasick>,
    every_module: bool,
}

/// Progress of the searches over one chunk: the next hit of each, so that neither searches a byte twice.
#[derive(Debug, Default)]
pub(super) struct Progress {
    reach: Reach,
    anchor: Next,
    level: Next,
}

#[derive(Debug, Default, Clone, Copy)]
enum Next {
    #[default]
    Unknown,
    At(usize),
    None,
}

// === impl Candidates ===

impl<'p> Candidates<'p> {
    /// Searches for what `matcher` knows and for troubles of KV modules; of a KV engine every module is one.
    pub(super) fn new(matcher: &'p Matcher, engine: Option<&str>) -> Self {
        let every_module = engine.is_some_and(|engine| KV_ENGINES.contains(&engine));
        let words = LEVELS.iter().copied().chain(matcher.short_anchors());
        // A few dozen short words always build.
        let levels = AhoCorasick::builder().match_kind(MatchKind::LeftmostFirst).build(words).ok();
        Self { matcher, levels, every_module }
    }

    /// Whether one line may matter.
    pub(super) fn may_matter(&self, line: &[u8], reach: Reach) -> bool {
        self.matcher.next_long_candidate(line, 0, reach).is_some() || self.matters_by_word(line)
    }

    /// Whether a name is that of a KV module.
    pub(super) fn is_kv_module(&self, module: &str) -> bool {
        self.every_module || names_kv_module(module)
    }

    /// Whether a line holds a short anchor, or a word of severity and the name of a KV module.
    fn matters_by_word(&self, line: &[u8]) -> bool {
        let Some(levels) = &self.levels else { return false };
        let Some(found) = levels.find(line) else { return false };
        let mut severe = glog_is_severe(line, found.start());
        for found in levels.find_iter(line) {
            match found.pattern().as_usize() {
                word if word >= LEVELS.len() => return true,
                word if word < FIRST_FILE => severe = true,
                _ => {}
            }
        }
        severe && (self.every_module || holds_kv_module(line))
    }

    /// The start of the next line at or after `from` that may matter; `from` must be the start of a line.
    pub(super) fn next_line(
        &self,
        chunk: &[u8],
        from: usize,
        reach: Reach,
        progress: &mut Progress,
    ) -> Option<usize> {
        if progress.reach != reach {
            *progress = Progress { reach, anchor: Next::Unknown, level: progress.level };
        }
        loop {
            let search = || self.matcher.next_long_candidate(chunk, from, reach);
            let anchor = progress.anchor.advance(from, search);
            let level = progress.level.advance(from, || self.next_level(chunk, from));
            let level = match (anchor, level) {
                (None, None) => return None,
                (Some(anchor), level) if level.is_none_or(|level| anchor <= level) => {
                    return Some(line_start(chunk, from, anchor));
                }
                (_, Some(level)) => level,
                (Some(anchor), None) => return Some(line_start(chunk, from, anchor)),
            };
            let start = line_start(chunk, from, level);
            let end = line_end(chunk, level);
            if self.matters_by_word(&chunk[start..end]) {
                return Some(start);
            }
            progress.level = match self.next_level(chunk, end) {
                Some(at) => Next::At(at),
                None => Next::None,
            };
        }
    }

    fn next_level(&self, chunk: &[u8], from: usize) -> Option<usize> {
        self.levels.as_ref()?.find(chunk.get(from..)?).map(|found| from + found.start())
    }
}

/// Whether a name is that of a module which handles KV.
pub(super) fn names_kv_module(name: &str) -> bool {
    holds_kv_module(name.as_bytes())
}

fn holds_kv_module(text: &[u8]) -> bool {
    MODULE_SEARCH.as_ref().is_some_and(|search| search.is_match(text))
}

/// `E0320 11:44:26.698262 …` or `W file.cpp:12]` anywhere before the file.
fn glog_is_severe(line: &[u8], file_at: usize) -> bool {
    let head = &line[..file_at];
    head.iter().enumerate().any(|(at, byte)| {
        matches!(byte, b'E' | b'W' | b'F')
            && (at == 0 || !head[at - 1].is_ascii_alphanumeric())
            && match head.get(at + 1..at + 6) {
                Some(next) if next[..4].iter().all(u8::is_ascii_digit) => true,
                _ => head.get(at + 1) == Some(&b' '),
            }
    })
}

/// The start of the line that holds `at`.
fn line_start(chunk: &[u8], from: usize, at: usize) -> usize {
    memrchr(b'\n', &chunk[from..at]).map_or(from, |end| from + end + 1)
}

/// The end of the line that holds `at`, without its line end.
pub(super) fn line_end(chunk: &[u8], at: usize) -> usize {
    memchr(b'\n', &chunk[at..]).map_or(chunk.len(), |end| at + end)
}

// === impl Next ===

impl Next {
    /// The hit at or after `from`, searched for only when the known one is passed.
    fn advance(&mut self, from: usize, search: impl FnOnce() -> Option<usize>) -> Option<usize> {
        match *self {
            Self::At(at) if at >= from => Some(at),
            Self::None => None,
            _ => {
                let found = search();
                *self = found.map_or(Self::None, Self::At);
                found
            }
        }
    }
}
