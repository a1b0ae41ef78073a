//! `cross_revision_hit`: when it fires and when it must stay quiet. Over a pair and from a store here; an engine's
//! own caches are in `detect_cross_revision_hit_by_cache.rs`.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, RequestLeg, SourceKind, Worker};
use kvprov_model::{counter, fact};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const CROSSED: Detector = Detector::CrossRevisionHit;
const STORE: &str = "file:export-1:/kv";

/// A pair whose router passed one request over it; weights as given.
fn pair(prefill: &str, decode: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").factor("weights", prefill);
    scene.worker("d0").decode().factor("weights", decode);
    scene.worker("r0").router();
    let leg = RequestLeg {
        remote_engine_id: Some("e-p".to_owned()),
        remote_request_id: Some("cmpl-lab-1-0-aaaaaaaa".to_owned()),
        ..decode_leg("lab-1", true, 102)
    };
    scene.at("08:00:12").on("r0").line("r.log", 4).tell(Body::RequestLeg(leg));
    scene
}

fn with_arrival(mut scene: Scene) -> Scene {
    let values = [(counter::TRANSFERS_SUCCEEDED, 1.0), (counter::PROMPT_EXTERNAL, 101.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    scene
}

// === over a pair: fires ===

#[test]
fn kv_of_other_weights_that_arrived_is_confirmed() {
    let found = with_arrival(pair("sha256:aa", "sha256:bb")).only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Weights));
    assert_eq!((found.count, found.tokens), (1, 102));
    assert!(found.requests.contains(&"lab-1".to_owned()) && places(&found).contains("r.log:4"));
    assert_eq!(found.workers, ["d0", "p0"]);
}

#[test]
fn without_an_arrival_it_is_suspected() {
    let found = pair("sha256:aa", "sha256:bb").only(&CROSSED);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "no source shows an arrival"), "{:?}", found.unknown);
}

#[test]
fn an_arrival_that_is_seen_later_keeps_the_id() {
    let (before, after) = (pair("sha256:aa", "sha256:bb"), with_arrival(pair("sha256:aa", "sha256:bb")));
    assert_eq!(before.only(&CROSSED).id, after.only(&CROSSED).id);
}

#[test]
fn a_snapshot_commit_is_no_digest() {
    let found = with_arrival(pair("git-sha1:aa", "git-sha1:bb")).only(&CROSSED);
    assert_eq!(found.confidence, Confidence::Suspected);
}

/// A pair that serves one adapter name from two directories of other content; one request went over it, and nothing says
/// which model it asked for.
fn pair_with_adapters() -> Scene {
    let mut scene = pair("sha256:aa", "sha256:aa");
    for (worker, directory, digest) in [("p0", "/models/one", "11"), ("d0", "/models/two", "22")] {
        scene.worker(worker).fact(fact::ADAPTER_DIRECTORIES, &format!("ad={directory}"));
        scene.worker(worker).loaded("08:00:00", directory, digest);
    }
    with_arrival(scene)
}

/// The leg of a request to the decode side took this long.
fn took(scene: &mut Scene, request: &str, end: &str, seconds: i64) {
    let leg = RequestLeg {
        remote_engine_id: Some("e-p".to_owned()),
        duration_ns: Some(seconds * 1_000_000_000),
        ..decode_leg(request, true, 102)
    };
    scene.at(end).on("r0").tell(Body::RequestLeg(leg));
}

/// Metrics tell which adapter ran last at a time.
fn ran(scene: &mut Scene, time: &str, adapter: &str) {
    let facts = [(fact::ADAPTERS_RUNNING.to_owned(), adapter.to_owned())].into();
    let body = Body::Worker(Worker { facts, ..Worker::default() });
    scene.at(time).on("d0").seen_by(SourceKind::Metrics).tell(body);
}

#[test]
fn an_adapter_that_is_seen_to_run_while_one_request_is_answered_was_used_by_it() {
    let mut scene = pair_with_adapters();
    took(&mut scene, "lab-2", "08:00:30", 3);
    ran(&mut scene, "08:00:29", "ad");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Adapter));
    assert!(found.requests.contains(&"lab-2".to_owned()));
}

#[test]
fn of_two_requests_at_once_either_may_have_used_the_adapter() {
    let mut scene = pair_with_adapters();
    took(&mut scene, "lab-2", "08:00:30", 3);
    took(&mut scene, "lab-3", "08:00:31", 3);
    ran(&mut scene, "08:00:29", "ad");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Adapter));
    assert!(found.summary.contains("if the request used the adapter"), "{}", found.summary);
}

