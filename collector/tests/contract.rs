//! The contract between two workers: shared only where everything that matters is known and right.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_collector::contract::{self, Contract, GuardRow, Row, Verdict};
use kvprov_model::fact;
use kvprov_model::observation::{Body, Worker};
use kvprov_packs::Packs;
use scene::{Cast, Scene};

const HASH: &str = "vllm-nixl-compatibility-hash";

/// A pair that has all factors, the same on both sides.
fn pair() -> Scene {
    pair_of(["0.32.0", "0.32.0"])
}

/// The same in two versions.
fn pair_of(versions: [&str; 2]) -> Scene {
    let mut scene = Scene::new();
    for (name, version) in ["p0", "d0"].into_iter().zip(versions) {
        known(scene.worker(name)).runs("vllm", version).fact(fact::CONNECTOR, "NixlConnector");
    }
    scene
}

fn known(cast: Cast<'_>) -> Cast<'_> {
    cast.weights("aa")
        .factor("tokenizer", "sha256:11")
        .factor("config", "sha256:22")
        .fact(fact::KV_CACHE_DTYPE, "auto")
        .fact(fact::BLOCK_SIZE, "16")
        .fact(fact::TP_SIZE, "1")
        .fact(fact::COMPAT_CHECK, "true")
        .fact(fact::MODEL_PATH, "/models/m")
}

fn compare(scene: &Scene) -> Contract {
    let workers = scene.workers();
    let named = |name: &str| contract::find(&workers, name).unwrap();
    contract::compare(named("p0"), named("d0"), Packs::builtin())
}

fn row<'c>(contract: &'c Contract, factor: &str) -> &'c Row {
    let mut rows = contract.semantic.iter().chain(&contract.representation);
    rows.find(|row| row.factor == factor).unwrap()
}

fn guard<'c>(contract: &'c Contract, id: &str) -> &'c GuardRow {
    contract.guards.iter().find(|guard| guard.id == id).unwrap()
}

// === may share ===

#[test]
fn a_worker_is_named_by_its_pod_and_where_two_namespaces_have_one_by_both() {
    let mut scene = pair();
    for (name, namespace) in [("p0", "staging"), ("d0", "serving")] {
        let body = Worker {
            pod: Some("engine-0".to_owned()),
            namespace: Some(namespace.to_owned()),
            ..Worker::default()
        };
        scene.at("08:00:00").on(name).tell(Body::Worker(body));
    }
    let workers = scene.workers();
    let named = |text: &str| contract::find(&workers, text).map(|worker| worker.id.as_str());
    assert_eq!(named("serving/engine-0"), Some("d0"));
    assert_eq!(named("staging/engine-0"), Some("p0"));
    assert_eq!((named("engine-0"), named("other/engine-0")), (None, None), "of two, neither");
}

#[test]
fn what_is_equal_and_known_may_be_shared() {
    let contract = compare(&pair());
    assert!(contract.may_share, "{:?}", contract.reasons);
    assert_eq!(row(&contract, "weights").verdict, Verdict::Equal);
    assert!(guard(&contract, HASH).on && guard(&contract, HASH).notices.is_empty());
}

#[test]
fn a_shape_that_both_sides_convert_forbids_nothing() {
    let mut scene = pair();
    scene.worker("p0").fact(fact::TP_SIZE, "2");
    let contract = compare(&scene);
    assert_eq!(row(&contract, fact::TP_SIZE).verdict, Verdict::Different);
    assert!(contract.may_share, "{:?}", contract.reasons);
}

#[test]
fn another_adapter_forbids_only_what_is_computed_with_it() {
    let mut scene = pair();
    scene.worker("p0").adapter("sql", "33");
    scene.worker("d0").adapter("sql", "44");
    let contract = compare(&scene);
    assert!(contract.may_share, "{:?}", contract.reasons);
    assert_eq!(contract.adapters.iter().map(|row| row.verdict).collect::<Vec<_>>(), [Verdict::Different]);
}

#[test]
fn other_names_of_keys_forbid_nothing_and_say_what_follows() {
    let mut scene = pair();
    for name in ["p0", "d0"] {
        scene
            .worker(name)
            .uses("mooncake:h:1")
            .fact(fact::HASH_SEED, "random")
            .fact(fact::KEY_FACTORS, "model_path,hash_seed");
    }
    let contract = compare(&scene);
    assert!(contract.may_share, "{:?}", contract.reasons);
    assert!(row(&contract, fact::HASH_SEED).note.as_deref().unwrap().contains("neither finds"));
    assert_eq!(guard(&contract, "store-keys").notices, ["hash_seed"]);
}

// === must not ===

