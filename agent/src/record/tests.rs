#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::bundle::Bundle;
use crate::events::EventReader;
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::content::FleetKey;
use kvprov_model::factor::FactorState;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Factor, Worker, WorkerGone};
use kvprov_packs::Packs;
use serde_json::json;

fn observation(source: SourceKind, body: Body) -> Observation {
    let context = SourceContext {
        node: NodeId("node-a".to_owned()),
        worker: Some(WorkerId("sglang-7-00ff".to_owned())),
        stream: "discovery".to_owned(),
        instance: "i".to_owned(),
        generation: 0,
    };
    let place = Place { position: 1, offset: 1 };
    context.observe(source, place, 0, Some(WallTime(1_796_000_000_123_456_789)), None, body)
}

fn factor(state: FactorState) -> Body {
    Body::Factor(Factor {
        factor: Some("weights".to_owned()),
        algorithm: Some("sha256".to_owned()),
        value: Some("ab".repeat(32)),
        state: Some(state),
        ..Factor::default()
    })
}

fn replayed(directory: &Path) -> Vec<Observation> {
    let bundle = Bundle::open(&[directory.to_owned()]).unwrap();
    let packs = Packs::builtin();
    let mut all = Vec::new();
    let report = bundle.read(packs, packs.matcher(), &mut |one| all.push(one), &mut |_, _| {});
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    all
}

#[test]
fn what_was_known_of_a_worker_is_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path()).unwrap();
    let body = Worker {
        engine: Some("sglang".to_owned()),
        settings: [("tp_size".to_owned(), "2".to_owned())].into(),
        ..Worker::default()
    };
    recorder.observe(&observation(SourceKind::Config, Body::Worker(body))).unwrap();
    recorder.observe(&observation(SourceKind::Kernel, factor(FactorState::Full))).unwrap();
    let gone = WorkerGone { exit_signal: Some(9), exit_status: None };
    recorder.observe(&observation(SourceKind::Kernel, Body::WorkerGone(gone.clone()))).unwrap();
    recorder.flush().unwrap();
    let all = replayed(directory.path());
    assert!(all.iter().all(|one| one.envelope.node.as_str() == "node-a"));
    assert!(all.iter().any(|one| matches!(&one.body, Body::WorkerGone(found) if *found == gone)));
    let weights = all.iter().find(|one| matches!(one.body, Body::Factor(_))).unwrap();
    assert_eq!(weights.envelope.wall, Some(WallTime(1_796_000_000_123_456_789)));
    assert!(all.iter().any(
        |one| matches!(&one.body, Body::Worker(worker) if worker.settings.get("tp_size").is_some_and(|size| size == "2"))
    ));
}

#[test]
fn what_a_container_was_called_is_replayed_as_it_was_known_last() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path()).unwrap();
    let guessed = Worker { pod: Some("a-host".to_owned()), ..Worker::default() };
    let told = Worker {
        pod: Some("decode-0".to_owned()),
        namespace: Some("serving".to_owned()),
        container: Some("engine".to_owned()),
        image: Some("vllm/vllm-openai:v0.32".to_owned()),
        image_digest: Some(format!("sha256:{}", "5c".repeat(32))),
        ..Worker::default()
    };
    for body in [guessed, told.clone(), Worker::default()] {
        recorder.observe(&observation(SourceKind::Config, Body::Worker(body))).unwrap();
    }
    recorder.flush().unwrap();
    let all = replayed(directory.path());
    let of = |body: &Body| match body {
        Body::Worker(body) if body.pod.is_some() => Some(body.clone()),
        _ => None,
    };
    let replayed = all.iter().find_map(|one| of(&one.body)).unwrap();
    assert_eq!(Worker { watched_by: Vec::new(), ..replayed }, told);
}

#[test]
fn a_factor_that_is_not_known_for_sure_is_not_declared() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path()).unwrap();
    recorder.observe(&observation(SourceKind::Kernel, factor(FactorState::Provisional))).unwrap();
    recorder.observe(&observation(SourceKind::Config, Body::Worker(Worker::default()))).unwrap();
    recorder.flush().unwrap();
    assert!(!replayed(directory.path()).iter().any(|one| matches!(one.body, Body::Factor(_))));
}

