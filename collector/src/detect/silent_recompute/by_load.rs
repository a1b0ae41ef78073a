//! A load that brought less than the lookup of the same request promised, and whose request did not fail of it.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::detect::unarrived::shortfall;
use crate::view::View;
use crate::view::request::stems;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Consequence};
use std::collections::{BTreeMap, BTreeSet};

/// Adds the loads of a worker that fell short.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let short = shortfall::of_worker(view, worker);
    if short.is_empty() {
        return;
    }
    let failed = failed_requests(view, worker);
    for one in short.iter().filter(|one| !failed.contains(&RequestStem::of(&one.id))) {
        let draft = draft_for(drafts, &Cause::LoadMiss, worker);
        draft.proof(&one.lookup).proof(&one.load).request(&one.id);
        draft.tokens(one.tokens as f64);
        if one.by_id {
            draft.at_least(Confidence::Confirmed);
        } else {
            draft.unknown("the load line names no request; it is the next load after this lookup");
        }
    }
}

/// Requests of which the scheduler says that it failed them.
fn failed_requests(view: &View<'_>, worker: &WorkerId) -> BTreeSet<RequestStem> {
    let observations = view.worker(worker);
    let failed = observations.iter().filter(
        |o| matches!(&o.body, Body::KvLoad(load) if load.consequence == Some(Consequence::RequestFailed)),
    );
    failed.flat_map(stems).collect()
}
