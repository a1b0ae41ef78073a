//! `stale_kv_read`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::counter;
use kvprov_model::finding::{Confidence, Detector};
use kvprov_model::observation::{Body, Lease, LeaseState, Transfer};
use scene::tell::*;
use scene::{Scene, clock, names_unknown, places};

const STALE: Detector = Detector::StaleKvRead;

fn prefiller() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene
}

fn expired_then_read() -> Scene {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").line("p.log", 5).tell(lease("cmpl-a-0", LeaseState::Expired));
    scene.at("08:00:31").on("p0").line("p.log", 8).tell(lease("cmpl-a-0", LeaseState::ReadAfterEnd));
    scene
}

/// A late notification that dates the read itself.
fn notified(request: &str, read: &str) -> Body {
    Body::Lease(Lease {
        request_id: Some(request.to_owned()),
        state: Some(LeaseState::ReadAfterEnd),
        read_wall_ns: Some(clock(read).0),
        ..Lease::default()
    })
}

// === fires ===

#[test]
fn an_expiry_and_a_later_read_of_one_request_prove_it() {
    let found = expired_then_read().only(&STALE);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 1));
    assert_eq!(found.requests, ["a", "cmpl-a-0"]);
    assert_eq!(places(&found), ["p.log:5".to_owned(), "p.log:8".to_owned()].into());
    assert!(found.unknown.is_empty());
}

#[test]
fn a_cut_id_joins_its_two_lines() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").tell(lease("8f07dfc0-...-a2f0e657", LeaseState::Expired));
    scene.at("08:00:31").on("p0").tell(lease("8f07dfc0-...-a2f0e657", LeaseState::ReadAfterEnd));
    assert_eq!(scene.only(&STALE).confidence, Confidence::Confirmed);
}

#[test]
fn without_a_clock_the_order_of_lines_decides() {
    let mut scene = prefiller();
    scene.undated().on("p0").line("p.log", 5).tell(lease("a", LeaseState::Expired));
    scene.undated().on("p0").line("p.log", 8).tell(lease("a", LeaseState::ReadAfterEnd));
    assert_eq!(scene.only(&STALE).confidence, Confidence::Confirmed);
}

#[test]
fn in_one_second_the_order_of_lines_decides() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").line("p.log", 5).tell(lease("a", LeaseState::Expired));
    scene.at("08:00:10").on("p0").line("p.log", 8).tell(lease("a", LeaseState::ReadAfterEnd));
    assert_eq!(scene.only(&STALE).confidence, Confidence::Confirmed);
}

#[test]
fn several_ranks_are_one_request() {
    let mut scene = expired_then_read();
    scene.at("08:00:31").on("p0").line("p.log", 9).tell(lease("cmpl-a-0", LeaseState::ReadAfterEnd));
    assert_eq!(scene.only(&STALE).count, 1);
}

#[test]
fn two_requests_are_one_finding() {
    let mut scene = expired_then_read();
    scene.at("08:01:10").on("p0").tell(lease("cmpl-b-0", LeaseState::Expired));
    scene.at("08:01:31").on("p0").tell(lease("cmpl-b-0", LeaseState::ReadAfterEnd));
    assert_eq!(scene.only(&STALE).count, 2);
}

#[test]
fn the_second_line_alone_is_suspected_at_most() {
    let mut scene = prefiller();
    scene.at("08:00:31").on("p0").tell(lease("cmpl-a-0", LeaseState::ReadAfterEnd));
    let found = scene.only(&STALE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "no expiry"), "{:?}", found.unknown);
}

#[test]
fn a_counter_of_late_notifications_is_suspected() {
    let mut scene = prefiller();
    scene.at("08:01:00").on("p0").tell(counted("08:00:00", &[(counter::READS_AFTER_EXPIRY, 2.0)]));
    let found = scene.only(&STALE);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 2));
    assert!(names_unknown(&found, "which requests"), "{:?}", found.unknown);
}

