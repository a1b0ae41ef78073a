//! What a running collector costs over a long recording: in proportion to its length, not to its square.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scene;

use kvprov_collector::intake::{Batch, Intake, Room};
use kvprov_collector::ledger::{Limits, MemoryLedger};
use kvprov_collector::run::{self, Numbers, Options};
use kvprov_model::clock::SECOND;
use kvprov_model::fact;
use kvprov_model::observation::Observation;
use scene::Scene;
use scene::tell::*;
use std::time::{Duration, Instant};

/// Two engines on one store that write, read and remove, and requests between them.
fn recording(pages: usize) -> Vec<Observation> {
    let mut scene = Scene::new();
    for worker in ["a", "b"] {
        scene.worker(worker).both().uses("s").fact(fact::BLOCK_SIZE, "16").weights("aa");
    }
    for page in 0..pages {
        let (key, other) = (format!("{page:08}"), format!("{:08}", page / 2));
        let stamp = |worker: &str| (format!("{worker}.kernel"), 1 + page as i64 * 2);
        let (stream, line) = stamp("a");
        scene.at("08:00:00").on("a").line(&stream, line).tell(wrote("s", &key, 65_536));
        let (stream, line) = stamp("b");
        scene.at("08:00:01").on("b").line(&stream, line).tell(read("s", &other, 65_536));
    }
    let mut told = scene.observations().to_vec();
    for (index, observation) in told.iter_mut().enumerate() {
        observation.envelope.wall =
            observation.envelope.wall.map(|wall| wall.plus(index as i64 * SECOND / 200));
    }
    told
}

fn run(told: &[Observation], slice: usize) -> (Duration, Numbers) {
    let limits = Limits { selection: 50_000, ..Limits::default() };
    let running = run::start(Options {
        ledger: Box::new(MemoryLedger::new(limits)),
        horizon_ns: None,
        directory: None,
        counters: None,
        room: Room::default(),
        subscribers: Vec::new(),
        teller: None,
    })
    .unwrap();
    let began = Instant::now();
    for slice in told.chunks(slice) {
        running.intake().offer(Batch { observations: slice.to_vec() }).wait().unwrap();
    }
    std::thread::park_timeout(Duration::from_secs(3));
    let spent = began.elapsed();
    let numbers = (*running.board().seen().numbers).clone();
    running.stop();
    (spent, numbers)
}

#[test]
fn merging_grows_with_the_length_and_evaluating_keeps_to_its_share_of_the_time() {
    let (short, long) = (run(&recording(5_000), 50), run(&recording(20_000), 50));
    // Four times the length; sixteen would be the square.
    assert!(long.1.merging < short.1.merging * 10, "{short:?}, {long:?}");
    for (spent, numbers) in [short, long] {
        // Half of the time, and what was begun before the rest was due.
        assert!(numbers.evaluating < spent / 2 + numbers.longest, "{spent:?}, {numbers:?}");
        assert!(numbers.evaluations > 0, "{numbers:?}");
    }
}
