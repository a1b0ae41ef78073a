//! A decode worker that found nothing of a prompt which a prefill worker had stored for the same request.
//!
//! A lookup without a hit is no evidence by itself: only the store under the same id, told before it by another
//! worker whose role is prefill, makes it one. Stays quiet where a later lookup of the request finds it (the first one may
//! come before the last write), and where another connector beside the cache may have brought the KV.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::fact;
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation, Role};
use std::collections::{BTreeMap, BTreeSet};

/// A request that is looked up again is so within this time.
const SETTLE: i64 = 15 * kvprov_model::clock::SECOND;

/// Adds the requests of a decode worker whose lookup found nothing of what was stored for them.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let Some(member) = view.roster().get(worker).filter(|member| member.role == Some(Role::Decode)) else {
        return;
    };
    if member.fact(fact::CONNECTOR).is_some_and(|name| name.contains("MultiConnector")) {
        return;
    }
    let found = found(&view.worker(worker));
    let block = member.number(fact::BLOCK_SIZE).unwrap_or(1.0);
    let mut done: BTreeSet<RequestStem> = BTreeSet::new();
    for observation in view.worker(worker).iter() {
        let Body::CacheUse(used) = &observation.body else { continue };
        let (Some(id), Some(0), Some(asked)) = (&used.request_id, used.hit, used.asked) else { continue };
        let stem = RequestStem::of(id);
        if (asked as f64) < block || found.contains(&stem) || !done.insert(stem) {
            continue;
        }
        // The write may be on its way: only a later lookup shows it.
        let until = observation.envelope.wall.map(|wall| wall.plus(SETTLE));
        if observation.envelope.wall.is_some() && !view.heard([member], until).is_settled() {
            continue;
        }
        let told = view.request(&RequestStem::of(id));
        let Some(stored) = told.iter().find(|other| was_stored(view, other, observation)) else { continue };
        let draft = draft_for(drafts, &Cause::LoadMiss, worker);
        draft.proof(stored).proof(observation).request(id).tokens(asked as f64);
        draft.unknown("whether the decode worker held the prompt in its own cache, and what the client got");
    }
}

/// Requests of which a worker found or got something.
fn found(observations: &[Observation]) -> BTreeSet<RequestStem> {
    let found = observations.iter().filter_map(|observation| match &observation.body {
        Body::CacheUse(used) if used.hit.or(used.retrieved).unwrap_or(0) > 0 => used.request_id.as_deref(),
        _ => None,
    });
    found.map(RequestStem::of).collect()
}

/// Whether a prefill worker says before a lookup that it stores the prompt.
fn was_stored(view: &View<'_>, stored: &Observation, lookup: &Observation) -> bool {
    let Body::CacheUse(CacheUse { hit: None, retrieved: None, asked: Some(1..), .. }) = &stored.body else {
        return false;
    };
    let prefills = stored
        .envelope
        .worker
        .as_ref()
        .and_then(|worker| view.roster().get(worker))
        .is_some_and(|member| member.role == Some(Role::Prefill));
    let before = match (stored.envelope.wall, lookup.envelope.wall) {
        (Some(stored), Some(lookup)) => stored <= lookup,
        _ => false,
    };
    prefills && before
}
