//! What a worker's model is, from the files that its processes opened.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bad_input;
mod hub;
mod layouts;
mod provisional;
mod rig;
mod texts;

use kvprov_agent::identity::{Identities, OwnFiles};
use kvprov_agent_common::FileState;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::FactorState;
use rig::{Counting, Rig, options, sha256};
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn one_file_has_the_digest_that_sha256sum_gives_dated_when_it_was_opened() {
    let mut rig = Rig::new();
    let content = vec![7u8; 3 << 20];
    let path = rig.write("m/model.safetensors", &content);
    rig.open("weights", &path);
    rig.wait(3);
    assert_eq!(rig.full(), [sha256(&content)]);
    let last = rig.found.last().unwrap();
    assert_eq!(last.envelope.wall, Some(WallTime(1000 * SECOND)));
    assert_eq!(rig.factors().last().unwrap().algorithm.as_deref(), Some("sha256"));
}

#[test]
fn shards_are_one_factor_over_their_names_and_digests() {
    let mut rig = Rig::new();
    let names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"];
    let first = rig.write(&format!("m/{}", names[0]), b"one");
    let second = rig.write(&format!("m/{}", names[1]), b"two");
    rig.open("weights", &second);
    rig.wait(3);
    assert!(rig.full().is_empty());
    rig.open("weights", &first);
    rig.wait(3);
    let lines = format!("{}\0{}\n{}\0{}\n", names[0], sha256(b"one"), names[1], sha256(b"two"));
    assert_eq!(rig.full(), [sha256(lines.as_bytes())]);
}

#[test]
fn the_index_tells_which_shards_are_missing() {
    let mut rig = Rig::new();
    let index = rig.write(
        "m/model.safetensors.index.json",
        br#"{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}"#,
    );
    let x = rig.write("m/x.safetensors", b"x");
    let y = rig.write("m/y.safetensors", b"y");
    rig.open("weights", &index);
    rig.open("weights", &x);
    rig.wait(100);
    assert!(rig.full().is_empty());
    rig.open("weights", &y);
    rig.wait(3);
    assert_eq!(rig.full().len(), 1);
}

#[test]
fn a_file_that_is_another_by_the_time_it_is_read_is_unknown() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"old");
    let open = rig.open_of("weights", &path);
    std::fs::remove_file(&path).unwrap();
    rig.write("m/model.safetensors", b"new");
    rig.take(&open);
    rig.wait(3);
    assert!(rig.full().is_empty());
    assert!(rig.says().last().unwrap().ends_with("not known: another file was there when it was read"));
}

#[test]
fn a_file_that_is_gone_or_of_unknown_state_is_unknown() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"x");
    let open = rig.open_of("weights", &path);
    std::fs::remove_file(&path).unwrap();
    rig.take(&open);
    let other = rig.write("t/tokenizer.json", b"x");
    let mut open = rig.open_of("tokenizer", &other);
    open.state = FileState::default();
    rig.take(&open);
    rig.wait(3);
    assert!(rig.full().is_empty());
    let unknown = rig.factors().iter().filter(|factor| factor.state == Some(FactorState::Unknown)).count();
    assert_eq!(unknown, 2);
}

#[test]
fn the_same_file_opened_again_is_no_news_and_another_one_is_dated_at_its_open() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"old");
    rig.open("weights", &path);
    rig.wait(3);
    let told = rig.found.len();
    rig.seconds += 600;
    rig.open("weights", &path);
    rig.wait(3);
    assert_eq!(rig.found.len(), told);
    // A copy of the same bytes is another file, of which it is said that its content is the same.
    std::fs::remove_file(&path).unwrap();
    rig.write("m/model.safetensors", b"old");
    rig.seconds += 600;
    rig.open("weights", &path);
    rig.wait(3);
    assert_eq!(rig.full(), [sha256(b"old"), sha256(b"old")]);
    std::fs::write(&path, b"new").unwrap();
    rig.seconds += 600;
    let at = rig.seconds;
    rig.open("weights", &path);
    rig.wait(3);
    assert_eq!(rig.full(), [sha256(b"old"), sha256(b"old"), sha256(b"new")]);
    assert_eq!(rig.found.last().unwrap().envelope.wall, Some(WallTime(at * SECOND)));
}

#[test]
fn other_content_ends_what_held_before_it_is_read() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"old");
    rig.open("weights", &path);
    rig.wait(3);
    std::fs::write(&path, b"newer").unwrap();
    rig.seconds += 600;
    let at = rig.seconds;
    rig.open("weights", &path);
    rig.wait(0);
    let last = rig.found.last().unwrap();
    assert_eq!(rig.factors().last().unwrap().state, Some(FactorState::Provisional));
    assert_eq!(last.envelope.wall, Some(WallTime(at * SECOND)));
    rig.wait(3);
    assert_eq!(rig.full().last(), Some(&sha256(b"newer")));
}

