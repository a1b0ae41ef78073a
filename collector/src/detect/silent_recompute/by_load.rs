//! A load that brought less than was promised, and whose request did not fail of it; see
//! [`crate::detect::unarrived::short_load`].

use super::draft_for;
use crate::detect::draft::Draft;
use crate::detect::unarrived::{Decided, Fate, short_load};
use crate::view::View;
use crate::view::request::stems;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Consequence, Observation};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the loads of a worker that fell short. What the scheduler counted of their requests, which stands in the draft already, is
/// not counted again.
pub(super) fn add(
    view: &View<'_>,
    worker: &WorkerId,
    decided: &[Decided],
    drafts: &mut BTreeMap<Cause, Draft>,
) {
    let observations = view.worker(worker);
    let failed = failed_requests(&observations);
    let mut told = told_by_scheduler(decided);
    for short in short_load::collect(&observations) {
        if short.id.is_some_and(|id| failed.contains(&RequestStem::of(id))) {
            continue;
        }
        let draft = draft_for(drafts, &Cause::LoadMiss, worker);
        let counted = match short.id {
            Some(id) if told.requests.contains(&RequestStem::of(id)) => told.tokens.min(short.missing),
            _ => 0,
        };
        told.tokens -= counted;
        draft.proofs(short.lookup).proof(short.load).tokens((short.missing - counted) as f64);
        match short.id {
            Some(id) => draft.request(id),
            None => draft.events(1),
        };
        if short.by_id {
            draft.at_least(Confidence::Confirmed);
        } else if short.id.is_some() {
            draft.unknown("the load line names no request; it is the next load after this lookup");
        } else {
            draft.unknown("no lookup is printed, and whether the client got an answer");
        }
    }
}

/// Requests whose recompute is told already, and the tokens that were counted of all of them together.
struct Told {
    requests: BTreeSet<RequestStem>,
    tokens: i64,
}

fn told_by_scheduler(decided: &[Decided]) -> Told {
    let mut told = Told { requests: BTreeSet::new(), tokens: 0 };
    let is_of_load =
        |one: &&Decided| one.fate == Fate::Recomputed && one.trouble.cause == Cause::LoadMiss && one.settled;
    for one in decided.iter().filter(is_of_load) {
        let named = one.trouble.ids.iter().map(|id| RequestStem::of(id));
        let before = told.requests.len();
        told.requests.extend(named);
        if told.requests.len() > before {
            told.tokens += one.tokens.unwrap_or(0);
        }
    }
    told
}

/// Requests of which the scheduler says that it failed them.
fn failed_requests(observations: &[Observation]) -> BTreeSet<RequestStem> {
    let failed = observations.iter().filter(
        |o| matches!(&o.body, Body::KvLoad(load) if load.consequence == Some(Consequence::RequestFailed)),
    );
    failed.flat_map(stems).collect()
}
