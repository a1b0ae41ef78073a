//! Joins the lines of one message: bare lines that carry on what came before, a begin that was wrapped away above.
//!
//! A statement is held until the next line tells whether it goes on there: one of a template that may run on, and one
//! that a terminal may have wrapped, within an id too. Bounded: at most [`MAX_CONTINUATIONS`] lines are joined.

use super::broken_id;
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

// === impl Held ===

impl Held<'_> {
    /// The line that a next one would carry on.
    fn last_line(&self) -> &str {
        self.behind.last().map_or(&self.statement.message, |line| &line.message)
    }

    /// The message with all lines behind it and one more.
    fn joined_with(&self, next: &str) -> String {
        let mut joined = self.statement.message.to_string();
        for line in self.behind.iter().map(|line| line.message.trim()).chain([next.trim()]) {
            joined.push('\n');
            joined.push_str(line);
        }
        joined
    }
}

// === impl Interpreter ===

impl<'p> Interpreter<'p> {
    /// Adds a statement to the one that is held, if it may carry it on; gives it back if not.
    pub(super) fn run_on<'a>(&mut self, next: Statement<'a>, out: &mut Out<'_>) -> Option<Statement<'a>> {
        let Some(mut held) = self.held.take() else { return Some(next) };
        let is_bare = next.prefix.is_bare_behind(&held.statement.prefix);
        let completes_id = is_bare && broken_id::completes(held.last_line(), &next.message);
        let carries_on = completes_id
            || match held.wait {
                Wait::RunsOn => is_bare || next.prefix.continues(&held.statement.prefix),
                Wait::Wrapped => {
                    is_bare && (!self.says_by_itself(&next.message) || self.completes(&held, &next.message))
                }
            };
        if !carries_on || held.behind.len() >= MAX_CONTINUATIONS {
            self.held = Some(held);
            self.release(out);
            return Some(next);
        }
        let joined = held.joined_with(&next.message);
        held.behind.push(next.into_owned());
        let found = self.find(&joined);
        // A joined message must say more than its first lines did; else the next line stands for itself.
        let says_more = says_more(found.as_ref(), held.best.as_ref());
        if says_more || completes_id || is_longer_id(held.best.as_ref(), found.as_ref(), &held.behind) {
            held.statement.message = Cow::Owned(joined);
            for line in held.behind.drain(..) {
                held.statement.lines += line.lines;
                held.statement.prefix.repeated = held.statement.prefix.repeated.max(line.prefix.repeated);
            }
            held.best = found.or(held.best);
        }
        self.held = Some(held);
        None
    }

    /// Whether a message is the rest of the one whose text had ended too early, though it says something by itself.
    fn completes(&mut self, held: &Held<'p>, message: &str) -> bool {
        let Some(best) = held.best.as_ref().filter(|best| best.cut) else { return false };
        let joined = self.find(&held.joined_with(message));
        joined.is_some_and(|joined| !joined.cut && std::ptr::eq(joined.template, best.template))
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

    /// Looks whether the line above a bare one that begins within an id holds the begin of that id and of the message.
    pub(super) fn id_above(
        &mut self,
        found: Match<'p>,
        statement: &mut Statement<'_>,
        above: &[Above],
        out: &mut Out<'_>,
    ) -> Match<'p> {
        let Some(line) = above.first() else { return found };
        let plain = prefix::without_colours(&line.text);
        let unwrapped = prefix::unwrap(&plain);
        let peeled = prefix::peel(&unwrapped.payload, unwrapped.prefix);
        if peeled.object.is_some() || !broken_id::completes(&peeled.message, &statement.message) {
            return found;
        }
        let joined = format!("{}\n{}", peeled.message.trim(), statement.message.trim());
        match self.find(&joined).filter(|joined| weight(joined) >= weight(&found)) {
            Some(joined_found) => {
                begin_at(statement, line, joined, peeled.prefix.into_owned(), 1, out);
                joined_found
            }
            None => found,
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
            if found.is_some() || (spoken && self.matcher.may_continue(&self.room)) {
                begin_at(statement, line, joined, peeled.prefix.into_owned(), count, out);
                return found;
            }
            if spoken {
                return None;
            }
        }
        None
    }
}

/// A statement begins some lines above, with other words.
fn begin_at(
    statement: &mut Statement<'_>,
    line: &Above,
    joined: String,
    prefix: prefix::Prefix<'static>,
    lines: u64,
    out: &mut Out<'_>,
) {
    statement.message = Cow::Owned(joined);
    statement.prefix = prefix;
    statement.place = line.place;
    statement.lines += lines;
    // They were counted as lines in which nothing matters.
    out.counts.ignored = out.counts.ignored.saturating_sub(lines);
}

/// Whether all that was joined is the rest of the id in which the message ends.
fn is_longer_id(before: Option<&Match<'_>>, joined: Option<&Match<'_>>, behind: &[Statement<'_>]) -> bool {
    let (Some(before), Some(joined), [rest]) = (before, joined, behind) else { return false };
    let rest = rest.message.trim().trim_end_matches(['.', ',', ';', ':', '\'', '"']);
    before.ends_in_id()
        && !joined.cut
        && std::ptr::eq(before.template, joined.template)
        && (1..=MAX_REST).contains(&rest.len())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':'))
        && rest.bytes().any(|byte| byte.is_ascii_digit())
}

/// Whether one match says more than another; anything is more than nothing.
fn says_more(found: Option<&Match<'_>>, before: Option<&Match<'_>>) -> bool {
    match (found, before) {
        (None, _) => false,
        (Some(_), None) => true,
        (Some(found), Some(before)) => !found.says_the_same(before) && weight(found) > weight(before),
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
