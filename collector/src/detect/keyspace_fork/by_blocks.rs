//! KV events of two engines: equal token content, disjoint block hashes.
//!
//! Only what the engines share matters: a store, or an index that a router keeps over their events. Blocks whose hash
//! holds more than tokens (a salt, an image, an adapter) say nothing, unless the order of loads tells which adapter a
//! number stands for.

use super::by_adapters::loads;
use super::{cause_of, finish};
use crate::detect::draft::Draft;
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Block, BlockAction, Body, Observation};
use std::collections::{BTreeMap, BTreeSet};

/// Facts that go into a block hash, most telling first.
const HASHED: &[&str] = &[fact::BLOCK_SIZE, fact::HASH_ALGORITHM, fact::HASH_SEED];

/// Contents of a pair that are shown; the others are counted.
const SHOWN: usize = 4;
/// Hex digits of the part of a hash that every form of it has.
const COMMON: usize = 16;

/// Blocks of one content.
type ByWorker<'o> = BTreeMap<WorkerId, (BTreeSet<String>, &'o Observation)>;

/// The complete set of findings on the fleet.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let fleet = view.fleet();
    let mut contents: BTreeMap<(String, String, Option<String>), ByWorker<'_>> = BTreeMap::new();
    let mut numbers: BTreeMap<WorkerId, Vec<String>> = BTreeMap::new();
    for observation in fleet.iter() {
        let Body::Block(block) = &observation.body else { continue };
        let (Some(BlockAction::Stored), Some(worker)) = (&block.action, &observation.envelope.worker) else {
            continue;
        };
        let named = block.adapter.as_deref().map(|number| {
            let loaded = numbers.entry(worker.clone()).or_insert_with(|| loaded(view, worker));
            number.parse::<usize>().ok().and_then(|number| loaded.get(number.checked_sub(1)?)).cloned()
        });
        // Releases whose keys hold a load number say nothing of other things in them.
        if named == Some(None) || (named.is_none() && block.extra_keys == Some(true)) {
            continue;
        }
        let adapter = named.flatten();
        for (content, hash) in comparable(block) {
            let key = (block.content_key.clone().unwrap_or_default(), content.clone(), adapter.clone());
            let entry = contents.entry(key).or_default().entry(worker.clone());
            entry.or_insert_with(|| (BTreeSet::new(), observation)).0.insert(end_of(hash));
        }
    }
    let mut forks = Forks::default();
    for ((_, content, adapter), workers) in &contents {
        let all: Vec<_> = workers.iter().collect();
        for (index, (a, (hashes_a, proof_a))) in all.iter().enumerate() {
            for (b, (hashes_b, proof_b)) in all.iter().skip(index + 1) {
                if hashes_a.is_disjoint(hashes_b) {
                    let pair = ((*a).clone(), (*b).clone(), adapter.is_some());
                    forks.0.entry(pair).or_default().push((content.as_str(), [*proof_a, *proof_b]));
                }
            }
        }
    }
    forks.told(view)
}

/// Contents that two engines keep under other hashes, with what shows it.
type Apart<'o> = Vec<(&'o str, [&'o Observation; 2])>;

/// Pairs of engines that keep one content under other hashes; of blocks of an adapter or not.
#[derive(Default)]
struct Forks<'o>(BTreeMap<(WorkerId, WorkerId, bool), Apart<'o>>);

/// Pairs that one cause parts: one fork, however many engines it parts.
struct Fork<'o> {
    cause: Cause,
    confidence: Confidence,
    of_adapter: bool,
    workers: BTreeSet<WorkerId>,
    apart: Vec<Apart<'o>>,
}

// === impl Forks ===

impl Forks<'_> {
    fn told(self, view: &View<'_>) -> Vec<Finding> {
        let mut forks: Vec<Fork<'_>> = Vec::new();
        for ((a, b, of_adapter), apart) in self.0 {
            let (cause, confidence) = weigh(view, &a, &b, of_adapter);
            let mut fork = Fork { cause, confidence, of_adapter, workers: [a, b].into(), apart: vec![apart] };
            let held: Vec<Fork<'_>> = forks.extract_if(.., |held| held.is_one_with(&fork)).collect();
            for held in held {
                fork.workers.extend(held.workers);
                fork.apart.extend(held.apart);
            }
            forks.push(fork);
        }
        forks.into_iter().map(Fork::told).collect()
    }
}

