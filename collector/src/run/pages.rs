//! What readers are shown of the ledger: workers, lineages, stores, keyspaces. Made on the ledger's thread from a view,
//! handed out as a whole, never changed.
//!
//! Invariant: no content, no token ids, no key of an artifact stands in a page; of a key only the parts that tell
//! configurations apart.

use super::requests::Requests;
use super::totals::UNKNOWN;
use crate::detect::artifacts::History;
use crate::ledger::{IndexKey, IndexKind};
use crate::lineage::record::Record;
use crate::view::{Member, View};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{RequestStem, StoreId, WorkerId};
use kvprov_model::observation::{ArtifactAction, Body};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Keyspaces of one store that a page lists.
const KEYSPACES: usize = 200;
/// Parts of a key that differ between ranks of one deployment.
const RANKS: &[&str] = &["tp_rank", "pp_rank", "cp_rank", "rank", "group", "layer", "part"];

/// One worker.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerEntry {
    /// Its id.
    pub id: String,
    /// Its node.
    pub node: String,
    /// Its pool; `unknown` where nobody declares it.
    pub pool: String,
    /// What it is for; `unknown` where no source says.
    pub role: String,
    /// Its engine.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Its revision now, where every semantic factor is full.
    pub revision: Option<String>,
    /// Whether its end was seen, and when.
    pub gone: Option<String>,
    /// The signal that ended it.
    pub exit_signal: Option<i64>,
    /// The status with which it ended.
    pub exit_status: Option<i64>,
    /// Process ids of its tree.
    pub pids: BTreeSet<String>,
    /// Its Kubernetes pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Its container.
    pub container: Option<String>,
    /// Image of the container, as it was asked for.
    pub image: Option<String>,
    /// Digest of that image.
    pub image_digest: Option<String>,
    /// Engine ids by which peers know it.
    pub engine_ids: BTreeSet<String>,
    /// Normalised settings, by name.
    pub facts: BTreeMap<String, String>,
    /// Where facts come from, where a source says.
    pub fact_origins: BTreeMap<String, String>,
    /// Its factors as last stated.
    pub factors: Vec<FactorEntry>,
    /// Factors of which it is known why they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<UnknownEntry>,
    /// Its epochs, the first one first.
    pub epochs: Vec<EpochEntry>,
    /// Kinds of sources that watch it.
    pub watched_by: BTreeSet<String>,
    /// What was lost of it.
    pub losses: Vec<LossEntry>,
    /// First observation of it.
    pub first_seen: Option<String>,
    /// Last observation of it.
    pub last_seen: Option<String>,
    /// The time up to which its node has said that it delivered everything; what is absent after that may still come.
    pub heard_until: Option<String>,
    /// Whether its node fell silent, so that what it does now is unknown.
    pub silent: bool,
}

/// One factor of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FactorEntry {
    /// Its name.
    pub factor: String,
    /// The adapter that has it, where it is not the worker's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// How the value was made.
    pub algorithm: String,
    /// The value.
    pub value: String,
    /// How much is known.
    pub state: String,
    /// How its files are laid out, as a short hash, where the same content may stand in other files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// What the content means whatever files hold it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// From when it holds; `None`: from the beginning.
    pub since: Option<String>,
    /// The file or call that shows it, where a source says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

/// A factor of a worker whose value is not known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnknownEntry {
    /// Its name.
    pub factor: String,
    /// The adapter that has it, where it is not the worker's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// Why.
    pub reason: String,
    /// From when; `None`: from the beginning.
    pub since: Option<String>,
}

/// One epoch of a worker: a time with one revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EpochEntry {
    /// From when; `None`: from the beginning.
    pub since: Option<String>,
    /// Up to when; `None`: it lasts, or its end was not seen.
    pub until: Option<String>,
    /// Its revision, where known.
    pub revision: Option<String>,
    /// The factor that changed at its beginning.
    pub changed: Option<String>,
}

/// Records lost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossEntry {
    /// Where.
    pub stage: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub records: u64,
}

/// One store.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct StoreEntry {
    /// Its id.
    pub id: String,
    /// Who makes it, where a source says.
    pub engine: Option<String>,
    /// What bounds it, in bytes, as last stated.
    pub capacity_bytes: Option<i64>,
    /// Bytes in use, as last stated.
    pub used_bytes: Option<i64>,
    /// Workers that are configured to use it or were seen in it.
    pub workers: BTreeSet<String>,
    /// Events on artifacts, by action.
    pub events: BTreeMap<String, u64>,
    /// Removals of artifacts that another worker had written, by remover and writer.
    pub removals: Vec<RemovalEntry>,
    /// Last observation of it.
    pub last_seen: Option<String>,
}

