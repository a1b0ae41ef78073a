//! `mutual_eviction`: two actors remove each other's artifacts from one store, and the victim misses or stores them
//! again.
//!
//! Stays quiet about one actor that evicts its own, about a clear, and about a remover that owns nothing there: the
//! latter two are `store_conflict`. An evictor whose own candidate is already gone has met a second evictor, even
//! where only its side is seen: then it is suspected.

mod by_events;

use super::artifacts::{Event, History};
use super::draft::Draft;
use super::{Subject, words};
use crate::view::View;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::ArtifactAction;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Removals of one worker's artifacts by another.
#[derive(Default)]
struct Toll {
    removals: Vec<Event>,
    reactions: Vec<Event>,
    bytes: i64,
    keys: BTreeSet<String>,
}

/// The complete set of findings: artifacts on a store, KV events on the fleet.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let store = match subject {
        Subject::Store(store) => store,
        Subject::Fleet => return by_events::detect(view),
        Subject::Worker(_) => return Vec::new(),
    };
    let history = History::of(view, store);
    let mut tolls: BTreeMap<(Rc<WorkerId>, Rc<WorkerId>), Toll> = BTreeMap::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            let Some(held) = held.filter(|held| held.by != event.actor) else { return };
            if event.action != ArtifactAction::Removed || history.is_clear(event) {
                return;
            }
            let toll = tolls.entry((event.actor.clone(), held.by.clone())).or_default();
            toll.removals.push(event.clone());
            toll.bytes += held.bytes.unwrap_or(0);
            toll.keys.insert(key.clone());
            if let Some(reaction) = history.reaction(key, &held.by, event) {
                toll.reactions.push(reaction.clone());
            }
        });
    }
    // In the order of time: the first ones are shown, whichever keys come later.
    for toll in tolls.values_mut() {
        toll.removals.sort_by_key(Event::order);
        toll.reactions.sort_by_key(Event::order);
    }
    let mut findings = Vec::new();
    for ((a, b), there) in tolls.iter().filter(|((a, b), _)| a < b) {
        let Some(back) = tolls.get(&(b.clone(), a.clone())) else { continue };
        let felt = there.reactions.len() + back.reactions.len();
        if felt == 0 {
            continue;
        }
        let both = !there.reactions.is_empty() && !back.reactions.is_empty();
        let confidence = if both { Confidence::Confirmed } else { Confidence::Suspected };
        let mut draft = Draft::new(Detector::MutualEviction, Cause::Unknown, confidence, store.as_str());
        draft.worker(a.as_str()).worker(b.as_str());
        for toll in [there, back] {
            draft.proofs(toll.removals.iter().take(6).map(Event::observation));
            draft.proofs(toll.reactions.iter().take(4).map(Event::observation));
            draft.at(toll.removals.iter().filter_map(|removal| removal.at).max());
        }
        let removals = there.removals.len() + back.removals.len();
        draft.events(removals as u64);
        if !both {
            draft.unknown("whether the other side missed what was removed");
        }
        let summary = format!(
            "{a} and {b} delete each other's pages in {store}: {a} removed {} of {b}'s, {b} removed {} of {a}'s; \
             {felt} were missed or stored again, {} bytes written for nothing.",
            there.removals.len(),
            back.removals.len(),
            there.bytes + back.bytes
        );
        findings.push(draft.finish(summary, words::advice(&Detector::MutualEviction, &Cause::Unknown)));
    }
    if findings.is_empty() && tolls.is_empty() {
        findings.extend(one_sided(view, &history, store.as_str()));
    }
    findings
}

/// One evictor alone is seen, and its candidates vanish: somebody else removes them.
fn one_sided(view: &View<'_>, history: &History, store: &str) -> Option<Finding> {
    let events: Vec<&Event> = history.keys.values().flatten().collect();
    let actors: BTreeSet<&WorkerId> = events.iter().map(|event| &*event.actor).collect();
    let [actor] = actors.into_iter().collect::<Vec<_>>()[..] else { return None };
    let evicts =
        events.iter().any(|event| event.action == ArtifactAction::Removed && !history.is_clear(event));
    let mut gone: Vec<&&Event> = events.iter().filter(|event| event.action == ArtifactAction::Gone).collect();
    gone.sort_by_key(|event| event.order());
    // A lost removal of its own would look the same.
    if !evicts || gone.len() < 2 || view.has_loss(actor) {
        return None;
    }
    let mut draft = Draft::new(Detector::MutualEviction, Cause::Unknown, Confidence::Suspected, store);
    draft.worker(actor.as_str()).events(gone.len() as u64);
    draft.proofs(gone.iter().take(8).map(|event| event.observation()));
    draft.unknown("who removes them: only one side of the store is seen");
    let summary = format!(
        "{actor} evicts in {store} and finds {} of the pages that it had stored already gone: another actor removes them.",
        gone.len()
    );
    Some(draft.finish(summary, words::advice(&Detector::MutualEviction, &Cause::Unknown)))
}
