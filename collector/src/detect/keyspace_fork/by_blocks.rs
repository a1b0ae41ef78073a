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
            entry.or_insert_with(|| (BTreeSet::new(), observation)).0.insert(hash.clone());
        }
    }
    let mut drafts: BTreeMap<(WorkerId, WorkerId, bool), Draft> = BTreeMap::new();
    for ((.., adapter), workers) in &contents {
        let all: Vec<_> = workers.iter().collect();
        for (index, (a, (hashes_a, proof_a))) in all.iter().enumerate() {
            for (b, (hashes_b, proof_b)) in all.iter().skip(index + 1) {
                if !hashes_a.is_disjoint(hashes_b) {
                    continue;
                }
                let key = ((*a).clone(), (*b).clone(), adapter.is_some());
                let draft = drafts.entry(key).or_insert_with(|| {
                    let (cause, confidence) = weigh(view, a, b, adapter.is_some());
                    let mut draft =
                        Draft::new(Detector::KeyspaceFork, cause, confidence, format!("{a}, {b}"));
                    draft.worker(a.as_str()).worker(b.as_str());
                    if confidence != Confidence::Confirmed {
                        draft.unknown("whether these engines share a store or an index");
                    }
                    draft
                });
                draft.events(1);
                if draft.count() <= 4 {
                    draft.proof(proof_a).proof(proof_b);
                }
            }
        }
    }
    drafts
        .into_iter()
        .map(|((a, b, of_adapter), draft)| {
            let cause = weigh(view, &a, &b, of_adapter).0;
            let how = format!("as KV events of both show for {} contents", draft.count());
            finish(draft, &cause, &how)
        })
        .collect()
}

fn comparable(block: &Block) -> impl Iterator<Item = (&String, &String)> {
    block.content.iter().zip(&block.hashes).filter(|(content, _)| !content.is_empty())
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
