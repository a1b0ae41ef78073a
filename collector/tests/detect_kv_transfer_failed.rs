//! `kv_transfer_failed`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, LeaseState, RequestLeg, Tier, Transfer};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const FAILED: Detector = Detector::KvTransferFailed;

fn decoder(policy: Option<&str>) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.worker("d0").decode().engine_id("e-d");
    if let Some(policy) = policy {
        scene.worker("d0").policy(policy);
    }
    scene
}

// === fires ===

#[test]
fn an_engine_that_aborts_confirms_the_failure() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").line("d.log", 9).tell(aborted("a1", Cause::HandshakeFailed));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 1));
    assert_eq!(
        (found.requests.clone(), places(&found)),
        (vec!["a1".to_owned()], ["d.log:9".to_owned()].into())
    );
    scene.assert_quiet(&Detector::SilentRecompute);
}

#[test]
fn an_abort_that_a_client_may_have_caused_is_suspected() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(aborted("a1", Cause::Aborted));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Aborted));
    assert!(names_unknown(&found, "who aborted"), "{:?}", found.unknown);
}

#[test]
fn one_request_failed_on_two_ranks_is_one_failure() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(aborted("a1", Cause::HandshakeFailed));
    scene.at("08:00:10").on("d0").tell(aborted("a1", Cause::HandshakeFailed));
    assert_eq!(scene.only(&FAILED).count, 1);
}

#[test]
fn four_requests_are_one_finding_that_names_all() {
    let mut scene = decoder(None);
    for request in ["a1", "a2", "a3", "a4"] {
        scene.at("08:00:10").on("d0").tell(aborted(request, Cause::HandshakeFailed));
    }
    let found = scene.only(&FAILED);
    assert_eq!((found.count, found.requests), (4, ["a1", "a2", "a3", "a4"].map(str::to_owned).to_vec()));
}

#[test]
fn a_server_error_to_the_client_confirms_the_failure() {
    let mut scene = decoder(Some("fail"));
    scene.worker("r0").router();
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    let leg = RequestLeg { status: Some(500), ..decode_leg("lab-1", true, 102) };
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(leg));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::HandshakeTimeout));
}

#[test]
fn the_schedulers_word_on_a_failed_request_confirms_it() {
    let mut scene = decoder(Some("fail"));
    scene.at("08:00:10").on("d0").tell(handshake_failed("cmpl-lab-1-0", Cause::HandshakeTimeout));
    scene.at("08:00:11").on("d0").tell(failed_for_load(&["cmpl-lab-1-0"]));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 1));
    assert!(found.requests.contains(&"lab-1".to_owned()));
}

#[test]
fn a_failure_that_names_nobody_is_why_the_scheduler_failed_requests() {
    for named in [&["cmpl-lab-1-0", "cmpl-lab-2-0"][..], &[]] {
        let mut scene = decoder(Some("fail"));
        scene.at("08:00:10").on("d0").tell(handshake_failed("", Cause::LayoutMismatch));
        scene.at("08:00:11").on("d0").tell(failed_for_load(named));
        let found = scene.only(&FAILED);
        assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::LayoutMismatch));
        assert_eq!(found.count, named.len().max(1) as u64);
    }
}

#[test]
fn what_failed_long_before_is_not_why_the_scheduler_failed_a_request() {
    let mut scene = decoder(Some("fail"));
    scene.at("08:00:10").on("d0").tell(handshake_failed("", Cause::LayoutMismatch));
    scene.at("08:30:11").on("d0").tell(failed_for_load(&["cmpl-lab-1-0"]));
    let causes: Vec<_> = scene.by(&FAILED).into_iter().map(|found| found.cause).collect();
    assert_eq!(causes.len(), 2, "{causes:?}");
}

#[test]
fn policy_fail_without_an_outcome_is_suspected() {
    let mut scene = decoder(Some("fail"));
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::CompatHashMismatch));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::CompatHashMismatch));
    assert!(names_unknown(&found, "what the client got"), "{:?}", found.unknown);
}

#[test]
fn an_unknown_policy_is_named_and_the_milder_confidence_stands() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::LayoutMismatch));
    let found = scene.only(&FAILED);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "may have been recomputed"), "{:?}", found.unknown);
    scene.assert_quiet(&Detector::SilentRecompute);
}

