//! The running collector over simulated time: when it states what, and what it waits for.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scene;

use kvprov_collector::evaluate::Transition;
use kvprov_collector::ledger::{Limits, MemoryLedger};
use kvprov_collector::run::Core;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding, FindingState};
use kvprov_model::observation::{Body, Observation};
use scene::tell::*;
use scene::{Scene, clock, names_unknown};
use std::time::{Duration, Instant};

/// A collector, and where its clocks stand.
struct Run {
    core: Core,
    start: Instant,
    now: Instant,
    began: WallTime,
    transitions: Vec<(Duration, Transition)>,
}

impl Run {
    fn begin(at: &str) -> Self {
        let ledger = MemoryLedger::new(Limits { selection: 50_000, ..Limits::default() });
        let start = Instant::now();
        let core = Core::new(Box::new(ledger), None, start).unwrap();
        Self { core, start, now: start, began: clock(at), transitions: Vec::new() }
    }

    fn wall(&self) -> WallTime {
        self.began.plus(self.now.duration_since(self.start).as_nanos() as i64)
    }

    /// What a node delivers, dated or not, as it happens.
    fn takes(&mut self, observations: &[Observation]) {
        self.core.take(observations.to_vec(), self.now, self.wall()).unwrap();
    }

    /// Every node of some says that it is complete up to now.
    fn hears(&mut self, nodes: &[&str]) {
        let mut scene = Scene::new();
        for node in nodes {
            scene.worker(node).node(node);
        }
        for node in nodes {
            scene.at("00:00:00").on(node).tell(alive());
        }
        let wall = self.wall();
        let signs: Vec<Observation> = scene
            .observations()
            .iter()
            .filter(|told| matches!(told.body, Body::Alive(_)))
            .cloned()
            .map(|mut sign| {
                sign.envelope.wall = Some(wall);
                sign.envelope.worker = None;
                sign
            })
            .collect();
        self.core.take(signs, self.now, wall).unwrap();
    }

    /// Lets time go by in small steps; the nodes give signs of life once a second.
    fn passes(&mut self, time: Duration, nodes: &[&str]) {
        let end = self.now + time;
        let mut steps = 0;
        while self.now < end {
            self.now += Duration::from_millis(50);
            steps += 1;
            if steps % 20 == 0 {
                self.hears(nodes);
            }
            if let Some(transitions) = self.core.evaluate(self.now).unwrap() {
                let at = self.now.duration_since(self.start);
                self.transitions.extend(transitions.into_iter().map(|transition| (at, transition)));
            }
        }
    }

    fn findings(&self) -> Vec<Finding> {
        self.core.findings().unwrap()
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A refused handshake, and the router's answered leg.
fn refused_and_answered() -> Vec<Observation> {
    let mut scene = cast();
    scene
        .at("08:00:00")
        .on("d0")
        .line("d.log", 17)
        .tell(handshake_failed("lab-1", Cause::CompatHashMismatch));
    scene.at("08:00:00.100").on("r0").line("r.log", 4).tell(Body::RequestLeg(decode_leg("lab-1", true, 102)));
    scene.observations().to_vec()
}

/// A failed transfer of which no source tells the outcome.
fn refused() -> Vec<Observation> {
    let mut scene = cast();
    scene.at("08:00:00").on("d0").line("d.log", 17).tell(transfer_failed("lab-1", Cause::TransferFailed));
    scene.observations().to_vec()
}

fn cast() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").node("node-p");
    scene
        .worker("d0")
        .decode()
        .engine_id("e-d")
        .fact(fact::BLOCK_SIZE, "16")
        .policy("recompute")
        .node("node-d");
    scene.worker("r0").router().node("node-r");
    scene
}

const NODES: [&str; 3] = ["node-p", "node-d", "node-r"];

#[test]
fn what_is_proven_is_stated_within_a_second() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused_and_answered());
    run.passes(seconds(3), &NODES);
    let (at, opened) = &run.transitions[0];
    assert!(*at <= seconds(1), "{at:?}");
    assert_eq!(
        (opened.finding.state, opened.finding.confidence),
        (FindingState::Opened, Confidence::Confirmed)
    );
}