#[test]
fn that_the_prefill_side_shows_no_adapter_behind_its_only_step_proves_nothing() {
    let mut scene = pair_with_adapters();
    let leg = RequestLeg { duration_ns: Some(1_000_000_000), ..prefill_leg("lab-2") };
    scene.at("08:00:26").on("r0").tell(Body::RequestLeg(leg));
    took(&mut scene, "lab-2", "08:00:30", 3);
    ran(&mut scene, "08:00:35", "ad");
    scene.at("08:00:40").on("p0").tell(counted("08:00:20", &[(counter::PROMPT_TOTAL, 102.0)]));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::Adapter));
}

#[test]
fn an_adapter_of_another_content_under_one_name_is_named_as_the_cause() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa").adapter("ad", "11");
    scene.worker("d0").decode().weights("aa").adapter("ad", "22");
    scene.at("08:00:10").on("d0").tell(transferred_from("e-p", "lab-1"));
    scene.worker("r0").router();
    let leg = RequestLeg {
        remote_engine_id: Some("e-p".to_owned()),
        model: Some("ad".to_owned()),
        ..decode_leg("lab-1", true, 102)
    };
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(leg));
    let found = scene.only(&CROSSED);
    assert_eq!((found.cause, found.confidence), (Cause::Adapter, Confidence::Confirmed));
}

#[test]
fn bytes_of_another_type_that_were_pulled_all_the_same_are_suspected() {
    let mut scene = with_arrival(pair("sha256:aa", "sha256:aa"));
    scene.worker("p0").fact(fact::DTYPE, "float16");
    scene.worker("d0").fact(fact::DTYPE, "bfloat16");
    let found = scene.only(&CROSSED);
    assert_eq!((found.cause, found.confidence), (Cause::Representation, Confidence::Suspected));
}

#[test]
fn transfers_that_no_id_joins_are_suspected_of_the_only_prefill_worker() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().weights("aa");
    scene.worker("d0").decode().weights("bb");
    let values = [(counter::TRANSFERS_SUCCEEDED, 3.0), (counter::PROMPT_EXTERNAL, 300.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.count, found.tokens), (Confidence::Suspected, 3, 300));
    assert!(names_unknown(&found, "no id joins"), "{:?}", found.unknown);
}

#[test]
fn transfers_wait_for_the_ids_that_are_still_on_their_way() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().weights("aa");
    scene.worker("d0").decode().weights("bb");
    let values = [(counter::TRANSFERS_SUCCEEDED, 3.0), (counter::PROMPT_EXTERNAL, 300.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    assert!(scene.so_far_by(&CROSSED).is_empty());
    scene.at("08:01:05").on("d0").tell(counted("08:01:00", &[(counter::TRANSFERS_SUCCEEDED, 0.0)]));
    assert_eq!(scene.so_far_by(&CROSSED).len(), 1);
}

#[test]
fn bytes_of_another_type_that_no_id_joins_are_suspected_of_the_only_prefill_worker() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().fact(fact::KV_CACHE_DTYPE, "bfloat16");
    scene.worker("d0").decode().fact(fact::KV_CACHE_DTYPE, "fp8_e4m3");
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &[(counter::TRANSFERS_SUCCEEDED, 3.0)]));
    let found = scene.only(&CROSSED);
    assert_eq!((found.cause, found.confidence), (Cause::Representation, Confidence::Suspected));
}

// === over a pair: stays quiet ===

#[test]
fn a_request_while_no_adapter_ran_did_not_use_the_one_that_differs() {
    let mut scene = Scene::new();
    scene.worker("r0").router();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa");
    scene.worker("d0").decode().weights("aa");
    for (worker, directory, digest) in [("p0", "/models/one", "11"), ("d0", "/models/two", "22")] {
        scene.worker(worker).fact(fact::ADAPTER_DIRECTORIES, &format!("ad={directory}"));
        scene.worker(worker).loaded("08:00:00", directory, digest);
    }
    ran(&mut scene, "08:00:10", "ad");
    took(&mut scene, "lab-2", "08:00:30", 3);
    with_arrival(scene).assert_quiet(&CROSSED);
}

