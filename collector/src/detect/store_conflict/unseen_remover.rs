//! Somebody says that it removes files of a volume, and what engines had stored there is missed afterwards.
//!
//! The calls of the remover are not seen, so its words stand for them: it names how many, not which. Of the engines every call is
//! seen, and none of them removed what is missed. Stays quiet about a remover that uses the store itself, about a single file, and
//! where calls were lost.

use crate::detect::artifacts::{Event, History, Written};
use crate::detect::draft::Draft;
use crate::detect::words;
use crate::view::{Member, Selected, View};
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::StoreId;
use kvprov_model::observation::{ArtifactAction, Body, Observation};
use std::collections::{BTreeMap, BTreeSet};

/// Files that have to vanish before it is more than one that a person removed.
const SEVERAL: usize = 2;
/// Files that stand as evidence.
const SHOWN: usize = 4;

/// The complete set of findings on a store.
pub(super) fn detect(view: &View<'_>, store: &StoreId, history: &History) -> Vec<Finding> {
    let removers = view.roster().members().filter(|member| covers(member, store));
    let removers = removers.filter(|member| !history.is_used_by(&member.id));
    removers.filter_map(|remover| by(view, store, history, remover)).collect()
}

/// Whether a worker is configured for the volume on which a store lies.
fn covers(member: &Member, store: &StoreId) -> bool {
    let volume = member.fact(fact::STORE).and_then(|volume| volume.strip_prefix("file:"));
    let Some(volume) = volume.map(|volume| volume.trim_end_matches('/')).filter(|volume| !volume.is_empty())
    else {
        return false;
    };
    let directory = store.as_str().rsplit_once(':').map_or("", |(_, directory)| directory);
    directory.strip_prefix(volume).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// What vanished while one remover was at work.
fn by(view: &View<'_>, store: &StoreId, history: &History, remover: &Member) -> Option<Finding> {
    let words = Removals::of(view, remover);
    if words.places.is_empty() {
        return None;
    }
    let mut vanished: BTreeMap<(String, Option<WallTime>), (Event, Written, usize)> = BTreeMap::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            let Some(held) = held.filter(|_| is_missed(event)) else { return };
            let Some(place) = words.between(held.at, event.at) else { return };
            let of_write = (key.clone(), held.at);
            vanished.entry(of_write).or_insert_with(|| (event.clone(), held.clone(), place));
        });
    }
    let keys: BTreeSet<&String> = vanished.keys().map(|(key, _)| key).collect();
    if keys.len() < SEVERAL {
        return None;
    }
    let subject = format!("{store} -> {}", remover.id);
    let mut draft =
        Draft::new(Detector::StoreConflict, Cause::ForeignRemoval, Confidence::Suspected, subject);
    draft.worker(remover.id.as_str()).events(vanished.len() as u64);
    let mut missed: Vec<&(Event, Written, usize)> = vanished.values().collect();
    missed.sort_by_key(|(event, ..)| event.order());
    for (event, held, _) in &missed {
        draft.worker(held.by.as_str()).at(event.at);
    }
    for (event, held, place) in missed.iter().take(SHOWN) {
        draft.context(held.observation()).proofs(words.said(*place)).proof(event.observation());
    }
    draft.unknown("which files it removed: its own calls are not seen");
    let owners: BTreeSet<&str> = missed.iter().map(|(_, held, _)| held.by.as_str()).collect();
    let summary = format!(
        "{}, which owns nothing in {store}, removed files while {} artifacts of {} vanished that nobody else removed.",
        remover.id,
        vanished.len(),
        owners.into_iter().collect::<Vec<_>>().join(", ")
    );
    Some(draft.finish(summary, words::advice(&Detector::StoreConflict, &Cause::ForeignRemoval)))
}

fn is_missed(event: &Event) -> bool {
    matches!(event.action, ArtifactAction::Missed | ArtifactAction::Gone)
}

/// When somebody said that it removed files.
struct Removals {
    observations: Selected,
    /// Times in order, with the place of what was said.
    places: Vec<(WallTime, usize)>,
}

// === impl Removals ===

impl Removals {
    fn of(view: &View<'_>, remover: &Member) -> Self {
        let observations = view.worker(&remover.id);
        let told = observations.iter().enumerate().filter(|(_, observation)| removes(observation));
        let mut places: Vec<(WallTime, usize)> =
            told.filter_map(|(index, observation)| Some((observation.envelope.wall?, index))).collect();
        places.sort_unstable();
        Self { observations, places }
    }

    /// The first removal after a write and before a miss.
    fn between(&self, written: Option<WallTime>, missed: Option<WallTime>) -> Option<usize> {
        let (written, missed) = (written?, missed?);
        let next = self.places.partition_point(|(at, _)| *at <= written);
        self.places.get(next).filter(|(at, _)| *at <= missed).map(|(_, index)| *index)
    }

    fn said(&self, place: usize) -> Option<&Observation> {
        self.observations.get(place)
    }
}

fn removes(observation: &Observation) -> bool {
    matches!(&observation.body, Body::Store(store)
        if store.event.as_deref() == Some("evicted") && store.keys.is_none_or(|keys| keys > 0))
}
