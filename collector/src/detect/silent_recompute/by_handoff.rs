//! A decode worker looked for what its prefill peer had stored for the same request, and found nothing.
//!
//! Pairs that hand over through a cache (LMCache's sender and receiver, or one store between them) print no failure
//! when the keys do not meet or the objects are gone: the lookup says 0 and the prompt is computed. A lookup that finds
//! nothing is no evidence by itself; that the peer stored this very request before is. Stays quiet where another
//! connector may have brought the KV, and where a later lookup of the request found it.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::view::View;
use crate::view::request::stems;
use kvprov_model::clock::SECOND;
use kvprov_model::fact;
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation, Outcome, Role, Tier};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the handovers that a decode worker did not find.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let Some(member) = view.roster().get(worker) else { return };
    let through_cache = member.fact(fact::CONNECTOR).is_some_and(|name| name.starts_with("LMCache"));
    if member.role != Some(Role::Decode) || !through_cache {
        return;
    }
    let observations = view.worker(worker);
    let mut found: BTreeSet<RequestStem> = BTreeSet::new();
    let mut missed: BTreeMap<RequestStem, &Observation> = BTreeMap::new();
    for observation in observations.iter() {
        for stem in stems(observation) {
            match &observation.body {
                Body::CacheUse(used) if used.tier == Some(Tier::Storage) => {
                    if used.hit.or(used.retrieved).unwrap_or(0) > 0 {
                        found.insert(stem);
                    } else if used.hit == Some(0) && used.asked.unwrap_or(0) > 0 {
                        missed.entry(stem).or_insert(observation);
                    }
                }
                Body::Transfer(transfer) if transfer.outcome == Some(Outcome::Succeeded) => {
                    found.insert(stem);
                }
                _ => {}
            }
        }
    }
    for (stem, lookup) in missed.into_iter().filter(|(stem, _)| !found.contains(stem)) {
        let Some(stored) = stored_by_prefill(view, &stem, lookup) else { continue };
        let draft = draft_for(drafts, &Cause::LoadMiss, worker);
        draft.proof(&stored).proof(lookup).requests_of(lookup);
        if let Body::CacheUse(used) = &lookup.body {
            draft.tokens(used.asked.unwrap_or(0) as f64);
        }
        draft.unknown("whether the keys of both sides differ or the objects were gone; no answer is seen");
    }
}

/// What a prefill worker said of storing the request, at the latest in the second of the lookup.
fn stored_by_prefill(view: &View<'_>, stem: &RequestStem, lookup: &Observation) -> Option<Observation> {
    let prefills = |o: &Observation| {
        let worker = o.envelope.worker.as_ref();
        worker.and_then(|id| view.roster().get(id)).is_some_and(|member| member.role == Some(Role::Prefill))
    };
    let before = |o: &Observation| match (o.envelope.wall, lookup.envelope.wall) {
        (Some(stored), Some(asked)) => stored.since(asked) <= SECOND,
        _ => true,
    };
    view.request(stem)
        .iter()
        .find(|o| matches!(&o.body, Body::CacheUse(used) if stores(used)) && prefills(o) && before(o))
        .cloned()
}

/// A statement on storing: it names neither what was found nor what came.
fn stores(used: &CacheUse) -> bool {
    used.tier == Some(Tier::Storage)
        && used.hit.is_none()
        && used.retrieved.is_none()
        && used.stored.or(used.asked).unwrap_or(0) > 0
}
