//! `unexpected_revision`: only against a declaration, and only where both sides are fully known.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::expected::Expectation;
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{Body, RequestLeg, Role};
use scene::{Scene, clock, names_unknown, places, tell};

const UNEXPECTED: Detector = Detector::UnexpectedRevision;

/// `llama` has to have weights `aa`.
fn meant(weights: &str) -> Expectation {
    Expectation {
        alias: Some("llama".to_owned()),
        factors: [("weights".to_owned(), format!("sha256:{weights}"))].into(),
        line: 1,
        ..Expectation::default()
    }
}

/// A worker that serves `llama` with some weights.
fn serving(weights: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("d0").decode().fact(fact::MODEL_NAME, "llama").weights(weights);
    scene
}

fn only(scene: &Scene) -> Finding {
    let found = scene.only(&UNEXPECTED);
    assert_eq!(found.workers, ["d0"]);
    found
}

/// The revision id of a worker that has these weights alone.
fn revision(weights: &str) -> String {
    let factors: kvprov_model::factor::Factors =
        [("weights".to_owned(), kvprov_model::factor::Factor::full(&format!("sha256:{weights}")))]
            .into_iter()
            .collect();
    factors.revision_id().unwrap()
}

fn meant_revisions(revisions: &[String]) -> Expectation {
    Expectation { factors: [].into(), revisions: revisions.to_vec(), ..meant("") }
}

// === fires ===

#[test]
fn other_weights_than_declared_are_confirmed() {
    let mut scene = serving("bb");
    scene.expects(None, &[meant("aa")]);
    let found = only(&scene);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Weights));
    assert!(found.summary.contains("weights bb instead of aa"), "{}", found.summary);
    assert!(places(&found).contains("declared:1"), "{:?}", places(&found));
}

#[test]
fn a_declared_digest_means_those_files_however_others_are_laid_out() {
    let mut scene = serving("bb layout=12ab");
    scene.expects(None, &[meant("aa")]);
    assert_eq!(only(&scene).confidence, Confidence::Confirmed);
}

#[test]
fn another_adapter_than_declared_is_one_though_the_base_is_right() {
    let mut scene = serving("aa");
    scene.worker("d0").adapter("sql", "22");
    let adapter = Expectation {
        alias: Some("sql".to_owned()),
        factors: [("adapter".to_owned(), "sha256:11".to_owned())].into(),
        ..Expectation::default()
    };
    scene.expects(None, &[meant("aa"), adapter]);
    assert_eq!(only(&scene).cause, Cause::Adapter);
}

#[test]
fn a_declared_representation_is_one_too() {
    let mut scene = serving("aa");
    scene.worker("d0").fact(fact::DTYPE, "float16");
    let dtype = Expectation { factors: [("dtype".to_owned(), "bfloat16".to_owned())].into(), ..meant("") };
    scene.expects(None, &[dtype]);
    assert_eq!(only(&scene).cause, Cause::Representation);
}

#[test]
fn a_revision_id_is_compared_with_a_worker_that_runs_it() {
    let mut scene = serving("bb");
    scene.worker("p0").prefill().weights("aa");
    scene.expects(None, &[meant_revisions(&[revision("aa")])]);
    let found = only(&scene);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::Weights));
}

#[test]
fn a_revision_id_that_nobody_runs_is_suspected_and_says_what_is_not_known() {
    let mut scene = serving("bb");
    scene.expects(None, &[meant_revisions(&[revision("aa")])]);
    let found = only(&scene);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Unknown));
    assert!(names_unknown(&found, "which factor differs"), "{:?}", found.unknown);
}

#[test]
fn weights_that_were_replaced_depart_from_that_moment_on() {
    let mut scene = serving("aa");
    scene.worker("d0").weights_from("08:01:00", "bb");
    scene.at("08:02:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa")]);
    assert_eq!(only(&scene).first_seen, Some(clock("08:01:00")));
}

#[test]
fn a_declaration_counts_from_its_time_on() {
    let mut scene = serving("aa");
    scene.at("08:10:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa"), Expectation { from: Some(clock("08:05:00")), ..meant("bb") }]);
    assert_eq!(only(&scene).first_seen, Some(clock("08:05:00")));
}

#[test]
fn a_newer_list_takes_the_place_of_the_one_before() {
    let mut scene = serving("aa");
    scene.at("08:10:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa")]);
    scene.expects(Some("08:05:00"), &[meant("bb")]);
    assert_eq!(only(&scene).first_seen, Some(clock("08:05:00")));
}