#[test]
fn a_request_that_waits_for_minutes_hangs() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:03:10").on("d0").tell(waiting("lab-1"));
    let found = scene.only(&FAILED);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "ended at all"), "{:?}", found.unknown);
}

#[test]
fn an_engine_that_ends_over_a_failure_answered_nobody() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(load_failed(Tier::Storage, Cause::LoadMiss));
    scene.worker("d0").gone("08:00:14");
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::LoadMiss));
    assert!(names_unknown(&found, "before the engine ended"), "{:?}", found.unknown);
    scene.assert_quiet(&Detector::SilentRecompute);
}

#[test]
fn leases_that_end_unread_name_the_requests_of_a_peer_that_was_not_reached() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(handshake_failed("", Cause::HandshakeFailed));
    scene.at("08:08:10").on("p0").tell(lease("cmpl-a-0", LeaseState::Expired));
    let found = scene.only(&FAILED);
    assert_eq!((found.cause.clone(), found.count), (Cause::HandshakeFailed, 1));
    assert!(found.requests.contains(&"cmpl-a-0".to_owned()), "{:?}", found.requests);
}

#[test]
fn a_request_that_the_scheduler_failed_is_no_recompute_of_its_short_load() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 40, 32, 32));
    scene.at("08:00:11").on("e0").tell(retrieved("", 0));
    scene.at("08:00:11").on("e0").tell(failed_for_load(&["chatcmpl-a1"]));
    assert_eq!(scene.only(&FAILED).count, 1);
    scene.assert_quiet(&Detector::SilentRecompute);
}

/// A prefill log alone in which leases end unread.
fn unread_leases(requests: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    for request in requests {
        scene.at("08:00:10").on("p0").tell(lease(request, LeaseState::Expired));
    }
    scene
}

#[test]
fn leases_that_ended_unread_are_suspected_at_most() {
    let ids = ["cmpl-a-0", "cmpl-b-0", "cmpl-c-0"];
    let found = unread_leases(&ids).only(&FAILED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::LeaseExpired));
    assert_eq!(found.count, 3);
    assert!(ids.iter().all(|id| found.requests.contains(&(*id).to_owned())));
    assert!(names_unknown(&found, "decode side is not seen"), "{:?}", found.unknown);
}

#[test]
fn two_causes_of_one_moment_have_two_ids() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(aborted("a1", Cause::HandshakeTimeout));
    scene.at("08:00:10").on("d0").tell(aborted("a2", Cause::LayoutMismatch));
    assert_eq!(scene.by(&FAILED).len(), 2);
}

// === stays quiet ===

#[test]
fn a_failure_that_ended_as_recompute_is_told_as_such() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    scene.at("08:00:12").on("d0").tell(rescheduled(1, 102));
    scene.assert_quiet(&FAILED);
    assert_eq!(scene.only(&Detector::SilentRecompute).confidence, Confidence::Confirmed);
}

#[test]
fn a_pull_in_progress_is_no_failure() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:00:11").on("d0").tell(waiting("lab-1"));
    scene.assert_silent();
}

#[test]
fn a_slow_pull_that_was_answered_failed_nowhere() {
    let mut scene = decoder(None);
    scene.worker("r0").router();
    scene.at("08:00:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:01:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:01:12").on("r0").tell(Body::RequestLeg(decode_leg("lab-1", true, 102)));
    scene.assert_silent();
}

#[test]
fn a_wait_that_ended_in_an_arrival_is_no_failure() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:01:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:01:11").on("d0").tell(transferred("lab-1"));
    scene.assert_silent();
}

#[test]
fn transfers_that_succeed_are_quiet() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(transferred("lab-1"));
    scene.assert_silent();
}

#[test]
fn a_lease_that_was_released_is_quiet() {
    let mut scene = unread_leases(&[]);
    scene.at("08:00:05").on("p0").tell(lease("cmpl-a-0", LeaseState::Granted));
    scene.at("08:00:10").on("p0").tell(lease("cmpl-a-0", LeaseState::Released));
    scene.assert_silent();
}

#[test]
fn a_visible_decode_side_that_shows_nothing_means_that_the_request_never_came() {
    let mut scene = unread_leases(&["cmpl-a-0"]);
    scene.worker("d0").decode();
    scene.assert_silent();
}

