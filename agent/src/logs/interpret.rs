//! From logical lines to observations: peels the prefix, finds the template, joins what was wrapped, explains, folds.
//!
//! Invariant: an observation holds only what templates keep; nothing of a line that no template knows leaves this
//! module but its level, module and hash. Input comes from [`super::reader`], line by line in order, and only lines
//! that may matter or that follow one which may run on.

use super::candidates::Candidates;
use super::clock::{ClockPlacer, Stamps};
use super::counts::{LineCounts, Outcome};
use super::emit::{OWN, Statement, Telling, WORKER};
use super::explain::{Explainer, Spot, attribute};
use super::fold::{Folds, set_times};
use super::lookback::Above;
use super::prefix::{self, Level, Prefix};
use super::reader::LogOptions;
use super::trouble::{self, MAX_DISTINCT};
use crate::source::Place;
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Worker};
use kvprov_model::value::Value;
use kvprov_packs::{Match, Matcher, Packs, Speaker, Version};
use std::collections::BTreeMap;

/// Bare lines that a message may run on over.
const MAX_CONTINUATIONS: usize = 4;
/// Statements of one JSON record or journal entry that holds several lines.
const MAX_STATEMENTS: u32 = 256;
/// Lines at the begin of a source that wait for the first clock.
const MAX_UNDATED_LINES: u32 = 64;
/// Facts remembered as told.
const MAX_TOLD: usize = 512;

/// A logical line.
pub(super) struct Logical<'a> {
    /// What its wrapper says.
    pub(super) prefix: Prefix,
    /// The text.
    pub(super) text: &'a str,
    /// Where it begins.
    pub(super) place: Place,
    /// Physical lines it took.
    pub(super) lines: u64,
    /// The clock of a line before it, for lines without one.
    pub(super) before: Option<Stamps>,
    /// Lines above it that were not read, nearest first.
    pub(super) above: &'a dyn Fn() -> Vec<Above>,
}

/// The reading of one source.
#[derive(Debug)]
pub(super) struct Interpreter<'p> {
    matcher: &'p Matcher,
    packs: &'p Packs,
    engine: Option<String>,
    version: Option<Version>,
    clock: ClockPlacer,
    last_wall: Option<WallTime>,
    held: Option<Held<'p>>,
    explainer: Explainer,
    folds: Folds,
    troubles: Folds,
    told: BTreeMap<String, String>,
    last_severe: Option<Prefix>,
    begin: Begin,
}

/// The begin of a source: lines before the first one with a clock were said just before it.
#[derive(Debug, Default)]
struct Begin {
    over: bool,
    lines: u32,
    undated: Vec<Telling>,
}

/// A statement whose message may run on.
#[derive(Debug)]
struct Held<'p> {
    /// The statement, with the lines that are known to belong to it.
    statement: Statement,
    best: Option<Match<'p>>,
    /// Lines behind it that may belong to it.
    behind: Vec<Statement>,
}

