//! The history of a store: who wrote, read, missed and removed which artifact, in time order.
//!
//! Four detectors read it: `cross_revision_hit`, `keyspace_fork`, `mutual_eviction`, `store_conflict`. Order across
//! nodes is as good as their clocks; no verdict needs more than seconds.

use crate::view::{Selected, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{
    AdminClass, Artifact, ArtifactAction, Body, Observation, Outcome, SourceKind, Tier,
};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::LazyLock;

/// A removal this close to a call that empties the store belongs to it.
const CLEAR_SPAN: i64 = 60 * SECOND;

/// A loss of kernel records is told this long after the first of them at most.
const LOSS_SPAN: i64 = 3 * SECOND;

/// One event of one artifact. It points into what the view has read: a store has many.
#[derive(Debug, Clone)]
pub struct Event {
    /// When, on the node's clock.
    pub at: Option<WallTime>,
    /// Who.
    pub actor: Rc<WorkerId>,
    /// What.
    pub action: ArtifactAction,
    read: Selected,
    index: usize,
}

/// Who wrote what now lies under a key.
#[derive(Debug, Clone)]
pub struct Written {
    /// Who.
    pub by: Rc<WorkerId>,
    /// When.
    pub at: Option<WallTime>,
    /// Bytes, where seen.
    pub bytes: Option<i64>,
    read: Selected,
    index: usize,
}

/// Everything that happened to the artifacts of one store, by key, in time order.
#[derive(Debug)]
pub struct History {
    /// Events by key.
    pub keys: BTreeMap<String, Vec<Event>>,
    owners: BTreeSet<Rc<WorkerId>>,
    /// Sizes that somebody wrote.
    sizes: BTreeSet<(Rc<WorkerId>, i64)>,
    /// Who ever asked for something, with or without an answer.
    askers: BTreeSet<Rc<WorkerId>>,
    clears: Vec<(WorkerId, Option<WallTime>, Observation)>,
    /// When calls of one of the actors were lost, sorted.
    losses: Vec<WallTime>,
}

// === impl Event ===

impl Event {
    /// Its place among all events of the store: by time, then by place in the stream.
    pub fn order(&self) -> usize {
        self.index
    }

    /// The observation.
    pub fn observation(&self) -> &Observation {
        &self.read[self.index]
    }

    /// The event's fields.
    pub fn artifact(&self) -> &Artifact {
        static NOTHING: LazyLock<Artifact> = LazyLock::new(Artifact::default);
        match &self.observation().body {
            Body::Artifact(artifact) => artifact,
            _ => &NOTHING,
        }
    }
}

// === impl Written ===

impl Written {
    /// The observation.
    pub fn observation(&self) -> &Observation {
        &self.read[self.index]
    }
}

impl From<&Event> for Written {
    fn from(event: &Event) -> Self {
        Self {
            by: Rc::clone(&event.actor),
            at: event.at,
            bytes: event.artifact().bytes,
            read: Arc::clone(&event.read),
            index: event.index,
        }
    }
}

// === impl History ===

impl History {
    /// The history of a store; a view reads it once.
    pub fn of(view: &View<'_>, store: &StoreId) -> Rc<Self> {
        view.history(store, || Self::read(view, store))
    }

    fn read(view: &View<'_>, store: &StoreId) -> Self {
        let mut keys: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        let mut actors: BTreeSet<Rc<WorkerId>> = BTreeSet::new();
        let mut owners: BTreeSet<Rc<WorkerId>> = BTreeSet::new();
        let mut sizes: BTreeSet<(Rc<WorkerId>, i64)> = BTreeSet::new();
        let mut askers: BTreeSet<Rc<WorkerId>> = BTreeSet::new();
        let mut losers: BTreeMap<Rc<WorkerId>, bool> = BTreeMap::new();
        let read = view.store(store);
        for (index, observation) in read.iter().enumerate() {
            let Body::Artifact(artifact) = &observation.body else { continue };
            let (Some(key), Some(action), Some(actor)) =
                (&artifact.key, &artifact.action, &observation.envelope.worker)
            else {
                continue;
            };
            let actor = match actors.get(actor) {
                Some(held) => Rc::clone(held),
                None => {
                    let actor = Rc::new(actor.clone());
                    actors.insert(Rc::clone(&actor));
                    actor
                }
            };
            // Of who loses calls, what was lost until then is told before its node says that it was heard up to there.
            let loses =
                *losers.entry(Rc::clone(&actor)).or_insert_with(|| !lost_calls(view, &actor).is_empty());
            if loses && !is_heard(view, &actor, observation) {
                continue;
            }
            if *action == ArtifactAction::Written {
                sizes.extend(artifact.bytes.map(|bytes| (Rc::clone(&actor), bytes)));
                if !owners.contains(&actor) {
                    owners.insert(Rc::clone(&actor));
                }
            }
            if asks(action) && !askers.contains(&actor) {
                askers.insert(Rc::clone(&actor));
            }
            let at = observation.envelope.wall;
            let event = Event { at, actor, action: action.clone(), read: Arc::clone(&read), index };
            match keys.get_mut(key) {
                Some(events) => events.push(event),
                None => {
                    keys.insert(key.clone(), vec![event]);
                }
            }
        }
        let clears = actors.iter().flat_map(|actor| storage_resets(view, actor)).collect();
        let mut losses: Vec<WallTime> = actors.iter().flat_map(|actor| lost_calls(view, actor)).collect();
        losses.sort_unstable();
        losses.dedup();
        Self { keys, owners, sizes, askers, clears, losses }
    }

    /// Walks a key's events with the writer whose bytes lie there before each event. Where calls were lost since that
    /// write, another may have written: nobody is named.
    pub fn walk<'h>(&'h self, key: &str, mut visit: impl FnMut(&'h Event, Option<&Written>)) {
        let mut held: Option<Written> = None;
        for event in self.keys.get(key).map(Vec::as_slice).unwrap_or_default() {
            held = held.filter(|held| !self.has_gap(held.at, event.at));
            visit(event, held.as_ref());
            match event.action {
                ArtifactAction::Written => {
                    held = Some(Written::from(event));
                }
                ArtifactAction::Removed | ArtifactAction::Cleared => held = None,
                _ => {}
            }
        }
    }

    /// Whether calls were lost between two times.
    fn has_gap(&self, from: Option<WallTime>, to: Option<WallTime>) -> bool {
        let (Some(from), Some(to)) = (from, to) else { return false };
        let next = self.losses.partition_point(|told| *told < from);
        self.losses.get(next).is_some_and(|told| told.plus(-LOSS_SPAN) <= to)
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
            (*actor == *event.actor && near).then_some(observation)
        })
    }

    /// Whether a worker ever wrote into this store.
    pub fn owns_anything(&self, worker: &WorkerId) -> bool {
        self.owners.contains(worker)
    }

    /// Whether a worker ever wrote an artifact of this size.
    pub fn has_written(&self, worker: &Rc<WorkerId>, bytes: i64) -> bool {
        self.sizes.contains(&(Rc::clone(worker), bytes))
    }

    /// Whether a worker was ever seen to use this store.
    pub fn is_used_by(&self, worker: &WorkerId) -> bool {
        self.owns_anything(worker) || self.asks(worker)
    }

    /// Whether a worker ever asked this store for something. Who only writes may be copying what others made.
    pub fn asks(&self, worker: &WorkerId) -> bool {
        self.askers.contains(worker)
    }

    /// The last write of a key before another one, by somebody else. Nobody is named where calls were lost in between.
    pub fn before(&self, key: &str, held: &Written) -> Option<Written> {
        let earlier = self.keys.get(key)?.iter().rev().find(|event| {
            event.action == ArtifactAction::Written && event.index < held.index && event.actor != held.by
        })?;
        (!self.has_gap(earlier.at, held.at)).then(|| Written::from(earlier))
    }

    /// What a victim did to a key after it was removed under its feet: missed it, found it gone, or wrote it again.
    pub fn reaction<'h>(&'h self, key: &str, victim: &WorkerId, removal: &Event) -> Option<&'h Event> {
        self.keys.get(key)?.iter().find(|event| {
            *event.actor == *victim
                && event.at >= removal.at
                && event.observation().envelope.id != removal.observation().envelope.id
                && matches!(
                    event.action,
                    ArtifactAction::Missed | ArtifactAction::Gone | ArtifactAction::Written
                )
        })
    }
}

/// Whether an action is a question to the store, with or without an answer.
fn asks(action: &ArtifactAction) -> bool {
    matches!(
        action,
        ArtifactAction::Read | ArtifactAction::Partial | ArtifactAction::Missed | ArtifactAction::Gone
    )
}

/// Whether an actor was heard up to what it did.
fn is_heard(view: &View<'_>, actor: &WorkerId, observation: &Observation) -> bool {
    let Some(at) = observation.envelope.wall else { return true };
    let is_behind = view.watermark(&observation.envelope.node).is_some_and(|mark| mark >= at);
    is_behind || view.heard(view.roster().get(actor), Some(at)).is_settled()
}

/// When calls of a worker were lost, as far as that is dated.
fn lost_calls(view: &View<'_>, worker: &WorkerId) -> Vec<WallTime> {
    view.worker(worker)
        .iter()
        .filter(|observation| {
            observation.envelope.source == SourceKind::Kernel && matches!(observation.body, Body::Loss(_))
        })
        .filter_map(|observation| observation.envelope.wall)
        .collect()
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
