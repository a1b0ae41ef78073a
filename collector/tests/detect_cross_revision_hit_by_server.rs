//! `cross_revision_hit` from a store that is a server and tells what it stored and gave out.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, CacheUse, Tier};
use scene::Scene;
use scene::tell::*;

const CROSSED: Detector = Detector::CrossRevisionHit;

/// What the server says it stored.
fn server_stored(tokens: i64) -> Body {
    Body::CacheUse(CacheUse { tier: Some(Tier::Storage), stored: Some(tokens), ..CacheUse::default() })
}

/// What the server says it found for a request.
fn server_found(request: &str, keys: i64) -> Body {
    let request_id = Some(request.to_owned());
    Body::CacheUse(CacheUse {
        tier: Some(Tier::Storage),
        request_id,
        keys: Some(keys),
        ..CacheUse::default()
    })
}

fn engine(scene: &mut Scene, name: &str, store: &str, from: &str, weights: &str) {
    scene.worker(name).both().fact(fact::STORE, store).loaded(from, "weights", weights);
}

/// A server to which an engine of one revision stored, which another engine asks after the first is gone.
fn asked_by_another(store: &str, second: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("s0").store().fact(fact::STORE_ADDRESS, "127.0.0.1:5555");
    engine(&mut scene, "e0", store, "08:00:00", "aa");
    scene.worker("e0").gone("08:01:00");
    engine(&mut scene, "e1", store, "08:02:00", second);
    scene.at("08:00:30").on("s0").tell(server_stored(96));
    scene.at("08:03:00").on("s0").tell(server_found("cmpl-r2-0-aaaaaaaa", 3));
    scene
}

// === fires ===

#[test]
fn what_only_an_engine_of_other_weights_had_stored_is_confirmed_with_the_request() {
    let found = asked_by_another("lmcache:127.0.0.1:5555", "bb").only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Weights));
    assert!(found.requests.contains(&"r2".to_owned()), "{:?}", found.requests);
    assert_eq!(found.workers, ["e1", "s0"]);
}

#[test]
fn an_engine_that_is_declared_to_have_started_anew_is_told_by_its_times() {
    let mut scene = Scene::new();
    scene.worker("s0").store().fact(fact::STORE_ADDRESS, "127.0.0.1:5555");
    scene.worker("e0").both().fact(fact::STORE, "lmcache:localhost:5555");
    scene.worker("e0").weights("aa").weights_from("08:02:00", "bb");
    scene.at("08:00:30").on("s0").tell(server_stored(96));
    scene.at("08:03:00").on("s0").tell(server_found("cmpl-r2-0-aaaaaaaa", 3));
    assert_eq!(scene.only(&CROSSED).confidence, Confidence::Confirmed);
}

// === stays quiet ===

#[test]
fn equal_weights_of_another_engine_are_quiet() {
    asked_by_another("lmcache:127.0.0.1:5555", "aa").assert_quiet(&CROSSED);
}

#[test]
fn what_the_asking_engine_may_have_stored_itself_is_quiet() {
    let mut scene = asked_by_another("lmcache:127.0.0.1:5555", "bb");
    scene.at("08:02:30").on("s0").tell(server_stored(96));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn an_engine_that_asks_another_server_is_quiet() {
    asked_by_another("lmcache:127.0.0.1:6666", "bb").assert_quiet(&CROSSED);
}

#[test]
fn an_engine_whose_weights_are_not_known_is_quiet() {
    let mut scene = asked_by_another("lmcache:127.0.0.1:5555", "bb");
    scene.worker("e1").opened_unknown("08:02:50", "weights");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn an_emptied_server_holds_nothing_old() {
    let mut scene = asked_by_another("lmcache:127.0.0.1:5555", "bb");
    scene.at("08:02:10").on("s0").tell(emptied(&[Tier::Storage]));
    scene.assert_quiet(&CROSSED);
}
