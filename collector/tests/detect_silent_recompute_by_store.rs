//! `silent_recompute` by what a store promised and did not give: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, CacheUse, KvLoad, Tier};
use kvprov_model::{counter, fact};
use scene::Scene;
use scene::tell::*;

const RECOMPUTE: Detector = Detector::SilentRecompute;
const FAILED: Detector = Detector::KvTransferFailed;

fn engine() -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0");
    scene
}

/// A load line that holds its own promise.
fn came(retrieved: i64, needed: i64) -> Body {
    Body::CacheUse(CacheUse {
        tier: Some(Tier::Storage),
        retrieved: Some(retrieved),
        needed: Some(needed),
        ..CacheUse::default()
    })
}

/// The prompt of a request is stored.
fn storing(request: &str, asked: i64) -> Body {
    Body::CacheUse(CacheUse {
        request_id: Some(request.to_owned()),
        tier: Some(Tier::Storage),
        asked: Some(asked),
        ..CacheUse::default()
    })
}

/// A prefill and a decode worker that pass KV through a store.
fn pair() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.worker("d0").decode().fact(fact::BLOCK_SIZE, "256");
    scene
}

// === fires ===

#[test]
fn the_only_request_that_asked_when_the_store_did_not_answer_is_named() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
    scene.at("08:00:10").on("e0").tell(looked_up("cmpl-a-0", 72, 0, 0));
    scene.at("08:03:10").on("e0").tell(looked_up("cmpl-b-0", 72, 0, 0));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.cause.clone(), found.count), (Cause::StoreUnreachable, 1));
    assert_eq!(found.requests, ["a", "cmpl-a-0"]);
}

#[test]
fn a_store_that_did_not_answer_within_a_load_that_fell_short_is_told_with_that_load() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(looked_up("cmpl-a-0", 2300, 2048, 2048));
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
    scene.at("08:00:12").on("e0").tell(retrieved("cmpl-a-0", 1024));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.cause.clone(), found.tokens), (Cause::LoadMiss, 1024));
}

#[test]
fn a_store_that_did_not_answer_within_a_load_that_was_complete_kept_nobody_waiting() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(looked_up("cmpl-a-0", 2300, 2048, 2048));
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
    scene.at("08:00:12").on("e0").tell(retrieved("cmpl-a-0", 2048));
    scene.assert_silent();
}

#[test]
fn a_store_that_was_there_again_before_anybody_asked_kept_nobody_waiting() {
    let scene = |asked: &str| {
        let mut scene = engine();
        scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
        scene.at("08:00:20").on("e0").tell(store_says("connected", 1));
        scene.at(asked).on("e0").tell(looked_up("cmpl-a-0", 512, 0, 0));
        scene
    };
    scene("08:00:30").assert_silent();
    assert_eq!(scene("08:00:15").only(&RECOMPUTE).cause, Cause::StoreUnreachable);
}

#[test]
fn a_store_that_did_not_answer_while_no_prompt_ran_kept_nobody_waiting() {
    let scene = |prompts: f64| {
        let mut scene = engine();
        scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
        let values = [(counter::PROMPT_TOTAL, prompts), (counter::REQUESTS_ANSWERED, 0.0)];
        scene.at("08:01:00").on("e0").tell(counted("08:00:00", &values));
        scene
    };
    scene(0.0).assert_silent();
    assert_eq!(scene(512.0).only(&RECOMPUTE).cause, Cause::StoreUnreachable);
}

#[test]
fn a_server_that_had_its_store_back_at_once_kept_nobody_waiting() {
    let scene = |there: &str| {
        let mut scene = Scene::new();
        scene.worker("s0").store();
        scene.at("08:00:10").on("s0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
        scene.at("08:00:12").on("s0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
        scene.at(there).on("s0").tell(store_says("connected", 1));
        scene
    };
    scene("08:00:15").assert_silent();
    assert_eq!(scene("08:05:00").only(&RECOMPUTE).cause, Cause::StoreUnreachable);
}

#[test]
fn what_the_scheduler_counts_of_a_load_that_fell_short_is_counted_once() {
    let scene = |counted: i64| {
        let mut scene = engine();
        scene.at("08:00:10").on("e0").tell(looked_up("cmpl-a-0", 1100, 1024, 1024));
        scene.at("08:00:11").on("e0").tell(retrieved("cmpl-a-0", 512));
        let said = KvLoad {
            request_ids: vec!["cmpl-a-0".to_owned()],
            tier: Some(Tier::Storage),
            cause: Some(Cause::LoadMiss),
            ..KvLoad::default()
        };
        scene.at("08:00:11").on("e0").tell(Body::KvLoad(said));
        scene.at("08:00:12").on("e0").tell(rescheduled(1, counted));
        scene
    };
    for counted in [512, 256] {
        let found = scene(counted).only(&RECOMPUTE);
        assert_eq!((found.tokens, found.count), (512, 1));
        assert_eq!(found.requests, ["a", "cmpl-a-0"]);
    }
}

/// Under policy `fail`, a peer was not reached for a request; what its lookup then ended with.
fn peer_not_reached(hit: i64) -> Scene {
    let mut scene = engine();
    scene.worker("e0").policy("fail");
    let said = KvLoad {
        request_ids: vec!["cmpl-a-0".to_owned()],
        tier: Some(Tier::Peer),
        cause: Some(Cause::TransferFailed),
        ..KvLoad::default()
    };
    scene.at("08:00:10").on("e0").tell(Body::KvLoad(said));
    scene.at("08:00:11").on("e0").tell(looked_up("cmpl-a-0", 2394, hit, hit));
    scene
}

#[test]
fn a_lookup_that_ended_with_nothing_for_want_of_a_peer_is_computed_whatever_the_policy() {
    let found = peer_not_reached(0).only(&RECOMPUTE);
    assert_eq!(
        (found.confidence, found.requests),
        (Confidence::Suspected, vec!["a".to_owned(), "cmpl-a-0".to_owned()])
    );
    peer_not_reached(0).assert_quiet(&FAILED);
    peer_not_reached(2304).assert_quiet(&RECOMPUTE);
}

#[test]
fn of_two_requests_that_asked_when_the_store_did_not_answer_none_is_named() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
    for (request, hit) in [("cmpl-a-0", 0), ("cmpl-b-0", 0), ("cmpl-c-0", 256)] {
        scene.at("08:00:10").on("e0").tell(looked_up(request, 512, hit, hit));
    }
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.count, found.requests.len()), (1, 0));
}

