//! `handshake_stall`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::clock::SECOND;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, Handshake, Outcome, RequestLeg};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const STALL: Detector = Detector::HandshakeStall;

fn decoder() -> Scene {
    let mut scene = Scene::new();
    scene.worker("d0").decode();
    scene.worker("r0").router();
    scene
}

/// Handshakes with two peers that do not answer, five seconds each.
fn two_dead_peers() -> Scene {
    let mut scene = decoder();
    scene.at("08:00:15").on("d0").line("d.log", 3).tell(handshake_with(
        "e-1",
        "lab-1",
        Cause::HandshakeTimeout,
    ));
    scene.at("08:00:20").on("d0").line("d.log", 4).tell(handshake_with(
        "e-2",
        "lab-2",
        Cause::HandshakeTimeout,
    ));
    scene
}

/// A request that ended at a time after so many seconds, over a healthy peer.
fn answered_after(scene: &mut Scene, end: &str, seconds: i64) {
    ended(scene, "healthy", end, seconds);
}

/// The router tells that a request ended after so many seconds.
fn ended(scene: &mut Scene, request: &str, end: &str, seconds: i64) {
    let leg = RequestLeg { duration_ns: Some(seconds * SECOND), ..decode_leg(request, true, 50) };
    scene.at(end).on("r0").line("r.log", 8).tell(Body::RequestLeg(leg));
}

// === fires ===

#[test]
fn two_dead_peers_in_one_queue_are_suspected() {
    let found = two_dead_peers().only(&STALL);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::HandshakeTimeout));
    assert_eq!((found.count, found.requests.clone()), (2, vec!["lab-1".to_owned(), "lab-2".to_owned()]));
    assert_eq!(places(&found), ["d.log:3".to_owned(), "d.log:4".to_owned()].into());
    assert!(names_unknown(&found, "healthy peer"), "{:?}", found.unknown);
}

#[test]
fn a_request_to_a_healthy_peer_that_waited_confirms_it() {
    let before = two_dead_peers().only(&STALL);
    let mut scene = two_dead_peers();
    answered_after(&mut scene, "08:00:22", 11);
    let found = scene.only(&STALL);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 3));
    assert!(found.requests.contains(&"healthy".to_owned()) && places(&found).contains("r.log:8"));
    assert_eq!(before.id, found.id);
}

#[test]
fn a_longer_queue_is_one_finding() {
    let mut scene = two_dead_peers();
    scene.at("08:00:25").on("d0").tell(handshake_with("e-3", "lab-3", Cause::HandshakeTimeout));
    let found = scene.only(&STALL);
    assert_eq!(found.count, 3);
    assert!(found.summary.contains("3 peers") && found.summary.contains("15 s"), "{}", found.summary);
}

#[test]
fn two_queues_far_apart_are_two_episodes() {
    let mut scene = two_dead_peers();
    scene.at("08:10:15").on("d0").tell(handshake_with("e-1", "lab-5", Cause::HandshakeTimeout));
    scene.at("08:10:20").on("d0").tell(handshake_with("e-2", "lab-6", Cause::HandshakeTimeout));
    assert_eq!(scene.by(&STALL).len(), 2);
}

// === stays quiet ===

#[test]
fn a_first_connection_to_a_new_peer_is_quiet() {
    let mut scene = decoder();
    scene.at("08:00:10").on("d0").tell(Body::Handshake(Handshake {
        remote_engine_id: Some("e-1".to_owned()),
        outcome: Some(Outcome::Succeeded),
        duration_ns: Some(3 * SECOND),
        ..Handshake::default()
    }));
    answered_after(&mut scene, "08:00:16", 6);
    scene.assert_silent();
}

#[test]
fn one_dead_peer_alone_is_no_queue() {
    let mut scene = decoder();
    for (second, request) in [("10", "lab-1"), ("15", "lab-2"), ("20", "lab-3")] {
        let body = handshake_with("e-1", request, Cause::HandshakeTimeout);
        scene.at(&format!("08:00:{second}")).on("d0").tell(body);
    }
    scene.assert_quiet(&STALL);
}

#[test]
fn timeouts_that_came_one_by_one_are_no_queue() {
    let mut scene = decoder();
    scene.at("08:00:15").on("d0").tell(handshake_with("e-1", "lab-1", Cause::HandshakeTimeout));
    scene.at("08:01:20").on("d0").tell(handshake_with("e-2", "lab-2", Cause::HandshakeTimeout));
    scene.assert_quiet(&STALL);
}

