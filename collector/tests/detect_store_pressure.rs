//! `store_pressure`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::counter;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, Counters, Tier};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const PRESSURE: Detector = Detector::StorePressure;

fn master() -> Scene {
    let mut scene = Scene::new();
    scene.worker("m0").store();
    scene
}

// === fires ===

#[test]
fn evictions_that_free_nothing_are_pressure() {
    let mut scene = master();
    let values = [
        (counter::STORE_EVICTION_ATTEMPTS, 649.0),
        (counter::STORE_EVICTION_SUCCESSES, 0.0),
        (counter::STORE_REFUSED_WRITES, 12_160.0),
    ];
    scene.at("08:01:00").on("m0").line("m1.prom", 0).tell(counted("08:00:00", &values));
    let found = scene.only(&PRESSURE);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::EvictionStarved));
    assert_eq!((found.count, found.subject.as_str()), (12_160, "m0"));
    assert!(places(&found).contains("m1.prom:0"));
    assert!(found.summary.contains("0 of 649"), "{}", found.summary);
}

#[test]
fn refused_writes_are_pressure_although_evictions_work() {
    let mut scene = master();
    let values = [
        (counter::STORE_REFUSED_WRITES, 12.0),
        (counter::STORE_EVICTION_ATTEMPTS, 8.0),
        (counter::STORE_EVICTION_SUCCESSES, 8.0),
        (counter::STORE_EVICTED_KEYS, 30.0),
    ];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &values));
    let found = scene.only(&PRESSURE);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::RefusedWrites));
}

#[test]
fn writes_that_failed_for_no_known_reason_are_suspected() {
    let mut scene = master();
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &[(counter::STORE_FAILED_WRITES, 12.0)]));
    let found = scene.only(&PRESSURE);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 12));
    assert!(names_unknown(&found, "why"), "{:?}", found.unknown);
}

#[test]
fn words_of_client_and_master_are_one_finding() {
    let mut scene = master();
    scene.worker("e0").both().uses("mooncake:m0");
    scene.at("08:00:10").on("e0").line("e.log", 4).tell(store_says("refused", 3));
    scene.at("08:00:11").on("m0").line("m.log", 2).tell(store_says("refused", 3));
    let found = scene.only(&PRESSURE);
    assert_eq!(found.workers, ["e0", "m0"]);
    assert_eq!(places(&found), ["e.log:4".to_owned(), "m.log:2".to_owned()].into());
}

#[test]
fn words_and_counters_of_the_same_refusals_are_not_added_up() {
    let mut scene = master();
    scene.at("08:00:10").on("m0").tell(store_says("refused", 12));
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &[(counter::STORE_REFUSED_WRITES, 12.0)]));
    assert_eq!(scene.only(&PRESSURE).count, 12);
}

#[test]
fn totals_of_a_single_snapshot_are_suspected() {
    let mut scene = master();
    let values = [(counter::STORE_EVICTION_ATTEMPTS, 649.0), (counter::STORE_REFUSED_WRITES, 12_160.0)];
    scene.at("08:01:00").on("m0").tell(totals(&values));
    let found = scene.only(&PRESSURE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "when"), "{:?}", found.unknown);
}

#[test]
fn a_later_interval_keeps_the_id() {
    let mut scene = master();
    let values = [(counter::STORE_REFUSED_WRITES, 12.0)];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &values));
    let before = scene.only(&PRESSURE);
    scene.at("08:02:00").on("m0").tell(counted("08:01:00", &values));
    let after = scene.only(&PRESSURE);
    assert_eq!((before.id, before.count), (after.id, 12));
    assert_eq!(after.count, 24);
}

#[test]
fn a_worker_that_holds_nothing_while_others_fill_the_store_is_starved() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    for page in 1..=5 {
        scene.at("08:00:10").on("a0").tell(wrote("file:/kv", &format!("a-{page}"), 4096));
    }
    scene.at("08:00:20").on("b0").tell(missed("file:/kv", "b-1"));
    scene.at("08:00:21").on("b0").tell(store_says("refused", 2));
    assert_eq!(scene.only(&PRESSURE).cause, Cause::KeyspaceStarved);
}

#[test]
fn what_a_starved_worker_writes_later_does_not_make_it_another_finding() {
    for (at, cause) in [("08:00:40", Cause::KeyspaceStarved), ("08:00:05", Cause::RefusedWrites)] {
        let mut scene = Scene::new();
        scene.worker("a0").both();
        scene.worker("b0").both();
        scene.at("08:00:10").on("a0").tell(wrote("file:/kv", "a-1", 4096));
        scene.at("08:00:20").on("b0").tell(missed("file:/kv", "b-1"));
        scene.at("08:00:21").on("b0").tell(store_says("refused", 2));
        scene.at(at).on("b0").tell(wrote("file:/kv", "b-2", 4096));
        assert_eq!(scene.only(&PRESSURE).cause, cause, "{at}");
    }
}

#[test]
fn writers_that_wait_again_and_again_are_suspected_pressure() {
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(store_says("waiting", 8));
    let found = scene.only(&PRESSURE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "room came free"), "{:?}", found.unknown);
    assert!(found.summary.contains("8 waits"), "{}", found.summary);
}

/// What the totals of a master's line stand at.
fn stands_at(attempts: f64, refused: f64) -> Body {
    totals(&[(counter::STORE_EVICTION_ATTEMPTS, attempts), (counter::STORE_REFUSED_WRITES, refused)])
}

