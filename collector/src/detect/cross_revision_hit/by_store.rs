//! An artifact of a store was read under another revision than the one that wrote it.
//!
//! The last complete write decides what lies under a key; a removal or a rewrite in between ends the old content.

use super::{difference, element_type, finish};
use crate::detect::artifacts::{Event, History, Written};
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::factor::{Comparison, Factors};
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{AdminClass, ArtifactAction, Body, Observation, Outcome};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A finding, what was used, and the keys of it.
type Told = (Draft, String, BTreeSet<String>);

/// The complete set of findings on a store.
pub(super) fn detect(view: &View<'_>, store: &StoreId) -> Vec<Finding> {
    let history = History::of(view, store);
    let mut drafts: BTreeMap<(Cause, Rc<WorkerId>), Told> = BTreeMap::new();
    let mut reads: Vec<(&String, &Event, Written)> = Vec::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            reads.extend(held.filter(|_| consumed(event)).map(|held| (key, event, held.clone())));
        });
    }
    // In the order of time: the first ones are shown, whichever keys come later.
    reads.sort_by_key(|(_, event, _)| event.order());
    for (key, event, held) in &reads {
        let Some((cause, confidence, what, because)) = judge(view, event, held) else { continue };
        let entry = drafts.entry((cause.clone(), event.actor.clone())).or_insert_with(|| {
            let subject = format!("{store} -> {}", event.actor);
            let mut draft = Draft::new(Detector::CrossRevisionHit, cause, confidence, subject);
            draft.worker(event.actor.as_str());
            (draft, what, BTreeSet::new())
        });
        let (draft, _, keys) = entry;
        draft.at_least(confidence).worker(held.by.as_str()).at(event.at);
        if keys.insert((*key).clone()) {
            draft.events(1);
        }
        if keys.len() <= 4 {
            draft.context(held.observation()).proof(event.observation());
            because.iter().for_each(|update| {
                draft.context(update);
            });
        }
        if confidence != Confidence::Confirmed {
            draft.unknown("the digests of both revisions");
        }
    }
    drafts
        .into_iter()
        .map(|((cause, reader), (draft, what, keys))| {
            let summary = format!(
                "{reader} used {} artifacts of {store} that were written under another model: {what}.",
                keys.len()
            );
            finish(draft, &cause, summary)
        })
        .collect()
}

/// Whether an event took bytes from the store. A reader that maps the file shows no count.
fn consumed(event: &Event) -> bool {
    matches!(event.action, ArtifactAction::Read | ArtifactAction::Partial)
        && event.artifact().bytes.is_none_or(|bytes| bytes > 0)
}

/// Whether a reader wanted another size than was written: the store conflict of that tells it.
fn differs_in_size(event: &Event, held: &Written) -> bool {
    let wanted = event.artifact().bytes_wanted.or(event.artifact().bytes).filter(|bytes| *bytes > 0);
    held.bytes.zip(wanted).is_some_and(|(written, wanted)| written != wanted)
}

fn judge(
    view: &View<'_>,
    event: &Event,
    held: &Written,
) -> Option<(Cause, Confidence, String, Vec<Observation>)> {
    let factors = |worker: &WorkerId, at| -> Factors {
        view.roster().get(worker).map(|member| member.factors_at(at, None)).unwrap_or_default()
    };
    let (made, used) = (factors(&held.by, held.at), factors(&event.actor, event.at));
    if let Some((cause, confidence, what)) = difference(&made, &used) {
        return Some((cause, confidence, what, Vec::new()));
    }
    if held.by != event.actor
        && let Some((maker, reader)) = view.roster().get(&held.by).zip(view.roster().get(&event.actor))
        && !differs_in_size(event, held)
        && let Some((cause, confidence, what)) = element_type(maker, reader)
    {
        return Some((cause, confidence, what, Vec::new()));
    }
    if made.compare(&used, "weights") == Comparison::Equal && held.by != event.actor {
        return None;
    }
    // The reader's own weights were replaced after the write: the digests are not known, the change is.
    let update = view.worker(&event.actor).iter().find_map(|observation| match &observation.body {
        Body::AdminCall(call)
            if call.class == Some(AdminClass::WeightsUpdate)
                && call.outcome != Some(Outcome::Failed)
                && observation.envelope.wall > held.at
                && observation.envelope.wall <= event.at =>
        {
            Some(observation.clone())
        }
        _ => None,
    })?;
    let what = "the weights were updated between write and read".to_owned();
    Some((Cause::Weights, Confidence::Suspected, what, vec![update]))
}