#[test]
fn requests_that_it_answered_meanwhile_are_named() {
    let mut scene = serving("bb");
    scene.worker("r0").router();
    scene.at("08:00:10").on("r0").tell(leg("cmpl-r1-0", "llama"));
    scene.expects(None, &[meant("aa")]);
    let found = only(&scene);
    assert!(found.requests.contains(&"r1".to_owned()), "{:?}", found.requests);
}

#[test]
fn a_request_for_a_name_that_the_worker_does_not_go_by_departs_by_itself() {
    let mut scene = Scene::new();
    scene.worker("d0").decode().fact(fact::MODEL_NAME, "llama-canary").weights("bb");
    scene.worker("r0").router();
    scene.at("08:00:10").on("r0").tell(leg("cmpl-r1-0", "llama"));
    scene.expects(None, &[meant("aa")]);
    let found = only(&scene);
    assert_eq!((found.count, found.first_seen), (1, Some(clock("08:00:10"))));
}

#[test]
fn what_is_declared_for_a_role_beats_what_is_declared_for_all() {
    let mut scene = serving("aa");
    let canary = Expectation { role: Some(Role::Decode), ..meant("bb") };
    scene.expects(None, &[meant("aa"), canary]);
    assert_eq!(only(&scene).cause, Cause::Weights);
}

#[test]
fn a_pod_that_is_declared_to_run_another_revision_departs_whatever_its_name_means() {
    let mut scene = serving("bb");
    scene.worker("p0").prefill().weights("aa");
    scene.expects(None, &[meant("bb")]);
    let annotation = kvprov_model::expected::read_annotation(&revision("aa")).unwrap();
    scene.undated().on("d0").line("annotations", 1).tell(Body::Expected(annotation.body()));
    assert_eq!(only(&scene).cause, Cause::Weights);
}

fn leg(id: &str, model: &str) -> Body {
    Body::RequestLeg(RequestLeg {
        leg: Some(Role::Decode),
        request_id: Some(id.to_owned()),
        model: Some(model.to_owned()),
        status: Some(200),
        ..RequestLeg::default()
    })
}

// === stays quiet ===

#[test]
fn without_a_declaration_nothing_is_expected() {
    serving("bb").assert_silent();
}

#[test]
fn what_is_declared_is_quiet() {
    let mut scene = serving("aa");
    scene.expects(None, &[meant("aa")]);
    scene.assert_silent();
}

#[test]
fn another_name_declares_nothing_of_this_one() {
    let mut scene = serving("bb");
    scene.expects(None, &[Expectation { alias: Some("qwen".to_owned()), ..meant("aa") }]);
    scene.assert_silent();
}

#[test]
fn a_rollout_that_allows_both_is_quiet() {
    for weights in ["aa", "bb"] {
        let mut scene = serving(weights);
        scene.expects(None, &[meant("aa"), meant("bb")]);
        scene.assert_silent();
    }
    let mut scene = serving("bb");
    scene.expects(None, &[meant_revisions(&[revision("aa"), revision("bb")])]);
    scene.assert_silent();
}

#[test]
fn a_worker_that_goes_over_within_the_rollout_is_quiet() {
    let mut scene = serving("aa");
    scene.worker("d0").weights_from("08:06:00", "bb");
    scene.at("08:20:00").on("d0").tell(tell::alive());
    let both = [("08:05:00", "aa"), ("08:05:00", "bb"), ("08:10:00", "bb")];
    let mut list = vec![meant("aa")];
    list.extend(both.map(|(from, weights)| Expectation { from: Some(clock(from)), ..meant(weights) }));
    scene.expects(None, &list);
    scene.assert_quiet(&UNEXPECTED);
}

#[test]
fn a_provisional_factor_departs_from_nothing() {
    let mut scene = Scene::new();
    scene.worker("d0").fact(fact::MODEL_NAME, "llama").provisional("weights", "sha256:bb");
    scene.expects(None, &[meant("aa")]);
    scene.assert_silent();
}

#[test]
fn a_factor_that_nobody_saw_departs_from_nothing() {
    let mut scene = Scene::new();
    scene.worker("d0").fact(fact::MODEL_NAME, "llama").factor("config", "sha256:cc");
    scene.expects(None, &[meant("aa"), meant_revisions(&[revision("aa")])]);
    scene.assert_silent();
}

#[test]
fn another_algorithm_departs_from_nothing() {
    let mut scene = Scene::new();
    scene.worker("d0").fact(fact::MODEL_NAME, "llama").factor("weights", "git-sha1:bb");
    scene.expects(None, &[meant("aa")]);
    scene.assert_silent();
}

