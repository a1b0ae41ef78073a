//! Finds the template of a log message, in two stages.
//!
//! 1. Few literal anchors ([`crate::anchor`]) searched in raw bytes ([`crate::scan`]). Most lines hold none and are
//!    rejected without an allocation, before any prefix is parsed.
//! 2. The templates for which an anchor in the message speaks are tried one by one ([`crate::segment`]), but those that
//!    could not be better than the best so far; the best match wins: complete before cut, longer text before shorter,
//!    the speaker's version before others, the speaker's engine before others. Text that stands in the line proves more
//!    than a version that was told of the speaker: builds between releases print either's words. Nothing of the message
//!    is copied before the winner is read ([`Sight::read`]).
//!
//! Invariant: time is bounded by the length of the message, which is cut at [`Matcher::MAX_MESSAGE`]; cuts and spent
//! budgets are counted.

use crate::anchor::{self, Offer};
use crate::fact::{KnownSettings, ends_as_path};
use crate::json_line::{JsonMatch, JsonSignature};
use crate::load::Packs;
use crate::matched::Match;
use crate::placeholder::PlaceholderType;
use crate::scan::{self, Scanner};
use crate::segment::{self, Begin, Budget, Found, Span, Spans};
use crate::template::{Segment, Template};
use crate::version::Version;
use kvprov_model::content::FleetKey;
use serde_json::{Map, Value};
use std::cmp::{Ordering, Reverse};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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

/// How far the first stage reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Reach {
    /// To lines that may say something.
    #[default]
    Telling,
    /// To every line that a template knows, those without meaning too.
    Every,
}

/// Matches messages. Cheap to share behind a reference; all methods take `&self`.
#[derive(Debug)]
pub struct Matcher {
    /// How messages begin that hold a user's text.
    user_text: Vec<Opening>,
    anchors: Vec<String>,
    scanner: Scanner,
    /// The same for the anchors that speak for a line which says something.
    telling: Scanner,
    /// By anchor: whether it speaks for such a line.
    tells: Vec<bool>,
    templates: Vec<Entry>,
    /// By anchor: templates for which it speaks, the longest text first.
    speaks_for: Vec<Vec<usize>>,
    /// By anchor: whether a template for which it speaks may run on over several lines.
    runs_on: Vec<bool>,
    json: Vec<Arc<JsonSignature>>,
    settings: Arc<KnownSettings>,
    key: FleetKey,
    shortened: AtomicU64,
    given_up: AtomicU64,
}

/// A template with what was made of it once.
#[derive(Debug)]
struct Entry {
    template: Arc<Template>,
    begin: Begin,
    /// Placeholders that hold typed text.
    typed: usize,
}

/// Room for matching, reused from message to message so that looking for a template allocates nothing.
#[derive(Debug, Default)]
pub struct Room {
    /// Anchors that stand in the message.
    anchors: Vec<usize>,
    spans: Spans,
    /// Of the best match so far.
    best: Vec<Span>,
}

/// A message whose template is known, not yet read.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'p, 'm> {
    /// The template.
    pub template: &'p Template,
    /// The message ended before the template's text did.
    pub cut: bool,
    /// Bytes of the template's words that the message holds.
    pub literal_len: usize,
    other_version: bool,
    matcher: &'p Matcher,
    message: &'m str,
    spans: &'m [Span],
}

impl<'p> Sight<'p, '_> {
    /// Reads what the placeholders keep.
    pub fn read(&self) -> Match<'p> {
        // What nobody reads is dropped before anything of it is copied, and before anybody can print it.
        let wanted = |kind: PlaceholderType, path: &str| match kind {
            PlaceholderType::Settings => self.matcher.settings.knows(path),
            _ => self.template.keys.iter().any(|(key, _)| ends_with_key(path, key)),
        };
        let captured =
            segment::capture(self.template, self.message, self.spans, self.cut, &self.matcher.key, &wanted);
        Match { template: self.template, cut: self.cut, other_version: self.other_version, captured }
    }
}

/// The first two literals of a text: what stands before and behind its first placeholder.
#[derive(Debug, Clone)]
struct Opening {
    before: String,
    behind: String,
}

/// An id stands between the two, so that the second cannot be far.
const OPENING: usize = 320;

