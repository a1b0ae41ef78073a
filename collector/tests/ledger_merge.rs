//! Any order, duplicate, split, association and restart gives the same ledger, in memory and on disk.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

mod ledger_support;

use kvprov_collector::ledger::{
    EmbeddedLedger, IndexKey, IndexKind, Ledger, Limits, MemoryLedger, Subject, index_keys,
};
use kvprov_model::id::{NodeId, RequestStem, WorkerId};
use kvprov_model::observation::{Body, Observation, otlp};
use ledger_support::{observation, two_deliveries};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn few_bytes() -> Limits {
    Limits {
        horizon_ns: Some(40),
        bytes_per_node: Some(1500),
        undated_bytes_per_node: Some(600),
        ..Limits::unbounded()
    }
}

fn merged(batches: &[Vec<Observation>], limits: &Limits) -> MemoryLedger {
    let mut ledger = MemoryLedger::new(limits.clone());
    for batch in batches {
        ledger.merge(batch).unwrap();
    }
    ledger
}

/// A view that the ledger remembers is the one that a ledger has which remembers nothing.
fn views_agree(ledger: &impl Ledger, batches: &[Vec<Observation>], limits: &Limits) {
    let fresh = merged(batches, limits);
    use IndexKind::{Engine, Fleet, Request, Roster, Store, Transfer, Worker};
    for kind in [Worker, Request, Transfer, Store, Engine, Roster, Fleet] {
        for key in fresh.keys(kind).unwrap() {
            let (seen, expected) = (ledger.view(&key).unwrap(), fresh.view(&key).unwrap());
            assert_eq!((&seen.observations, seen.cut), (&expected.observations, expected.cut), "{key:?}");
        }
    }
}

/// What the ledger has to hold, from the definition of retention alone.
fn expected(
    history: &[Observation],
    limits: &Limits,
    size: impl Fn(&Observation) -> u64,
) -> Vec<Observation> {
    let mut kept = Vec::new();
    let nodes: BTreeSet<&NodeId> = history.iter().map(|observation| &observation.envelope.node).collect();
    for node in nodes {
        let mut dated: Vec<_> = history
            .iter()
            .filter(|observation| observation.envelope.node == *node && observation.envelope.wall.is_some())
            .cloned()
            .collect();
        dated.sort_by_key(|observation| (observation.envelope.wall, observation.envelope.id));
        let newest = dated.last().and_then(|observation| observation.envelope.wall);
        let mut room = limits.bytes_per_node.unwrap();
        for observation in dated.into_iter().rev() {
            if newest.unwrap().since(observation.envelope.wall.unwrap()) > limits.horizon_ns.unwrap() {
                break;
            }
            let Some(left) = room.checked_sub(size(&observation)) else { break };
            room = left;
            kept.push(observation);
        }
    }
    kept.sort_by_key(|observation| observation.envelope.id);
    kept
}

