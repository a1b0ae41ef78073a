//! `store_conflict`: actors contradict each other on a store otherwise than by eviction.
//!
//! A clear that took foreign keys; a remover that owns nothing there, seen or by its own words; one key with two sizes; metadata
//! without data.
//! Stays quiet about an actor that clears or removes what is its own.

mod unseen_remover;

use super::artifacts::{Event, History, Written};
use super::draft::Draft;
use super::{Subject, words};
use crate::view::View;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{AdminClass, ArtifactAction, Body, Observation, Outcome, Tier};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// A miss this soon after a store was emptied is its consequence.
const MISS_AFTER_CLEAR: i64 = 300 * SECOND;
/// Statements of one sharer that stand as evidence.
const TOUCHED_SHOWN: usize = 4;
/// What a client prints of one read that failed comes within this time.
const BREATH: i64 = 2 * SECOND;

/// The complete set of findings on a subject: artifacts on a store, the engine's own words on a worker.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    match subject {
        Subject::Store(store) => on_store(view, store),
        Subject::Worker(worker) => in_words(view, worker),
        Subject::Fleet => emptied_for_others(view),
    }
}

/// Conflicts of one cause between an actor and its victims.
struct Conflict {
    draft: Draft,
    victims: BTreeSet<Rc<WorkerId>>,
    keys: u64,
    felt: u64,
}

fn on_store(view: &View<'_>, store: &StoreId) -> Vec<Finding> {
    let history = History::of(view, store);
    let mut conflicts: BTreeMap<(Cause, Rc<WorkerId>), Conflict> = BTreeMap::new();
    let mut contradictions: Vec<(&String, &Event, Written, Cause)> = Vec::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            contradictions.extend(
                judge(view, &history, event, held).map(|(cause, held)| (key, event, held.clone(), cause)),
            );
        });
    }
    let mut last: BTreeMap<&WorkerId, usize> = BTreeMap::new();
    for event in history.keys.values().flatten() {
        let order = last.entry(&event.actor).or_insert(0);
        *order = event.order().max(*order);
    }
    // In the order of time: the first ones are shown, whichever keys come later.
    contradictions.sort_by_key(|(_, event, _, _)| event.order());
    for (key, event, held, cause) in &contradictions {
        let conflict = conflicts.entry((cause.clone(), event.actor.clone())).or_insert_with(|| {
            let mut draft =
                Draft::new(Detector::StoreConflict, cause.clone(), Confidence::Risk, store.as_str());
            draft.worker(event.actor.as_str());
            Conflict { draft, victims: BTreeSet::new(), keys: 0, felt: 0 }
        });
        conflict.keys += 1;
        conflict.draft.events(1).worker(held.by.as_str());
        conflict.victims.insert(held.by.clone());
        if conflict.keys <= 6 {
            conflict.draft.context(held.observation()).proof(event.observation());
            conflict.draft.proofs(history.clear_call(event));
        }
        conflict.draft.at(event.at);
        // An owner that went on and asked for none of it shows that what an outsider removed was cold.
        let owner_went_on = last.get(&*held.by).is_some_and(|order| *order > event.order());
        if *cause != Cause::ForeignRemoval || !owner_went_on {
            conflict.draft.at_least(Confidence::Suspected);
        }
        if *cause == Cause::SizeMismatch {
            conflict.draft.at_least(Confidence::Confirmed);
        } else if let Some(reaction) = history.reaction(key, &held.by, event) {
            conflict.felt += 1;
            if conflict.felt <= 4 {
                conflict.draft.proof(reaction.observation());
            }
            conflict.draft.at_least(Confidence::Confirmed);
        }
    }
    let seen = conflicts.into_iter();
    let mut findings: Vec<Finding> =
        seen.map(|((cause, actor), conflict)| finish(store, &cause, &actor, conflict)).collect();
    findings.extend(unseen_remover::detect(view, store, &history));
    findings
}

/// Whether an event contradicts the writer of what lies there.
fn judge<'w>(
    view: &View<'_>,
    history: &History,
    event: &Event,
    held: Option<&'w Written>,
) -> Option<(Cause, &'w Written)> {
    let held = held.filter(|held| held.by != event.actor)?;
    match event.action {
        ArtifactAction::Removed | ArtifactAction::Cleared
            if history.is_clear(event) && !is_outsider(view, history, &event.actor) =>
        {
            Some((Cause::Cleared, held))
        }
        ArtifactAction::Removed | ArtifactAction::Cleared if !history.owns_anything(&event.actor) => {
            Some((Cause::ForeignRemoval, held))
        }
        ArtifactAction::Read | ArtifactAction::Partial => {
            // A short answer, or a smaller wish, than what was written: the sizes under one key differ.
            let written = held.bytes.filter(|bytes| *bytes > 0)?;
            let wanted =
                event.artifact().bytes_wanted.or(event.artifact().bytes).filter(|bytes| *bytes > 0)?;
            // Who reads a file to its end may ask for more than it holds, but not for as much as it writes itself.
            let is_whole =
                event.artifact().bytes == Some(written) && !history.has_written(&event.actor, wanted);
            (wanted != written && !is_whole).then_some((Cause::SizeMismatch, held))
        }
        _ => None,
    }
}

/// Whether somebody is no engine and never used the store: who empties it did not call what engines have for that.
fn is_outsider(view: &View<'_>, history: &History, actor: &WorkerId) -> bool {
    let serves =
        view.roster().get(actor).is_some_and(|member| member.engine.is_some() || member.role.is_some());
    !serves && !history.owns_anything(actor) && !history.asks(actor)
}