impl Opening {
    fn of(text: &str) -> Self {
        let mut literals = text.split('{').map(|part| part.rsplit('}').next().unwrap_or_default());
        let mut next = || literals.next().unwrap_or_default().to_owned();
        Self { before: next(), behind: next() }
    }

    fn begins(&self, message: &str) -> bool {
        message
            .strip_prefix(self.before.as_str())
            .is_some_and(|rest| rest.find(self.behind.as_str()).is_some_and(|at| at <= OPENING))
    }
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
        let says_something =
            |of_anchor: &Vec<usize>| of_anchor.iter().any(|index| !templates[*index].is_silent());
        let mut tells: Vec<bool> = speaks_for.iter().map(says_something).collect();
        for anchor in json.iter().map(|signature| signature.anchor()).filter(|anchor| !anchor.is_empty()) {
            match anchors.iter().position(|known| *known == anchor) {
                Some(known) => tells[known] = true,
                None => {
                    anchors.push(anchor);
                    speaks_for.push(Vec::new());
                    tells.push(true);
                }
            }
        }
        for of_anchor in &mut speaks_for {
            of_anchor.sort_by_key(|index| Reverse(templates[*index].literal_len));
        }
        let runs_on = |of_anchor: &Vec<usize>| of_anchor.iter().any(|index| templates[*index].multiline);
        let runs_on = speaks_for.iter().map(runs_on).collect();
        let entry = |template: Arc<Template>| Entry {
            begin: Begin::of(&template),
            typed: template.placeholders().filter(|one| one.kind != PlaceholderType::Text).count(),
            template,
        };
        let user_text = templates.iter().filter(|template| template.user_text);
        let user_text = user_text.map(|template| Opening::of(&template.text)).collect();
        Self {
            user_text,
            scanner: Scanner::new(&anchors, |_| true),
            telling: Scanner::new(&anchors, |anchor| tells[anchor]),
            tells,
            anchors,
            templates: templates.into_iter().map(entry).collect(),
            speaks_for,
            runs_on,
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

    /// Those that speak for a line which says something.
    pub fn telling_anchors(&self) -> impl Iterator<Item = &str> {
        self.anchors.iter().zip(&self.tells).filter(|(_, tells)| **tells).map(|(anchor, _)| anchor.as_str())
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

    /// The same as [`Self::next_candidate`] without [`Self::short_anchors`], which cost a search of their own, and as far
    /// as a search reaches.
    pub fn next_long_candidate(&self, haystack: &[u8], from: usize, reach: Reach) -> Option<usize> {
        match reach {
            Reach::Telling => self.telling.find_long(haystack, from),
            Reach::Every => self.scanner.find_long(haystack, from),
        }
    }

    /// Anchors too short for the search for the others: keys of JSON lines.
    pub fn short_anchors(&self) -> impl Iterator<Item = &str> {
        self.anchors.iter().map(String::as_str).filter(|anchor| scan::is_short(anchor))
    }

    /// The template of a message (the text after every prefix), read. Lines that were joined are separated by `\n`.
    pub fn match_message<'p>(&'p self, message: &str, who: &Speaker<'_>) -> Option<Match<'p>> {
        self.sight(message, who, &mut Room::default()).map(|sight| sight.read())
    }

    /// The template of a message; what stands in the message is read when asked for.
    pub fn sight<'p, 'm>(
        &'p self,
        message: &'m str,
        who: &Speaker<'_>,
        room: &'m mut Room,
    ) -> Option<Sight<'p, 'm>> {
        let whole = message;
        let message = self.bounded(message);
        let is_cut = message.len() < whole.len();
        let mut budget = Budget { left: BUDGET };
        let joined = segment::is_joined(message);
        self.note_anchors(message, room);
        // A user's text could hold the words of any engine.
        let holds_user_text = self.user_text.iter().any(|opening| opening.begins(message));
        let mut best: Option<(Rank, Found)> = None;
        for anchor in &room.anchors {
            for &index in &self.speaks_for[*anchor] {
                let entry = &self.templates[index];
                let is_of_user = holds_user_text && !entry.template.user_text;
                // Of a message that is cut, the last words may be the user's.
                if is_of_user || (is_cut && entry.template.reads_behind_users_text()) {
                    continue;
                }
                if best.as_ref().is_some_and(|(of_best, _)| of_best.is_above(index, entry, who)) {
                    continue;
                }
                let Some(found) = segment::find(
                    &entry.template,
                    &entry.begin,
                    message,
                    joined,
                    &mut room.spans,
                    &mut budget,
                ) else {
                    continue;
                };
                let rank = Rank::of(index, entry, found.literal_len, found.cut, who);
                if best.as_ref().is_none_or(|(of_best, _)| rank > *of_best) {
                    best = Some((rank, found));
                    std::mem::swap(&mut room.best, &mut room.spans.taken);
                }
            }
        }
        if budget.left == 0 {
            self.given_up.fetch_add(1, Relaxed);
        }
        let (Rank { first: Reverse(index), in_range, .. }, found) = best?;
        let template = self.templates[index].template.as_ref();
        let other_version = !in_range;
        let Found { cut, literal_len } = found;
        Some(Sight { template, cut, literal_len, other_version, matcher: self, message, spans: &room.best })
    }

    /// Whether the message may be the begin of one that runs on over following bare lines: an anchor of a
    /// `multiline` template stands in it. `room` is that of the message's [`Self::sight`].
    pub fn may_continue(&self, room: &Room) -> bool {
        room.anchors.iter().any(|anchor| self.runs_on[*anchor])
    }

    /// What a line that is a JSON object says. Of several entries that fit, the one with most conditions.
    pub fn match_json<'p>(&'p self, object: &Map<String, Value>) -> Option<JsonMatch<'p>> {
        self.signature_of(object).map(|signature| signature.read(object))
    }