#[test]
fn a_recording_goes_on_while_it_can_be_replayed() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path()).unwrap();
    let worker = WorkerId("w".to_owned());
    recorder.log(&worker, "stderr", b"INFO one").unwrap();
    recorder.flush().unwrap();
    replayed(directory.path());
    recorder.log(&worker, "stderr", b"INFO two\n").unwrap();
    recorder.flush().unwrap();
    let text = std::fs::read_to_string(directory.path().join("000-w.log")).unwrap();
    assert_eq!(text, "INFO one\nINFO two\n");
}

#[test]
fn kv_events_are_replayed_as_they_were_and_hold_no_token() {
    let block = |seq: u64, hash: u64, parent: Option<u64>, first: u32| {
        let tokens: Vec<u32> = (first..first + 32).collect();
        json!({"ts": 1_800_000_000.123_456 + seq as f64, "seq": seq, "type": "BlockStored", "block_hashes": [hash, hash + 1],
            "parent_block_hash": parent, "token_ids": tokens, "block_size": 16, "lora_name": "ad", "medium": "GPU"})
    };
    let removed = json!({"ts": 1_800_000_009.5, "seq": 5, "type": "BlockRemoved", "block_hashes": [1], "medium": "GPU"});
    let cleared = json!({"ts": 1_800_000_010.5, "seq": 7, "type": "AllBlocksCleared"});
    // Batch 1 says nothing, batches 3 and 4 are lost; so is 6.
    let lines = [block(0, 1, None, 880_000), block(2, 3, Some(2), 880_032), removed, cleared];
    let key = FleetKey::from_secret(b"of the node");
    let source = SourceContext {
        node: NodeId("node-a".to_owned()),
        worker: Some(WorkerId("vllm-7-00ff".to_owned())),
        stream: "tcp://*:5557".to_owned(),
        instance: "i".to_owned(),
        generation: 0,
    };
    let mut live = Vec::new();
    let mut reader = EventReader::new(source, &key);
    for (index, line) in lines.iter().enumerate() {
        let place = Place { position: index as u64 + 1, offset: index as u64 };
        reader.line(place, line.to_string().as_bytes(), &mut |one| live.push(one));
    }
    let directory = tempfile::tempdir().unwrap();
    let mut recorder = Recorder::create(directory.path()).unwrap();
    let worker = WorkerId("vllm-7-00ff".to_owned());
    for (index, one) in live.iter().filter(|one| matches!(one.body, Body::Block(_))).enumerate() {
        recorder.observe(one).unwrap();
        if index == 0 {
            recorder.empty_batch(&worker, "tcp://*:5557", 1, None).unwrap();
        }
    }
    recorder.flush().unwrap();
    let text = std::fs::read_to_string(directory.path().join("000-vllm-7-00ff.jsonl")).unwrap();
    assert!(!text.contains("token_ids") && !text.contains("8800"), "{text}");
    let all = replayed(directory.path());
    let blocks = |all: &[Observation]| -> Vec<_> {
        let blocks = all.iter().filter(|one| matches!(one.body, Body::Block(_)));
        blocks.map(|one| (one.envelope.wall, one.envelope.says.clone(), one.body.clone())).collect()
    };
    assert_eq!(blocks(&live).len(), 4);
    assert_eq!(blocks(&all), blocks(&live));
    // The batch that says nothing is no gap; the others are. What is counted of a source as a whole has no date.
    let gap = |one: &Observation| match &one.body {
        Body::Loss(loss) if one.envelope.wall.is_some() => loss.records,
        _ => None,
    };
    assert_eq!(all.iter().filter_map(gap).collect::<Vec<_>>(), [2, 1]);
}

#[test]
fn a_directory_that_holds_something_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), b"").unwrap();
    let error = Recorder::create(directory.path()).unwrap_err();
    assert!(error.to_string().contains("of its own"), "{error}");
}

#[test]
fn an_agent_that_starts_again_records_beside_what_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let recording = directory.path().join("kept");
    for _ in 0..3 {
        Recorder::go_on(&recording).unwrap().flush().unwrap();
    }
    for name in ["kept", "kept.2", "kept.3"] {
        assert!(directory.path().join(name).join("incident.toml").exists(), "{name}");
    }
}
