//! A load that brought less than the lookup of the same request promised.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::clock::SECOND;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation};
use std::collections::BTreeMap;

/// A load without a request id belongs to the last lookup that still waits for one, within this time.
const LOAD_AFTER_LOOKUP: i64 = 60 * SECOND;

/// A lookup that promised tokens and waits for its load.
struct Lookup<'o> {
    observation: &'o Observation,
    id: &'o str,
    needed: i64,
}

/// Adds the loads of a worker that fell short.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let observations = view.worker(worker);
    let mut waiting: Vec<Lookup<'_>> = Vec::new();
    for observation in observations.iter() {
        let Body::CacheUse(used) = &observation.body else { continue };
        if let Some(lookup) = promised(observation, used) {
            waiting.retain(|held| held.id != lookup.id);
            waiting.push(lookup);
        } else if let Some(retrieved) = used.retrieved {
            let (at, by_id) = match &used.request_id {
                Some(id) => {
                    (waiting.iter().position(|held| RequestStem::of(held.id) == RequestStem::of(id)), true)
                }
                None => (waiting.iter().rposition(|held| near(held.observation, observation)), false),
            };
            let Some(at) = at else { continue };
            let lookup = waiting.remove(at);
            let due = lookup.needed.min(used.asked.unwrap_or(i64::MAX));
            if retrieved >= due {
                continue;
            }
            let draft = draft_for(drafts, &Cause::LoadMiss, worker);
            draft.proof(lookup.observation).proof(observation).request(lookup.id);
            draft.tokens((due - retrieved) as f64);
            if by_id {
                draft.at_least(Confidence::Confirmed);
            } else {
                draft.unknown("the load line names no request; it is the next load after this lookup");
            }
        }
    }
}

fn promised<'o>(observation: &'o Observation, used: &'o CacheUse) -> Option<Lookup<'o>> {
    let needed = used.needed.or(used.hit)?;
    let (Some(id), None, true) = (&used.request_id, used.retrieved, needed > 0) else { return None };
    (used.hit.unwrap_or(needed) > 0).then_some(Lookup { observation, id, needed })
}

fn near(lookup: &Observation, load: &Observation) -> bool {
    match (lookup.envelope.wall, load.envelope.wall) {
        (Some(a), Some(b)) => (-SECOND..=LOAD_AFTER_LOOKUP).contains(&b.since(a)),
        _ => lookup.envelope.stream == load.envelope.stream,
    }
}