fn finish(store: &StoreId, cause: &Cause, actor: &WorkerId, mut conflict: Conflict) -> Finding {
    let victims = conflict.victims.iter().map(|victim| victim.as_str()).collect::<Vec<_>>().join(", ");
    let (keys, felt) = (conflict.keys, conflict.felt);
    let summary = match cause {
        Cause::Cleared => format!(
            "{actor} emptied {store} and with it {keys} artifacts of {victims}, which then missed or stored {felt} of them again."
        ),
        Cause::SizeMismatch => format!(
            "{actor} reads {keys} artifacts of {victims} in {store} with another size than they were written: one key, two layouts or element types."
        ),
        _ => format!("{actor}, which owns nothing in {store}, removed {keys} artifacts of {victims}."),
    };
    if felt == 0 && *cause != Cause::SizeMismatch {
        conflict.draft.unknown("whether the owner misses them");
    }
    conflict.draft.finish(summary, words::advice(&Detector::StoreConflict, cause))
}

/// What the engine itself says: metadata without data, or a value that does not fit.
fn in_words(view: &View<'_>, worker: &WorkerId) -> Vec<Finding> {
    let mut drafts: BTreeMap<Cause, Draft> = BTreeMap::new();
    let observations = view.worker(worker);
    let unanswered = unanswered(&observations);
    for observation in observations.iter() {
        let Body::Store(store) = &observation.body else { continue };
        let cause = match store.event.as_deref() {
            Some("dangling") if is_of_one(&unanswered, observation) => continue,
            Some("dangling") => Cause::DanglingMetadata,
            Some("size_mismatch") => Cause::SizeMismatch,
            _ => continue,
        };
        let draft = drafts.entry(cause.clone()).or_insert_with(|| {
            Draft::new(Detector::StoreConflict, cause, Confidence::Suspected, worker.as_str())
        });
        let times = store.keys.unwrap_or(1).max(1).saturating_mul(store.times.unwrap_or(1).max(1));
        draft.proof(observation).worker(worker.as_str()).events(times as u64);
        draft.unknown("who else writes or removes in this store");
    }
    drafts
        .into_iter()
        .map(|(cause, draft)| {
            let what = match cause {
                Cause::SizeMismatch => "reads values of another size than it expects",
                _ => "is promised keys whose data cannot be read",
            };
            let summary = format!("{worker} {what}, {} times.", draft.count());
            draft.finish(summary, words::advice(&Detector::StoreConflict, &cause))
        })
        .collect()
}

/// When a store gave a worker no answer at all.
fn unanswered(observations: &[Observation]) -> BTreeSet<WallTime> {
    let complaints = observations.iter().filter(|observation| {
        matches!(&observation.body, Body::KvLoad(load) if load.cause == Some(Cause::StoreUnreachable))
    });
    complaints.filter_map(|complaint| complaint.envelope.wall).collect()
}

/// Whether a key could not be read because the store gave no answer, as the client said just before: that says nothing of
/// what lies there.
fn is_of_one(unanswered: &BTreeSet<WallTime>, observation: &Observation) -> bool {
    observation.envelope.wall.is_some_and(|at| unanswered.range(at.plus(-BREATH)..=at).next().is_some())
}

/// Workers that emptied a store which others, by their settings, use too, and which had held something of theirs or failed
/// them afterwards. Both sides are told by their words, so it is a matter of the fleet.
fn emptied_for_others(view: &View<'_>) -> Vec<Finding> {
    let users = view.roster().members().filter_map(|member| Some((member, member.fact(fact::STORE)?)));
    users
        .filter_map(|(member, store)| {
            let mut draft = Draft::new(Detector::StoreConflict, Cause::Cleared, Confidence::Suspected, store);
            draft.worker(member.id.as_str());
            for call in view.worker(&member.id).iter() {
                let Some(at) = call.envelope.wall.filter(|_| empties_a_store(call)) else { continue };
                let mut sharers = view.roster().members();
                while let Some(other) =
                    sharers.find(|other| other.id != member.id && other.fact(fact::STORE) == Some(store))
                {
                    let theirs = view.worker(&other.id);
                    let touched: Vec<_> =
                        theirs.iter().filter(|o| concerns_emptied(o, at)).take(TOUCHED_SHOWN).collect();
                    if !touched.is_empty() {
                        draft.proof(call).proofs(touched).worker(other.id.as_str()).events(1);
                    }
                }
            }
            if draft.is_empty() {
                return None;
            }
            draft.unknown("which keys were whose");
            let summary = format!("{} emptied {store}, which other workers use too.", member.id);
            Some(draft.finish(summary, words::advice(&Detector::StoreConflict, &Cause::Cleared)))
        })
        .collect()
}

fn empties_a_store(observation: &Observation) -> bool {
    matches!(&observation.body, Body::AdminCall(call)
        if call.class == Some(AdminClass::CacheReset)
            && call.outcome == Some(Outcome::Succeeded)
            && call.tiers.iter().any(|tier| tier == Tier::Storage.as_str()))
}

/// Whether a worker held something in its store before it was emptied, or missed something soon after.
fn concerns_emptied(observation: &Observation, at: WallTime) -> bool {
    let Some(wall) = observation.envelope.wall else { return false };
    match &observation.body {
        Body::CacheUse(used) => {
            let held = used.hit.or(used.retrieved).or(used.stored).unwrap_or(0) > 0;
            used.tier == Some(Tier::Storage) && held && wall <= at
        }
        Body::KvLoad(load) => {
            load.cause == Some(Cause::LoadMiss) && (0..=MISS_AFTER_CLEAR).contains(&wall.since(at))
        }
        _ => false,
    }
}
