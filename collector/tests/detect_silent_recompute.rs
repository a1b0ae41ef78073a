//! `silent_recompute`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, CacheUse, Consequence, KvLoad, RequestLeg, Tier};
use kvprov_model::{counter, fact};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const RECOMPUTE: Detector = Detector::SilentRecompute;

/// A prefill and a decode worker behind a router.
fn pair() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.worker("d0").decode().engine_id("e-d").fact(fact::BLOCK_SIZE, "16");
    scene.worker("r0").router();
    scene
}

/// A refused handshake of one request, and the router's answered leg to the decode side.
fn refused_and_answered() -> Scene {
    let mut scene = pair();
    scene
        .at("08:00:10")
        .on("d0")
        .line("d.log", 17)
        .tell(handshake_failed("cmpl-lab-1-0-920717f1", Cause::CompatHashMismatch));
    scene.at("08:00:12").on("r0").line("r.log", 4).tell(Body::RequestLeg(decode_leg("lab-1", true, 102)));
    scene
}

// === fires ===

#[test]
fn a_failed_handshake_and_an_answer_is_a_recompute() {
    let found = refused_and_answered().only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::CompatHashMismatch));
    assert_eq!((found.tokens, found.count), (102, 1));
    assert!(found.unknown.is_empty(), "{:?}", found.unknown);
    refused_and_answered().assert_quiet(&Detector::KvTransferFailed);
}

#[test]
fn the_evidence_points_at_the_lines_that_prove_it() {
    let found = refused_and_answered().only(&RECOMPUTE);
    assert_eq!(places(&found), ["d.log:17".to_owned(), "r.log:4".to_owned()].into());
}

#[test]
fn the_request_is_named_by_the_clients_id_and_as_printed() {
    let found = refused_and_answered().only(&RECOMPUTE);
    assert_eq!(found.requests, ["cmpl-lab-1-0-920717f1", "lab-1"]);
}

#[test]
fn the_outcome_decides_and_not_the_policy() {
    let mut scene = refused_and_answered();
    scene.worker("d0").policy("fail");
    assert_eq!(scene.only(&RECOMPUTE).confidence, Confidence::Confirmed);
    scene.assert_quiet(&Detector::KvTransferFailed);
}

#[test]
fn the_schedulers_own_word_confirms_it() {
    let mut scene = Scene::new();
    scene.worker("d0");
    scene.undated().on("d0").line("d.log", 1).tell(load_failed(Tier::Peer, Cause::TransferFailed));
    scene.undated().on("d0").line("d.log", 2).tell(rescheduled(1, 1024));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.tokens, found.count), (Confidence::Confirmed, 1024, 1));
}

#[test]
fn two_ranks_are_one_request() {
    let mut scene = refused_and_answered();
    scene
        .at("08:00:10")
        .on("d0")
        .line("d.log", 18)
        .tell(handshake_failed("cmpl-lab-1-0-920717f1", Cause::CompatHashMismatch));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.count, found.tokens), (1, 102));
}

#[test]
fn a_traceback_without_a_request_belongs_to_the_failure_beside_it() {
    let mut scene = refused_and_answered();
    for line in 19..40 {
        scene.at("08:00:11").on("d0").line("d.log", line).tell(handshake_failed("", Cause::HandshakeFailed));
    }
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.count, found.cause), (1, Cause::CompatHashMismatch));
}

#[test]
fn two_causes_are_two_episodes() {
    let mut scene = refused_and_answered();
    scene.at("08:00:30").on("d0").tell(handshake_failed("lab-2", Cause::HandshakeTimeout));
    scene.at("08:00:36").on("r0").tell(Body::RequestLeg(decode_leg("lab-2", true, 50)));
    let causes: Vec<Cause> = scene.by(&RECOMPUTE).into_iter().map(|found| found.cause).collect();
    assert_eq!(causes, [Cause::CompatHashMismatch, Cause::HandshakeTimeout]);
}

#[test]
fn a_peer_that_was_seen_to_end_explains_the_silence() {
    let mut scene = pair();
    scene.worker("p0").gone("08:00:05");
    scene.at("08:00:10").on("d0").tell(handshake_with("e-p", "lab-1", Cause::HandshakeTimeout));
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(decode_leg("lab-1", true, 102)));
    assert_eq!(scene.only(&RECOMPUTE).cause, Cause::PeerDied);
}

