//! `cross_revision_hit` over a pair, where the engines' own words join its sides or nothing does.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, Outcome, RequestLeg, Transfer};
use scene::tell::*;
use scene::{Scene, names_unknown};

const CROSSED: Detector = Detector::CrossRevisionHit;
const COMMITS: [&str; 2] =
    ["9216db5781bf21249d130ec9da846c4624c16137", "30b8421510892303dc5ddd6cd0ac90ca2053478d"];

/// A pair of two revisions whose decode worker starts to pull KV for one request.
fn pulling() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").factor("weights", "sha256:aa");
    scene.worker("d0").decode().factor("weights", "sha256:bb");
    let started =
        Transfer { remote_engine_id: Some("e-p".to_owned()), ..transfer("cmpl-a-0", Outcome::Started, None) };
    scene.at("08:00:10").on("d0").tell(Body::Transfer(started));
    scene
}

/// The decode worker says that it is done with receiving.
fn received(scene: &mut Scene, request: &str) {
    let done = Transfer {
        request_id: Some(request.to_owned()),
        direction: Some("receive".to_owned()),
        ..Transfer::default()
    };
    scene.at("08:00:11").on("d0").tell(Body::Transfer(done));
}

/// A pair that was told to load these commits of one model, and passed KV.
fn of_commits(prefill: &str, decode: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().fact(fact::MODEL_PATH, "org/model").fact(fact::MODEL_REVISION, prefill);
    scene.worker("d0").decode().fact(fact::MODEL_PATH, "org/model").fact(fact::MODEL_REVISION, decode);
    let values = [(kvprov_model::counter::TRANSFERS_SUCCEEDED, 14.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    scene
}

/// A pair whose weights are replaced at two times, and the answers of the decode worker.
fn updated(prefill: &str, decode: &str, answers: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().weights("aa").weights_from(prefill, "bb");
    scene.worker("d0").decode().policy("abort").weights("aa").weights_from(decode, "bb");
    for at in answers {
        let answer = RequestLeg { status: Some(200), ..RequestLeg::default() };
        scene.at(at).on("d0").tell(Body::RequestLeg(answer));
    }
    scene
}

/// A pair whose sides are updated, and a request that is pulled at 08:00:11.
fn pulled_over_updates(computed: &str, prefill: &str, decode: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa").weights_from(prefill, "bb");
    scene.worker("d0").decode().weights("aa").weights_from(decode, "bb");
    let leg = RequestLeg { request_id: Some("cmpl-a-0".to_owned()), ..RequestLeg::default() };
    scene.at(computed).on("p0").tell(Body::RequestLeg(leg));
    let started =
        Transfer { remote_engine_id: Some("e-p".to_owned()), ..transfer("cmpl-a-0", Outcome::Started, None) };
    scene.at("08:00:10").on("d0").tell(Body::Transfer(started));
    received(&mut scene, "cmpl-a-0");
    scene
}

/// A pair with two contents of one adapter, and what the prefill worker says of the request that is pulled.
fn with_adapters(leg: RequestLeg) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa").adapter("sql", "11");
    scene.worker("d0").decode().weights("aa").adapter("sql", "22");
    let leg = RequestLeg { request_id: Some("cmpl-a-0".to_owned()), ..leg };
    scene.at("08:00:09").on("p0").tell(Body::RequestLeg(leg));
    let started =
        Transfer { remote_engine_id: Some("e-p".to_owned()), ..transfer("cmpl-a-0", Outcome::Started, None) };
    scene.at("08:00:10").on("d0").tell(Body::Transfer(started));
    received(&mut scene, "cmpl-a-0");
    scene
}

// === fires ===

#[test]
fn a_pull_that_the_engine_names_and_ends_is_confirmed() {
    let mut scene = pulling();
    received(&mut scene, "cmpl-a-0");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 1));
    assert!(found.requests.contains(&"a".to_owned()), "{:?}", found.requests);
}

#[test]
fn a_prompt_computed_before_an_update_and_pulled_behind_it_is_confirmed() {
    let found = pulled_over_updates("08:00:05", "08:00:08", "08:00:08").only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::Weights));
}

#[test]
fn a_request_that_names_the_adapter_is_confirmed() {
    let leg = RequestLeg { adapter: Some("sql".to_owned()), ..RequestLeg::default() };
    let found = with_adapters(leg).only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::Adapter));
}

#[test]
fn two_commits_of_one_model_are_suspected() {
    let found = of_commits(COMMITS[0], COMMITS[1]).only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::Weights));
}

#[test]
fn answers_between_two_updates_of_one_pair_are_suspected() {
    let found = updated("08:04:50", "08:03:20", &["08:03:50", "08:04:20", "08:05:10"]).only(&CROSSED);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 2));
    assert!(names_unknown(&found, "no id joins"), "{:?}", found.unknown);
}

// === stays quiet ===

#[test]
fn a_prompt_computed_with_the_weights_that_pull_it_is_quiet() {
    for (computed, prefill, decode) in [
        ("08:00:09", "08:00:08", "08:00:08"),
        ("08:00:05", "08:00:14", "08:00:14"),
        // The prefill worker has become another since, the decode worker has not.
        ("08:00:05", "08:00:08", "08:00:20"),
    ] {
        pulled_over_updates(computed, prefill, decode).assert_quiet(&CROSSED);
    }
}

#[test]
fn a_request_that_is_told_to_use_no_adapter_is_quiet() {
    with_adapters(RequestLeg { without_adapter: Some(true), ..RequestLeg::default() }).assert_quiet(&CROSSED);
}

#[test]
fn a_pull_that_failed_or_does_not_end_is_quiet() {
    pulling().assert_quiet(&CROSSED);
    let mut scene = pulling();
    scene.at("08:00:11").on("d0").tell(transfer_failed("cmpl-a-0", Cause::TransferFailed));
    received(&mut scene, "cmpl-a-0");
    scene.assert_quiet(&CROSSED);
    let mut scene = pulling();
    received(&mut scene, "cmpl-b-0");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn one_commit_or_a_name_of_a_branch_proves_nothing() {
    of_commits(COMMITS[0], COMMITS[0]).assert_quiet(&CROSSED);
    of_commits("main", COMMITS[0]).assert_quiet(&CROSSED);
}

#[test]
fn two_commits_of_equal_weights_are_quiet() {
    let mut scene = of_commits(COMMITS[0], COMMITS[1]);
    scene.worker("p0").weights("aa");
    scene.worker("d0").weights("aa");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn answers_outside_two_updates_are_quiet() {
    updated("08:04:50", "08:03:20", &["08:03:00", "08:05:10"]).assert_quiet(&CROSSED);
}

#[test]
fn answers_of_a_worker_that_may_compute_prompts_prove_nothing() {
    let mut scene = updated("08:04:50", "08:03:20", &["08:03:50"]);
    scene.worker("d0").policy("recompute");
    scene.assert_quiet(&CROSSED);
}