// === impl Fork ===

impl Fork<'_> {
    fn is_one_with(&self, other: &Self) -> bool {
        let is_alike = self.cause == other.cause && self.of_adapter == other.of_adapter;
        is_alike && self.confidence == other.confidence && !self.workers.is_disjoint(&other.workers)
    }

    fn told(self) -> Finding {
        let subject = self.workers.iter().map(WorkerId::as_str).collect::<Vec<_>>().join(", ");
        let mut draft = Draft::new(Detector::KeyspaceFork, self.cause.clone(), self.confidence, subject);
        for worker in &self.workers {
            draft.worker(worker.as_str());
        }
        if self.confidence != Confidence::Confirmed {
            draft.unknown("whether these engines share a store or an index");
        }
        for (_, proofs) in self.apart.iter().flat_map(|apart| apart.iter().take(SHOWN)) {
            draft.proofs(*proofs);
        }
        let contents: BTreeSet<&str> = self.apart.iter().flatten().map(|(content, _)| *content).collect();
        draft.events(contents.len() as u64);
        let who = if self.workers.len() > 2 { "of them" } else { "of both" };
        let how = format!("as KV events {who} show for {} contents", contents.len());
        finish(draft, &self.cause, &how)
    }
}

fn comparable(block: &Block) -> impl Iterator<Item = (&String, &String)> {
    block.content.iter().zip(&block.hashes).filter(|(content, _)| !content.is_empty())
}

/// A hash as any engine may publish it: whole, or its last 64 bits as a number. Whoever keeps an index over both forms
/// compares that part alone.
fn end_of(hash: &str) -> String {
    if let Ok(number) = hash.parse::<u64>() {
        return format!("{number:016x}");
    }
    let is_long = hash.len() > COMMON && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
    let end = hash.get(hash.len().saturating_sub(COMMON)..).filter(|_| is_long);
    end.map_or_else(|| hash.to_owned(), str::to_ascii_lowercase)
}

/// The adapters of a worker by the numbers of their loads, from 1, where its keys hold those.
fn loaded(view: &View<'_>, worker: &WorkerId) -> Vec<String> {
    let member = view.roster().get(worker);
    let numbered = member.filter(|member| member.fact(fact::ADAPTER_KEY) == Some("load_number"));
    numbered.map(|member| loads(view, member).into_iter().map(|(name, _)| name).collect()).unwrap_or_default()
}

fn weigh(view: &View<'_>, a: &WorkerId, b: &WorkerId, of_adapter: bool) -> (Cause, Confidence) {
    let (Some(a), Some(b)) = (view.roster().get(a), view.roster().get(b)) else {
        return (Cause::Unknown, Confidence::Suspected);
    };
    let otherwise = if of_adapter { Cause::LoraId } else { Cause::Unknown };
    let cause = HASHED.iter().find(|name| differs(a, b, name)).map_or(otherwise, |name| cause_of(name));
    let confidence = if shares(view, a, b) { Confidence::Confirmed } else { Confidence::Suspected };
    (cause, confidence)
}

/// Whether a fact is known to differ. A random seed differs from everything, itself included.
pub(super) fn differs(a: &Member, b: &Member, name: &str) -> bool {
    match (a.fact(name), b.fact(name)) {
        (Some(a), Some(b)) => a != b || (name == fact::HASH_SEED && a == "random"),
        _ => false,
    }
}

/// Whether two workers share a store or an index.
pub(super) fn shares(view: &View<'_>, a: &Member, b: &Member) -> bool {
    let store = a.fact(fact::STORE).is_some_and(|store| b.fact(fact::STORE) == Some(store));
    let publish = a.fact(fact::KV_EVENTS).zip(b.fact(fact::KV_EVENTS));
    let index = view.roster().members().any(|m| m.fact(fact::ROUTER_INDEX).is_some());
    // Who listens on every address has it to itself; only who connects to an address shares it.
    let joint = |(a, b): (&str, &str)| a == b && !a.contains('*');
    store || publish.is_some_and(|both| index || joint(both))
}