#[test]
fn policy_recompute_without_an_outcome_is_suspected() {
    let mut scene = pair();
    scene.worker("d0").policy("recompute");
    scene.at("08:00:10").on("d0").tell(transfer_failed("lab-1", Cause::TransferFailed));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "client got an answer"), "{:?}", found.unknown);
}

#[test]
fn a_router_that_says_it_falls_back_is_suspected() {
    let mut scene = Scene::new();
    scene.worker("r0").router();
    scene.at("08:00:10").on("r0").tell(Body::KvLoad(KvLoad {
        consequence: Some(Consequence::Recomputed),
        requests: Some(1),
        cause: Some(Cause::TransferFailed),
        ..KvLoad::default()
    }));
    assert_eq!(scene.only(&RECOMPUTE).confidence, Confidence::Suspected);
}

#[test]
fn an_unreachable_store_is_suspected_whatever_the_policy() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    for line in 1..9 {
        let place = scene.undated().on("e0").line("e.log", line);
        place.tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
    }
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::StoreUnreachable));
}

#[test]
fn a_load_that_brings_less_than_was_promised_is_a_miss() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").line("e.log", 3).tell(looked_up("chatcmpl-a1", 40, 32, 32));
    scene.at("08:00:11").on("e0").line("e.log", 5).tell(retrieved("chatcmpl-a1", 0));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::LoadMiss));
    assert_eq!((found.tokens, found.count), (32, 1));
    assert!(found.requests.contains(&"chatcmpl-a1".to_owned()) && places(&found).contains("e.log:5"));
}

#[test]
fn a_load_that_names_no_request_is_suspected() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 40, 32, 32));
    scene.at("08:00:11").on("e0").tell(retrieved("", 0));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "names no request"), "{:?}", found.unknown);
}

#[test]
fn a_cache_that_complains_of_a_load_that_fell_short_is_one_event() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 40, 32, 32));
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    scene.at("08:00:11").on("e0").tell(retrieved("", 0));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.cause.clone(), found.count), (Cause::LoadMiss, 1));
    scene.assert_quiet(&Detector::KvTransferFailed);
}

#[test]
fn a_request_that_misses_again_and_again_is_one_episode() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    for second in 10..14 {
        let time = format!("08:00:{second}");
        scene.at(&time).on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
        scene.at(&time).on("e0").tell(rescheduled(1, 512));
    }
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.cause.clone(), found.count, found.tokens), (Cause::LoadMiss, 4, 2048));
}

#[test]
fn a_store_that_falls_short_of_an_unknown_policy_is_a_suspected_recompute() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:11").on("e0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "policy"), "{:?}", found.unknown);
}

/// Prefill stored a request in the cache between the pair, decode looked for it.
fn handed_over(hits: &[i64]) -> Scene {
    let mut scene = pair();
    scene.worker("d0").fact(fact::CONNECTOR, "LMCacheConnectorV1");
    let stored = CacheUse {
        request_id: Some("cmpl-a1-0".to_owned()),
        tier: Some(Tier::Storage),
        asked: Some(32_768),
        ..CacheUse::default()
    };
    scene.at("08:00:10").on("p0").line("p.log", 2).tell(Body::CacheUse(stored));
    for (step, hit) in hits.iter().enumerate() {
        let at = format!("08:00:1{}", step + 1);
        scene.at(&at).on("d0").tell(looked_up("cmpl-a1-0", 32_768, *hit, *hit));
    }
    scene
}

#[test]
fn a_handover_that_decode_does_not_find_is_a_suspected_recompute() {
    let found = handed_over(&[0]).only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::LoadMiss));
    assert_eq!((found.tokens, found.count), (32_768, 1));
    assert!(places(&found).contains("p.log:2"));
}

/// Two requests whose parameters the router had and did not pass on.
fn parameters_lost() -> Scene {
    let mut scene = pair();
    for (second, request) in [("10", "r2"), ("20", "r3")] {
        let leg = RequestLeg { remote_request_id: Some(format!("cmpl-{request}-0")), ..prefill_leg(request) };
        scene.at(&format!("08:00:{second}")).on("r0").tell(Body::RequestLeg(leg));
        let leg = decode_leg(request, false, 100);
        scene.at(&format!("08:00:{second}.500")).on("r0").tell(Body::RequestLeg(leg));
    }
    scene
}

#[test]
fn parameters_that_the_router_lost_are_a_recompute() {
    let mut scene = parameters_lost();
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 200.0), (counter::REQUESTS_ANSWERED, 2.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::ParamsMissing));
    assert_eq!((found.tokens, found.count), (200, 2));
    assert!(["r2", "r3"].iter().all(|id| found.requests.contains(&(*id).to_owned())));
}

