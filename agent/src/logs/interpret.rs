//! From logical lines to observations: peels the prefix, finds the template, and hands on what it found.
//!
//! Invariant: an observation holds only what templates keep; nothing of a line that no template knows leaves this
//! folder but its level, module and hash. Input comes from [`super::reader`], line by line in order, and only lines
//! that may matter or that follow one which may run on. A line without meaning, or one that only repeats what was
//! folded before, is taken without an allocation.

use super::answers::Answers;
use super::broken_id;
use super::candidates::Candidates;
use super::carry::Carry;
use super::clock::{ClockPlacer, Stamps};
use super::counts::{LineCounts, Outcome};
use super::emit::{OWN, Statement, Telling};
use super::explain::Explainer;
use super::fold::{self, Folds, Moment};
use super::lookback::Above;
use super::names::Names;
use super::prefix::{self, Heads, Level, Line, Prefix};
use super::reader::LogOptions;
use super::redact::Recorder;
use super::rejoin::Known;
use super::run_on::{Held, Wait};
use super::trouble::{self, MAX_DISTINCT};
use super::undated::Undated;
use super::worker_news::News;
use crate::source::Place;
use kvprov_model::clock::WallTime;
use kvprov_packs::{Match, Matcher, Packs, Reach, Room, Sight, Speaker, Version};
use std::borrow::Cow;
use std::ops::ControlFlow;

/// Statements of one JSON record or journal entry that holds several lines.
const MAX_STATEMENTS: u32 = 256;

/// A logical line.
pub(super) struct Logical<'a> {
    /// What its wrapper says.
    pub(super) prefix: Prefix<'a>,
    /// The text.
    pub(super) text: &'a str,
    /// Where it begins.
    pub(super) place: Place,
    /// Physical lines it took.
    pub(super) lines: u64,
    /// Finds the clock of a line before it, for lines without one.
    pub(super) before: &'a dyn Fn() -> Option<Stamps>,
    /// Lines above it that were not read, nearest first.
    pub(super) above: &'a dyn Fn() -> Vec<Above>,
}

/// What the statements of one logical line share.
struct Said<'a> {
    place: Place,
    lines: u64,
    /// Number of the next statement.
    ordinal: u32,
    before: &'a dyn Fn() -> Option<Stamps>,
    above: &'a dyn Fn() -> Vec<Above>,
}

// === impl Said ===

impl Said<'_> {
    /// The next statement. The first one stands for the physical lines.
    fn statement<'m>(
        &mut self,
        prefix: Prefix<'m>,
        message: &'m str,
        wall: Option<WallTime>,
    ) -> Statement<'m> {
        let ordinal = self.ordinal;
        self.ordinal += 1;
        Statement {
            prefix,
            message: Cow::Borrowed(message),
            place: self.place,
            ordinal,
            lines: if ordinal == 0 { self.lines } else { 0 },
            wall,
        }
    }
}

/// The reading of one source.
#[derive(Debug)]
pub(super) struct Interpreter<'p> {
    pub(super) matcher: &'p Matcher,
    pub(super) packs: &'p Packs,
    pub(super) engine: Option<String>,
    pub(super) version: Option<Version>,
    pub(super) clock: ClockPlacer,
    pub(super) last_wall: Option<WallTime>,
    pub(super) held: Option<Held<'p>>,
    pub(super) explainer: Explainer,
    pub(super) folds: Folds,
    troubles: Folds,
    pub(super) news: News,
    last_severe: Option<Prefix<'static>>,
    pub(super) undated: Undated,
    pub(super) names: Names,
    pub(super) heads: Heads,
    /// Offset of the line that is read, where it is a known head and its message, and nothing else.
    exact_at: Option<u64>,
    /// When the line was taken, for sources whose lines come dated.
    taken: Option<WallTime>,
    pub(super) answers: Answers,
    /// Whether a line was read that only an engine prints.
    pub(super) has_spoken: bool,
    pub(super) room: Room,
}