#[test]
fn a_short_load_that_the_engine_complains_of_is_suspected_without_a_lookup() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(came(0, 130));
    scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    scene.at("08:00:10").on("e0").tell(came(0, 130));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::LoadMiss));
    assert_eq!((found.tokens, found.count), (130, 1));
    scene.assert_quiet(&FAILED);
}

#[test]
fn a_complaint_beside_a_load_short_of_its_lookup_is_told_once() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(looked_up("r1", 2774, 2560, 2560));
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    for _rank in 0..2 {
        scene.at("08:00:11").on("e0").tell(came(0, 2560));
    }
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.tokens, found.count), (2560, 1));
    scene.assert_quiet(&FAILED);
}

/// A load that falls short of its lookup beside complaints, one of which names the request, under policy `fail`.
fn complained() -> Scene {
    let mut scene = engine();
    scene.worker("e0").policy("fail");
    scene.at("08:00:10").on("e0").tell(looked_up("r1", 2500, 2304, 2304));
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    scene.at("08:00:11").on("e0").tell(retrieved("r1", 1024));
    scene.at("08:00:11").on("e0").tell(Body::KvLoad(KvLoad {
        tier: Some(Tier::Storage),
        cause: Some(Cause::LoadMiss),
        request_ids: vec!["r1".to_owned()],
        ..KvLoad::default()
    }));
    scene
}

#[test]
fn complaints_of_a_load_that_names_its_request_are_told_with_it_whatever_the_policy() {
    let scene = complained();
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.tokens, found.count), (Confidence::Confirmed, 1280, 1));
    scene.assert_quiet(&FAILED);
}

#[test]
fn a_short_load_whose_request_the_scheduler_failed_is_a_failure() {
    let mut scene = complained();
    scene.at("08:00:11").on("e0").tell(failed_for_load(&["r1"]));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.cause, found.count), (Confidence::Confirmed, Cause::LoadMiss, 1));
    scene.assert_quiet(&RECOMPUTE);
}

#[test]
fn a_decode_worker_that_finds_nothing_of_what_the_prefill_side_stored_is_suspected() {
    let mut scene = pair();
    scene.at("08:00:10").on("p0").tell(storing("r1", 32_768));
    scene.at("08:00:11").on("d0").tell(looked_up("r1", 32_768, 0, 0));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(
        (found.confidence, found.cause, found.tokens),
        (Confidence::Suspected, Cause::LoadMiss, 32_768)
    );
}

#[test]
fn an_engine_that_aborts_for_a_peer_computes_what_a_store_does_not_give() {
    let mut scene = Scene::new();
    scene.worker("e0").policy("abort");
    scene.at("08:00:10").on("e0").tell(load_failed(Tier::Storage, Cause::TransferFailed));
    assert_eq!(scene.only(&RECOMPUTE).confidence, Confidence::Suspected);
    scene.assert_quiet(&FAILED);
}

// === stays quiet ===

#[test]
fn a_load_that_nobody_promised_or_complains_of_is_a_cold_miss() {
    let mut scene = engine();
    scene.at("08:00:10").on("e0").tell(came(0, 130));
    scene.assert_silent();
}

#[test]
fn a_lookup_without_a_hit_is_cold_where_the_prefill_side_stored_nothing_before_it() {
    let mut scene = pair();
    scene.at("08:00:10").on("p0").tell(storing("r2", 4096));
    scene.at("08:00:11").on("d0").tell(looked_up("r1", 4096, 0, 0));
    scene.at("08:00:12").on("p0").tell(storing("r1", 4096));
    scene.assert_silent();
}

#[test]
fn a_prompt_shorter_than_a_block_is_not_looked_for() {
    let mut scene = pair();
    scene.at("08:00:10").on("p0").tell(storing("r1", 200));
    scene.at("08:00:11").on("d0").tell(looked_up("r1", 200, 0, 0));
    scene.assert_silent();
}

#[test]
fn a_worker_that_stored_its_own_prompt_and_looks_it_up_again_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(storing("r1", 4096));
    scene.at("08:00:11").on("e0").tell(looked_up("r1", 4096, 0, 0));
    scene.assert_silent();
}
