//! A load that brought less than was promised; see [`crate::detect::unarrived::short_load`].

use super::draft_for;
use crate::detect::draft::Draft;
use crate::detect::unarrived::short_load;
use crate::view::View;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::WorkerId;
use std::collections::BTreeMap;

/// Adds the loads of a worker that fell short.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let observations = view.worker(worker);
    for short in short_load::collect(&observations) {
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
