//! Finds the template of a log message, in two stages.
//!
//! 1. Few literal anchors ([`crate::anchor`]) searched in raw bytes ([`crate::scan`]). Most lines hold none and are
//!    rejected without an allocation, before any prefix is parsed.
//! 2. The templates for which an anchor in the message speaks are tried one by one ([`crate::segment`]); the best
//!    match wins: complete before cut, the speaker's version before others, longer text before shorter, the speaker's
//!    engine before others.
//!
//! Invariant: time is bounded by the length of the message, which is cut at [`Matcher::MAX_MESSAGE`]; cuts and spent
//! budgets are counted.

use crate::anchor::{self, Offer};
use crate::fact::KnownSettings;
use crate::json_line::{JsonMatch, JsonSignature};
use crate::load::Packs;
use crate::matched::Match;
use crate::placeholder::{Captured, PlaceholderType};
use crate::scan::Scanner;
use crate::segment::{self, Budget, Found};
use crate::template::{Segment, Template};
use crate::version::Version;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use kvprov_model::content::FleetKey;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps that may be spent on one message, over all its templates.
const BUDGET: usize = 1 << 20;

/// Who printed a message.
#[derive(Debug, Clone, Copy, Default)]
pub struct Speaker<'a> {
    /// The engine, where known.
    pub engine: Option<&'a str>,
    /// Its version, where known.
    pub version: Option<&'a Version>,
}

/// Matches messages. Cheap to share behind a reference; all methods take `&self`.
#[derive(Debug)]
pub struct Matcher {
    anchors: Vec<String>,
    scanner: Scanner,
    automaton: Option<AhoCorasick>,
    templates: Vec<Arc<Template>>,
    /// By anchor: templates for which it speaks.
    speaks_for: Vec<Vec<usize>>,
    json: Vec<Arc<JsonSignature>>,
    settings: Arc<KnownSettings>,
    key: FleetKey,
    shortened: AtomicU64,
    given_up: AtomicU64,
}

impl Matcher {
    /// Longest message that is matched whole, in bytes; a longer one is cut for matching.
    pub const MAX_MESSAGE: usize = 64 * 1024;

    /// A matcher over all templates of the packs.
    pub fn new(packs: &Packs) -> Self {
        Self::of(packs.templates.clone(), packs.json.clone(), Arc::clone(&packs.known_settings))
    }

    /// The same with the fleet's key: digests of printed token ids compare only under one key.
    pub fn with_fleet_key(packs: &Packs, key: FleetKey) -> Self {
        Self { key, ..Self::new(packs) }
    }

