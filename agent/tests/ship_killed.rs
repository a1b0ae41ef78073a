//! `kill -9` of the sending and of the receiving process at any moment: what arrives in the end is what an undisturbed
//! run delivers.
//!
//! The sender derives its observations from a counter and saves its place only after an append was committed; the
//! receiver writes ids to a file before it acknowledges. Both are this very test binary.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

mod ship_support;

use kvprov_agent::ship::{Outbox, Protocol, QueueConfig, ShipConfig, Shipper};
use kvprov_model::id::{NodeId, ObservationId};
use kvprov_model::observation::otlp;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceResponse;
use ship_support::{Received, eventually, grpc_at, observation, observations, pause};
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tonic::Status;

const DIRECTORY: &str = "KVPROV_TEST_DIRECTORY";
const COUNT: u64 = 200_000;
const BATCH: u64 = 200;
const KILLS: u64 = 20;

fn place(directory: &Path) -> u64 {
    fs::read_to_string(directory.join("place")).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Not a test of its own: the sender that is killed.
#[test]
fn sender() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let address = fs::read_to_string(directory.join("address")).unwrap();
    let queue = QueueConfig {
        capacity_bytes: 256 << 20,
        ..QueueConfig::new(directory.join("queue"), NodeId::from("n0"))
    };
    let outbox = Outbox::open(queue).unwrap();
    let config = ShipConfig {
        linger: Duration::from_millis(5),
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(100),
        ..ShipConfig::new(format!("http://{address}"), Protocol::Grpc)
    };
    let _shipper = Shipper::start(&outbox, config).unwrap();
    let mut next = place(directory);
    while next < COUNT {
        let committed = outbox.append(&observations(next..next + BATCH)).unwrap();
        assert!(committed.durable && committed.records == BATCH);
        next += BATCH;
        fs::write(directory.join("place.new"), next.to_string()).unwrap();
        fs::rename(directory.join("place.new"), directory.join("place")).unwrap();
        pause(2);
    }
    assert!(outbox.flush(Duration::from_secs(60)));
    assert!(outbox.stats().lost.is_empty());
    fs::write(directory.join("done"), "").unwrap();
}

/// Not a test of its own: the receiver that is killed.
#[test]
fn receiver() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let address = fs::read_to_string(directory.join("address")).unwrap();
    let ids = OpenOptions::new().create(true).append(true).open(directory.join("ids")).unwrap();
    let ids = Mutex::new(ids);
    grpc_at(&address, Received::default(), move |_, request| {
        let decoded = otlp::from_request(request.clone());
        let bytes: Vec<u8> =
            decoded.observations.iter().flat_map(|observation| observation.envelope.id.0).collect();
        let mut ids = ids.lock().unwrap();
        // A write that is cut off leaves a part of an id: the file is brought to whole ids first.
        let whole = ids.metadata().unwrap().len() / 16 * 16;
        ids.set_len(whole).unwrap();
        ids.write_all(&bytes).map_err(|error| Status::unavailable(error.to_string()))?;
        Ok(ExportLogsServiceResponse::default())
    });
    while !directory.join("done").exists() {
        pause(20);
    }
}

fn start(role: &str, directory: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn kills_of_both_sides_change_nothing_of_what_arrives() {
    let directory = tempfile::tempdir().unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    fs::write(directory.path().join("address"), free.to_string()).unwrap();
    let random = RandomState::new();
    let (mut sender, mut receiver) = (start("sender", directory.path()), start("receiver", directory.path()));
    let mut killed_at = Vec::new();
    for round in 0..KILLS {
        pause(40 + random.hash_one(round) % 150);
        killed_at.push(place(directory.path()));
        // `Child::kill` sends SIGKILL.
        sender.kill().unwrap();
        sender.wait().unwrap();
        if round % 2 == 0 {
            receiver.kill().unwrap();
            receiver.wait().unwrap();
            receiver = start("receiver", directory.path());
        }
        sender = start("sender", directory.path());
    }
    let done = (0..12).any(|_| eventually(|| directory.path().join("done").exists()));
    let status = sender.wait().unwrap();
    receiver.wait().unwrap();
    assert!(done && status.success(), "{status}");

    let bytes = fs::read(directory.path().join("ids")).unwrap();
    let arrived: BTreeSet<ObservationId> =
        bytes.chunks_exact(16).map(|id| ObservationId(id.try_into().unwrap())).collect();
    let expected: BTreeSet<ObservationId> =
        (0..COUNT).map(|number| observation(number).envelope.id).collect();
    assert!(arrived == expected, "{} of {} arrived", arrived.intersection(&expected).count(), expected.len());
    // The kills came while there was work, and some of it had to be done twice.
    assert!(killed_at.iter().filter(|place| **place < COUNT).count() >= 10, "{killed_at:?}");
    assert!(bytes.len() as u64 / 16 >= COUNT);
}