#[test]
fn a_request_that_came_when_the_one_before_it_was_answered_is_no_queue() {
    let mut scene = two_dead_peers();
    ended(&mut scene, "lab-1", "08:00:15", 5);
    ended(&mut scene, "lab-2", "08:00:21", 5);
    scene.assert_quiet(&STALL);
}

#[test]
fn requests_that_were_there_together_are_a_queue() {
    let mut scene = two_dead_peers();
    ended(&mut scene, "lab-1", "08:00:15", 5);
    ended(&mut scene, "lab-2", "08:00:21", 10);
    assert_eq!(scene.only(&STALL).count, 2);
}

#[test]
fn peers_that_answered_and_refused_do_not_stall() {
    let mut scene = decoder();
    scene.at("08:00:15").on("d0").tell(handshake_with("e-1", "lab-1", Cause::CompatHashMismatch));
    scene.at("08:00:20").on("d0").tell(handshake_with("e-2", "lab-2", Cause::CompatHashMismatch));
    scene.assert_quiet(&STALL);
}

#[test]
fn a_peer_without_a_name_proves_no_second_one() {
    let mut scene = decoder();
    scene.at("08:00:15").on("d0").tell(handshake_with("e-1", "lab-1", Cause::HandshakeTimeout));
    scene.at("08:00:20").on("d0").tell(handshake_with("", "lab-2", Cause::HandshakeTimeout));
    scene.assert_quiet(&STALL);
}

#[test]
fn two_workers_have_two_queues() {
    let mut scene = decoder();
    scene.worker("d1").decode();
    scene.at("08:00:15").on("d0").tell(handshake_with("e-1", "lab-1", Cause::HandshakeTimeout));
    scene.at("08:00:20").on("d1").tell(handshake_with("e-2", "lab-2", Cause::HandshakeTimeout));
    scene.assert_quiet(&STALL);
}

#[test]
fn a_quick_request_beside_the_queue_confirms_nothing() {
    let mut scene = two_dead_peers();
    answered_after(&mut scene, "08:00:18", 2);
    assert_eq!(scene.only(&STALL).confidence, Confidence::Suspected);
}

#[test]
fn a_request_after_the_queue_confirms_nothing() {
    let mut scene = two_dead_peers();
    answered_after(&mut scene, "08:01:00", 12);
    assert_eq!(scene.only(&STALL).confidence, Confidence::Suspected);
}

/// Requests that are there together, whose handshakes with one dead peer give up at the given seconds.
fn one_dead_peer(seconds: &[&str]) -> Scene {
    let mut scene = decoder();
    for (index, second) in seconds.iter().enumerate() {
        let request = format!("lab-{index}");
        let added = RequestLeg { request_id: Some(request.clone()), ..RequestLeg::default() };
        scene.at("08:00:04").on("d0").tell(Body::RequestLeg(added));
        let nameless = handshake_with("e-1", "", Cause::HandshakeTimeout);
        scene.at(&format!("08:00:{second}")).on("d0").tell(nameless);
        let failed = handshake_with("e-1", &request, Cause::HandshakeTimeout);
        scene.at(&format!("08:00:{second}")).on("d0").tell(failed);
    }
    scene
}

#[test]
fn requests_that_wait_in_turn_for_one_dead_peer_are_a_queue() {
    let found = one_dead_peer(&["09", "14", "19"]).only(&STALL);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 3));
    assert!(found.summary.contains("behind a peer"), "{}", found.summary);
}

#[test]
fn a_request_that_waits_for_its_kv_meanwhile_makes_two_in_turn_a_queue() {
    let mut scene = one_dead_peer(&["09", "14"]);
    scene.assert_quiet(&STALL);
    for second in ["06", "12"] {
        scene.at(&format!("08:00:{second}")).on("d0").tell(waiting("healthy"));
    }
    let found = scene.only(&STALL);
    assert!(found.requests.contains(&"healthy".to_owned()), "{:?}", found.requests);
}

#[test]
fn requests_for_one_dead_peer_that_give_up_together_are_no_queue() {
    one_dead_peer(&["09", "09", "10"]).assert_quiet(&STALL);
}

#[test]
fn where_only_failures_are_told_a_request_that_waits_meanwhile_shows_the_queue() {
    let mut scene = decoder();
    for (index, second) in ["09", "14", "19"].into_iter().enumerate() {
        let failed = handshake_with("e-1", &format!("lab-{index}"), Cause::HandshakeTimeout);
        scene.at(&format!("08:00:{second}")).on("d0").tell(failed);
    }
    scene.assert_quiet(&STALL);
    for second in ["06", "10", "18"] {
        scene.at(&format!("08:00:{second}")).on("d0").tell(waiting("healthy"));
    }
    assert_eq!(scene.only(&STALL).confidence, Confidence::Suspected);
}
