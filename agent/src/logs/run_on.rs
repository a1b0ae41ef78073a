//! Joins the lines of one message: bare lines that carry on what came before, a begin that was wrapped away above.
//!
//! A statement of a template that may run on is held until the next line tells whether it does. Bounded: at most
//! [`MAX_CONTINUATIONS`] lines are joined.

use super::emit::Statement;
use super::interpret::{Interpreter, Out};
use super::lookback::Above;
use super::prefix;
use kvprov_packs::Match;
use std::borrow::Cow;

/// Bare lines that a message may run on over.
const MAX_CONTINUATIONS: usize = 4;

/// A statement whose message may run on.
#[derive(Debug)]
pub(super) struct Held<'p> {
    /// The statement, with the lines that are known to belong to it.
    pub(super) statement: Statement<'static>,
    pub(super) best: Option<Match<'p>>,
    /// Lines behind it that may belong to it.
    pub(super) behind: Vec<Statement<'static>>,
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    /// Adds a statement to the one that is held, if it may carry it on; gives it back if not.
    pub(super) fn run_on<'a>(&mut self, next: Statement<'a>, out: &mut Out<'_>) -> Option<Statement<'a>> {
        let Some(held) = &self.held else { return Some(next) };
        let carries_on = !next.prefix.spoken || next.prefix.continues(&held.statement.prefix);
        if !carries_on || held.behind.len() >= MAX_CONTINUATIONS {
            self.release(out);
            return Some(next);
        }
        let Some(mut held) = self.held.take() else { return Some(next) };
        held.behind.push(next.into_owned());
        let mut joined = held.statement.message.to_string();
        for line in &held.behind {
            joined.push('\n');
            joined.push_str(line.message.trim());
        }
        let found = self.find(&joined);
        // A joined message must say more than its first lines did; else the next line stands for itself.
        if found.as_ref().map(weight) > held.best.as_ref().map(weight) {
            held.statement.message = Cow::Owned(joined);
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
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
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
    pub(super) fn begin_above(
        &mut self,
        statement: &mut Statement<'_>,
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
                statement.message = Cow::Owned(joined);
                statement.prefix = peeled.prefix.into_owned();
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
}

/// How much a match says: attributes, then whether it is whole, then how much text it knows.
fn weight(found: &Match<'_>) -> (usize, bool, usize) {
    let mut attributes = found.facts().len() + found.settings().len();
    if let Some(body) = found.body() {
        body.for_each_attribute(|_, _| attributes += 1);
    }
    (attributes, !found.cut, found.template.text.len())
}