#[test]
fn a_client_that_left_explains_an_unread_lease() {
    let mut scene = unread_leases(&["cmpl-a-0"]);
    scene.worker("r0").router();
    let leg = RequestLeg { client_gone: Some(true), status: None, ..prefill_leg("a") };
    scene.at("08:00:01").on("r0").tell(Body::RequestLeg(leg));
    scene.assert_silent();
}

#[test]
fn an_expiry_that_followed_a_failure_is_its_consequence() {
    let mut scene = decoder(Some("fail"));
    scene.at("08:00:02").on("d0").tell(handshake_failed("cmpl-a-0", Cause::HandshakeTimeout));
    scene.at("08:00:10").on("p0").tell(lease("cmpl-a-0", LeaseState::Expired));
    assert_eq!(scene.only(&FAILED).cause, Cause::HandshakeTimeout);
}

#[test]
fn both_halves_of_one_failure_are_told_once() {
    let mut scene = decoder(Some("fail"));
    let half = |request: &str| {
        Body::Transfer(Transfer {
            transfer_id: Some("xfer-7".to_owned()),
            ..transfer(request, kvprov_model::observation::Outcome::Failed, Some(Cause::TransferFailed))
        })
    };
    scene.at("08:00:10").on("p0").tell(half("on-p"));
    scene.at("08:00:10").on("d0").tell(half("on-d"));
    let found = scene.only(&FAILED);
    assert_eq!(found.subject, "d0");
    assert!(["on-p", "on-d"].iter().all(|id| found.requests.contains(&(*id).to_owned())));
}

#[test]
fn a_start_up_without_requests_is_quiet() {
    let mut scene = decoder(Some("fail"));
    scene.worker("d0").fact(fact::LEASE_SECONDS, "480");
    scene.at("08:00:00").on("d0").tell(alive());
    scene.assert_silent();
}

// === what is absent, lost or late ===

#[test]
fn a_failure_without_an_outcome_waits_for_the_watermark_of_every_node() {
    let mut scene = decoder(None);
    scene.worker("r0").router().node("node-b");
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    scene.at("08:01:00").on("d0").tell(alive());
    assert!(scene.findings_so_far().is_empty(), "the router may still tell the answer");
    scene.at("08:01:00").on("r0").tell(alive());
    assert_eq!(scene.so_far_by(&FAILED).len(), 1);
}

#[test]
fn a_proven_failure_waits_for_nobody() {
    let mut scene = decoder(None);
    scene.worker("r0").router().node("node-b");
    scene.at("08:00:10").on("d0").tell(aborted("a1", Cause::HandshakeFailed));
    assert_eq!(scene.so_far_by(&FAILED).len(), 1);
}

#[test]
fn an_unread_lease_waits_until_an_answer_would_have_come() {
    let mut scene = unread_leases(&["cmpl-a-0"]);
    scene.at("08:00:40").on("p0").tell(alive());
    assert!(scene.findings_so_far().is_empty());
    scene.at("08:02:30").on("p0").tell(alive());
    assert_eq!(scene.so_far_by(&FAILED).len(), 1);
}

#[test]
fn an_unread_lease_waits_for_the_other_nodes() {
    let mut scene = unread_leases(&["cmpl-a-0"]);
    scene.worker("r0").router().node("node-b");
    scene.at("08:05:00").on("p0").tell(alive());
    assert!(scene.findings_so_far().is_empty());
    scene.at("08:05:00").on("r0").tell(alive());
    assert_eq!(scene.so_far_by(&FAILED).len(), 1);
}

#[test]
fn a_better_cause_keeps_the_id() {
    let mut scene = decoder(Some("fail"));
    scene.at("08:00:10").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeFailed));
    let before = scene.only(&FAILED);
    scene.at("08:00:11").on("d0").tell(handshake_failed("lab-1", Cause::EngineIdMismatch));
    let after = scene.only(&FAILED);
    assert_eq!((before.cause, after.cause), (Cause::HandshakeFailed, Cause::EngineIdMismatch));
    assert_eq!(before.id, after.id);
}

// === failures that only a counter tells ===

const TRANSFERS_FAILED: &str = kvprov_model::counter::TRANSFERS_FAILED;