#[test]
fn the_other_half_of_the_proof_may_come_much_later() {
    let mut run = Run::begin("08:00:00.200");
    let (leg, rest): (Vec<_>, Vec<_>) =
        refused_and_answered().into_iter().partition(|told| matches!(told.body, Body::RequestLeg(_)));
    run.takes(&rest);
    run.passes(seconds(20), &NODES);
    assert!(run.findings().is_empty());
    run.takes(&leg);
    run.passes(seconds(1), &NODES);
    assert_eq!(run.findings()[0].confidence, Confidence::Confirmed);
}

#[test]
fn what_rests_on_silence_waits_until_every_witness_was_heard() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused());
    run.passes(seconds(29), &NODES);
    assert!(run.findings().is_empty());
    run.passes(seconds(4), &NODES);
    let found = run.findings();
    assert_eq!((found.len(), found[0].confidence), (1, Confidence::Suspected));
    assert!(run.transitions[0].0 <= seconds(33), "{:?}", run.transitions);
}

#[test]
fn a_prefill_node_that_lags_behind_does_not_hold_up_what_it_cannot_tell() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused());
    run.passes(seconds(35), &["node-d", "node-r"]);
    assert_eq!(run.findings().len(), 1);
}

#[test]
fn a_router_that_fell_silent_is_named_as_unknown_and_not_waited_for_for_ever() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused());
    run.passes(seconds(50), &["node-p", "node-d"]);
    assert!(run.findings().is_empty());
    run.passes(seconds(20), &["node-p", "node-d"]);
    let found = run.findings();
    assert_eq!(found.len(), 1);
    assert!(names_unknown(&found[0], "node-r"), "{:?}", found[0].unknown);
}

#[test]
fn a_worker_that_is_gone_is_heard_up_to_its_end() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused());
    let mut scene = cast();
    scene.worker("r0").gone("08:00:01");
    let gone: Vec<_> = scene
        .observations()
        .iter()
        .filter(|told| matches!(told.body, Body::WorkerGone(_)))
        .cloned()
        .collect();
    run.passes(seconds(3), &NODES);
    run.takes(&gone);
    // Its node says nothing any more, and is not yet taken for silent.
    run.passes(seconds(32), &["node-p", "node-d"]);
    assert_eq!(run.findings().len(), 1);
}

#[test]
fn digests_that_come_late_are_joined_with_what_was_read_before() {
    let mut scene = Scene::new();
    for worker in ["a", "b"] {
        scene.worker(worker).both().uses("s");
    }
    scene.at("08:00:01").on("a").tell(wrote("s", "k1", 4096));
    scene.at("08:00:02").on("b").tell(read("s", "k1", 4096));
    let before = scene.observations().len();
    let mut run = Run::begin("08:00:03");
    run.takes(scene.observations());
    run.passes(seconds(30), &["node-a"]);
    assert!(!run.findings().iter().any(|found| found.detector == Detector::CrossRevisionHit));
    scene.worker("a").weights("aa");
    scene.worker("b").weights("bb");
    run.takes(&scene.observations()[before..]);
    run.passes(seconds(3), &["node-a"]);
    assert!(run.findings().iter().any(|found| found.detector == Detector::CrossRevisionHit));
}

#[test]
fn nothing_is_evaluated_for_ever_when_nothing_happens() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused_and_answered());
    run.passes(seconds(400), &NODES);
    let before = run.core.numbers(run.now).evaluations;
    run.passes(seconds(100), &NODES);
    let subjects = run.core.numbers(run.now).subjects as u64;
    assert!(run.core.numbers(run.now).evaluations - before <= 2 * subjects);
}

#[test]
fn signs_of_life_are_not_kept() {
    let mut run = Run::begin("08:00:00.200");
    run.takes(&refused());
    let before = run.core.numbers(run.now).added;
    run.passes(seconds(60), &NODES);
    assert_eq!(run.core.numbers(run.now).added, before);
}

#[test]
fn a_line_dated_far_ahead_is_refused_and_counted() {
    let mut run = Run::begin("08:00:00.200");
    let mut told = refused();
    let last = told.last_mut().unwrap();
    last.envelope.wall = last.envelope.wall.map(|wall| wall.plus(7_200 * SECOND));
    let accepted = run.core.take(told, run.now, run.wall()).unwrap();
    assert_eq!(accepted.refused, 1);
    let lost = run.core.numbers(run.now).lost;
    assert_eq!(lost.get(&("merge".to_owned(), "dated_ahead".to_owned())), Some(&1));
}