#[test]
fn equal_adapters_from_other_directories_are_one() {
    let mut scene = pair("sha256:aa", "sha256:aa");
    for (worker, directory) in [("p0", "/models/one"), ("d0", "/models/two")] {
        scene.worker(worker).fact(fact::ADAPTER_DIRECTORIES, &format!("ad={directory}"));
        scene.worker(worker).loaded("08:00:00", directory, "11");
    }
    with_arrival(scene).assert_quiet(&CROSSED);
}

#[test]
fn weights_that_are_being_loaded_anew_prove_nothing() {
    let mut scene = pair("sha256:aa", "sha256:aa");
    scene.worker("p0").loaded("08:00:00", "weights", "bb").opened_unknown("08:00:05", "weights");
    with_arrival(scene).assert_quiet(&CROSSED);
}

#[test]
fn equal_factors_under_different_names_are_quiet() {
    let mut scene = with_arrival(pair("sha256:aa", "sha256:aa"));
    scene.worker("p0").fact(fact::MODEL_NAME, "prod-v1").fact(fact::MODEL_PATH, "/models/a");
    scene.worker("d0").fact(fact::MODEL_NAME, "prod-v2").fact(fact::MODEL_PATH, "/models/b");
    scene.assert_silent();
}

#[test]
fn different_algorithms_prove_nothing() {
    with_arrival(pair("sha256:aa", "git-sha1:bb")).assert_silent();
}

#[test]
fn a_provisional_digest_proves_nothing() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").provisional("weights", "sha256:aa");
    scene.worker("d0").decode().weights("bb");
    scene.at("08:00:10").on("d0").tell(transferred_from("e-p", "lab-1"));
    scene.assert_silent();
}

#[test]
fn a_revision_that_nobody_knows_is_no_fault() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.worker("d0").decode();
    scene.at("08:00:10").on("d0").tell(transferred_from("e-p", "lab-1"));
    scene.assert_silent();
}

#[test]
fn kv_that_did_not_arrive_was_not_consumed() {
    let mut scene = pair("sha256:aa", "sha256:bb");
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::CompatHashMismatch));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_request_that_went_to_the_decode_worker_alone_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa");
    scene.worker("d0").decode().weights("bb");
    scene.worker("r0").router();
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(decode_leg("lab-1", false, 102)));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_pair_of_unlike_tensor_parallel_sizes_converts_and_is_quiet() {
    let mut scene = with_arrival(pair("sha256:aa", "sha256:aa"));
    scene.worker("p0").fact(fact::TP_SIZE, "2").fact(fact::KV_LAYOUT, "HND");
    scene.worker("d0").fact(fact::TP_SIZE, "4").fact(fact::KV_LAYOUT, "HND");
    scene.assert_silent();
}

#[test]
fn two_prefill_workers_and_no_id_accuse_nobody() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().weights("aa");
    scene.worker("p1").prefill().weights("bb");
    scene.worker("d0").decode().weights("bb");
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &[(counter::TRANSFERS_SUCCEEDED, 3.0)]));
    scene.assert_silent();
}

#[test]
fn one_type_under_two_names_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().fact(fact::KV_CACHE_DTYPE, "fp8");
    scene.worker("d0").decode().fact(fact::KV_CACHE_DTYPE, "fp8_e4m3");
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &[(counter::TRANSFERS_SUCCEEDED, 3.0)]));
    scene.assert_silent();
}

#[test]
fn a_base_model_request_does_not_use_the_adapter() {
    let mut scene = with_arrival(pair("sha256:aa", "sha256:aa"));
    scene.worker("p0").adapter("ad", "11");
    scene.worker("d0").adapter("ad", "22");
    scene.assert_silent();
}

// === from a store: fires ===

#[test]
fn pages_read_under_another_digest_are_confirmed() {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa");
    scene.worker("b0").both().weights("bb");
    for page in 1..=9 {
        let key = format!("page-{page}");
        scene.at("08:00:10").on("a0").line("a.jsonl", page).tell(wrote(STORE, &key, 4096));
        scene.at("08:00:20").on("b0").line("b.jsonl", page).tell(read(STORE, &key, 4096));
    }
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Weights));
    assert_eq!((found.count, found.workers.clone()), (9, vec!["a0".to_owned(), "b0".to_owned()]));
    assert!(places(&found).contains("a.jsonl:1") && places(&found).contains("b.jsonl:1"));
    assert!(found.evidence.len() <= 24);
}