#[test]
fn failures_that_only_a_counter_tells_are_suspected() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(counted("08:00:00", &[(TRANSFERS_FAILED, 3.0)]));
    scene.at("08:00:20").on("d0").tell(counted("08:00:10", &[(TRANSFERS_FAILED, 2.0)]));
    let found = scene.only(&FAILED);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 5));
    assert_eq!(found.cause, Cause::TransferFailed);
    assert!(found.requests.is_empty());
}

#[test]
fn under_the_policy_to_recompute_they_are_recomputed() {
    let mut scene = decoder(Some("recompute"));
    scene.at("08:00:10").on("d0").tell(counted("08:00:00", &[(TRANSFERS_FAILED, 3.0)]));
    scene.assert_quiet(&FAILED);
    let found = scene.only(&Detector::SilentRecompute);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 3));
}

#[test]
fn a_counter_beside_a_failure_that_was_told_counts_that_one() {
    let mut scene = decoder(None);
    scene.at("08:00:05").on("d0").tell(aborted("a1", Cause::HandshakeFailed));
    scene.at("08:00:10").on("d0").tell(counted("08:00:00", &[(TRANSFERS_FAILED, 1.0)]));
    assert_eq!(scene.only(&FAILED).count, 1);
}

#[test]
fn the_totals_of_a_first_page_are_of_nobody_knows_when() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(totals(&[(TRANSFERS_FAILED, 40.0)]));
    scene.assert_silent();
}

#[test]
fn a_side_that_sends_leaves_its_count_to_the_one_that_receives() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("p0").tell(counted("08:00:00", &[(TRANSFERS_FAILED, 3.0)]));
    scene.assert_silent();
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.at("08:00:10").on("p0").tell(counted("08:00:00", &[(TRANSFERS_FAILED, 3.0)]));
    assert_eq!(scene.only(&FAILED).count, 3);
}

#[test]
fn reads_of_a_store_that_only_a_counter_tells_are_suspected_to_be_recomputed() {
    let failed_reads = kvprov_model::counter::STORE_FAILED_READS;
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(counted("08:00:00", &[(failed_reads, 3.0)]));
    scene.assert_quiet(&FAILED);
    let found = scene.only(&Detector::SilentRecompute);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::LoadMiss));
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(totals(&[(failed_reads, 3.0)]));
    scene.assert_silent();
}

const LEASES_EXPIRED: &str = kvprov_model::counter::LEASES_EXPIRED;

/// A prefill worker of which only counters are seen.
fn counted_leases(values: &[(&str, f64)]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.at("08:00:10").on("p0").tell(counted("08:00:00", values));
    scene
}

#[test]
fn leases_that_only_a_counter_tells_are_suspected() {
    let found = counted_leases(&[(LEASES_EXPIRED, 4.0)]).only(&FAILED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::LeaseExpired));
    assert_eq!(found.count, 4);
    assert!(names_unknown(&found, "which requests"), "{:?}", found.unknown);
}

#[test]
fn counted_leases_of_clients_that_left_are_explained() {
    let aborted = kvprov_model::counter::REQUESTS_ABORTED;
    counted_leases(&[(LEASES_EXPIRED, 4.0), (aborted, 5.0)]).assert_silent();
    let found = counted_leases(&[(LEASES_EXPIRED, 4.0), (aborted, 1.0)]).only(&FAILED);
    assert_eq!(found.count, 3);
}

#[test]
fn a_lease_that_a_line_tells_is_not_counted_again() {
    let mut scene = unread_leases(&["cmpl-a-0"]);
    scene.at("08:00:20").on("p0").tell(counted("08:00:00", &[(LEASES_EXPIRED, 1.0)]));
    assert_eq!(scene.only(&FAILED).count, 1);
}

#[test]
fn a_visible_decode_side_explains_counted_leases() {
    let mut scene = counted_leases(&[(LEASES_EXPIRED, 4.0)]);
    scene.worker("d0").decode();
    scene.assert_silent();
}

#[test]
fn the_leases_of_a_first_page_ended_nobody_knows_when() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.at("08:00:10").on("p0").tell(totals(&[(LEASES_EXPIRED, 4.0)]));
    scene.assert_silent();
}

// === one request under two ids ===