/// Removals of one worker's artifacts by another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RemovalEntry {
    /// Who removed.
    pub by: String,
    /// Whose they were.
    pub of: String,
    /// How many.
    pub artifacts: u64,
}

/// The keys of a store that one configuration can produce.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KeyspaceEntry {
    /// The store.
    pub store: String,
    /// The grammar that splits its keys.
    pub grammar: String,
    /// What tells it apart, ranks left out.
    pub fields: BTreeMap<String, String>,
    /// Keys of it that were seen.
    pub keys: u64,
    /// Workers that wrote.
    pub writers: BTreeSet<String>,
    /// Workers that read.
    pub readers: BTreeSet<String>,
    /// Workers that looked up and found nothing.
    pub missed_by: BTreeSet<String>,
}

/// What takes long to gather.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Survey {
    /// Lineages of requests.
    pub lineages: Vec<Arc<Record>>,
    /// Stores.
    pub stores: Vec<StoreEntry>,
    /// Keyspaces.
    pub keyspaces: Vec<KeyspaceEntry>,
}

/// The pool of a worker; `unknown` where nobody declares it.
pub fn pool_of(member: &Member) -> String {
    member.fact("pool").unwrap_or(UNKNOWN).to_owned()
}

/// Every worker. `seen`: the first and the last time at which anything was said of it.
pub fn workers(view: &View<'_>, seen: &BTreeMap<WorkerId, (WallTime, WallTime)>) -> Vec<WorkerEntry> {
    view.roster().members().map(|member| worker(view, member, seen.get(&member.id).copied())).collect()
}