fn all_of(ledger: &MemoryLedger) -> Vec<Observation> {
    let mut all = Vec::new();
    ledger
        .each_observation(&mut |observation| {
            all.push(observation);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn order_and_duplicates_do_not_matter((_, one, other) in two_deliveries(60)) {
        for limits in [Limits::unbounded(), few_bytes()] {
            prop_assert_eq!(merged(&one, &limits).dump().unwrap(), merged(&other, &limits).dump().unwrap());
        }
    }

    #[test]
    fn a_view_that_is_remembered_is_the_one_that_is_read_anew((_, one, other) in two_deliveries(40), changes in any::<bool>()) {
        let narrow = Limits { selection: 12, ..few_bytes() };
        for limits in [Limits::unbounded(), few_bytes(), narrow] {
            let mut ledger = MemoryLedger::new(limits.clone());
            let mut told = Vec::new();
            for batch in one.iter().chain(&other) {
                let mut batch = batch.clone();
                if changes && told.len() % 3 == 2 {
                    batch.iter_mut().for_each(|observation| observation.envelope.says = Some("zz".to_owned()));
                }
                ledger.merge(&batch).unwrap();
                told.push(batch);
                views_agree(&ledger, &told, &limits);
            }
        }
    }

    #[test]
    fn what_was_merged_is_there_and_nothing_else((history, one, _) in two_deliveries(60)) {
        let mut history = history;
        history.sort_by_key(|observation| observation.envelope.id);
        prop_assert_eq!(all_of(&merged(&one, &Limits::unbounded())), history);
    }

    #[test]
    fn replicas_merge_in_any_association((_, one, other) in two_deliveries(60), thirds in 0..3usize) {
        for limits in [Limits::unbounded(), few_bytes()] {
            let whole = merged(&other, &limits).dump().unwrap();
            let part = |wanted: usize| {
                let batches: Vec<_> =
                    one.iter().enumerate().filter(|(i, _)| (i + thirds) % 3 == wanted).map(|(_, b)| b.clone()).collect();
                merged(&batches, &limits)
            };
            let mut left = part(0);
            left.absorb(&part(1)).unwrap();
            left.absorb(&part(2)).unwrap();
            let mut right = part(1);
            right.absorb(&part(2)).unwrap();
            let mut first = part(0);
            first.absorb(&right).unwrap();
            right.absorb(&part(0)).unwrap();
            right.absorb(&part(0)).unwrap();
            for ledger in [left, right, first] {
                prop_assert_eq!(&ledger.dump().unwrap(), &whole);
            }
        }
    }

    #[test]
    fn retention_keeps_the_newest_that_fit((history, one, _) in two_deliveries(60)) {
        let limits = few_bytes();
        // The stored size of one observation is what an unbounded ledger stores.
        let sizes: std::collections::BTreeMap<Vec<u8>, u64> = merged(&one, &Limits::unbounded())
            .dump().unwrap().into_iter().filter(|(key, _)| key[0] == b'r')
            .map(|(key, value)| (key[1..].to_vec(), value.len() as u64)).collect();
        let kept: Vec<_> = all_of(&merged(&one, &limits)).into_iter()
            .filter(|observation| observation.envelope.wall.is_some()).collect();
        prop_assert_eq!(kept, expected(&history, &limits, |o| sizes[o.envelope.id.0.as_slice()]));
    }

    #[test]
    fn views_are_complete_and_ordered((history, one, _) in two_deliveries(60)) {
        let ledger = merged(&one, &Limits::unbounded());
        let wanted: BTreeSet<IndexKey> = history.iter().flat_map(|o| index_keys(o).0).collect();
        for key in &wanted {
            let mut under: Vec<_> = history.iter().filter(|o| index_keys(o).0.contains(key)).cloned().collect();
            under.sort_by_key(|o| {
                let undated = o.envelope.wall.is_none().then(|| (o.envelope.stream.clone(), o.envelope.position));
                (o.envelope.wall, undated, o.envelope.id)
            });
            let selection = ledger.select(key).unwrap();
            prop_assert_eq!(&selection.observations, &under);
            prop_assert_eq!(selection.cut, 0);
            let mut visited = Vec::new();
            ledger.visit(key, &mut |o| { visited.push(o); std::ops::ControlFlow::Continue(()) }).unwrap();
            prop_assert_eq!(visited, under);
        }
        let kinds = [
            IndexKind::Worker, IndexKind::Request, IndexKind::Transfer, IndexKind::Store, IndexKind::Engine,
            IndexKind::Roster, IndexKind::Fleet,
        ];
        let listed: BTreeSet<IndexKey> = kinds.into_iter().flat_map(|kind| ledger.keys(kind).unwrap()).collect();
        prop_assert_eq!(listed, wanted);
    }

    #[test]
    fn the_greater_of_two_contents_wins_in_any_order(wall in 0i64..9, other in 0i64..9) {
        let one = observation(1, "n0", Some(wall));
        let mut two = observation(1, "n0", Some(other));
        two.envelope.says = Some("something else".to_owned());
        let limits = Limits::unbounded();
        let ledger = merged(&[vec![one.clone()], vec![two.clone()]], &limits);
        prop_assert_eq!(ledger.dump().unwrap(), merged(&[vec![two.clone()], vec![one]], &limits).dump().unwrap());
        prop_assert!(wall >= other || all_of(&ledger) == [two]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn disk_and_restarts_change_nothing((_, one, other) in two_deliveries(60), restart in 0.0f64..1.0) {
        for limits in [Limits::unbounded(), few_bytes()] {
            let directory = tempfile::tempdir().unwrap();
            let cut = (one.len() as f64 * restart) as usize;
            for part in [&one[..cut], &one[cut..]] {
                let mut ledger = EmbeddedLedger::open(directory.path(), limits.clone()).unwrap();
                for batch in part {
                    ledger.merge(batch).unwrap();
                }
            }
            let disk = EmbeddedLedger::open(directory.path(), limits.clone()).unwrap();
            let memory = merged(&other, &limits);
            prop_assert_eq!(disk.dump().unwrap(), memory.dump().unwrap());
            prop_assert_eq!(disk.watermarks(), memory.watermarks());
        }
    }
}

#[test]
fn what_arrived_over_the_wire_is_what_is_read() {
    let sent: Vec<_> = (0..40).map(|index| observation(index, "n0", Some(index as i64))).collect();
    let mut ledger = MemoryLedger::default();
    ledger.merge(&otlp::decode(&otlp::encode(&sent)).unwrap().observations).unwrap();
    let mut all = all_of(&ledger);
    all.sort_by_key(|observation| observation.envelope.position);
    assert_eq!(all, sent);
}

#[test]
fn a_duplicate_changes_nothing_and_dirties_nobody() {
    let mut ledger = MemoryLedger::default();
    let one = observation(3, "n0", Some(1));
    assert!(!ledger.merge(std::slice::from_ref(&one)).unwrap().dirty.is_empty());
    let again = ledger.merge(&[one.clone(), one]).unwrap();
    assert_eq!((again.added, again.duplicates), (0, 2));
    assert!(again.dirty.is_empty());
}

#[test]
fn a_worker_known_under_the_same_request_becomes_dirty() {
    let mut ledger = MemoryLedger::default();
    let leg = |worker: &str, printed: &str| {
        let mut leg = observation(3, worker, Some(1));
        leg.envelope.worker = Some(WorkerId::from(worker));
        let mut body = Body::empty("lease");
        body.set("request_id", kvprov_model::value::Value::Str(printed.to_owned())).unwrap();
        leg.body = body;
        leg
    };
    ledger.merge(&[leg("p0", "cmpl-a-0-0a1b2c3d"), leg("q0", "other")]).unwrap();
    let dirty = ledger.merge(&[leg("d0", "cmpl-a-0")]).unwrap().dirty;
    let workers = ["d0", "p0"].map(|name| Subject::Worker(WorkerId::from(name)));
    assert_eq!(dirty, BTreeSet::from(workers));
    let request = IndexKey::Request(RequestStem("a".to_owned()));
    assert_eq!(ledger.select(&request).unwrap().observations.len(), 2);
}

#[test]
fn a_node_beyond_the_cap_is_refused_and_counted() {
    let mut ledger = MemoryLedger::new(Limits { nodes: 2, ..Limits::unbounded() });
    let batch: Vec<_> = ["n0", "n1", "n2", "n0"]
        .into_iter()
        .enumerate()
        .map(|(index, node)| observation(index as u64, node, Some(1)))
        .collect();
    let merged = ledger.merge(&batch).unwrap();
    assert_eq!((merged.added, merged.refused_nodes), (3, 1));
    assert_eq!(ledger.watermarks().len(), 2);
}

#[test]
fn an_observation_too_large_is_refused_and_counted() {
    let mut ledger = MemoryLedger::new(Limits { observation_bytes: 1000, ..Limits::unbounded() });
    let mut large = observation(1, "n0", Some(1));
    large.envelope.says = Some("x".repeat(2000));
    let merged = ledger.merge(&[large, observation(2, "n0", Some(2))]).unwrap();
    assert_eq!((merged.added, merged.oversized), (1, 1));
}

#[test]
fn a_list_of_too_many_requests_is_cut_and_counted() {
    let mut ledger = MemoryLedger::default();
    let mut crowd = observation(1, "n0", Some(1));
    let ids = (0..2000).map(|index| kvprov_model::value::Value::Str(format!("q{index}"))).collect();
    crowd.body = Body::empty("kv_load");
    crowd.body.set("request_ids", kvprov_model::value::Value::List(ids)).unwrap();
    let merged = ledger.merge(&[crowd]).unwrap();
    assert_eq!((merged.added, merged.index_cut), (1, 2000 + 1 - 512));
}

#[test]
fn a_view_beyond_the_limit_keeps_the_newest_and_counts_the_rest() {
    let mut ledger = MemoryLedger::new(Limits { selection: 10, ..Limits::unbounded() });
    let worker = WorkerId::from("w");
    let batch: Vec<_> = (0..30)
        .map(|index| {
            let mut one = observation(index, "n0", Some(index as i64));
            one.envelope.worker = Some(worker.clone());
            one
        })
        .collect();
    ledger.merge(&batch).unwrap();
    let selection = ledger.select(&IndexKey::Worker(worker)).unwrap();
    assert_eq!(selection.cut, 20);
    assert_eq!(selection.observations, batch[20..]);
}

#[test]
fn a_mass_expiry_ends_in_one_merge() {
    let mut ledger = MemoryLedger::new(Limits { horizon_ns: Some(10), ..Limits::unbounded() });
    for start in (0..12_000u64).step_by(500) {
        let batch: Vec<_> = (start..start + 500).map(|index| observation(index, "n0", Some(5))).collect();
        ledger.merge(&batch).unwrap();
    }
    let merged = ledger.merge(&[observation(12_001, "n0", Some(1000))]).unwrap();
    assert_eq!((merged.added, merged.removed), (1, 12_000));
    assert_eq!(all_of(&ledger).len(), 1);
    let late = ledger.merge(&[observation(7, "n0", Some(5))]).unwrap();
    assert_eq!((late.added, late.expired), (0, 1));
}