    pub(crate) fn of(
        templates: Vec<Arc<Template>>,
        json: Vec<Arc<JsonSignature>>,
        settings: Arc<KnownSettings>,
    ) -> Self {
        let offers: Vec<Offer<'_>> = templates.iter().map(|template| offer_of(template)).collect();
        let (mut anchors, chosen) = anchor::choose(&offers);
        let mut speaks_for = vec![Vec::new(); anchors.len()];
        for (template, anchor) in chosen.iter().enumerate() {
            if let Some(anchor) = anchor {
                speaks_for[*anchor].push(template);
            }
        }
        for signature in &json {
            let anchor = signature.anchor();
            if !anchor.is_empty() && !anchors.contains(&anchor) {
                anchors.push(anchor);
                speaks_for.push(Vec::new());
            }
        }
        // An automaton that cannot be built (no anchors, or too many) would reject every line; validation keeps the
        // number of anchors far below that.
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&anchors)
            .or_else(|_| AhoCorasick::new(&anchors))
            .ok()
            .filter(|_| !anchors.is_empty());
        Self {
            scanner: Scanner::new(&anchors),
            anchors,
            automaton,
            templates,
            speaks_for,
            json,
            settings,
            key: FleetKey::from_secret(b""),
            shortened: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
        }
    }

    /// The literal anchors of the first stage.
    pub fn anchors(&self) -> &[String] {
        &self.anchors
    }

    /// Whether raw bytes (a line with its prefix, or many lines) may hold a message that a template knows. Allocates
    /// nothing.
    pub fn may_matter(&self, bytes: &[u8]) -> bool {
        self.scanner.find(bytes, 0).is_some()
    }

    /// Where the next anchor at or after `from` begins. Allocates nothing.
    pub fn next_candidate(&self, haystack: &[u8], from: usize) -> Option<usize> {
        self.scanner.find(haystack, from)
    }

    /// The template of a message (the text after every prefix). Lines that were joined are separated by `\n`.
    pub fn match_message<'p>(&'p self, message: &str, who: &Speaker<'_>) -> Option<Match<'p>> {
        let message = self.bounded(message);
        let mut budget = Budget { left: BUDGET };
        let mut best: Option<(Rank, Match<'p>)> = None;
        for index in self.candidates(message) {
            let template = self.templates[index].as_ref();
            let Some(found) = segment::find(template, message, &self.key, &mut budget) else { continue };
            let rank = Rank::of(template, &found, who);
            if best.as_ref().is_none_or(|(of_best, _)| rank > *of_best) {
                best = Some((rank, self.match_of(template, found, who)));
            }
        }
        if budget.left == 0 {
            self.given_up.fetch_add(1, Ordering::Relaxed);
        }
        best.map(|(_, matched)| matched)
    }

    /// Whether the message may be the begin of one that runs on over following bare lines: an anchor of a
    /// `multiline` template stands in it.
    pub fn may_continue(&self, message: &str) -> bool {
        self.candidates(self.bounded(message)).into_iter().any(|index| self.templates[index].multiline)
    }

    /// What a line that is a JSON object says. Of several entries that fit, the one with most conditions.
    pub fn match_json<'p>(&'p self, object: &Map<String, Value>) -> Option<JsonMatch<'p>> {
        self.json
            .iter()
            .filter(|signature| signature.fits(object))
            .max_by_key(|signature| signature.conditions())
            .map(|signature| signature.read(object))
    }

    /// Messages that were cut for matching, so far.
    pub fn shortened(&self) -> u64 {
        self.shortened.load(Ordering::Relaxed)
    }

    /// Messages whose matching was given up because it took too long, so far.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whether the message is one template's, whatever others say.
    pub(crate) fn matches_one(&self, template: &Template, message: &str) -> bool {
        let mut budget = Budget { left: BUDGET };
        segment::find(template, message, &self.key, &mut budget).is_some_and(|found| !found.cut)
    }

    fn bounded<'m>(&self, message: &'m str) -> &'m str {
        if message.len() <= Self::MAX_MESSAGE {
            return message;
        }
        self.shortened.fetch_add(1, Ordering::Relaxed);
        let mut end = Self::MAX_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        &message[..end]
    }

    /// Templates for which an anchor in the message speaks.
    fn candidates(&self, message: &str) -> Vec<usize> {
        let Some(automaton) = &self.automaton else { return Vec::new() };
        let mut seen = Vec::new();
        for found in automaton.find_overlapping_iter(message) {
            let anchor = found.pattern().as_usize();
            if !seen.contains(&anchor) {
                seen.push(anchor);
                if seen.len() == self.anchors.len() {
                    break;
                }
            }
        }
        let mut candidates: Vec<usize> =
            seen.into_iter().flat_map(|anchor| self.speaks_for[anchor].iter().copied()).collect();
        // In the order of the packs: of equally good matches the first one wins.
        candidates.sort_unstable();
        candidates
    }

    fn match_of<'p>(&'p self, template: &'p Template, found: Found, who: &Speaker<'_>) -> Match<'p> {
        let mut captured = found.captured;
        for (placeholder, value) in template.placeholders().zip(&mut captured) {
            let Some(Captured::Map(map)) = value else { continue };
            match placeholder.kind {
                PlaceholderType::Settings => map.retain(|key, _| self.settings.knows(key)),
                // What no key of the template names is dropped here, before anybody can print it.
                _ => map.retain(|path, _| template.keys.iter().any(|(key, _)| ends_with_key(path, key))),
            }
        }
        Match { template, cut: found.cut, other_version: !in_range(template, who), captured }
    }
}

/// Whether a dotted path is the key or ends with it.
fn ends_with_key(path: &str, key: &str) -> bool {
    path.strip_suffix(key).is_some_and(|head| head.is_empty() || head.ends_with('.'))
}

/// Whether the speaker's version lies in the template's range; versions compare only within one engine.
fn in_range(template: &Template, who: &Speaker<'_>) -> bool {
    let same_engine = who.engine.is_none_or(|engine| engine == template.engine);
    !same_engine || who.engine.is_none() || template.versions.contains(who.version)
}

/// How good a match is; the greater one wins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    complete: bool,
    in_range: bool,
    literal_len: usize,
    own_engine: bool,
    /// Typed text proves more than free text.
    placeholders: usize,
}

impl Rank {
    fn of(template: &Template, found: &Found, who: &Speaker<'_>) -> Self {
        Self {
            complete: !found.cut,
            in_range: in_range(template, who),
            literal_len: found.literal_len,
            own_engine: who.engine == Some(template.engine.as_str()),
            placeholders: template.placeholders().filter(|one| one.kind != PlaceholderType::Text).count(),
        }
    }
}

pub(crate) fn offer_of(template: &Template) -> Offer<'_> {
    Offer {
        literals: template
            .segments
            .iter()
            .filter_map(|segment| match segment {
                Segment::Literal(literal) => Some(literal.as_str()),
                Segment::Placeholder(_) => None,
            })
            .collect(),
        may_wrap: template.multiline,
    }
}