/// Where observations and counts go.
pub(super) struct Out<'a> {
    /// Takes what is to become an observation.
    pub(super) tell: &'a mut dyn FnMut(Telling),
    /// Counts.
    pub(super) counts: &'a mut LineCounts,
    /// Knows KV modules.
    pub(super) candidates: &'a Candidates<'a>,
    /// Takes lines as they may be kept, where they are recorded.
    pub(super) record: Option<&'a mut Recorder>,
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    pub(super) fn new(matcher: &'p Matcher, packs: &'p Packs, options: LogOptions) -> Self {
        Self {
            matcher,
            packs,
            version: options.version.as_deref().and_then(Version::parse),
            clock: ClockPlacer::new(options.timezone_seconds, options.year, options.mtime),
            engine: options.engine,
            last_wall: None,
            held: None,
            explainer: Explainer::default(),
            folds: Folds::default(),
            troubles: Folds::default(),
            news: News::default(),
            last_severe: None,
            undated: Undated::default(),
            names: Names::default(),
            heads: Heads::default(),
            exact_at: None,
            taken: None,
            answers: Answers::default(),
            has_spoken: false,
            room: Room::default(),
        }
    }

    /// Goes on behind a seam.
    pub(super) fn go_on(&mut self, carry: &Carry) {
        if carry.engine.is_some() {
            self.engine.clone_from(&carry.engine);
            self.version = carry.version.as_deref().and_then(Version::parse);
        }
        self.clock.go_on(carry.reached);
        self.last_wall = carry.wall;
        self.undated = Undated::begun(carry.dated);
    }

    /// Forgets what a seam does not carry; everything that waited was told.
    pub(super) fn forget(&mut self) {
        self.held = None;
        self.explainer = Explainer::default();
        self.folds = Folds::default();
        self.troubles = Folds::default();
        self.news = News::default();
        self.last_severe = None;
        self.answers = Answers::default();
        self.has_spoken = false;
        self.names = Names::default();
    }

    /// What a seam carries.
    pub(super) fn carry(&self) -> Carry {
        Carry {
            engine: self.engine.clone(),
            version: self.version.as_ref().map(ToString::to_string),
            reached: self.clock.reached(),
            wall: self.last_wall,
            dated: self.undated.is_over() || self.last_wall.is_some(),
            ..Carry::default()
        }
    }

    /// Whether something waits that a pause of the source sets free.
    pub(super) fn waits(&self) -> bool {
        self.held.is_some() || self.undated.waits()
    }

    /// Whether anything waits or was counted without being told.
    pub(super) fn is_unsettled(&self) -> bool {
        self.waits() || self.explainer.waits() || self.folds.has_untold() || self.troubles.has_untold()
    }

    /// Whether no later line could add to what was told up to line `line`, counts of repeated statements apart.
    pub(super) fn at_rest(&self, line: u64) -> bool {
        !self.waits() && self.explainer.at_rest(line)
    }

    /// A line was taken at this time, in case it has no clock of its own.
    pub(super) fn taken_at(&mut self, when: WallTime) {
        self.clock.written(when);
        self.taken = Some(when);
    }

    /// How far the search for lines has to reach: to those without meaning only while they are told or kept.
    pub(super) fn reach(&self) -> Reach {
        if self.answers.is_wanted() { Reach::Every } else { Reach::Telling }
    }

    /// A line that is not read has a clock.
    pub(super) fn passed(&mut self, stamps: Stamps) {
        self.last_wall = self.clock.place(stamps).or(self.last_wall);
    }

    /// Whether the next line has to be seen, even if nothing in it matters by itself.
    pub(super) fn wants_next_line(&self) -> bool {
        self.held.is_some() || self.undated.waits()
    }

    /// Takes one logical line.
    pub(super) fn line(&mut self, logical: Logical<'_>, out: &mut Out<'_>) {
        if self.undated.is_over() {
            self.read(logical, out);
            return;
        }
        let mut waiting = self.undated.take();
        self.read(logical, &mut Out { tell: &mut |telling| waiting.push(telling), ..reborrow(out) });
        self.undated.next_line(waiting, self.last_wall, out.tell);
    }

    fn read(&mut self, logical: Logical<'_>, out: &mut Out<'_>) {
        let Logical { prefix, text, place, lines, before, above } = logical;
        let mut said = Said { place, lines, ordinal: 0, before, above };
        // A journal entry holds several lines of text; a JSON object holds its line ends escaped.
        let one_object = text.trim_start().starts_with('{');
        if one_object || memchr::memchr(b'\n', text.as_bytes()).is_none() {
            self.exact_at = Some(place.offset);
            let _ = self.part(text, prefix, &mut said, out);
            return;
        }
        for part in text.split('\n').take(MAX_STATEMENTS as usize) {
            self.exact_at = None;
            if self.part(part, prefix.clone(), &mut said, out).is_break() {
                return;
            }
        }
    }

    /// Takes one line of text; breaks behind an object, which stands alone.
    fn part(
        &mut self,
        text: &str,
        prefix: Prefix<'_>,
        said: &mut Said<'_>,
        out: &mut Out<'_>,
    ) -> ControlFlow<()> {
        let line = match self.names.split(text) {
            // Only where nothing else tells the name from the words of a message.
            Some((name, rest)) => {
                let line = prefix::peel(text, prefix.clone());
                if line.prefix.pod.is_some() || line.prefix.spoken {
                    line
                } else {
                    prefix::peel(rest, Prefix { pod: Some(Cow::Borrowed(name)), ..prefix })
                }
            }
            None => self.heads.peel(text, prefix),
        };
        if !self.heads.was_exact() {
            self.exact_at = None;
        }
        self.names.learn(&line.prefix);
        let wall = self.wall(&line.prefix, said.before);
        let Line { prefix, mut message, object } = line;
        if let Some(object) = &object {
            // The answer to a client is no log record, but the error in it is the engine's own message.
            let error = prefix::error_of_answer(object).filter(|error| self.find(error).is_some());
            let Some(error) = error else {
                self.object(object, said.place, said.lines, wall, out);
                return ControlFlow::Break(());
            };
            message = error.to_owned().into();
        }
        if memchr::memchr(b'\n', message.as_bytes()).is_none() {
            let statement = said.statement(prefix, message.trim_end(), wall);
            self.statement(statement, said.above, out);
            return ControlFlow::Continue(());
        }
        for message in message.split('\n').take(MAX_STATEMENTS as usize) {
            let statement = said.statement(prefix.clone(), message.trim_end(), wall);
            self.statement(statement, said.above, out);
        }
        ControlFlow::Continue(())
    }

    /// Tells what waits for a next line.
    pub(super) fn idle(&mut self, out: &mut Out<'_>) {
        self.undated.release(self.last_wall, out.tell);
        self.release(out);
    }

    /// Ends the source: tells what waited.
    pub(super) fn finish(&mut self, out: &mut Out<'_>) {
        self.idle(out);
        self.explainer.finish(out.tell);
        self.folds.finish(out.tell);
        self.troubles.finish(out.tell);
    }

    fn wall(&mut self, prefix: &Prefix<'_>, before: &dyn Fn() -> Option<Stamps>) -> Option<WallTime> {
        let own = Stamps::of(prefix);
        if own.is_none() && self.taken.is_some() {
            self.last_wall = self.taken;
            return self.taken;
        }
        let stamps = own.or_else(before);
        if let Some(wall) = stamps.and_then(|stamps| self.clock.place(stamps)) {
            self.last_wall = Some(wall);
        }
        self.last_wall
    }

    // --- messages ---

    pub(super) fn statement(
        &mut self,
        statement: Statement<'_>,
        above: &dyn Fn() -> Vec<Above>,
        out: &mut Out<'_>,
    ) {
        let mut statement = statement;
        if self.held.is_some() {
            match self.run_on(statement, out) {
                Some(next) => statement = next,
                None => return,
            }
        }
        let line = fold::Line::Read { exact: self.exact_at == Some(statement.place.offset) };
        if self.folds.again(&statement.message, Moment::of(&statement), line, out.tell) {
            self.record_words(&statement, out);
            self.note(&statement, Outcome::Matched, out);
            return;
        }
        let mut found = match self.sight(&statement.message) {
            Some(sight) if sight.template.is_silent() && !sight.cut => {
                let answers = sight.template.answers;
                self.record_words(&statement, out);
                self.note(&statement, Outcome::Ignored, out);
                if answers && self.answers.is_wanted() {
                    (out.tell)(self.answers.told(&statement));
                }
                return;
            }
            sight => sight.map(|sight| sight.read()),
        };
        let mut may_run_on = self.matcher.may_continue(&self.room);
        if !statement.prefix.spoken && statement.ordinal == 0 {
            let begin = statement.place.position;
            found = match found {
                None => self.begin_above(&mut statement, &above(), out),
                Some(found) if broken_id::may_begin_inside(&statement.message) => {
                    Some(self.id_above(found, &mut statement, &above(), out))
                }
                found => found,
            };
            if statement.place.position != begin {
                may_run_on = self.matcher.may_continue(&self.room);
            }
        }
        if let Some(wait) = wait_of(&statement, found.as_ref(), may_run_on) {
            self.held =
                Some(Held { statement: statement.into_owned(), best: found, wait, behind: Vec::new() });
            return;
        }
        match found {
            Some(found) => self.known(&statement, &found, out),
            None => self.unknown(&statement, out),
        }
    }

    pub(super) fn find(&mut self, message: &str) -> Option<Match<'p>> {
        self.sight(message).map(|sight| sight.read())
    }

    /// How much a template knows of a message.
    pub(super) fn known_of(&mut self, message: &str) -> Option<Known> {
        let sight = self.sight(message)?;
        let template = std::ptr::from_ref(sight.template).addr();
        Some(Known { template, words: sight.literal_len, cut: sight.cut })
    }

    pub(super) fn sight<'m>(&'m mut self, message: &'m str) -> Option<Sight<'p, 'm>> {
        let who = Speaker { engine: self.engine.as_deref(), version: self.version.as_ref() };
        self.matcher.sight(message, &who, &mut self.room)
    }

    fn object(
        &mut self,
        object: &serde_json::Map<String, serde_json::Value>,
        place: Place,
        lines: u64,
        wall: Option<WallTime>,
        out: &mut Out<'_>,
    ) {
        self.release(out);
        let Some(found) = self.matcher.match_json(object) else {
            out.counts.add(Outcome::Ignored, lines);
            return;
        };
        out.counts.add(Outcome::Matched, lines);
        if let Some(record) = &mut out.record {
            record.object(place.position, wall, self.matcher.rebuilt_json(object));
        }
        let wall = found.time.and_then(WallTime::from_unix_seconds).or(wall);
        self.last_wall = wall.or(self.last_wall);
        if let Some(body) = found.body {
            (out.tell)(Telling { place, index: OWN, wall, says: found.says, body });
        }
    }

    // --- unknown messages ---

    pub(super) fn unknown(&mut self, statement: &Statement<'_>, out: &mut Out<'_>) {
        let prefix = &statement.prefix;
        let goes_on = trouble::is_continuation(&statement.message)
            || self
                .last_severe
                .as_ref()
                .is_some_and(|last| last.source_line.is_some() && prefix.continues(last));
        let severe = self.note_severe(prefix);
        let of_kv = || prefix.module.as_deref().is_some_and(|module| out.candidates.is_kv_module(module));
        let level = match prefix.level {
            Some(level) if severe && !goes_on && of_kv() => level,
            _ => {
                if let Some(record) = &mut out.record {
                    record.ignored(statement);
                }
                out.counts.add(Outcome::Ignored, statement.lines);
                return;
            }
        };
        if let Some(record) = &mut out.record {
            record.unmatched(statement);
        }
        out.counts.add(Outcome::Unparsed, statement.lines);
        let (body, says) = trouble::trouble(prefix, level, &statement.message);
        let telling = statement.tell(OWN, says.clone(), body);
        if self.troubles.knows(&says) || self.troubles.len() < MAX_DISTINCT {
            self.troubles.add(says, telling, i64::from(prefix.repeated), None, out.tell);
        } else {
            out.counts.troubles_dropped += 1;
        }
    }

    /// Remembers the record that spoke at WARNING or worse, whose further lines are no statements of their own.
    pub(super) fn note_severe(&mut self, prefix: &Prefix<'_>) -> bool {
        let severe = prefix.level.is_some_and(|level| level >= Level::Warning);
        if severe && !self.last_severe.as_ref().is_some_and(|last| prefix.continues(last)) {
            self.last_severe = Some(prefix.clone().into_owned());
        }
        severe
    }
}

/// Why the next line may belong to a statement; `may_run_on`: its words may begin a message that does.
fn wait_of(statement: &Statement<'_>, found: Option<&Match<'_>>, may_run_on: bool) -> Option<Wait> {
    if found.map_or(may_run_on, Match::multiline) {
        return Some(Wait::RunsOn);
    }
    let may_be_wrapped = match found {
        Some(found) => found.cut || found.ends_in_id(),
        None => statement.prefix.spoken,
    };
    may_be_wrapped.then_some(Wait::Wrapped)
}

fn reborrow<'a>(out: &'a mut Out<'_>) -> Out<'a> {
    Out {
        tell: &mut *out.tell,
        counts: &mut *out.counts,
        candidates: out.candidates,
        record: out.record.as_deref_mut(),
    }
}
