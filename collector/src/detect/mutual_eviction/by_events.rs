//! Two engines whose KV events tell that each removes from the store of both what only the other had stored there.
//!
//! Events name no store: it is the one of the engines' settings, in one place. An engine that removes what it had stored
//! itself may speak of a copy of its own, and says nothing of the other's. What artifacts show is told by them.

use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_place;
use crate::detect::words;
use crate::ledger::{IndexKey, IndexKind};
use crate::view::{Member, View};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Block, BlockAction, Body, Observation};
use std::collections::{BTreeMap, BTreeSet};

/// The medium of blocks in a store.
const STORAGE: &str = "STORAGE";
/// Removals of one side, and what followed them, that are shown.
const SHOWN: usize = 4;

/// What one engine removed of another's, and where that was stored again.
#[derive(Default)]
struct Toll<'o> {
    removals: Vec<&'o Observation>,
    reactions: Vec<&'o Observation>,
    blocks: u64,
}

/// Tolls by who removed and whose it was.
type Tolls<'o> = BTreeMap<(&'o WorkerId, &'o WorkerId), Toll<'o>>;

/// The complete set of findings on the fleet.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let fleet = view.fleet();
    let mut events: Vec<(WallTime, &WorkerId, &Block, &Observation)> = fleet
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::Block(block) if is_stored(block) => {
                let envelope = &observation.envelope;
                Some((envelope.wall?, envelope.worker.as_ref()?, block, observation))
            }
            _ => None,
        })
        .collect();
    if events.is_empty() {
        return Vec::new();
    }
    events
        .sort_by_key(|(at, _, _, observation)| (*at, observation.envelope.position, observation.envelope.id));
    let shown = shown_by_artifacts(view);
    let mut findings = Vec::new();
    for ((store, _), members) in by_place(view) {
        let of_it = |worker: &WorkerId| members.iter().any(|member: &&Member| member.id == *worker);
        if members.len() < 2 || shown.iter().any(of_it) {
            continue;
        }
        let tolls = tolls(events.iter().filter(|(_, worker, ..)| of_it(worker)).copied());
        findings.extend(tolls.keys().filter(|(a, b)| a < b).filter_map(|(a, b)| told(store, a, b, &tolls)));
    }
    findings
}

fn is_stored(block: &Block) -> bool {
    block.medium.as_deref().is_some_and(|medium| medium.eq_ignore_ascii_case(STORAGE))
}

/// Workers whose artifacts in a store are seen.
fn shown_by_artifacts(view: &View<'_>) -> BTreeSet<WorkerId> {
    let mut shown = BTreeSet::new();
    for key in view.keys(IndexKind::Store) {
        let IndexKey::Store(store) = key else { continue };
        for observation in view.store(&store).iter() {
            if let (Body::Artifact(_), Some(worker)) = (&observation.body, &observation.envelope.worker)
                && !shown.contains(worker)
            {
                shown.insert(worker.clone());
            }
        }
    }
    shown
}

/// Walks the blocks of a store in the order of time.
fn tolls<'o>(
    events: impl Iterator<Item = (WallTime, &'o WorkerId, &'o Block, &'o Observation)>,
) -> Tolls<'o> {
    let mut tolls = Tolls::new();
    let mut stored: BTreeMap<&str, BTreeSet<&WorkerId>> = BTreeMap::new();
    let mut lost: BTreeMap<&str, (&WorkerId, &WorkerId)> = BTreeMap::new();
    for (_, worker, block, observation) in events {
        for hash in block.hashes.iter().map(String::as_str) {
            let by = stored.entry(hash).or_default();
            match block.action {
                Some(BlockAction::Stored) => {
                    by.insert(worker);
                    if let Some((remover, victim)) = lost.remove(hash)
                        && victim == worker
                    {
                        add(&mut tolls.entry((remover, victim)).or_default().reactions, observation);
                    }
                }
                Some(BlockAction::Removed) => {
                    // Of two that stored it, either may miss it.
                    if let [victim] = by.iter().copied().collect::<Vec<_>>()[..]
                        && victim != worker
                    {
                        lost.insert(hash, (worker, victim));
                        let toll = tolls.entry((worker, victim)).or_default();
                        toll.blocks += 1;
                        add(&mut toll.removals, observation);
                    }
                }
                _ => {}
            }
        }
    }
    tolls
}

/// One event tells of many blocks.
fn add<'o>(told: &mut Vec<&'o Observation>, observation: &'o Observation) {
    if told.last().is_none_or(|last| last.envelope.id != observation.envelope.id) {
        told.push(observation);
    }
}

/// The finding on two engines, where each removes from the other and somebody feels it.
fn told(store: &str, a: &WorkerId, b: &WorkerId, tolls: &Tolls<'_>) -> Option<Finding> {
    let (there, back) = (tolls.get(&(a, b))?, tolls.get(&(b, a))?);
    let felt = there.reactions.len() + back.reactions.len();
    if there.removals.is_empty() || back.removals.is_empty() || felt == 0 {
        return None;
    }
    let mut draft = Draft::new(Detector::MutualEviction, Cause::Unknown, Confidence::Suspected, store);
    draft.worker(a.as_str()).worker(b.as_str()).events(there.blocks + back.blocks);
    for toll in [there, back] {
        draft.proofs(toll.removals.iter().copied().take(SHOWN));
        draft.proofs(toll.reactions.iter().copied().take(SHOWN));
        draft.at(toll.removals.iter().filter_map(|removal| removal.envelope.wall).max());
    }
    draft.unknown("the store: events do not name it");
    let summary = format!(
        "{a} and {b} delete each other's blocks in {store}, as their KV events tell: {a} removed {} of {b}'s, {b} removed \
         {} of {a}'s, and {felt} events tell of some that were stored again.",
        there.blocks, back.blocks
    );
    Some(draft.finish(summary, words::advice(&Detector::MutualEviction, &Cause::Unknown)))
}
