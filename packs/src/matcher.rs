//! Finds the template of a log message.

use crate::json_line::JsonMatch;
use crate::load::Packs;
use crate::matched::Match;
use crate::version::Version;
use serde_json::{Map, Value};

/// Who printed a message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speaker<'a> {
    /// The engine, where known.
    pub engine: Option<&'a str>,
    /// Its version, where known.
    pub version: Option<&'a Version>,
}

/// Matches messages in two stages: literal anchors over raw bytes, then the templates that an anchor speaks for.
#[derive(Debug, Clone)]
pub struct Matcher {
    anchors: Vec<String>,
}

impl Matcher {
    /// Longest message that is matched whole, in bytes; a longer one is cut for matching.
    pub const MAX_MESSAGE: usize = 64 * 1024;

    /// A matcher over all templates of the packs.
    pub fn new(_packs: &Packs) -> Self {
        Self { anchors: Vec::new() }
    }
    /// The literal anchors of the first stage.
    pub fn anchors(&self) -> &[String] {
        &self.anchors
    }
    /// Whether raw bytes (a line with its prefix, or many lines) may hold a message that a template knows. Allocates
    /// nothing.
    pub fn may_matter(&self, _bytes: &[u8]) -> bool {
        false
    }
    /// Where the next anchor at or after `from` begins.
    pub fn next_candidate(&self, _haystack: &[u8], _from: usize) -> Option<usize> {
        None
    }
    /// The template of a message (the text after every prefix). Lines that were joined are separated by `\n`.
    pub fn match_message<'p>(&'p self, _message: &str, _who: &Speaker<'_>) -> Option<Match<'p>> {
        None
    }
    /// Whether the message may be the begin of one that runs on over following bare lines.
    pub fn may_continue(&self, _message: &str) -> bool {
        false
    }
    /// What a line that is a JSON object says.
    pub fn match_json<'p>(&'p self, _object: &Map<String, Value>) -> Option<JsonMatch<'p>> {
        None
    }
}