#[test]
fn totals_that_rise_are_counted_by_what_they_rose() {
    let mut scene = master();
    for (at, attempts, refused) in
        [("08:00:00", 31.0, 384.0), ("08:00:10", 31.0, 384.0), ("08:00:20", 40.0, 400.0)]
    {
        scene.at(at).on("m0").line("m.log", 20).tell(stands_at(attempts, refused));
    }
    let found = scene.only(&PRESSURE);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 16));
    assert!(found.summary.contains("0 of 9"), "{}", found.summary);
    assert_eq!(found.first_seen, found.last_seen, "before, nothing happened");
}

#[test]
fn a_line_that_counts_since_the_line_before_is_pressure_although_its_number_stays() {
    let mut scene = master();
    for at in ["08:00:00", "08:00:10", "08:00:20"] {
        let values = [(counter::STORE_REFUSED_WRITES.to_owned(), 384.0)].into();
        let totals = [(counter::STORE_EVICTION_ATTEMPTS.to_owned(), 31.0)].into();
        scene.at(at).on("m0").tell(Body::Counters(Counters { values, totals, ..Counters::default() }));
    }
    let found = scene.only(&PRESSURE);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 3 * 384));
}

// === stays quiet ===

#[test]
fn totals_that_stand_still_are_quiet_however_high() {
    let mut scene = master();
    scene.at("08:00:00").on("m0").tell(stands_at(31.0, 384.0));
    scene.at("08:00:10").on("m0").tell(stands_at(31.0, 384.0));
    scene.at("08:00:20").on("m0").tell(stands_at(0.0, 0.0));
    scene.assert_silent();
}

#[test]
fn a_first_total_after_which_nothing_is_counted_is_quiet() {
    let mut scene = master();
    scene.at("08:00:00").on("m0").tell(stands_at(31.0, 384.0));
    let still = [(counter::STORE_EVICTION_ATTEMPTS, 0.0), (counter::STORE_REFUSED_WRITES, 0.0)];
    scene.at("08:00:10").on("m0").tell(counted("08:00:00", &still));
    scene.assert_silent();
}

#[test]
fn a_writer_that_waits_for_a_moment_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(store_says("waiting", 2));
    scene.assert_silent();
}

#[test]
fn cumulative_counters_that_do_not_move_are_quiet() {
    let mut scene = master();
    let high = [(counter::STORE_REFUSED_WRITES, 0.0), (counter::STORE_EVICTION_ATTEMPTS, 0.0)];
    scene.at("08:00:00").on("m0").tell(counted("07:59:50", &high));
    scene.at("08:00:10").on("m0").tell(counted("08:00:00", &high));
    scene.assert_silent();
}

#[test]
fn totals_of_a_store_that_could_evict_are_quiet() {
    let mut scene = master();
    let values = [
        (counter::STORE_EVICTION_ATTEMPTS, 649.0),
        (counter::STORE_EVICTION_SUCCESSES, 640.0),
        (counter::STORE_REFUSED_WRITES, 3.0),
    ];
    scene.at("08:01:00").on("m0").tell(totals(&values));
    scene.assert_silent();
}

#[test]
fn refusals_of_long_ago_alone_are_quiet() {
    let mut scene = master();
    scene.at("08:01:00").on("m0").tell(totals(&[(counter::STORE_REFUSED_WRITES, 12_160.0)]));
    scene.assert_silent();
}

#[test]
fn an_eviction_that_works_is_quiet() {
    let mut scene = master();
    let values = [
        (counter::STORE_EVICTION_ATTEMPTS, 8.0),
        (counter::STORE_EVICTION_SUCCESSES, 8.0),
        (counter::STORE_EVICTED_KEYS, 30.0),
    ];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &values));
    scene.at("08:01:10").on("m0").tell(store_says("evicted", 30));
    scene.assert_silent();
}

#[test]
fn an_eviction_counted_by_its_keys_alone_works() {
    let mut scene = master();
    let values = [(counter::STORE_EVICTION_ATTEMPTS, 8.0), (counter::STORE_EVICTED_KEYS, 30.0)];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &values));
    scene.assert_silent();
}

#[test]
fn an_almost_empty_pool_is_quiet() {
    let mut scene = master();
    let levels = [(counter::STORE_USED_LEVEL, 1.0e6), (counter::STORE_CAPACITY_LEVEL, 1.0e12)];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &levels));
    scene.assert_silent();
}

#[test]
fn a_full_pool_that_refuses_nothing_is_quiet() {
    let mut scene = master();
    let levels = [(counter::STORE_USED_LEVEL, 1.0e12), (counter::STORE_CAPACITY_LEVEL, 1.0e12)];
    scene.at("08:01:00").on("m0").tell(counted("08:00:00", &levels));
    scene.assert_silent();
}

#[test]
fn preemption_for_lack_of_space_in_the_engine_is_no_store() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:01:00").on("e0").tell(counted("08:00:00", &[(counter::PREEMPTIONS, 40.0)]));
    scene.assert_silent();
}

#[test]
fn an_owner_that_clears_its_store_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(wrote("file:/kv", "page", 4096));
    scene.at("08:00:20").on("e0").tell(emptied(&[Tier::Storage]));
    scene.at("08:00:20").on("e0").tell(removed("file:/kv", "page"));
    scene.assert_silent();
}
