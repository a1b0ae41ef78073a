//! The history of a store: who wrote, read, missed and removed which artifact, in time order.
//!
//! Four detectors read it: `cross_revision_hit`, `keyspace_fork`, `mutual_eviction`, `store_conflict`. Order across
//! nodes is as good as their clocks; no verdict needs more than seconds.

use crate::view::View;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{AdminClass, Artifact, ArtifactAction, Body, Observation, Outcome, Tier};
use std::collections::{BTreeMap, BTreeSet};

/// A removal this close to a call that empties the store belongs to it.
const CLEAR_SPAN: i64 = 60 * SECOND;

/// One event of one artifact.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, on the node's clock.
    pub at: Option<WallTime>,
    /// Who.
    pub actor: WorkerId,
    /// What.
    pub action: ArtifactAction,
    /// The event's fields.
    pub artifact: Artifact,
    /// The observation.
    pub observation: Observation,
}

/// Who wrote what now lies under a key.
#[derive(Debug, Clone)]
pub struct Written {
    /// Who.
    pub by: WorkerId,
    /// When.
    pub at: Option<WallTime>,
    /// Bytes, where seen.
    pub bytes: Option<i64>,
    /// The observation.
    pub observation: Observation,
}

/// Everything that happened to the artifacts of one store, by key, in time order.
pub struct History {
    /// Events by key.
    pub keys: BTreeMap<String, Vec<Event>>,
    owners: BTreeSet<WorkerId>,
    clears: Vec<(WorkerId, Option<WallTime>, Observation)>,
}

// === impl History ===

impl History {
    /// Reads the history of a store.
    pub fn of(view: &View<'_>, store: &StoreId) -> Self {
        let mut keys: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        let mut actors: BTreeSet<WorkerId> = BTreeSet::new();
        let mut owners: BTreeSet<WorkerId> = BTreeSet::new();
        for observation in view.store(store).iter() {
            let Body::Artifact(artifact) = &observation.body else { continue };
            let (Some(key), Some(action), Some(actor)) =
                (&artifact.key, &artifact.action, &observation.envelope.worker)
            else {
                continue;
            };
            if !actors.contains(actor) {
                actors.insert(actor.clone());
            }
            if *action == ArtifactAction::Written && !owners.contains(actor) {
                owners.insert(actor.clone());
            }
            keys.entry(key.clone()).or_default().push(Event {
                at: observation.envelope.wall,
                actor: actor.clone(),
                action: action.clone(),
                artifact: artifact.clone(),
                observation: observation.clone(),
            });
        }
        let clears = actors.iter().flat_map(|actor| storage_resets(view, actor)).collect();
        Self { keys, owners, clears }
    }

    /// Walks a key's events with the writer whose bytes lie there before each event.
    pub fn walk<'h>(&'h self, key: &str, mut visit: impl FnMut(&'h Event, Option<&Written>)) {
        let mut held: Option<Written> = None;
        for event in self.keys.get(key).map(Vec::as_slice).unwrap_or_default() {
            visit(event, held.as_ref());
            match event.action {
                ArtifactAction::Written => {
                    held = Some(Written {
                        by: event.actor.clone(),
                        at: event.at,
                        bytes: event.artifact.bytes,
                        observation: event.observation.clone(),
                    });
                }
                ArtifactAction::Removed | ArtifactAction::Cleared => held = None,
                _ => {}
            }
        }
    }

    /// Whether a removal is part of emptying the whole store: the source says so, or its actor was called to.
    pub fn is_clear(&self, event: &Event) -> bool {
        event.action == ArtifactAction::Cleared || self.clear_call(event).is_some()
    }

    /// The call that a removal belongs to.
    pub fn clear_call(&self, event: &Event) -> Option<&Observation> {
        self.clears.iter().find_map(|(actor, at, observation)| {
            let near = match (at, event.at) {
                (Some(at), Some(event)) => at.since(event).abs() <= CLEAR_SPAN,
                _ => false,
            };
            (*actor == event.actor && near).then_some(observation)
        })
    }

    /// Whether a worker ever wrote into this store.
    pub fn owns_anything(&self, worker: &WorkerId) -> bool {
        self.owners.contains(worker)
    }

    /// What a victim did to a key after it was removed under its feet: missed it, found it gone, or wrote it again.
    pub fn reaction<'h>(&'h self, key: &str, victim: &WorkerId, removal: &Event) -> Option<&'h Event> {
        self.keys.get(key)?.iter().find(|event| {
            event.actor == *victim
                && event.at >= removal.at
                && event.observation.envelope.id != removal.observation.envelope.id
                && matches!(
                    event.action,
                    ArtifactAction::Missed | ArtifactAction::Gone | ArtifactAction::Written
                )
        })
    }
}

/// Calls of a worker that empty its store.
fn storage_resets(view: &View<'_>, worker: &WorkerId) -> Vec<(WorkerId, Option<WallTime>, Observation)> {
    view.worker(worker)
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::AdminCall(call)
                if call.class == Some(AdminClass::CacheReset)
                    && call.outcome != Some(Outcome::Failed)
                    && call.tiers.iter().any(|tier| tier == Tier::Storage.as_str()) =>
            {
                Some((worker.clone(), observation.envelope.wall, observation.clone()))
            }
            _ => None,
        })
        .collect()
}