#[test]
fn a_worker_that_restarted_with_other_weights_reads_its_old_pages() {
    let mut scene = Scene::new();
    scene.worker("e0").both().weights("aa").weights_from("08:00:15", "bb");
    scene.at("08:00:10").on("e0").tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:20").on("e0").tell(read(STORE, "page-1", 4096));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 1));
}

/// Two engines that opened the weights of these commits of one model; the second reads what the first wrote.
fn of_commits(made: &str, used: &str) -> Scene {
    let mut scene = Scene::new();
    for (worker, commit) in [("a0", made), ("b0", used)] {
        let commit = format!("commit:{}", commit.repeat(20));
        scene.worker(worker).both().fact(fact::MODEL_PATH, "org/model").provisional("weights", &commit);
    }
    scene.at("08:00:10").on("a0").tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    scene
}

#[test]
fn pages_of_another_commit_that_was_opened_are_suspected() {
    let found = of_commits("0a", "0b").only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Weights));
    assert!(names_unknown(&found, "digests"), "{:?}", found.unknown);
}

/// Two engines whose adapter `ad` has these contents. The first writes a page for a request of an adapter, the second reads
/// it for one.
fn for_adapters(contents: [&str; 2], asked: [Option<&str>; 2]) -> Scene {
    let mut scene = Scene::new();
    let sides =
        [("a0", "08:00:10", wrote(STORE, "page-1", 4096)), ("b0", "08:00:20", read(STORE, "page-1", 4096))];
    for (((worker, at, touched), content), adapter) in sides.into_iter().zip(contents).zip(asked) {
        scene.worker(worker).both().weights("aa").adapter("ad", content);
        scene.at(at).on(worker).line(&format!("{worker}.log"), 1).tell(asks(worker, adapter));
        scene.at(at).on(worker).tell(touched);
    }
    scene
}

/// A worker's log tells of a request.
fn asks(request: &str, adapter: Option<&str>) -> Body {
    Body::RequestLeg(RequestLeg {
        request_id: Some(format!("cmpl-{request}-0")),
        adapter: adapter.map(str::to_owned),
        without_adapter: adapter.is_none().then_some(true),
        ..RequestLeg::default()
    })
}

#[test]
fn pages_that_were_made_for_an_adapter_of_other_content_are_suspected() {
    let found = for_adapters(["11", "22"], [Some("ad"); 2]).only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Adapter));
    assert_eq!(found.count, 1);
    assert!(found.requests.contains(&"b0".to_owned()), "{:?}", found.requests);
    assert!(places(&found).is_superset(&["a0.log:1".to_owned(), "b0.log:1".to_owned()].into()));
}

#[test]
fn pages_read_back_after_a_weight_update_are_suspected_without_digests() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:15").on("e0").line("e.log", 7).tell(weights_updated());
    scene.at("08:00:20").on("e0").tell(read(STORE, "page-1", 4096));
    let found = scene.only(&CROSSED);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(places(&found).contains("e.log:7") && names_unknown(&found, "digests"));
}

/// A page of the old weights, removed with them, that somebody else puts there again.
fn put_back() -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0").both().weights("aa").weights_from("08:00:15", "bb");
    scene.worker("backup");
    scene.at("08:00:10").on("e0").line("e.jsonl", 1).tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:15").on("e0").tell(removed(STORE, "page-1"));
    scene.at("08:00:17").on("backup").line("b.jsonl", 1).tell(wrote(STORE, "page-1", 4096));
    scene
}

#[test]
fn pages_that_a_copy_put_back_are_those_that_were_there_before() {
    let mut scene = put_back();
    scene.at("08:00:20").on("e0").tell(read(STORE, "page-1", 4096));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Weights));
    assert_eq!(found.workers, vec!["backup".to_owned(), "e0".to_owned()]);
    assert!(places(&found).contains("e.jsonl:1") && places(&found).contains("b.jsonl:1"));
    assert!(names_unknown(&found, "put back"), "{:?}", found.unknown);
}

// === from a store: stays quiet ===