fn worker(view: &View<'_>, member: &Member, seen: Option<(WallTime, WallTime)>) -> WorkerEntry {
    let known = |text: Option<&str>| text.unwrap_or(UNKNOWN).to_owned();
    let stamp = |time: Option<WallTime>| time.map(WallTime::to_rfc3339);
    let seen = match (seen, member.told) {
        (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
        (a, b) => a.or(b),
    };
    let now = seen.map(|seen| seen.1);
    let factors = member.factors().into_iter().map(|stated| FactorEntry {
        factor: stated.name.to_owned(),
        adapter: stated.adapter.map(str::to_owned),
        algorithm: stated.factor.algorithm.clone(),
        value: stated.factor.value.clone(),
        state: stated.factor.state.to_string(),
        layout: stated.factor.layout.clone(),
        meaning: stated.factor.meaning.clone(),
        since: stamp(stated.since),
        origin: stated.origin.map(str::to_owned),
    });
    let unknown = member.unknown().into_iter().map(|(factor, adapter, since, reason)| UnknownEntry {
        factor: factor.to_owned(),
        adapter: adapter.map(str::to_owned),
        reason: reason.to_owned(),
        since: stamp(since),
    });
    let changes = member.epochs();
    let before_first = changes.first().map_or(now, |(time, _)| Some(time.plus(-1)));
    let until = |next: usize| stamp(changes.get(next).map(|(time, _)| *time).or(member.gone));
    let first = EpochEntry {
        since: None,
        until: until(0),
        revision: member.revision_at(before_first, None),
        changed: None,
    };
    let later = changes.iter().enumerate().map(|(index, (time, factor))| EpochEntry {
        since: stamp(Some(*time)),
        until: until(index + 1),
        revision: member.revision_at(Some(*time), None),
        changed: Some(factor.clone()),
    });
    WorkerEntry {
        id: member.id.as_str().to_owned(),
        node: member.node.as_str().to_owned(),
        pool: pool_of(member),
        role: known(member.role.as_ref().map(kvprov_model::observation::Role::as_str)),
        engine: known(member.engine.as_deref()),
        engine_version: known(member.version.as_deref()),
        revision: member.revision_at(now, None),
        gone: stamp(member.gone),
        exit_signal: member.exit_signal,
        exit_status: member.exit_status,
        pids: member.pids.clone(),
        pod: member.pod.clone(),
        namespace: member.namespace.clone(),
        container: member.container.clone(),
        image: member.image.clone(),
        image_digest: member.image_digest.clone(),
        engine_ids: member.engine_ids.clone(),
        facts: member.facts.clone(),
        fact_origins: member.fact_origins.clone(),
        factors: factors.collect(),
        unknown: unknown.collect(),
        epochs: std::iter::once(first).chain(later).collect(),
        watched_by: member.watched_by.clone(),
        losses: member
            .losses
            .iter()
            .map(|((stage, reason), records)| LossEntry {
                stage: stage.clone(),
                reason: reason.clone(),
                records: *records,
            })
            .collect(),
        first_seen: stamp(seen.map(|seen| seen.0)),
        last_seen: stamp(now),
        heard_until: stamp(view.watermark(&member.node).filter(|mark| mark.0 > i64::MIN)),
        silent: view.is_silent(&member.node),
    }
}

/// Everything that takes long to gather. Of requests only those are looked at that something was said of since the last
/// time, or whose fate is not the usual one.
pub fn survey(view: &View<'_>, requests: &mut Requests, touched: BTreeSet<RequestStem>) -> Survey {
    requests.take(view, touched);
    let mut survey = Survey { lineages: requests.records(), ..Survey::default() };
    for key in view.keys(IndexKind::Store) {
        let IndexKey::Store(store) = key else { continue };
        let history = History::of(view, &store);
        survey.stores.push(store_entry(view, &store, &history));
        survey.keyspaces.extend(keyspaces(&store, &history));
    }
    survey
}

fn store_entry(view: &View<'_>, store: &StoreId, history: &History) -> StoreEntry {
    let mut entry = StoreEntry { id: store.as_str().to_owned(), ..StoreEntry::default() };
    let mut last = None;
    for observation in view.store(store).iter() {
        last = last.max(observation.envelope.wall);
        if !observation.worker().is_empty() {
            entry.workers.insert(observation.worker().to_owned());
        }
        match &observation.body {
            Body::Store(said) => {
                entry.engine = said.engine.clone().or(entry.engine.take());
                entry.capacity_bytes = said.capacity_bytes.or(entry.capacity_bytes);
                entry.used_bytes = said.used_bytes.or(entry.used_bytes);
            }
            Body::Artifact(artifact) => {
                let action = artifact.action.as_ref().map_or(UNKNOWN, ArtifactAction::as_str);
                *entry.events.entry(action.to_owned()).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    let mut removals: BTreeMap<(String, String), u64> = BTreeMap::new();
    for key in history.keys.keys() {
        history.walk(key, |event, held| {
            if let (ArtifactAction::Removed | ArtifactAction::Cleared, Some(held)) = (&event.action, held)
                && held.by != event.actor
            {
                *removals.entry((event.actor.0.clone(), held.by.0.clone())).or_insert(0) += 1;
            }
        });
    }
    entry.removals =
        removals.into_iter().map(|((by, of), artifacts)| RemovalEntry { by, of, artifacts }).collect();
    entry.last_seen = last.map(WallTime::to_rfc3339);
    entry
}

fn keyspaces(store: &StoreId, history: &History) -> Vec<KeyspaceEntry> {
    let mut spaces: BTreeMap<(String, BTreeMap<String, String>), KeyspaceEntry> = BTreeMap::new();
    for events in history.keys.values() {
        let Some((grammar, fields)) = events.first().and_then(|event| {
            let parts = event.artifact().fields.iter().filter(|(name, _)| !RANKS.contains(&name.as_str()));
            let fields = parts.map(|(name, value)| (name.clone(), value.clone())).collect();
            Some((event.artifact().grammar.clone()?, fields))
        }) else {
            continue;
        };
        let place = (grammar, fields);
        if !spaces.contains_key(&place) && spaces.len() >= KEYSPACES {
            continue;
        }
        let space = spaces.entry(place).or_insert_with_key(|(grammar, fields)| KeyspaceEntry {
            store: store.as_str().to_owned(),
            grammar: grammar.clone(),
            fields: fields.clone(),
            keys: 0,
            writers: BTreeSet::new(),
            readers: BTreeSet::new(),
            missed_by: BTreeSet::new(),
        });
        space.keys += 1;
        for event in events {
            let actors = match event.action {
                ArtifactAction::Written => &mut space.writers,
                ArtifactAction::Read | ArtifactAction::Partial | ArtifactAction::Found => &mut space.readers,
                ArtifactAction::Missed => &mut space.missed_by,
                _ => continue,
            };
            if !actors.contains(event.actor.as_str()) {
                actors.insert(event.actor.0.clone());
            }
        }
    }
    spaces.into_values().collect()
}