#[test]
fn a_read_dated_after_the_release_is_stale() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").tell(lease("a", LeaseState::Expired));
    scene.at("08:00:31").on("p0").tell(notified("a", "08:00:30"));
    assert_eq!(scene.only(&STALE).confidence, Confidence::Confirmed);
}

// === stays quiet ===

#[test]
fn a_read_dated_before_the_release_is_not_stale_however_late_it_is_notified() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").tell(lease("a", LeaseState::Expired));
    scene.at("08:00:31").on("p0").tell(notified("a", "08:00:04"));
    scene.assert_quiet(&STALE);
}

#[test]
fn a_reader_that_ended_before_the_release_is_not_stale() {
    let mut scene = expired_then_read();
    scene.worker("d0").decode();
    scene.at("08:00:05").on("d0").tell(transferred("cmpl-a-0"));
    scene.assert_quiet(&STALE);
}

#[test]
fn a_lease_that_ended_unread_is_not_stale() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").tell(lease("cmpl-a-0", LeaseState::Expired));
    scene.assert_quiet(&STALE);
}

#[test]
fn a_lease_that_its_readers_released_is_quiet() {
    let mut scene = prefiller();
    scene.at("08:00:01").on("p0").tell(lease("cmpl-a-0", LeaseState::Granted));
    scene.at("08:00:10").on("p0").tell(lease("cmpl-a-0", LeaseState::Released));
    scene.assert_silent();
}

#[test]
fn an_expiry_of_another_request_proves_nothing() {
    let mut scene = prefiller();
    scene.at("08:00:10").on("p0").tell(lease("cmpl-b-0", LeaseState::Expired));
    scene.at("08:00:31").on("p0").tell(lease("cmpl-a-0", LeaseState::ReadAfterEnd));
    let found = scene.only(&STALE);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 1));
    assert!(!found.requests.contains(&"b".to_owned()));
}

#[test]
fn an_expiry_after_the_read_proves_nothing() {
    let mut scene = prefiller();
    scene.at("08:00:31").on("p0").tell(lease("a", LeaseState::ReadAfterEnd));
    scene.at("08:00:40").on("p0").tell(lease("a", LeaseState::Expired));
    assert_eq!(scene.only(&STALE).confidence, Confidence::Suspected);
}

#[test]
fn a_counter_that_does_not_move_is_quiet() {
    let mut scene = prefiller();
    scene.at("08:01:00").on("p0").tell(counted("08:00:00", &[(counter::READS_AFTER_EXPIRY, 0.0)]));
    scene.assert_silent();
}

#[test]
fn expired_leases_in_a_counter_are_mostly_unread_ones() {
    let mut scene = prefiller();
    scene.at("08:01:00").on("p0").tell(counted("08:00:00", &[(counter::LEASES_EXPIRED, 5.0)]));
    scene.assert_quiet(&STALE);
}

#[test]
fn one_request_read_in_time_hides_no_other() {
    let mut scene = expired_then_read();
    scene.at("08:02:10").on("p0").tell(lease("b", LeaseState::Expired));
    scene.at("08:02:31").on("p0").tell(notified("b", "08:02:04"));
    let found = scene.only(&STALE);
    assert_eq!((found.count, found.requests), (1, vec!["a".to_owned(), "cmpl-a-0".to_owned()]));
}

#[test]
fn a_reader_on_another_node_that_has_the_blocks_long_before_the_release_is_not_stale() {
    let got = |at: &str| {
        let mut scene = expired_then_read();
        scene.worker("d0").decode().node("node-2");
        let came = Transfer {
            request_id: Some("cmpl-a-0".to_owned()),
            direction: Some("receive".to_owned()),
            ..Transfer::default()
        };
        scene.at(at).on("d0").tell(Body::Transfer(came));
        scene
    };
    got("07:59:20").assert_quiet(&STALE);
    // Clocks of two nodes may be a few seconds apart.
    assert_eq!(got("08:00:05").only(&STALE).confidence, Confidence::Confirmed);
}