    pub(crate) fn signature_of(&self, object: &Map<String, Value>) -> Option<&JsonSignature> {
        let fitting = self.json.iter().filter(|signature| signature.fits(object));
        fitting.max_by_key(|signature| signature.conditions()).map(Arc::as_ref)
    }

    /// Messages that were cut for matching, so far.
    pub fn shortened(&self) -> u64 {
        self.shortened.load(Relaxed)
    }

    /// Messages whose matching was given up because it took too long, so far.
    pub fn given_up(&self) -> u64 {
        self.given_up.load(Relaxed)
    }

    /// Whether the message is one template's, whatever others say.
    pub(crate) fn matches_one(&self, template: &Template, message: &str) -> bool {
        let mut budget = Budget { left: BUDGET };
        let joined = segment::is_joined(message);
        segment::find(template, &Begin::of(template), message, joined, &mut Spans::default(), &mut budget)
            .is_some_and(|found| !found.cut)
    }

    fn bounded<'m>(&self, message: &'m str) -> &'m str {
        if message.len() <= Self::MAX_MESSAGE {
            return message;
        }
        self.shortened.fetch_add(1, Relaxed);
        let mut end = Self::MAX_MESSAGE;
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        &message[..end]
    }

    /// Notes which anchors stand in the message, each once.
    fn note_anchors(&self, message: &str, room: &mut Room) {
        let seen = &mut room.anchors;
        seen.clear();
        self.scanner.each(message.as_bytes(), |anchor| {
            if !seen.contains(&anchor) {
                seen.push(anchor);
            }
        });
    }
}

/// Whether a dotted path is the key or ends with it.
fn ends_with_key(path: &str, key: &str) -> bool {
    ends_as_path(path, key) || path == key
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
    literal_len: usize,
    in_range: bool,
    own_engine: bool,
    /// Typed text proves more than free text.
    typed: usize,
    /// Of equally good matches the first in the order of the packs wins.
    first: Reverse<usize>,
}

impl Rank {
    fn of(index: usize, entry: &Entry, literal_len: usize, cut: bool, who: &Speaker<'_>) -> Self {
        Self {
            complete: !cut,
            literal_len,
            in_range: in_range(&entry.template, who),
            own_engine: who.engine == Some(entry.template.engine.as_str()),
            typed: entry.typed,
            first: Reverse(index),
        }
    }

    /// Whether a template could not be as good as this, were it there as a whole. Most are told by their length alone.
    fn is_above(&self, index: usize, entry: &Entry, who: &Speaker<'_>) -> bool {
        let whole = entry.template.literal_len;
        match (true, whole).cmp(&(self.complete, self.literal_len)) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => Self::of(index, entry, whole, false, who) < *self,
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
        is_silent: template.is_silent(),
    }
}
