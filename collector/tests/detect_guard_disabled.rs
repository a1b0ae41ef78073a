//! `guard_disabled`: always a risk, and only where a setting says so.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use scene::{Scene, places};

const GUARD: Detector = Detector::GuardDisabled;

fn with(facts: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::new();
    for (name, value) in facts {
        scene.worker("e0").fact(name, value);
    }
    scene.worker("e0").both();
    scene
}

fn risk(scene: &Scene) -> Finding {
    let found = scene.only(&GUARD);
    assert_eq!(found.confidence, Confidence::Risk);
    found
}

// === fires ===

#[test]
fn a_compatibility_check_that_is_off_is_a_risk() {
    let found = risk(&with(&[(fact::COMPAT_CHECK, "false")]));
    assert_eq!((found.cause.clone(), found.workers.clone()), (Cause::CompatCheckOff, vec!["e0".to_owned()]));
    assert_eq!(found.evidence[0].says, "compat_check = false");
    assert_eq!(places(&found), ["e0:0".to_owned()].into());
}

#[test]
fn a_store_that_nothing_bounds_is_a_risk() {
    assert_eq!(risk(&with(&[(fact::STORE_CAP, "none")])).cause, Cause::UnboundedStore);
}

#[test]
fn scales_computed_while_serving_are_a_risk() {
    assert_eq!(risk(&with(&[(fact::DYNAMIC_KV_SCALES, "true")])).cause, Cause::DynamicKvScales);
}

/// Two engines that each evict by their own count.
fn evictors(stores: [&str; 2]) -> Scene {
    let mut scene = Scene::new();
    for (worker, store) in ["a0", "b0"].into_iter().zip(stores) {
        scene.worker(worker).uses(store).fact(fact::PRIVATE_EVICTOR, "true").fact(fact::STORE_CAP, "1000");
    }
    scene
}

#[test]
fn private_evictors_on_one_store_are_a_risk() {
    let found = risk(&evictors(["file:/kv", "file:/kv"]));
    assert_eq!((found.cause, found.workers), (Cause::SharedEvictors, vec!["a0".to_owned(), "b0".to_owned()]));
}

#[test]
fn scales_of_small_types_are_a_risk_and_the_setting_is_named() {
    let mut scene = with(&[(fact::KV_CACHE_DTYPE, "fp8_e4m3")]);
    let origin = "setting calculate_kv_scales of the command line";
    scene.worker("e0").fact_from(fact::DYNAMIC_KV_SCALES, "true", origin);
    let found = risk(&scene);
    assert!(found.summary.contains(&format!("({origin})")), "{}", found.summary);
    assert!(found.advice.contains("calibrated"), "{}", found.advice);
}

#[test]
fn a_variable_is_named_as_one() {
    let mut scene = with(&[]);
    scene.worker("e0").fact_from(fact::STORE_CAP, "none", "setting STORE_MAX");
    assert_eq!(risk(&scene).evidence[0].says, "store_cap = none (variable STORE_MAX of the environment)");
}

#[test]
fn each_guard_says_what_to_do() {
    let facts = [(fact::COMPAT_CHECK, "false"), (fact::STORE_CAP, "none"), (fact::DYNAMIC_KV_SCALES, "true")];
    let advice: std::collections::BTreeSet<String> =
        with(&facts).by(&GUARD).into_iter().map(|found| found.advice).collect();
    assert_eq!(advice.len(), 3);
}

#[test]
fn two_guards_on_one_worker_are_two_findings() {
    let found = with(&[(fact::COMPAT_CHECK, "false"), (fact::STORE_CAP, "none")]).by(&GUARD);
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|one| one.confidence == Confidence::Risk));
}

// === stays quiet ===

#[test]
fn a_worker_of_which_nothing_is_known_is_quiet() {
    with(&[]).assert_silent();
}

#[test]
fn guards_that_are_on_are_quiet() {
    with(&[
        (fact::COMPAT_CHECK, "true"),
        (fact::STORE_CAP, "1073741824"),
        (fact::DYNAMIC_KV_SCALES, "false"),
        (fact::PRIVATE_EVICTOR, "false"),
    ])
    .assert_silent();
}

#[test]
fn one_evictor_alone_is_quiet() {
    with(&[(fact::STORE, "file:/kv"), (fact::PRIVATE_EVICTOR, "true"), (fact::STORE_CAP, "1000")])
        .assert_silent();
}

#[test]
fn evictors_of_two_stores_are_quiet() {
    evictors(["file:/kv-a", "file:/kv-b"]).assert_silent();
}

#[test]
fn an_unset_hash_seed_is_no_guard() {
    with(&[(fact::HASH_SEED, "random")]).assert_silent();
}

#[test]
fn a_value_that_no_version_knows_is_no_statement() {
    with(&[(fact::COMPAT_CHECK, "maybe"), (fact::DYNAMIC_KV_SCALES, "1")]).assert_silent();
}

#[test]
fn scales_that_a_wide_type_has_not_are_quiet() {
    for kept_as in ["auto", "bfloat16"] {
        with(&[(fact::DYNAMIC_KV_SCALES, "true"), (fact::KV_CACHE_DTYPE, kept_as)]).assert_silent();
    }
}

#[test]
fn a_directory_of_the_same_name_on_another_node_is_another_store() {
    let mut scene = evictors(["file:/kv", "file:/kv"]);
    scene.worker("b0").node("node-b");
    scene.assert_silent();
}

#[test]
fn an_evictor_beside_one_that_does_not_evict_is_quiet() {
    let mut scene = evictors(["file:/kv", "file:/kv"]);
    scene.worker("b0").fact(fact::PRIVATE_EVICTOR, "false");
    scene.assert_silent();
}

#[test]
fn a_check_that_a_version_does_not_have_is_not_off() {
    with(&[(fact::CONNECTOR, "NixlConnector"), (fact::LOAD_FAILURE_POLICY, "recompute")]).assert_silent();
}