#[test]
fn a_revision_with_a_factor_that_this_worker_does_not_show_is_not_another_one() {
    let mut scene = serving("aa");
    scene.worker("p0").prefill().weights("aa").factor("tokenizer", "sha256:11");
    let whole: kvprov_model::factor::Factors = [("weights", "sha256:aa"), ("tokenizer", "sha256:11")]
        .map(|(name, text)| (name.to_owned(), kvprov_model::factor::Factor::full(text)))
        .into_iter()
        .collect();
    scene.expects(None, &[meant_revisions(&[whole.revision_id().unwrap()])]);
    scene.assert_silent();
}

#[test]
fn what_will_count_tomorrow_is_quiet_today() {
    let mut scene = serving("aa");
    scene.at("08:10:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa"), Expectation { from: Some(clock("23:00:00")), ..meant("bb") }]);
    scene.assert_silent();
}

#[test]
fn a_worker_that_ended_before_its_declaration_is_quiet() {
    let mut scene = serving("aa");
    scene.worker("d0").gone("08:04:00");
    scene.worker("d1").decode();
    scene.at("08:10:00").on("d1").tell(tell::alive());
    scene.expects(None, &[Expectation { from: Some(clock("08:05:00")), ..meant("bb") }]);
    scene.assert_silent();
}

#[test]
fn a_moment_between_two_clocks_is_quiet() {
    let mut scene = serving("aa");
    scene.worker("d0").weights_from("08:05:02", "bb");
    scene.at("08:20:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa"), Expectation { from: Some(clock("08:05:00")), ..meant("bb") }]);
    scene.assert_quiet(&UNEXPECTED);
}

#[test]
fn a_list_that_was_emptied_expects_nothing_any_more() {
    let mut scene = serving("bb");
    scene.worker("d0").weights_from("08:05:00", "cc");
    scene.at("08:20:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("bb")]);
    scene.expects(Some("08:04:00"), &[]);
    scene.assert_quiet(&UNEXPECTED);
}

#[test]
fn a_list_that_allows_it_afterwards_takes_it_back() {
    let mut scene = serving("bb");
    scene.at("08:20:00").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa")]);
    scene.expects(Some("08:05:00"), &[meant("aa"), meant("bb")]);
    scene.assert_silent();
}

#[test]
fn who_ran_what_was_right_before_the_list_changed_is_quiet() {
    let mut scene = serving("aa");
    scene.worker("d0").gone("08:04:00");
    scene.expects(None, &[meant("aa")]);
    scene.expects(Some("08:05:00"), &[meant("bb")]);
    scene.assert_silent();
}

#[test]
fn another_role_or_an_unknown_pool_is_not_meant() {
    let mut scene = serving("bb");
    let role = Expectation { role: Some(Role::Prefill), ..meant("aa") };
    let pool = Expectation { pool: Some("canary".to_owned()), ..meant("aa") };
    scene.expects(None, &[role, pool]);
    scene.assert_silent();
}

#[test]
fn a_worker_of_the_namespace_is_meant_once_it_is_known_to_be_there() {
    let meant_there = Expectation { namespace: Some("serving".to_owned()), ..meant("aa") };
    let mut scene = serving("bb");
    scene.expects(None, &[meant_there]);
    scene.at("08:01:00").on("d0").tell(tell::in_namespace("serving"));
    only(&scene);
}

#[test]
fn another_namespace_or_an_unknown_one_is_not_meant() {
    let meant_there = Expectation { namespace: Some("serving".to_owned()), ..meant("aa") };
    let mut scene = serving("bb");
    scene.expects(None, &[meant_there]);
    scene.assert_silent();
    scene.at("08:01:00").on("d0").tell(tell::in_namespace("staging"));
    scene.assert_silent();
}

#[test]
fn a_router_that_knows_the_name_runs_nothing() {
    let mut scene = Scene::new();
    scene.worker("r0").router().fact(fact::MODEL_NAME, "llama").weights("bb");
    scene.expects(None, &[meant("aa")]);
    scene.assert_silent();
}

#[test]
fn while_more_may_come_a_change_is_not_judged_before_it_lasted() {
    let mut scene = serving("aa");
    scene.worker("d0").weights_from("08:05:00", "bb");
    scene.at("08:05:02").on("d0").tell(tell::alive());
    scene.expects(None, &[meant("aa")]);
    assert_eq!(scene.so_far_by(&UNEXPECTED), []);
}
