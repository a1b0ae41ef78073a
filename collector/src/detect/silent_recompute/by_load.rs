//! A load that brought less than was promised, and whose request did not fail of it; see
//! [`crate::detect::unarrived::short_load`].

use super::draft_for;
use crate::detect::draft::Draft;
use crate::detect::unarrived::short_load;
use crate::view::View;
use crate::view::request::stems;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Consequence, Observation};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the loads of a worker that fell short.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let observations = view.worker(worker);
    let failed = failed_requests(&observations);
    for short in short_load::collect(&observations) {
        if short.id.is_some_and(|id| failed.contains(&RequestStem::of(id))) {
            continue;
        }
        let draft = draft_for(drafts, &Cause::LoadMiss, worker);
        draft.proofs(short.lookup).proof(short.load).tokens(short.missing as f64);
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

/// Requests of which the scheduler says that it failed them.
fn failed_requests(observations: &[Observation]) -> BTreeSet<RequestStem> {
    let failed = observations.iter().filter(
        |o| matches!(&o.body, Body::KvLoad(load) if load.consequence == Some(Consequence::RequestFailed)),
    );
    failed.flat_map(stems).collect()
}
