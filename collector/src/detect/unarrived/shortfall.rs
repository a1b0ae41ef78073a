//! Loads that brought less than the lookup of the same request promised.
//!
//! A lookup says what a store holds of a prompt, the load after it what came. Invariant: a lookup is met by one load, a
//! load meets one lookup. A load that names no request belongs to the last lookup that still waits for one.

use crate::view::View;
use kvprov_model::clock::SECOND;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation};

/// A load without a request id belongs to the last lookup that still waits for one, within this time.
const LOAD_AFTER_LOOKUP: i64 = 60 * SECOND;

/// A load that fell short.
#[derive(Debug, Clone)]
pub struct Shortfall {
    /// What was promised.
    pub lookup: Observation,
    /// What came.
    pub load: Observation,
    /// The request as the lookup printed it.
    pub id: String,
    /// Tokens that did not come.
    pub tokens: i64,
    /// Whether the load names the request itself.
    pub by_id: bool,
}

/// A lookup that promised tokens and waits for its load.
struct Lookup<'o> {
    observation: &'o Observation,
    id: &'o str,
    needed: i64,
}

/// The loads of a worker that fell short.
pub fn of_worker(view: &View<'_>, worker: &WorkerId) -> Vec<Shortfall> {
    let observations = view.worker(worker);
    let mut waiting: Vec<Lookup<'_>> = Vec::new();
    let mut short = Vec::new();
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
            if retrieved < due {
                short.push(Shortfall {
                    lookup: lookup.observation.clone(),
                    load: observation.clone(),
                    id: lookup.id.to_owned(),
                    tokens: due - retrieved,
                    by_id,
                });
            }
        }
    }
    short
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
