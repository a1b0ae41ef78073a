//! Views stay exact and space is given back when observations are replaced or expire.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

mod ledger_support;

use kvprov_collector::ledger::storage::{Changes, MemoryStorage, Order, Storage, Visit};
use kvprov_collector::ledger::{
    IndexKey, IndexKind, Ledger, LedgerError, Limits, MemoryLedger, StoredLedger, index_keys,
};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::Observation;
use ledger_support::{observation, two_deliveries};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, RwLock};

const KINDS: [IndexKind; 7] = [
    IndexKind::Worker,
    IndexKind::Request,
    IndexKind::Transfer,
    IndexKind::Store,
    IndexKind::Engine,
    IndexKind::Roster,
    IndexKind::Fleet,
];

/// A storage that the test can look into.
#[derive(Clone, Default)]
struct Glass(Arc<RwLock<MemoryStorage>>);

impl Storage for Glass {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError> {
        self.0.read().unwrap().get(key)
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        order: Order,
        visit: Visit<'_>,
    ) -> Result<(), LedgerError> {
        self.0.read().unwrap().scan(from, until, order, visit)
    }

    fn commit(&mut self, changes: Changes) -> Result<(), LedgerError> {
        self.0.write().unwrap().commit(changes)
    }
}

impl Glass {
    /// The first bytes of the keys, each once.
    fn tables(&self) -> BTreeSet<char> {
        let mut tables = BTreeSet::new();
        self.scan(&[], None, Order::Ascending, &mut |key, _| {
            tables.insert(char::from(key[0]));
            ControlFlow::Continue(())
        })
        .unwrap();
        tables
    }
}

fn all_of<S: Storage>(ledger: &StoredLedger<S>) -> Vec<Observation> {
    let mut all = Vec::new();
    ledger
        .each_observation(&mut |observation| {
            all.push(observation);
            ControlFlow::Continue(())
        })
        .unwrap();
    all
}

fn ids(observations: &[Observation]) -> BTreeSet<String> {
    observations.iter().map(|observation| observation.envelope.id.to_hex()).collect()
}

/// Every view holds what the set says, and every key that is listed has a view.
fn assert_views_follow_the_set<S: Storage>(ledger: &StoredLedger<S>) {
    let all = all_of(ledger);
    let wanted: BTreeSet<IndexKey> = all.iter().flat_map(|o| index_keys(o).0).collect();
    let listed: BTreeSet<IndexKey> = KINDS.into_iter().flat_map(|kind| ledger.keys(kind).unwrap()).collect();
    assert_eq!(listed, wanted);
    for key in wanted {
        let under: Vec<_> = all.iter().filter(|o| index_keys(o).0.contains(&key)).cloned().collect();
        let selection = ledger.select(&key).unwrap();
        assert_eq!((ids(&selection.observations), selection.cut), (ids(&under), 0), "{key:?}");
    }
}

/// Another content of an observation, under other keys and a later time.
fn retold(index: u64, wall: i64) -> Observation {
    let mut told = observation(index + 8, "n0", Some(wall));
    told.envelope.id = observation(index, "n0", None).envelope.id;
    told
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn views_stay_exact_under_retention((_, one, _) in two_deliveries(150)) {
        let limits = Limits {
            horizon_ns: Some(60),
            bytes_per_node: Some(6000),
            undated_bytes_per_node: Some(1500),
            ..Limits::unbounded()
        };
        let mut ledger = MemoryLedger::new(limits);
        for batch in &one {
            ledger.merge(batch).unwrap();
            assert_views_follow_the_set(&ledger);
        }
    }

    #[test]
    fn a_cut_view_is_the_same_whatever_the_order((history, one, other) in two_deliveries(80), most in 1..12usize) {
        let limits = Limits { selection: most, ..Limits::unbounded() };
        let ledgers = [one, other].map(|batches| {
            let mut ledger = MemoryLedger::new(limits.clone());
            // Times that tie, so that the cut falls between equals.
            for batch in batches {
                let tied: Vec<_> = batch.into_iter().map(|mut o| {
                    o.envelope.wall = o.envelope.wall.map(|wall| WallTime(wall.0 / 20));
                    o
                }).collect();
                ledger.merge(&tied).unwrap();
            }
            ledger
        });
        for key in history.iter().flat_map(|o| index_keys(o).0) {
            let [one, other] = ledgers.each_ref().map(|ledger| ledger.select(&key).unwrap());
            prop_assert_eq!(one, other);
        }
    }

    #[test]
    fn replaced_observations_leave_nothing_behind(
        again in proptest::collection::btree_set(0u64..50, 1..50), batch in 1..60usize,
    ) {
        let first: Vec<_> = (0..50).map(|index| observation(index, "n0", Some(index as i64))).collect();
        let second: Vec<_> = again.iter().map(|index| retold(*index, 100 + *index as i64)).collect();
        let storage = Glass::default();
        let mut ledger = StoredLedger::over(storage.clone(), Limits::unbounded()).unwrap();
        let mut merged = kvprov_collector::ledger::Merged::default();
        for batch in first.chunks(batch).chain(second.chunks(batch)) {
            merged += ledger.merge(batch).unwrap();
        }
        prop_assert_eq!((merged.added, merged.replaced), (50, again.len() as u64));
        assert_views_follow_the_set(&ledger);

        let mut at_once = MemoryLedger::default();
        let kept = first.iter().filter(|o| !ids(&second).contains(&o.envelope.id.to_hex()));
        at_once.merge(&kept.chain(&second).cloned().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(ledger.dump().unwrap(), at_once.dump().unwrap());
        drop(ledger);

        // Opened with a stricter limit, it gives everything back.
        let nothing = Limits { bytes_per_node: Some(0), ..Limits::unbounded() };
        let ledger = StoredLedger::over(storage.clone(), nothing).unwrap();
        prop_assert_eq!(all_of(&ledger).len(), 0);
        prop_assert_eq!(storage.tables(), BTreeSet::from(['w']));
    }
}

#[test]
fn what_expires_gives_its_space_back() {
    let storage = Glass::default();
    let limits = Limits { horizon_ns: Some(100), ..Limits::unbounded() };
    let mut ledger = StoredLedger::over(storage.clone(), limits).unwrap();
    // Each batch reaches far back, so that the blocks of all of them overlap.
    for start in 0..20u64 {
        let batch: Vec<_> =
            (0..60).map(|i| observation(start * 60 + i, "n0", Some((start + i * 2) as i64))).collect();
        ledger.merge(&batch).unwrap();
        assert_views_follow_the_set(&ledger);
    }
    let last = ledger.merge(&[observation(9999, "n0", Some(10_000))]).unwrap();
    assert!(last.removed > 0);
    assert_eq!(all_of(&ledger).len(), 1);
    drop(ledger);
    let ledger = StoredLedger::over(
        storage.clone(),
        Limits { horizon_ns: None, bytes_per_node: Some(0), ..Limits::unbounded() },
    );
    assert_eq!(all_of(&ledger.unwrap()).len(), 0);
    assert_eq!(storage.tables(), BTreeSet::from(['w']));
}
