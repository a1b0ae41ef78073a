#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::access::ProcessAccess as _;
use crate::discover::{FoundProcess, Output, ProcessKey};
use crate::events::zmtp::{Connection, Limits, SocketType};
use crate::identity::TensorDigests;
use crate::run::alive::Alive;
use crate::run::options::{Options, Sources};
use crate::ship::{Outbox, Protocol, QueueConfig};
use crate::status::Readiness;
use kvprov_model::fact;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

/// A batch of one event that clears all blocks, at a time.
const CLEARED: &[u8] = b"\x93\xcb\x3f\xf8\0\0\0\0\0\0\x91\x81\xa4type\xb0AllBlocksCleared\0";

/// Serves one subscriber after the other: batches from a number on, then nothing.
fn publisher(listener: TcpListener, batches: std::ops::Range<u64>) {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut kept = Vec::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let budget = Budget::new(1 << 20);
                let mut connection =
                    Connection::open(stream, SocketType::Pub, Limits::default(), budget).await.unwrap();
                for seq in batches.clone() {
                    connection.send(&[b"", &seq.to_be_bytes(), CLEARED]).await.unwrap();
                }
                kept.push(connection);
            }
        });
    });
}

fn options(data: &Path) -> Options {
    Options {
        node: Some("n".to_owned()),
        data: data.to_owned(),
        endpoint: None,
        protocol: Protocol::Grpc,
        listen: ([127, 0, 0, 1], 0).into(),
        sources: Sources { logs: false, kernel: false, metrics: false, events: true },
        scope: None,
        queue_bytes: 16 << 20,
        hash_bytes_per_second: 1,
        hash_threads: 1,
        tensor_digests: TensorDigests::Off,
        log_files: Vec::new(),
        content_key_file: None,
        annotations_file: None,
        containers: false,
        scrape_interval: Duration::from_secs(5),
        scrape_bytes: 1 << 20,
        answers: Vec::new(),
        recording: None,
    }
}

/// This process as an engine that publishes on a port.
fn worker(node: &NodeIdentity, port: u16) -> FoundWorker {
    let this = Access::new(None).identify(std::process::id()).unwrap();
    let key = ProcessKey { pid: this.pid, start: this.started };
    FoundWorker {
        id: node.worker("vllm", key),
        engine: "vllm".to_owned(),
        engine_version: None,
        role: None,
        leader: key,
        leader_lives: true,
        started: node.start_of(key),
        processes: vec![FoundProcess {
            key,
            parent: 1,
            thread_name: String::new(),
            signature: None,
            inner_pid: None,
            output: [Output::Nowhere, Output::Nowhere],
        }],
        settings: BTreeMap::new(),
        facts: [(fact::KV_EVENTS.to_owned(), format!("tcp://*:{port}"))].into(),
        fact_origins: BTreeMap::new(),
        cgroup: String::new(),
        container: None,
        pod: None,
        names: crate::containers::ContainerNames::default(),
        unread: BTreeMap::new(),
    }
}

/// Runs the thread over one worker until the hub satisfies a condition; what it lost, and what it says of itself.
fn watch(data: &Path, port: u16, is_done: impl Fn(&Hub, &str) -> bool) -> (Arc<Hub>, String) {
    let options = options(data);
    let node = NodeIdentity::read(options.node.clone()).unwrap();
    // Two agents of one test, one after the other: a queue each, since what is left of the first holds its own.
    let queue = tempfile::tempdir().unwrap();
    let outbox = Outbox::open(QueueConfig::new(queue.path(), node.node.clone())).unwrap();
    let readiness = Arc::new(Readiness::default());
    let hub = Arc::new(Hub::new(outbox.clone(), None, Arc::clone(&readiness)).unwrap());
    let access = Arc::new(Access::new(None));
    let around =
        Around { options: &options, node: &node, packs: Packs::builtin(), access: &access, hub: &hub };
    let mut alive = Alive::default();
    let (reports, _told) = std::sync::mpsc::channel();
    let (events, commands) = Events::new(around, alive.source("kv-events"), reports).unwrap();
    let end = Arc::new(AtomicBool::new(false));
    let its_end = Arc::clone(&end);
    let thread = std::thread::spawn(move || events.run(&its_end));
    commands.send(EventCommand::Worker(Box::new(worker(&node, port)))).unwrap();
    let begun = Instant::now();
    while !is_done(&hub, &readiness.to_json().to_string()) {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", readiness.to_json());
        std::thread::yield_now();
    }
    let parts = readiness.to_json().to_string();
    end.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    outbox.close();
    (hub, parts)
}

fn cleared(hub: &Hub) -> f64 {
    hub.kv_events().iter().map(|(_, count)| count).sum()
}

fn workers(hub: &Hub) -> f64 {
    hub.kinds().iter().filter(|(labels, _)| labels[0] == "worker").map(|(_, count)| count).sum()
}

#[test]
fn a_publisher_of_a_worker_is_followed_and_after_a_restart_from_where_it_stood() {
    let data = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    publisher(listener, 0..5);
    let is_ready = |parts: &str| parts.contains(r#"{"name":"events","says":"","state":"ready"}"#);
    let (first, _) =
        watch(data.path(), port, |hub, parts| cleared(hub) >= 5.0 && workers(hub) >= 1.0 && is_ready(parts));
    assert!(first.losses().is_empty(), "{:?}", first.losses());
    assert_eq!(first.kv_publishers()[0], (vec!["subscribed".to_owned()], 1.0));
    // The same batches come again, and nothing is missing.
    let (second, _) = watch(data.path(), port, |hub, _| workers(hub) >= 1.0);
    assert!(second.losses().is_empty(), "{:?}", second.losses());
}

#[test]
fn a_port_that_another_process_holds_is_not_the_worker_s() {
    let data = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The listener goes to the other process, as its standard input.
    let mut other = Command::new("sleep").arg("60").stdin(OwnedFd::from(listener)).spawn().unwrap();
    let says =
        |hub: &Hub| hub.kv_publishers().iter().any(|(labels, count)| labels[0] == "waiting" && *count > 0.0);
    let begun = Instant::now();
    let (hub, parts) =
        watch(data.path(), port, |hub, _| says(hub) && begun.elapsed() > Duration::from_millis(500));
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(parts.contains("belongs to another process"), "{parts}");
    assert_eq!((cleared(&hub), workers(&hub)), (0.0, 0.0));
}