/// Where observations and counts go.
pub(super) struct Out<'a> {
    /// Takes what is to become an observation.
    pub(super) tell: &'a mut dyn FnMut(Telling),
    /// Counts.
    pub(super) counts: &'a mut LineCounts,
    /// Knows KV modules.
    pub(super) candidates: &'a Candidates<'a>,
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
            told: BTreeMap::new(),
            last_severe: None,
            begin: Begin::default(),
        }
    }

    /// Whether the next line has to be seen, even if nothing in it matters by itself.
    pub(super) fn wants_next_line(&self) -> bool {
        self.held.is_some() || !self.begin.undated.is_empty()
    }

    /// Takes one logical line.
    pub(super) fn line(&mut self, logical: Logical<'_>, out: &mut Out<'_>) {
        if self.begin.over {
            self.read(logical, out);
            return;
        }
        let mut undated = std::mem::take(&mut self.begin.undated);
        self.read(logical, &mut Out { tell: &mut |telling| undated.push(telling), ..reborrow(out) });
        self.begin.lines += 1;
        if self.last_wall.is_some() || self.begin.lines >= MAX_UNDATED_LINES {
            self.begin.over = true;
            self.date(undated, out);
        } else {
            self.begin.undated = undated;
        }
    }

    /// Tells what waited for the first clock.
    fn date(&mut self, undated: Vec<Telling>, out: &mut Out<'_>) {
        for mut telling in undated {
            telling.wall = telling.wall.or(self.last_wall);
            (out.tell)(telling);
        }
    }

    fn read(&mut self, logical: Logical<'_>, out: &mut Out<'_>) {
        let Logical { prefix, text, place, lines, before, above } = logical;
        let mut ordinal = 0;
        // A journal entry holds several lines of text; a JSON object holds its line ends escaped.
        let one_object = text.trim_start().starts_with('{');
        let texts = text.split('\n').take(if one_object { 1 } else { MAX_STATEMENTS as usize });
        for part in texts {
            let part = if one_object { text } else { part };
            let line = prefix::peel(part, prefix.clone());
            let wall = self.wall(&line.prefix, before);
            let mut message = line.message;
            if let Some(object) = &line.object {
                // The answer to a client is no log record, but the error in it is the engine's own message.
                let error = prefix::error_of_answer(object).filter(|error| self.find(error).is_some());
                let Some(error) = error else {
                    self.object(object, place, lines, wall, out);
                    return;
                };
                message = error.to_owned().into();
            }
            let spoken = line.prefix;
            for message in message.split('\n').take(MAX_STATEMENTS as usize) {
                let statement = Statement {
                    prefix: spoken.clone(),
                    message: message.trim_end().to_owned(),
                    place,
                    ordinal,
                    lines: if ordinal == 0 { lines } else { 0 },
                    wall,
                };
                self.statement(statement, above, out);
                ordinal += 1;
            }
        }
    }

    /// Tells what waits for a next line.
    pub(super) fn idle(&mut self, out: &mut Out<'_>) {
        let undated = std::mem::take(&mut self.begin.undated);
        self.date(undated, out);
        self.release(out);
    }

    /// Ends the source: tells what waited.
    pub(super) fn finish(&mut self, out: &mut Out<'_>) {
        self.idle(out);
        self.explainer.finish(out.tell);
        self.folds.finish(out.tell);
        self.troubles.finish(out.tell);
    }

    fn wall(&mut self, prefix: &Prefix, before: Option<Stamps>) -> Option<WallTime> {
        let stamps = Stamps::of(prefix).or(before);
        if let Some(wall) = stamps.and_then(|stamps| self.clock.place(stamps)) {
            self.last_wall = Some(wall);
        }
        self.last_wall
    }

    // --- messages ---

    fn statement(&mut self, statement: Statement, above: &dyn Fn() -> Vec<Above>, out: &mut Out<'_>) {
        let Some(mut statement) = self.run_on(statement, out) else { return };
        let mut found = self.find(&statement.message);
        if found.is_none()
            && !statement.prefix.spoken
            && statement.ordinal == 0
            && self.matcher.may_continue(&statement.message)
        {
            found = self.begin_above(&mut statement, &above(), out);
        }
        let runs_on = match &found {
            Some(found) => found.multiline(),
            None => self.matcher.may_continue(&statement.message),
        };
        if runs_on {
            self.held = Some(Held { statement, best: found, behind: Vec::new() });
            return;
        }
        match found {
            Some(found) => self.known(&statement, &found, out),
            None => self.unknown(&statement, out),
        }
    }

    /// Adds a statement to the one that is held, if it may carry it on; gives it back if not.
    fn run_on(&mut self, next: Statement, out: &mut Out<'_>) -> Option<Statement> {
        let Some(held) = &self.held else { return Some(next) };
        let carries_on = !next.prefix.spoken || next.prefix.continues(&held.statement.prefix);
        if !carries_on || held.behind.len() >= MAX_CONTINUATIONS {
            self.release(out);
            return Some(next);
        }
        let Some(mut held) = self.held.take() else { return Some(next) };
        held.behind.push(next);
        let mut joined = held.statement.message.clone();
        for line in &held.behind {
            joined.push('\n');
            joined.push_str(line.message.trim());
        }
        let found = self.find(&joined);
        // A joined message must say more than its first lines did; else the next line stands for itself.
        if found.as_ref().map(weight) > held.best.as_ref().map(weight) {
            held.statement.message = joined;
            for line in held.behind.drain(..) {
                held.statement.lines += line.lines;
                held.statement.prefix.repeated = held.statement.prefix.repeated.max(line.prefix.repeated);
            }
            held.best = found;
        }
        self.held = Some(held);
        None
    }

    /// Ends the wait of the held statement; lines that turned out not to belong to it speak for themselves.
    fn release(&mut self, out: &mut Out<'_>) {
        // Each round leaves fewer lines behind, so that this ends.
        while let Some(held) = self.held.take() {
            let Held { statement, best, behind } = held;
            match best {
                Some(found) => self.known(&statement, &found, out),
                None => self.unknown(&statement, out),
            }
            for statement in behind {
                self.statement(statement, &Vec::new, out);
            }
        }
    }

    /// Finds the begin of a wrapped message in lines above, where nothing told that they matter.
    fn begin_above(
        &self,
        statement: &mut Statement,
        above: &[Above],
        out: &mut Out<'_>,
    ) -> Option<Match<'p>> {
        let mut joined = statement.message.trim().to_owned();
        for (count, line) in (1..).zip(above) {
            let plain = prefix::without_colours(&line.text);
            let unwrapped = prefix::unwrap(&plain);
            let peeled = prefix::peel(&unwrapped.payload, unwrapped.prefix);
            if peeled.object.is_some() {
                return None;
            }
            joined = format!("{}\n{joined}", peeled.message.trim());
            let found = self.find(&joined);
            let spoken = peeled.prefix.spoken;
            if found.is_some() || (spoken && self.matcher.may_continue(&joined)) {
                statement.message = joined;
                statement.prefix = peeled.prefix;
                statement.place = line.place;
                statement.lines += count;
                // They were counted as lines in which nothing matters.
                out.counts.ignored = out.counts.ignored.saturating_sub(count);
                return found;
            }
            if spoken {
                return None;
            }
        }
        None
    }

    fn find(&self, message: &str) -> Option<Match<'p>> {
        let who = Speaker { engine: self.engine.as_deref(), version: self.version.as_ref() };
        self.matcher.match_message(message, &who)
    }

    // --- known messages ---

    fn known(&mut self, statement: &Statement, found: &Match<'p>, out: &mut Out<'_>) {
        out.counts.add(Outcome::Matched, statement.lines);
        self.note_severe(&statement.prefix);
        self.explainer.expire(statement.place.position, out.tell);
        if found.is_meaningless() && found.implies().is_empty() {
            return;
        }
        let times = i64::from(statement.prefix.repeated);
        let mut worker = Worker::default();
        if let Some(mut body) = found.body() {
            self.learn(&body, found);
            match &mut body {
                Body::Worker(own) => worker = std::mem::take(own),
                _ => self.tell_body(statement, found, body, times, out),
            }
        }
        self.tell_worker(statement, found, worker, out);
    }

    fn tell_body(
        &mut self,
        statement: &Statement,
        found: &Match<'p>,
        mut body: Body,
        times: i64,
        out: &mut Out<'_>,
    ) {
        let spot = || Spot {
            line: statement.place.position,
            wall: statement.wall,
            prefix: statement.prefix.clone(),
        };
        if found.explains() {
            let telling = statement.tell(OWN, found.says(), body);
            if let Some(joined) = self.explainer.cause(spot(), telling, found.alone()) {
                (out.tell)(joined);
            }
            return;
        }
        if found.takes_cause() {
            self.explainer.failure(spot(), &mut body);
        }
        let telling = statement.tell(OWN, found.says(), body);
        if found.folds() {
            let key = fold_key(&found.template.id, &telling.body);
            self.folds.add(key, telling, times, out.tell);
            return;
        }
        let mut telling = telling;
        let counted = match attribute(&telling.body, "times") {
            Some(Value::Int(own)) => own.saturating_mul(times),
            _ => times,
        };
        set_times(&mut telling.body, counted, times > 1);
        (out.tell)(telling);
    }

    /// Facts and settings that a line tells of its worker; each is told when it is new or changed.
    fn tell_worker(
        &mut self,
        statement: &Statement,
        found: &Match<'p>,
        mut worker: Worker,
        out: &mut Out<'_>,
    ) {
        let mut facts = found.facts();
        facts.append(&mut worker.facts);
        for (fact, value) in found.implies() {
            facts.entry(fact.clone()).or_insert_with(|| value.clone());
        }
        let mut settings = found.settings();
        settings.append(&mut worker.settings);
        let mut origins: BTreeMap<String, String> =
            facts.keys().map(|fact| (fact.clone(), "log line".to_owned())).collect();
        if !settings.is_empty() {
            // A line shows some settings; what the others default to is not its to say.
            let resolved = self.packs.facts(self.engine.as_deref(), self.version.as_ref(), &settings);
            for (fact, value) in resolved.facts {
                let origin = resolved.origins.get(&fact).filter(|origin| origin.starts_with("setting"));
                if let Some(origin) = origin.filter(|_| !facts.contains_key(&fact)) {
                    origins.insert(fact.clone(), origin.clone());
                    facts.insert(fact, value);
                }
            }
        }
        facts.retain(|fact, value| self.is_news("fact", fact, value));
        origins.retain(|fact, _| facts.contains_key(fact));
        settings.retain(|setting, value| self.is_news("setting", setting, value));
        let says_itself = worker != Worker::default();
        if facts.is_empty() && settings.is_empty() && !says_itself {
            return;
        }
        worker.fact_origins = origins;
        worker.facts = facts;
        worker.settings = settings;
        (out.tell)(statement.tell(WORKER, found.says(), Body::Worker(worker)));
    }

    fn is_news(&mut self, what: &str, name: &str, value: &str) -> bool {
        let key = format!("{what} {name}");
        if self.told.get(&key).is_some_and(|told| told == value) {
            return false;
        }
        if self.told.len() < MAX_TOLD {
            self.told.insert(key, value.to_owned());
        }
        true
    }

    /// A start-up line tells which engine and version speak from here on.
    fn learn(&mut self, body: &Body, found: &Match<'p>) {
        let Body::Worker(worker) = body else { return };
        let engine = worker.engine.as_deref().unwrap_or(&found.template.engine);
        if self.engine.as_deref().is_some_and(|known| known != engine) {
            return;
        }
        if let Some(version) = worker.engine_version.as_deref().and_then(Version::parse) {
            self.engine = Some(engine.to_owned());
            self.version = Some(version);
        }
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
        let wall = found.time.and_then(WallTime::from_unix_seconds).or(wall);
        self.last_wall = wall.or(self.last_wall);
        if let Some(body) = found.body {
            (out.tell)(Telling { place, index: OWN, wall, says: found.says, body });
        }
    }

    // --- unknown messages ---

    fn unknown(&mut self, statement: &Statement, out: &mut Out<'_>) {
        let prefix = &statement.prefix;
        let goes_on = trouble::is_continuation(&statement.message)
            || self
                .last_severe
                .as_ref()
                .is_some_and(|last| last.source_line.is_some() && prefix.continues(last));
        let severe = self.note_severe(prefix);
        let of_kv = prefix.module.as_deref().is_some_and(|module| out.candidates.is_kv_module(module));
        let level = match prefix.level {
            Some(level) if severe && of_kv && !goes_on => level,
            _ => {
                out.counts.add(Outcome::Ignored, statement.lines);
                return;
            }
        };
        out.counts.add(Outcome::Unparsed, statement.lines);
        let (body, says) = trouble::trouble(prefix, level, &statement.message);
        let telling = statement.tell(OWN, says.clone(), body);
        if self.troubles.knows(&says) || self.troubles.len() < MAX_DISTINCT {
            self.troubles.add(says, telling, i64::from(prefix.repeated), out.tell);
        } else {
            out.counts.troubles_dropped += 1;
        }
    }

    /// Remembers the record that spoke at WARNING or worse, whose further lines are no statements of their own.
    fn note_severe(&mut self, prefix: &Prefix) -> bool {
        let severe = prefix.level.is_some_and(|level| level >= Level::Warning);
        if severe && !self.last_severe.as_ref().is_some_and(|last| prefix.continues(last)) {
            self.last_severe = Some(prefix.clone());
        }
        severe
    }
}

fn reborrow<'a>(out: &'a mut Out<'_>) -> Out<'a> {
    Out { tell: &mut *out.tell, counts: &mut *out.counts, candidates: out.candidates }
}

/// How much a match says: attributes, then whether it is whole, then how much text it knows.
fn weight(found: &Match<'_>) -> (usize, bool, usize) {
    let mut attributes = found.facts().len() + found.settings().len();
    if let Some(body) = found.body() {
        body.for_each_attribute(|_, _| attributes += 1);
    }
    (attributes, !found.cut, found.template.text.len())
}

/// Equal statements of one request fold; statements that differ in what they concern do not.
fn fold_key(template: &str, body: &Body) -> String {
    let mut key = template.to_owned();
    for name in ["request_id", "request_ids", "transfer_id", "peer", "remote_engine_id", "key"] {
        match attribute(body, name) {
            Some(Value::Str(id)) => {
                key.push('\n');
                key.push_str(&id);
            }
            Some(Value::List(ids)) => {
                for id in ids {
                    if let Value::Str(id) = id {
                        key.push('\n');
                        key.push_str(&id);
                    }
                }
            }
            _ => {}
        }
    }
    key
}
