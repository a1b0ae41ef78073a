//! Tells what known messages say.
//!
//! Invariant: an observation holds only what its template keeps.

use super::candidates::names_kv_module;
use super::counts::Outcome;
use super::emit::{OWN, Statement};
use super::fold::{Words, set_times};
use super::interpret::{Interpreter, Out};
use super::prefix::Prefix;
use kvprov_model::observation::{AdminClass, Body, Worker};
use kvprov_model::value::Value;
use kvprov_packs::{Match, Template};

/// Attributes that say whom or what a statement concerns, and of how many keys each time: what folds counts that many times.
const CONCERNED: [&str; 7] =
    ["request_id", "request_ids", "transfer_id", "peer", "remote_engine_id", "key", "keys"];

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    pub(super) fn known(&mut self, statement: &Statement<'_>, found: &Match<'p>, out: &mut Out<'_>) {
        if self.is_of_another(statement, found) {
            self.unknown(statement, out);
            return;
        }
        self.has_spoken |= !found.template.common;
        self.record_known(statement, found, out);
        self.note_known(statement, found.template, out);
        if found.is_meaningless() && found.implies().is_empty() {
            return;
        }
        let times = i64::from(statement.prefix.repeated);
        let mut worker = Worker::default();
        if let Some(mut body) = found.body() {
            self.learn(&body, found);
            self.answers.note(&body);
            match &mut body {
                Body::Worker(own) => worker = std::mem::take(own),
                Body::AdminCall(call) if call.class == Some(AdminClass::CacheReset) => {
                    call.process = speaker(&statement.prefix);
                    self.tell_body(statement, found, body, times, out);
                }
                _ => self.tell_body(statement, found, body, times, out),
            }
        }
        self.tell_worker(statement, found, worker, out);
    }

    /// Whether the words are a template's and not the engine's own: a prompt that is logged, a program beside it.
    fn is_of_another(&self, statement: &Statement<'_>, found: &Match<'p>) -> bool {
        let prefix = &statement.prefix;
        let is_quoted =
            prefix.is_low_by_itself() && found.template.is_severe() && !found.begins(&statement.message);
        let an_engine_speaks = || {
            let is_known = self.engine.as_deref().is_some_and(|engine| self.packs.knows_engine(engine));
            let names_one = prefix.module.as_deref().is_some_and(names_kv_module);
            is_known || self.has_spoken || prefix.process.is_some() || prefix.rank.is_some() || names_one
        };
        is_quoted || (found.template.common && !an_engine_speaks())
    }

    /// Takes a statement of which only that it was said matters.
    pub(super) fn note_known(&mut self, statement: &Statement<'_>, template: &Template, out: &mut Out<'_>) {
        // Most lines without meaning are never read, so that those which are count as they do.
        let outcome = if template.is_silent() { Outcome::Ignored } else { Outcome::Matched };
        self.note(statement, outcome, out);
    }

    /// Counts a statement, and what it means for those around it.
    pub(super) fn note(&mut self, statement: &Statement<'_>, outcome: Outcome, out: &mut Out<'_>) {
        out.counts.add(outcome, statement.lines);
        self.note_severe(&statement.prefix);
        self.explainer.expire(statement.place.position, out.tell);
    }

    fn tell_body(
        &mut self,
        statement: &Statement<'_>,
        found: &Match<'p>,
        mut body: Body,
        times: i64,
        out: &mut Out<'_>,
    ) {
        if found.explains() {
            let telling = statement.tell(OWN, found.says(), body);
            if let Some(joined) = self.explainer.cause(statement.spot(), telling, found.alone()) {
                (out.tell)(joined);
            }
            return;
        }
        if found.takes_cause() {
            self.explainer.failure(statement.spot(), &mut body);
        }
        let telling = statement.tell(OWN, found.says(), body);
        if found.folds() {
            let key = fold_key(&found.template.id, &telling.body);
            let words =
                words_of(statement, found).map(|text| Words { text, severe: found.template.is_severe() });
            self.folds.add(key, telling, times, words, out.tell);
            return;
        }
        let mut telling = telling;
        let counted = match telling.body.attribute("times") {
            Some(Value::Int(own)) => own.saturating_mul(times),
            _ => times,
        };
        set_times(&mut telling.body, counted, times > 1);
        (out.tell)(telling);
    }
}

/// The process or rank that a prefix names.
fn speaker(prefix: &Prefix<'_>) -> Option<String> {
    let process = prefix.process.as_ref().map(|process| &process.name);
    prefix.rank.as_ref().or(process).map(|name| name.clone().into_owned())
}

/// The words by which the same statement is known when it comes again; none where it says more than its body.
fn words_of<'s>(statement: &'s Statement<'_>, found: &Match<'_>) -> Option<&'s str> {
    let says_no_more = !found.multiline()
        && !found.takes_cause()
        && found.implies().is_empty()
        && found.facts().is_empty()
        && found.settings().is_empty();
    says_no_more.then_some(&*statement.message)
}

/// Equal statements of one request fold; statements that differ in what they concern do not.
fn fold_key(template: &str, body: &Body) -> String {
    let mut key = template.to_owned();
    let mut add = |id: &str| {
        key.push('\n');
        key.push_str(id);
    };
    for value in CONCERNED.iter().filter_map(|concerned| body.attribute(concerned)) {
        match value {
            Value::Str(id) => add(&id),
            Value::Int(count) => add(&count.to_string()),
            Value::List(ids) => {
                for id in ids {
                    if let Value::Str(id) = id {
                        add(&id);
                    }
                }
            }
            _ => {}
        }
    }
    key
}
