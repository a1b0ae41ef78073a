//! Joins the lines of one message: bare lines that carry on what came before, a begin that was wrapped away above.
//!
//! A statement is held until the next line tells whether it goes on there: one of a template that may run on, and one
//! that a terminal may have wrapped, within an id too. Bounded: at most [`MAX_CONTINUATIONS`] lines are joined.

use super::emit::Statement;
use super::interpret::{Interpreter, Out};
use super::lookback::Above;
use super::prefix;
use kvprov_packs::Match;
use std::borrow::Cow;

/// Bare lines that a message may run on over.
const MAX_CONTINUATIONS: usize = 4;

/// Longest rest of an id on a line of its own, in bytes.
const MAX_REST: usize = 128;

/// Why a statement is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    /// Its template may run on.
    RunsOn,
    /// It may be wrapped: a bare line that says nothing by itself would be its rest.
    Wrapped,
}

/// A statement whose message may go on.
#[derive(Debug)]
pub(super) struct Held<'p> {
    /// The statement, with the lines that are known to belong to it.
    pub(super) statement: Statement<'static>,
    pub(super) best: Option<Match<'p>>,
    pub(super) wait: Wait,
    /// Lines behind it that may belong to it.
    pub(super) behind: Vec<Statement<'static>>,
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    /// Adds a statement to the one that is held, if it may carry it on; gives it back if not.
    pub(super) fn run_on<'a>(&mut self, next: Statement<'a>, out: &mut Out<'_>) -> Option<Statement<'a>> {
        let Some(mut held) = self.held.take() else { return Some(next) };
        let carries_on = match held.wait {
            Wait::RunsOn => !next.prefix.spoken || next.prefix.continues(&held.statement.prefix),
            Wait::Wrapped => !next.prefix.spoken && !self.says_by_itself(&next.message),
        };
        if !carries_on || held.behind.len() >= MAX_CONTINUATIONS {
            self.held = Some(held);
            self.release(out);
            return Some(next);
        }
        held.behind.push(next.into_owned());
        let mut joined = held.statement.message.to_string();
        for line in &held.behind {
            joined.push('\n');
            joined.push_str(line.message.trim());
        }
        let found = self.find(&joined);
        // A joined message must say more than its first lines did; else the next line stands for itself.
        let says_more = found.as_ref().map(weight) > held.best.as_ref().map(weight);
        if says_more || is_longer_id(held.best.as_ref(), found.as_ref(), &held.behind) {
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

    /// Whether a template knows the whole of a message.
    fn says_by_itself(&mut self, message: &str) -> bool {
        self.sight(message).is_some_and(|sight| !sight.cut)
    }

    /// Ends the wait of the held statement; lines that turned out not to belong to it speak for themselves.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        // Each round leaves fewer lines behind, so that this ends.
        while let Some(held) = self.held.take() {
            let Held { statement, best, behind, .. } = held;
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
            let found = self.find(&joined).filter(|found| found.multiline() || !found.cut);
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

/// Whether all that was joined is the rest of the id in which the message ends.
fn is_longer_id(before: Option<&Match<'_>>, joined: Option<&Match<'_>>, behind: &[Statement<'_>]) -> bool {
    let (Some(before), Some(joined), [rest]) = (before, joined, behind) else { return false };
    let rest = rest.message.trim();
    before.ends_in_id()
        && !joined.cut
        && std::ptr::eq(before.template, joined.template)
        && (1..=MAX_REST).contains(&rest.len())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        && rest.bytes().any(|byte| byte.is_ascii_digit())
}

/// How much a match says: attributes, then whether it is whole, then how much text it knows.
fn weight(found: &Match<'_>) -> (usize, bool, usize) {
    let mut attributes = found.facts().len() + found.settings().len();
    if let Some(body) = found.body() {
        body.for_each_attribute(|_, _| attributes += 1);
    }
    (attributes, !found.cut, found.template.text.len())
}