#[test]
fn lost_parameters_without_the_decode_sides_counters_are_suspected() {
    let found = parameters_lost().only(&RECOMPUTE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "own cache"), "{:?}", found.unknown);
}

// === stays quiet ===

#[test]
fn a_decode_only_request_beside_a_recompute_adds_nothing() {
    let mut scene = refused_and_answered();
    scene.at("08:00:30").on("r0").tell(Body::RequestLeg(decode_leg("lab-3", false, 400)));
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 502.0), (counter::REQUESTS_ANSWERED, 2.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.count, found.tokens), (1, 102));
}

/// A failed handshake whose outcome no source tells, and the worker's counters around it.
fn failed_and_counted(computed: f64, answered: f64) -> Scene {
    let mut scene = pair();
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    let values = [(counter::PROMPT_LOCAL_COMPUTE, computed), (counter::REQUESTS_ANSWERED, answered)];
    scene.at("08:01:00").on("d0").line("d1.prom", 0).tell(counted("08:00:00", &values));
    scene
}

#[test]
fn a_failure_joined_with_local_prompt_compute_is_a_recompute() {
    let found = failed_and_counted(102.0, 1.0).only(&RECOMPUTE);
    assert_eq!((found.confidence, found.tokens), (Confidence::Confirmed, 102));
    assert!(places(&found).contains("d1.prom:0"));
}

#[test]
fn what_was_computed_meanwhile_is_the_cost_of_all_recomputes_together() {
    let mut scene = failed_and_counted(204.0, 2.0);
    scene.at("08:00:12").on("d0").tell(handshake_failed("lab-2", Cause::HandshakeTimeout));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.count, found.tokens), (Confidence::Confirmed, 2, 204));
}

#[test]
fn a_page_that_ends_with_the_failure_says_nothing_of_what_came_behind_it() {
    let mut scene = pair();
    scene.worker("d0").policy("recompute");
    scene.at("08:00:50").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 0.0), (counter::REQUESTS_ANSWERED, 5.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    assert_eq!(scene.only(&RECOMPUTE).confidence, Confidence::Suspected);
}

#[test]
fn a_failure_in_whose_place_nothing_was_computed_while_all_were_answered_is_quiet() {
    let mut scene = failed_and_counted(0.0, 5.0);
    scene.worker("d0").policy("recompute");
    scene.assert_silent();
}

#[test]
fn a_failure_in_whose_place_nothing_was_computed_before_a_client_left_is_no_recompute() {
    let mut scene = pair();
    scene.worker("d0").policy("recompute");
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    let none = [(counter::PROMPT_LOCAL_COMPUTE, 0.0), (counter::REQUESTS_ANSWERED, 5.0)];
    let left = [(counter::REQUESTS_ABORTED, 1.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &[&none[..], &left[..]].concat()));
    scene.assert_quiet(&RECOMPUTE);
    assert_eq!(scene.only(&Detector::KvTransferFailed).confidence, Confidence::Suspected);
}

#[test]
fn prompt_compute_of_a_decode_only_request_proves_no_recompute() {
    let mut scene = failed_and_counted(400.0, 1.0);
    scene.at("08:00:30").on("r0").tell(Body::RequestLeg(decode_leg("lab-3", false, 400)));
    scene.assert_quiet(&RECOMPUTE);
    assert_eq!(scene.only(&Detector::KvTransferFailed).confidence, Confidence::Suspected);
}

#[test]
fn one_answer_proves_one_recompute() {
    let mut scene = failed_and_counted(102.0, 1.0);
    scene.at("08:00:12").on("d0").tell(handshake_failed("lab-2", Cause::HandshakeTimeout));
    assert_eq!(scene.only(&RECOMPUTE).count, 1);
    assert_eq!(scene.only(&Detector::KvTransferFailed).count, 1);
}

#[test]
fn a_client_that_left_is_no_recompute() {
    let mut scene = pair();
    scene.at("08:00:10").on("r0").tell(Body::RequestLeg(prefill_leg("r2")));
    let left = RequestLeg { client_gone: Some(true), ..decode_leg("r2", false, 100) };
    scene.at("08:00:11").on("r0").tell(Body::RequestLeg(left));
    scene.assert_silent();
}

#[test]
fn a_retry_that_arrived_heals_the_failure() {
    let mut scene = refused_and_answered();
    scene.at("08:00:11").on("d0").tell(transferred("cmpl-lab-1-0-920717f1"));
    scene.assert_silent();
}

