//! Joins the cause of a failure, told by one line, with the failure, told by a neighbouring line of the process.
//!
//! Engines print an exception either as the traceback of the failure line (the same log record, so the same prefix)
//! or just before it. In the first form the failure was told already when its cause is read; the cause becomes a
//! handshake that names the requests of the failure. In the second the cause is set on the failure itself.
//! Invariant: a cause serves one failure, a failure takes one cause, and what finds no other within the window is
//! dropped unless it states a failure of its own. Bounded: a few dozen lines are remembered.

use super::emit::Telling;
use super::prefix::Prefix;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::{Body, Handshake, Outcome};
use kvprov_model::value::Value;
use std::collections::VecDeque;

/// Lines between a failure and its cause further down its traceback.
const TRACEBACK_LINES: u64 = 200;
/// Lines between a cause and the failure that follows it.
const BEFORE_LINES: u64 = 60;
/// Time between a cause and the failure that follows it.
const BEFORE_TIME: i64 = 10 * SECOND;
/// Failures and causes remembered at once.
const MAX_REMEMBERED: usize = 64;

/// Attributes that a cause lends a failure that lacks them.
const LENT: [&str; 6] =
    ["local_engine_id", "remote_engine_id", "answered_engine_id", "local_hash", "remote_hash", "peer"];

/// Where and by whom a line was said.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    /// Physical line.
    pub(super) line: u64,
    /// When.
    pub(super) wall: Option<WallTime>,
    /// By whom.
    pub(super) prefix: Prefix<'static>,
}

#[derive(Debug, Clone)]
struct Failure {
    spot: Spot,
    body: Body,
    explained: bool,
    /// What its traceback told.
    cause: Option<Body>,
}

#[derive(Debug)]
struct Cause {
    spot: Spot,
    telling: Telling,
    /// The wording states a failure even without another line.
    alone: bool,
    /// Line of an unexplained failure before it, in case none follows.
    earlier: Option<u64>,
}

/// Failures and causes that wait for each other.
#[derive(Debug, Default)]
pub(super) struct Explainer {
    failures: VecDeque<Failure>,
    causes: VecDeque<Cause>,
}

// === impl Explainer ===

impl Explainer {
    /// Takes a line that tells a cause; `telling` is what it says by itself. Gives the handshake that it and the
    /// failure of its traceback make; otherwise the cause waits.
    pub(super) fn cause(&mut self, spot: Spot, telling: Telling, alone: bool) -> Option<Telling> {
        let failure = self.failures.iter_mut().rev().find(|failure| same_process(&spot, &failure.spot));
        let mut earlier = None;
        if let Some(failure) = failure.filter(|failure| follows_at_once(&spot, &failure.spot)) {
            let in_its_traceback = !spot.prefix.spoken || spot.prefix.continues(&failure.spot.prefix);
            if in_its_traceback && failure.explained {
                // An exception chain names the cause once more.
                return None;
            }
            if in_its_traceback {
                failure.explained = true;
                failure.cause = Some(telling.body.clone());
                return Some(explained(telling, &failure.body));
            }
            if !failure.explained {
                earlier = Some(failure.spot.line);
            }
        }
        if self.causes.len() >= MAX_REMEMBERED {
            self.causes.pop_front();
        }
        self.causes.push_back(Cause { spot, telling, alone, earlier });
        None
    }

    /// Takes a line that tells a failure; sets on it the cause that was told just before.
    pub(super) fn failure(&mut self, spot: Spot, body: &mut Body) {
        let found = self.causes.iter().rposition(|cause| {
            let lines = spot.line.saturating_sub(cause.spot.line);
            same_process(&spot, &cause.spot)
                && lines <= BEFORE_LINES
                && within(&cause.spot, &spot, BEFORE_TIME)
        });
        let mut explained = false;
        if let Some(cause) = found.and_then(|at| self.causes.remove(at)) {
            lend(&cause.telling.body, body);
            explained = true;
            // Other links of the same exception chain are spent with it.
            self.causes.retain(|other| !other.spot.prefix.continues(&cause.spot.prefix));
        } else if let Some(first) = self.failures.back().filter(|first| is_general_of(first, &spot, body)) {
            // The failed handshake itself, for the first of the requests that waited for it.
            if let Some(cause) = &first.cause {
                lend(cause, body);
            }
        }
        if self.failures.len() >= MAX_REMEMBERED {
            self.failures.pop_front();
        }
        self.failures.push_back(Failure { spot, body: body.clone(), explained, cause: None });
    }

