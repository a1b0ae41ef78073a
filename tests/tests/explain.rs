//! `kvprov explain`: the same words from a running collector, from the data of a stopped one and from a recording.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test states what it expects")]

use kvprov_collector::intake::{Batch, Intake};
use kvprov_collector::serve::{Collector, Config};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{NodeId, ObservationId};
use kvprov_model::observation::{Alive, Body, Envelope, Observation, SourceKind};
use kvprov_tests::binary::{Binary, Output};
use kvprov_tests::bundle::Bundle;
use kvprov_tests::{corpus, pipeline};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// A prefill and a decode worker that ran different weights; one request went over both.
fn bundle() -> PathBuf {
    corpus::root().join("evidence/vllm/v09")
}

/// As if it had happened some minutes ago: a collector takes nothing of the future, and forgets the past.
fn as_of_now(mut observations: Vec<Observation>) -> Vec<Observation> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64;
    let last = observations.iter().filter_map(|told| told.envelope.wall).max().unwrap();
    let offset = now - 900 * SECOND - last.0;
    for observation in &mut observations {
        observation.envelope.wall = observation.envelope.wall.map(|wall| wall.plus(offset));
    }
    observations
}

/// Every node has delivered everything.
fn signs(observations: &[Observation]) -> Vec<Observation> {
    let last = observations.iter().filter_map(|told| told.envelope.wall).max().unwrap();
    let nodes: BTreeSet<NodeId> = observations.iter().map(|told| told.envelope.node.clone()).collect();
    let sign = |node: NodeId| Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("alive", 0, 0, 0),
            node,
            boot_id: None,
            worker: None,
            source: SourceKind::Config,
            stream: "agent".to_owned(),
            position: 0,
            monotonic: None,
            wall: Some(WallTime(last.0 + 600 * SECOND)),
            says: None,
        },
        body: Body::Alive(Alive::default()),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    };
    nodes.into_iter().map(sign).collect()
}

fn collector(data: &Path) -> Collector {
    let http = SocketAddr::from(([127, 0, 0, 1], 0));
    Collector::start(Config { data: Some(data.to_owned()), http, receive: None, ..Config::default() })
        .unwrap()
}

fn explain(binary: &Binary, arguments: &[&OsStr]) -> Output {
    let mut all = vec![OsStr::new("explain")];
    all.extend(arguments);
    binary.run(&all).unwrap()
}

/// What it prints, blanks folded.
fn words(output: &Output) -> String {
    assert_eq!(output.status, Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

fn complaint(output: &Output) -> String {
    assert_eq!(output.status, Some(2), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What an operator has to learn of the request, whoever is asked.
fn tells_all(words: &str) {
    for expected in [
        "request lab-f-PD DIVERGENT",
        "prefill p,",
        "decode d,",
        "part between kv and decode, in the weights: the KV is of sha256:75c403d2080d",
        "the decode worker ran sha256:4bd67c9edd92",
        "proof proxy.log:2:",
        "102 prompt tokens of another model",
        "known as cmpl-lab-f-PD",
        "do Treat the answers as wrong.",
        "decode worker of vllm",
    ] {
        assert!(words.contains(expected), "{expected:?} is not in {words}");
    }
}

#[test]
fn a_running_collector_a_stopped_one_and_a_recording_tell_the_same() {
    let binary = Binary::of_workspace().unwrap();
    let data = tempfile::tempdir().unwrap();
    let running = collector(data.path());
    let mut observations = as_of_now(pipeline::observe(&Bundle::load(&bundle()).unwrap()).unwrap());
    observations.extend(signs(&observations));
    running.intake().offer(Batch { observations }).wait().unwrap();
    let api = format!("http://{}", running.http());
    let live = |id: &str| explain(&binary, &[OsStr::new(id), OsStr::new("--api"), OsStr::new(&api)]);
    let began = Instant::now();
    let is_gathered = || {
        let seen = running.board().seen();
        !seen.findings.is_empty() && !seen.workers.is_empty()
    };
    while !is_gathered() {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    // The client's id, the printed id of the decode side, and the finding's.
    tells_all(&words(&live("lab-f-PD")));
    tells_all(&words(&live("cmpl-lab-f-PD-0-8d6a5c3c")));
    let found = running.board().seen().findings[0].clone();
    tells_all(&words(&live(&found.id.as_str()[..6])));
    let unknown = complaint(&live("no-such-request"));
    assert!(unknown.contains("/api/v1/findings?state=any"), "{unknown}");

    let kept = |id: &str| explain(&binary, &[OsStr::new(id), OsStr::new("--data"), data.path().as_os_str()]);
    let in_use = complaint(&kept("lab-f-PD"));
    assert!(in_use.contains("in use"), "{in_use}");
    running.stop();
    tells_all(&words(&kept("lab-f-PD")));
    tells_all(&words(&explain(&binary, &[OsStr::new("lab-f-PD"), bundle().as_os_str()])));
}

#[test]
fn two_workers_are_compared_live_and_in_a_recording() {
    let binary = Binary::of_workspace().unwrap();
    let bundle = corpus::root().join("pairs/rev-swap");
    let data = tempfile::tempdir().unwrap();
    let running = collector(data.path());
    let observations = as_of_now(pipeline::observe(&Bundle::load(&bundle).unwrap()).unwrap());
    running.intake().offer(Batch { observations }).wait().unwrap();
    let began = Instant::now();
    while running.board().seen().workers.len() < 3 {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let api = format!("http://{}", running.http());
    let live = |b: &str| explain(&binary, &["p", b, "--api", &api].map(OsStr::new));
    let recorded = |b: &str| explain(&binary, &[OsStr::new("p"), OsStr::new(b), bundle.as_os_str()]);
    for told in [words(&live("d")), words(&recorded("d"))] {
        for expected in [
            "p and d must not share KV",
            "because weights differs",
            "DIFFERENT weights sha256:75c403d2080d1c03b and sha256:4bd67c9edd92d0a59",
            "equal config sha256:8c3128cd",
            "compatibility hash of the NIXL handshake: passes; weights is no part of it",
        ] {
            assert!(told.contains(expected), "{expected:?} is not in {told}");
        }
    }
    for nobody in [complaint(&live("nobody")), complaint(&recorded("nobody"))] {
        assert!(nobody.contains("\"nobody\""), "{nobody}");
    }
}

#[test]
fn where_nothing_answers_it_says_what_to_do() {
    let binary = Binary::of_workspace().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let api = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let nobody = complaint(&explain(&binary, &[OsStr::new("x"), OsStr::new("--api"), OsStr::new(&api)]));
    for expected in [api.as_str(), "kvprov collector", "--api", "--data"] {
        assert!(nobody.contains(expected), "{expected:?} is not in {nobody}");
    }
    let nonsense = complaint(&explain(&binary, &[OsStr::new("x"), OsStr::new("--api"), OsStr::new("ftp:x")]));
    assert!(nonsense.contains("http://host:9470"), "{nonsense}");
}
