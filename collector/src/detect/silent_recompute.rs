//! `silent_recompute`: a prompt was computed although its KV should have come from elsewhere, and the client got an
//! answer.
//!
//! Five kinds of proof, one file each under [`crate::detect::unarrived`] and below: a failure whose request was
//! answered; a request that reached the decode side without parameters; a load that brought less than the lookup
//! promised; a lookup that found nothing of what the prefill side had stored; prompt tokens computed on a decode worker
//! that nothing else explains.

pub mod by_counters;
pub mod by_load;
pub mod by_lookup;
pub mod by_routing;

use super::draft::Draft;
use super::unarrived::{self, Decided, Fate};
use super::{Subject, words};
use crate::view::View;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::WorkerId;
use std::collections::BTreeMap;

/// The complete set of findings on a worker.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Worker(worker) = subject else { return Vec::new() };
    let decided = unarrived::of_worker(view, worker);
    let mut drafts: BTreeMap<Cause, Draft> = BTreeMap::new();
    for one in decided.iter().filter(|one| one.fate == Fate::Recomputed && one.settled) {
        let cause = one.trouble.cause.clone();
        add(draft_for(&mut drafts, &cause, worker), one);
    }
    by_routing::add(view, worker, &mut drafts);
    by_routing::add_counted(view, worker, &mut drafts);
    by_load::add(view, worker, &decided, &mut drafts);
    by_lookup::add(view, worker, &mut drafts);
    by_counters::add(view, worker, &decided, &mut drafts);
    drafts
        .into_iter()
        .filter(|(_, draft)| !draft.is_empty())
        .map(|(cause, draft)| finish(worker, &cause, draft))
        .collect()
}

pub(super) fn draft_for<'d>(
    drafts: &'d mut BTreeMap<Cause, Draft>,
    cause: &Cause,
    worker: &WorkerId,
) -> &'d mut Draft {
    drafts.entry(cause.clone()).or_insert_with(|| {
        let mut draft =
            Draft::new(Detector::SilentRecompute, cause.clone(), Confidence::Suspected, worker.as_str());
        draft.worker(worker.as_str());
        draft
    })
}

/// Adds a decided trouble to a draft.
pub(super) fn add(draft: &mut Draft, one: &Decided) {
    draft.proofs(&one.trouble.proofs).at(one.trouble.first).at(one.trouble.last);
    for id in &one.trouble.ids {
        draft.request(id);
    }
    for id in &one.trouble.aliases {
        draft.also_called(id);
    }
    for worker in &one.trouble.workers {
        draft.worker(worker.as_str());
    }
    if one.trouble.ids.is_empty() {
        draft.events(one.requests);
    }
    draft.tokens(one.tokens.unwrap_or(0) as f64);
    if one.proven {
        draft.at_least(Confidence::Confirmed);
    }
    if let Some(unknown) = &one.unknown {
        draft.unknown(unknown.clone());
    }
}

fn finish(worker: &WorkerId, cause: &Cause, draft: Draft) -> Finding {
    let (count, tokens) = (draft.count(), draft.token_count());
    let verb = match draft.confidence() {
        Confidence::Confirmed => "computed",
        _ => "probably computed",
    };
    let cost = if tokens > 0 { format!(" ({tokens} prompt tokens)") } else { String::new() };
    let prompts = if count == 1 { "one prompt".to_owned() } else { format!("{count} prompts") };
    let summary = format!(
        "{worker} {verb} {prompts} itself{cost} whose KV should have come from elsewhere: {}.",
        words::because(cause)
    );
    draft.finish(summary, words::advice(&Detector::SilentRecompute, cause))
}
