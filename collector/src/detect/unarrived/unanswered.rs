//! Whom a store that did not answer kept waiting.
//!
//! A complaint that a store cannot be reached names no request. Where lookups and loads are told, they show whom it concerned: nobody, if
//! the load in whose course it came was complete, or nobody asked before the store was there again, or no prompt ran, or a server
//! that tells no lookups had its connection back at once; a load that fell short, which is told by itself; or the only request whose
//! lookup found nothing in the same breath.

use super::Trouble;
use super::short_load::{self, in_order};
use crate::view::{Interval, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::counter;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation, Role};
use std::collections::BTreeMap;

/// A connection that is there again this soon was tried again, and not given up.
const TRIED_AGAIN: i64 = 30 * SECOND;

/// Whom it concerned.
pub(super) enum Asked {
    /// Nobody, or a load that is told by itself.
    Nobody,
    /// The lookup of one request, and its id.
    One(Box<Observation>, String),
    /// What is told does not show it.
    Untold,
}

/// Whom the complaints of a trouble concerned.
pub(super) fn asked(view: &View<'_>, worker: &WorkerId, trouble: &Trouble) -> Asked {
    let observations = view.worker(worker);
    let loads = short_load::loads(&observations);
    let is_of_load = |at: WallTime| {
        loads.iter().any(|(lookup, load)| {
            let span = lookup.envelope.wall.zip(load.envelope.wall);
            span.is_some_and(|(from, to)| (from..=to).contains(&at))
        })
    };
    let intervals = view.intervals(worker);
    let is_server = view.roster().get(worker).is_some_and(|member| member.role == Some(Role::Store));
    let is_retry =
        |at: WallTime| is_server && trouble.consequence.is_none() && was_tried_again(&observations, at);
    let is_idle =
        |at: WallTime| nobody_asked(&observations, at) || nothing_ran(&intervals, at) || is_retry(at);
    let concerns_nobody =
        |proof: &Observation| proof.envelope.wall.is_some_and(|at| is_of_load(at) || is_idle(at));
    if !trouble.proofs.is_empty() && trouble.proofs.iter().all(concerns_nobody) {
        return Asked::Nobody;
    }
    match trouble.proofs.as_slice() {
        [failure] if trouble.events <= 1 => only_lookup(&observations, failure).unwrap_or(Asked::Untold),
        _ => Asked::Untold,
    }
}

/// Whether no lookup is told from a complaint until the store is seen to work, although lookups are told.
fn nobody_asked(observations: &[Observation], at: WallTime) -> bool {
    let Some(there) = there_again(observations, at) else { return false };
    let lookups = || observations.iter().filter(|observation| is_lookup(observation));
    let between = |lookup: &Observation| {
        lookup.envelope.wall.is_none_or(|told| (at.plus(-SECOND)..there).contains(&told))
    };
    lookups().next().is_some() && !lookups().any(between)
}

/// When the store is seen to work after a complaint.
fn there_again(observations: &[Observation], at: WallTime) -> Option<WallTime> {
    let is_there = |observation: &&Observation| match &observation.body {
        Body::Store(store) => store.event.as_deref() == Some("connected"),
        Body::CacheUse(used) => used.hit.or(used.retrieved).unwrap_or(0) > 0,
        _ => false,
    };
    let later = |observation: &&Observation| observation.envelope.wall.is_some_and(|told| told > at);
    observations.iter().filter(later).filter(is_there).filter_map(|there| there.envelope.wall).min()
}

/// Whether a server that tells no lookup had its store back at once: nothing shows that anybody went without.
fn was_tried_again(observations: &[Observation], at: WallTime) -> bool {
    there_again(observations, at).is_some_and(|there| there.since(at) <= TRIED_AGAIN)
        && !observations.iter().any(is_lookup)
}

/// Whether counters show that the engine had no prompt at that time.
fn nothing_ran(intervals: &[Interval], at: WallTime) -> bool {
    let mut around =
        intervals.iter().filter(|interval| interval.since.is_some() && interval.contains(Some(at)));
    let is_still = |interval: &Interval| {
        interval.has(counter::PROMPT_TOTAL)
            && interval.increase(counter::PROMPT_TOTAL) == 0.0
            && interval.increase(counter::REQUESTS_ANSWERED) == 0.0
    };
    around.next().is_some_and(is_still) && around.all(is_still)
}

fn is_lookup(observation: &Observation) -> bool {
    matches!(
        &observation.body,
        Body::CacheUse(CacheUse { retrieved: None, request_id: Some(_), hit: Some(_), .. })
    )
}

/// The only request whose lookup found nothing in the same breath.
fn only_lookup(observations: &[Observation], failure: &Observation) -> Option<Asked> {
    let failed = failure.envelope.wall?;
    let mut asked: BTreeMap<RequestStem, (&Observation, &str)> = BTreeMap::new();
    for (observation, used) in in_order(observations) {
        if let CacheUse { hit: Some(0), retrieved: None, request_id: Some(id), .. } = used
            && observation.envelope.wall.is_some_and(|told| (0..=SECOND).contains(&told.since(failed)))
        {
            asked.entry(RequestStem::of(id)).or_insert((observation, id));
        }
    }
    let mut asked = asked.into_values();
    match (asked.next(), asked.next()) {
        (Some((lookup, id)), None) => Some(Asked::One(Box::new(lookup.clone()), id.to_owned())),
        _ => None,
    }
}