#[test]
fn who_asks_the_store_too_is_no_copy() {
    let mut scene = put_back();
    scene.at("08:00:18").on("backup").tell(missed(STORE, "page-2"));
    scene.at("08:00:20").on("e0").tell(read(STORE, "page-1", 4096));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_copy_of_another_size_is_something_else() {
    let mut scene = put_back();
    scene.at("08:00:18").on("backup").tell(wrote(STORE, "page-1", 512));
    scene.at("08:00:20").on("e0").tell(read(STORE, "page-1", 512));
    scene.assert_quiet(&CROSSED);
}

/// Two engines of other weights on one store.
fn two_models() -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa");
    scene.worker("b0").both().weights("bb");
    scene.at("08:00:10").on("a0").tell(wrote(STORE, "page-1", 4096));
    scene
}

#[test]
fn pages_of_one_commit_are_quiet() {
    of_commits("0a", "0a").assert_silent();
}

#[test]
fn pages_for_adapters_of_one_content_or_for_the_base_model_are_quiet() {
    for_adapters(["11", "11"], [Some("ad"); 2]).assert_silent();
    for_adapters(["11", "22"], [Some("ad"), None]).assert_silent();
    for_adapters(["11", "22"], [None, Some("ad")]).assert_silent();
}

#[test]
fn of_requests_for_several_adapters_any_may_have_touched_the_page() {
    let mut scene = for_adapters(["11", "22"], [Some("ad"); 2]);
    scene.at("08:00:19").on("b0").tell(asks("b1", None));
    scene.assert_silent();
}

#[test]
fn a_request_of_long_ago_did_not_touch_the_page() {
    let mut scene = two_models();
    for worker in ["a0", "b0", "c0"] {
        scene.worker(worker).both().weights("aa").adapter("ad", worker);
    }
    scene.at("08:00:10").on("a0").tell(asks("a0", Some("ad")));
    scene.at("08:00:30").on("c0").tell(asks("c0", Some("ad")));
    scene.at("08:00:50").on("c0").tell(read(STORE, "page-1", 4096));
    scene.assert_silent();
}

#[test]
fn other_weights_under_disjoint_keys_are_quiet() {
    let mut scene = two_models();
    scene.at("08:00:15").on("b0").tell(wrote(STORE, "b-page-1", 4096));
    scene.at("08:00:20").on("b0").tell(read(STORE, "b-page-1", 4096));
    scene.at("08:00:21").on("a0").tell(read(STORE, "page-1", 4096));
    scene.assert_silent();
}

#[test]
fn pages_that_the_reader_wrote_anew_are_its_own() {
    let mut scene = two_models();
    scene.at("08:00:15").on("a0").tell(removed(STORE, "page-1"));
    scene.at("08:00:17").on("b0").tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    scene.assert_silent();
}

#[test]
fn a_page_that_was_removed_cannot_be_read() {
    let mut scene = two_models();
    scene.at("08:00:15").on("a0").tell(removed(STORE, "page-1"));
    scene.at("08:00:20").on("b0").tell(missed(STORE, "page-1"));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn where_calls_were_lost_since_the_write_nobody_is_named_as_the_writer() {
    let mut scene = two_models();
    scene.at("08:00:15").on("b0").seen_by(SourceKind::Kernel).tell(lost(100));
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_loss_long_before_the_write_takes_nothing_from_it() {
    let mut scene = two_models();
    scene.at("08:00:02").on("b0").seen_by(SourceKind::Kernel).tell(lost(100));
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    assert_eq!(scene.only(&CROSSED).confidence, Confidence::Confirmed);
}

#[test]
fn a_loss_of_log_lines_takes_nothing_from_what_the_kernel_saw() {
    let mut scene = two_models();
    scene.at("08:00:15").on("b0").seen_by(SourceKind::Log).tell(lost(100));
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 4096));
    assert_eq!(scene.only(&CROSSED).confidence, Confidence::Confirmed);
}

#[test]
fn an_open_that_took_no_bytes_is_no_hit() {
    let mut scene = two_models();
    scene.at("08:00:20").on("b0").tell(read(STORE, "page-1", 0));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn equal_weights_share_their_pages() {
    let mut scene = two_models();
    scene.worker("c0").both().weights("aa").fact(fact::MODEL_NAME, "another-alias");
    scene.at("08:00:20").on("c0").tell(read(STORE, "page-1", 4096));
    scene.assert_silent();
}

#[test]
fn a_page_read_before_the_update_is_right() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:12").on("e0").tell(read(STORE, "page-1", 4096));
    scene.at("08:00:15").on("e0").tell(weights_updated());
    scene.assert_silent();
}