#[test]
fn an_adapter_that_is_opened_for_every_step_is_known_and_so_is_what_takes_its_place() {
    let mut rig = Rig::new();
    let write = |rig: &Rig, content: &[u8]| {
        (rig.write("a/adapter_config.json", b"{}"), rig.write("a/adapter_model.safetensors", content))
    };
    let (settings, weights) = write(&rig, b"one");
    for content in [None, Some(b"two")] {
        if let Some(content) = content {
            std::fs::write(&weights, content).unwrap();
        }
        for _ in 0..8 {
            rig.seconds += 1;
            rig.open("adapter", &settings);
            rig.open("adapter", &weights);
            rig.wait(0);
        }
    }
    assert_eq!(rig.full().len(), 2);
    assert_ne!(rig.full()[0], rig.full()[1]);
}

#[test]
fn a_blob_of_a_hub_cache_is_not_read_if_its_name_is_a_digest_and_is_if_it_is_not() {
    for (name, reads_content) in [("ab".repeat(32), false), ("cd".repeat(20), true)] {
        let mut rig = Rig::new();
        let blob = rig.write(&format!("hub/blobs/{name}"), b"content");
        let link = rig.folder.path().join("hub/snapshots/c/model.safetensors");
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&blob, &link).unwrap();
        rig.open("weights", &link);
        rig.wait(3);
        let expected = if reads_content { sha256(b"content") } else { name };
        assert_eq!(rig.full(), [expected]);
    }
}

#[test]
fn a_restart_reads_no_file_again_and_tells_the_same_ids() {
    let mut rig = Rig::new();
    let path = rig.write("m/model.safetensors", b"x");
    let open = rig.open_of("weights", &path);
    rig.take(&open);
    rig.wait(3);
    let opens = rig.opens.load(Ordering::Relaxed);
    assert_eq!(opens, 2, "for its digest, and for its tensors");
    let full = rig.found.pop().unwrap();
    rig.found.clear();
    let opener = Counting(Arc::clone(&rig.opens));
    rig.identities = Identities::new(options(rig.folder.path()), Box::new(opener)).unwrap();
    rig.take(&open);
    rig.wait(0);
    assert_eq!((rig.opens.load(Ordering::Relaxed), rig.identities.bytes_read()), (opens, 0));
    assert_eq!(rig.found.last().unwrap().envelope.id, full.envelope.id);
    assert_eq!(rig.found.last().unwrap().body, full.body);
}

#[test]
fn adapters_are_told_apart_by_their_directories() {
    let mut rig = Rig::new();
    for adapter in ["style", "tone"] {
        for (name, content) in [("adapter_config.json", "{}"), ("adapter_model.safetensors", adapter)] {
            let path = rig.write(&format!("{adapter}/{name}"), content.as_bytes());
            rig.open("adapter", &path);
        }
    }
    rig.wait(3);
    let names: Vec<_> = rig
        .factors()
        .into_iter()
        .filter(|factor| factor.state == Some(FactorState::Full))
        .map(|factor| factor.adapter.clone().unwrap())
        .collect();
    let folder = rig.folder.path().to_str().unwrap();
    assert_eq!(names, [format!("{folder}/style"), format!("{folder}/tone")]);
    assert_ne!(rig.full()[0], rig.full()[1]);
}

#[test]
fn a_draft_model_beside_the_model_is_not_the_model() {
    let mut rig = Rig::new();
    let model = rig.write("big/model.safetensors", &[1; 1000]);
    let draft = rig.write("draft/model.safetensors", &[2; 10]);
    rig.open("weights", &model);
    rig.open("weights", &draft);
    rig.wait(3);
    assert_eq!(rig.full_of("weights"), [sha256(&[1; 1000])]);
    assert_eq!(rig.full_of("draft"), [sha256(&[2; 10])]);
    // Much later it is what the worker was updated to.
    let update = rig.write("update/model.safetensors", &[3; 10]);
    rig.seconds += 1000;
    rig.open("weights", &update);
    rig.wait(3);
    assert_eq!(rig.full().last(), Some(&sha256(&[3; 10])));
}

#[test]
fn the_rate_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut slow = options(folder.path());
    slow.rate = 20_000_000;
    let mut rig = Rig::new();
    rig.identities = Identities::new(slow, Box::new(OwnFiles)).unwrap();
    let path = rig.write("m/model.safetensors", &vec![1; 6 << 20]);
    rig.open("weights", &path);
    let start = std::time::Instant::now();
    rig.wait(3);
    assert!(start.elapsed().as_millis() >= 250, "{:?}", start.elapsed());
    assert_eq!(rig.full().len(), 1);
}

#[test]
fn several_threads_give_what_one_gives() {
    let value = |threads: usize| {
        let mut rig = Rig::with(|options| options.threads = threads);
        for shard in 1..=9u8 {
            let path = rig.write(&format!("m/model-0000{shard}-of-00009.safetensors"), &vec![shard; 1 << 20]);
            rig.open("weights", &path);
        }
        rig.wait(3);
        rig.full()
    };
    assert_eq!(value(4), value(1));
    assert_eq!(value(4).len(), 1);
}