    /// Whether a cause waits for its failure.
    pub(super) fn waits(&self) -> bool {
        !self.causes.is_empty()
    }

    /// Whether neither a cause nor a failure waits for the other in line `line`.
    pub(super) fn at_rest(&self, line: u64) -> bool {
        let past = |failure: &Failure| line.saturating_sub(failure.spot.line) > TRACEBACK_LINES;
        self.causes.is_empty() && self.failures.back().is_none_or(past)
    }

    /// Gives up causes for which no failure came until `line`; those that say something by themselves are told.
    pub(super) fn expire(&mut self, line: u64, tell: &mut dyn FnMut(Telling)) {
        while self.causes.front().is_some_and(|cause| line.saturating_sub(cause.spot.line) > BEFORE_LINES) {
            self.give_up_first(tell);
        }
    }

    /// Gives up all causes.
    pub(super) fn finish(&mut self, tell: &mut dyn FnMut(Telling)) {
        while !self.causes.is_empty() {
            self.give_up_first(tell);
        }
        self.failures.clear();
    }

    fn give_up_first(&mut self, tell: &mut dyn FnMut(Telling)) {
        let Some(cause) = self.causes.pop_front() else { return };
        let before = cause.earlier.and_then(|line| {
            self.failures.iter_mut().find(|failure| failure.spot.line == line && !failure.explained)
        });
        if let Some(failure) = before {
            failure.explained = true;
            tell(explained(cause.telling, &failure.body));
        } else if cause.alone {
            tell(cause.telling);
        }
    }
}

/// Whether a failure that names no request is that of the handshake for which the request of another waited.
fn is_general_of(first: &Failure, spot: &Spot, body: &Body) -> bool {
    let names_request =
        |body: &Body| ["request_id", "request_ids"].iter().any(|name| body.attribute(name).is_some());
    let same_engine = match (first.body.attribute("remote_engine_id"), body.attribute("remote_engine_id")) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    same_engine
        && matches!(first.body, Body::Handshake(_))
        && !names_request(&first.body)
        && same_process(spot, &first.spot)
        && follows_at_once(spot, &first.spot)
}

fn same_process(a: &Spot, b: &Spot) -> bool {
    a.prefix.may_be_process_of(&b.prefix)
}

/// The same or the next second, within the lines of a traceback.
fn follows_at_once(later: &Spot, earlier: &Spot) -> bool {
    later.line.saturating_sub(earlier.line) <= TRACEBACK_LINES && within(earlier, later, 2 * SECOND - 1)
}

fn within(earlier: &Spot, later: &Spot, limit: i64) -> bool {
    match (earlier.wall, later.wall) {
        (Some(earlier), Some(later)) => (-SECOND..=limit).contains(&later.since(earlier)),
        _ => true,
    }
}

/// The handshake that a cause and a failure make: what the cause says, and whom the failure concerns.
fn explained(mut telling: Telling, failure: &Body) -> Telling {
    let mut handshake = match &telling.body {
        Body::Handshake(handshake) => handshake.clone(),
        other => {
            let mut made = Body::Handshake(Handshake::default());
            lend(other, &mut made);
            match made {
                Body::Handshake(handshake) => handshake,
                _ => Handshake::default(),
            }
        }
    };
    handshake.outcome = Some(Outcome::Failed);
    for name in ["request_id", "request_ids"] {
        match failure.attribute(name) {
            Some(Value::Str(id)) => push_new(&mut handshake.request_ids, id),
            Some(Value::List(ids)) => {
                for id in ids {
                    if let Value::Str(id) = id {
                        push_new(&mut handshake.request_ids, id);
                    }
                }
            }
            _ => {}
        }
    }
    let mut body = Body::Handshake(handshake);
    for name in LENT {
        lend_one(failure, &mut body, name, false);
    }
    telling.index =
        telling.index / super::emit::PER_STATEMENT * super::emit::PER_STATEMENT + super::emit::EXPLAINED;
    telling.body = body;
    telling
}

fn push_new(ids: &mut Vec<String>, id: String) {
    if !ids.contains(&id) {
        ids.push(id);
    }
}

/// Sets cause and engine identities of `from` on `to`; the cause of a failure line is only its general one.
fn lend(from: &Body, to: &mut Body) {
    lend_one(from, to, "cause", true);
    for name in LENT {
        lend_one(from, to, name, false);
    }
}

fn lend_one(from: &Body, to: &mut Body, name: &str, replace: bool) {
    if let Some(value) = from.attribute(name)
        && (replace || to.attribute(name).is_none())
    {
        // A kind without the attribute does without it.
        let _ = to.set(name, value);
    }
}