#[test]
fn a_cold_miss_is_no_recompute() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 512, 0, 0));
    scene.at("08:00:11").on("e0").tell(retrieved("", 0));
    scene.assert_silent();
}

#[test]
fn a_prefix_that_the_engine_holds_itself_needs_no_load() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 512, 256, -16));
    scene.at("08:00:11").on("e0").tell(retrieved("", 0));
    scene.assert_silent();
}

#[test]
fn a_load_that_brings_what_was_needed_is_quiet_although_more_was_hit() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 512, 256, 128));
    scene.at("08:00:11").on("e0").tell(retrieved("chatcmpl-a1", 128));
    scene.assert_silent();
}

#[test]
fn a_handover_that_a_later_lookup_finds_is_quiet() {
    handed_over(&[0, 32_768]).assert_quiet(&RECOMPUTE);
}

#[test]
fn a_lookup_that_finds_nothing_beside_another_connector_is_quiet() {
    let mut scene = handed_over(&[0]);
    scene.worker("d0").fact(fact::CONNECTOR, "MultiConnector");
    scene.assert_quiet(&RECOMPUTE);
}

#[test]
fn a_store_miss_without_a_lookup_hit_is_left_to_the_store() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(wrote("file:/kv", "page-1", 4096));
    scene.at("08:00:20").on("e1").tell(removed("file:/kv", "page-1"));
    scene.at("08:00:30").on("e0").tell(missed("file:/kv", "page-1"));
    scene.assert_quiet(&RECOMPUTE);
}

// === what is absent, lost or late ===

#[test]
fn better_evidence_keeps_the_id() {
    let mut scene = pair();
    scene.worker("d0").policy("recompute");
    scene.at("08:00:10").on("d0").tell(handshake_with("e-p", "lab-1", Cause::HandshakeFailed));
    let before = scene.only(&RECOMPUTE);
    scene.worker("p0").gone("08:00:05");
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(decode_leg("lab-1", true, 102)));
    let after = scene.only(&RECOMPUTE);
    assert_eq!(before.id, after.id);
    assert_eq!((before.confidence, after.confidence), (Confidence::Suspected, Confidence::Confirmed));
    assert_ne!(before.cause, after.cause);
}

#[test]
fn thousands_of_failures_are_one_bounded_finding() {
    let mut scene = pair();
    for request in 0..1500 {
        let id = format!("lab-{request}");
        scene
            .at("08:00:10")
            .on("d0")
            .line("d.log", request + 1)
            .tell(handshake_failed(&id, Cause::HandshakeTimeout));
        scene
            .at("08:00:11")
            .on("d0")
            .line("e.log", request + 1)
            .tell(handshake_failed("", Cause::HandshakeFailed));
    }
    scene.at("08:00:20").on("d0").tell(rescheduled(1500, 90_000));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(found.count, 1500);
    assert!(found.evidence.len() <= 64 && found.requests.len() <= 1000);
}

#[test]
fn the_tokens_of_one_statement_on_several_requests_are_counted_once() {
    let mut scene = Scene::new();
    scene.worker("d0").decode();
    for request in ["cmpl-a-0", "cmpl-b-0"] {
        scene.at("08:00:10").on("d0").tell(transfer_failed(request, Cause::TransferFailed));
    }
    scene.at("08:00:10").on("d0").tell(rescheduled(2, 3072));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.count, found.tokens), (Confidence::Confirmed, 2, 3072));
}

/// A complaint that names its request beside a load without a name.
fn complained(with_lookup: bool) -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0").decode();
    if with_lookup {
        scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 300, 256, 256));
    }
    let Body::KvLoad(load) = load_failed(Tier::Storage, Cause::LoadMiss) else { return scene };
    let named = KvLoad { request_ids: vec!["chatcmpl-a1".to_owned()], ..load };
    scene.at("08:00:11").on("e0").tell(Body::KvLoad(named));
    let Body::CacheUse(used) = retrieved("", 0) else { return scene };
    scene.at("08:00:11").on("e0").tell(Body::CacheUse(CacheUse { needed: Some(256), ..used }));
    scene
}

#[test]
fn the_tokens_of_a_load_without_a_name_are_those_of_the_complaint_beside_it_once() {
    for with_lookup in [false, true] {
        let found = complained(with_lookup).only(&RECOMPUTE);
        assert_eq!((found.count, found.tokens), (1, 256), "with a lookup: {with_lookup}");
    }
}