#[test]
fn a_transfer_that_both_sides_tell_under_their_own_ids_is_one_request() {
    let mut scene = decoder(None);
    for (worker, request) in [("d0", "aaaa"), ("p0", "bbbb")] {
        let told = Transfer {
            transfer_id: Some("7382161533821365865".to_owned()),
            ..transfer(request, kvprov_model::observation::Outcome::Failed, Some(Cause::TransferFailed))
        };
        scene.at("08:00:10").on(worker).tell(Body::Transfer(told));
    }
    let found = scene.only(&FAILED);
    assert_eq!((found.requests.clone(), found.count), (vec!["aaaa".to_owned(), "bbbb".to_owned()], 1));
}

/// The sender refuses a room and says why so many seconds later; the receiver waits five minutes.
fn refused_room(seconds: u32) -> Scene {
    let failed =
        |request: &str, cause| transfer(request, kvprov_model::observation::Outcome::Failed, Some(cause));
    let room = Some("room-7".to_owned());
    let mut scene = decoder(None);
    let refused =
        Transfer { request_id: None, transfer_id: room.clone(), ..failed("", Cause::TransferFailed) };
    scene.at("08:00:10").on("p0").tell(Body::Transfer(refused));
    let why = Transfer { request_id: None, ..failed("", Cause::LayoutMismatch) };
    scene.at(&format!("08:00:{}", 10 + seconds)).on("p0").tell(Body::Transfer(why));
    let waited = Transfer { transfer_id: room, ..failed("aaaa", Cause::TransferFailed) };
    scene.at("08:05:10").on("d0").tell(Body::Transfer(waited));
    scene
}

#[test]
fn why_a_sender_refused_a_room_is_why_its_request_failed() {
    let found = refused_room(0).findings().into_iter().find(|found| found.workers.contains(&"d0".to_owned()));
    assert_eq!(found.unwrap().cause, Cause::LayoutMismatch);
}

#[test]
fn what_a_sender_says_of_nobody_later_is_of_another_room() {
    let found =
        refused_room(40).findings().into_iter().find(|found| found.workers.contains(&"d0".to_owned()));
    assert_eq!(found.unwrap().cause, Cause::TransferFailed);
}

// === the load of a request tells what the transfer library tells without one ===

#[test]
fn a_transfer_without_a_name_beside_a_load_that_fell_short_is_that_load() {
    let nameless = || {
        let failed = transfer("", kvprov_model::observation::Outcome::Failed, Some(Cause::TransferFailed));
        Body::Transfer(Transfer { request_id: None, ..failed })
    };
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 4200, 4096, 4096));
    scene.at("08:00:11").on("e0").tell(nameless());
    scene.at("08:00:11").on("e0").tell(retrieved("chatcmpl-a1", 0));
    scene.assert_quiet(&FAILED);
    assert_eq!(scene.only(&Detector::SilentRecompute).count, 1);
    // All came: what failed is another transfer.
    let mut scene = Scene::new();
    scene.worker("e0");
    scene.at("08:00:10").on("e0").tell(looked_up("chatcmpl-a1", 4200, 4096, 4096));
    scene.at("08:00:11").on("e0").tell(nameless());
    scene.at("08:00:11").on("e0").tell(retrieved("chatcmpl-a1", 4096));
    assert_eq!(scene.only(&FAILED).confidence, Confidence::Suspected);
}

#[test]
fn a_prefill_workers_failure_that_names_nobody_is_told_by_the_decode_worker() {
    let told = |at: &str| {
        let mut scene = decoder(Some("fail"));
        scene.at("08:00:10").on("p0").tell(transfer_failed("", Cause::TransferFailed));
        scene.at(at).on("d0").tell(handshake_failed("lab-1", Cause::LayoutMismatch));
        scene.by(&FAILED).len()
    };
    assert_eq!(told("08:00:11"), 1);
    assert_eq!(told("08:10:11"), 2);
}

#[test]
fn a_long_wait_that_ends_is_no_failure() {
    let mut scene = decoder(None);
    scene.at("08:00:10").on("d0").tell(waiting("lab-1"));
    scene.at("08:01:10").on("d0").tell(waiting("lab-1"));
    let received = Transfer {
        request_id: Some("lab-1".to_owned()),
        direction: Some("receive".to_owned()),
        ..Transfer::default()
    };
    scene.at("08:01:12").on("d0").tell(Body::Transfer(received));
    scene.assert_silent();
}