#[test]
fn a_model_of_another_quantisation_must_not_share_and_no_guard_notices() {
    let mut scene = pair();
    scene.worker("p0").factor("quantisation", "sha256:55");
    scene.worker("d0").factor("quantisation", "sha256:66");
    let contract = compare(&scene);
    assert_eq!(contract.reasons, ["quantisation differs"]);
    let hash = guard(&contract, HASH);
    assert!(hash.on && hash.notices.is_empty());
    assert_eq!(hash.misses, ["quantisation"]);
}

#[test]
fn a_factor_that_nobody_saw_forbids_and_says_of_whom() {
    let mut scene = Scene::new();
    known(scene.worker("p0")).runs("vllm", "0.32.0");
    scene
        .worker("d0")
        .runs("vllm", "0.32.0")
        .weights("aa")
        .fact(fact::KV_CACHE_DTYPE, "auto")
        .fact(fact::BLOCK_SIZE, "16");
    let contract = compare(&scene);
    assert!(!contract.may_share);
    let why = contract.reasons.join("; ");
    assert!(why.contains("config cannot be compared: no source shows that of d0"), "{why}");
}

#[test]
fn a_factor_that_could_not_be_read_forbids_and_says_why() {
    let mut scene = Scene::new();
    known(scene.worker("p0")).runs("vllm", "0.32.0");
    scene.worker("d0").runs("vllm", "0.32.0").opened_in_vain("08:00:00", "weights", "it may not be read");
    let contract = compare(&scene);
    assert_eq!(row(&contract, "weights").verdict, Verdict::Unknown);
    let note = row(&contract, "weights").note.as_deref().unwrap();
    assert_eq!(note, "that of d0 is not known: it may not be read");
    assert!(!contract.may_share);
}

#[test]
fn a_provisional_digest_forbids() {
    let mut scene = Scene::new();
    known(scene.worker("p0")).runs("vllm", "0.32.0");
    scene.worker("d0").runs("vllm", "0.32.0").provisional("weights", "sha256:aa");
    let contract = compare(&scene);
    let weights = row(&contract, "weights");
    assert_eq!(weights.verdict, Verdict::Unknown);
    assert!(weights.note.as_deref().unwrap().contains("only a part of that of d0"), "{weights:?}");
    assert!(!contract.may_share);
}

#[test]
fn another_version_forbids_and_the_hash_notices() {
    let contract = compare(&pair_of(["0.32.0", "0.33.0"]));
    assert!(!contract.may_share);
    assert_eq!(guard(&contract, HASH).notices, ["engine_version"]);
    assert!(guard(&contract, HASH).outcome.contains("handshake fails"));
}

#[test]
fn a_check_that_is_off_guards_nothing_and_converts_nothing() {
    let mut scene = pair();
    scene.worker("p0").fact(fact::TP_SIZE, "2");
    scene.worker("d0").fact(fact::COMPAT_CHECK, "false");
    let contract = compare(&scene);
    assert_eq!(guard(&contract, HASH).off.as_deref(), Some("it is switched off on d0"));
    assert!(contract.reasons.iter().any(|why| why.starts_with("tp_size differs")), "{:?}", contract.reasons);
}

#[test]
fn an_engine_of_unknown_version_has_no_guard() {
    let mut scene = Scene::new();
    for name in ["p0", "d0"] {
        known(scene.worker(name)).fact(fact::CONNECTOR, "NixlConnector");
    }
    let contract = compare(&scene);
    assert!(contract.guards.is_empty() && !contract.may_share);
}

#[test]
fn scales_that_are_computed_while_serving_forbid() {
    let mut scene = pair();
    scene.worker("d0").fact(fact::DYNAMIC_KV_SCALES, "true");
    assert_eq!(compare(&scene).reasons, ["d0 computes the scales of its KV while serving"]);
}

#[test]
fn another_type_forbids_and_a_bootstrap_notices_it() {
    let mut scene = Scene::new();
    for (name, kept_as) in [("p0", "fp8_e4m3"), ("d0", "auto")] {
        known(scene.worker(name))
            .runs("sglang", "0.5.23")
            .fact(fact::CONNECTOR, "mooncake")
            .fact(fact::KV_CACHE_DTYPE, kept_as);
    }
    let contract = compare(&scene);
    assert!(!contract.may_share);
    assert_eq!(guard(&contract, "sglang-bootstrap").notices, ["kv_cache_dtype"]);
}

// === who is meant ===

#[test]
fn a_worker_is_known_by_an_id_that_is_its_own_alone() {
    let mut scene = Scene::new();
    scene.worker("p0").engine_id("e-1");
    scene.worker("d0").engine_id("e-1").engine_id("e-2");
    let workers = scene.workers();
    let id = |text: &str| contract::find(&workers, text).map(|worker| worker.id.clone());
    assert_eq!(
        (id("p0").as_deref(), id("e-2").as_deref(), id("e-1"), id("x")),
        (Some("p0"), Some("d0"), None, None)
    );
}
