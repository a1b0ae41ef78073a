//! A cache of a hub: `snapshots/<commit>/NAME` are links to `blobs/<sha256 or git object>`.

use crate::rig::{Rig, safetensors, sha256};
use kvprov_model::factor::Comparison;
use std::path::PathBuf;

/// A small file is named by its git object, a large one by its sha256.
fn git_name(content: &[u8]) -> String {
    sha256(content)[..40].to_owned()
}

/// Puts a file into a snapshot and gives its path there. A blob that is there already is not written again.
fn in_snapshot(rig: &Rig, commit: &str, name: &str, blob: &str, content: &[u8]) -> PathBuf {
    let at = format!("hub/blobs/{blob}");
    let blob = rig.folder.path().join(&at);
    if !blob.exists() {
        rig.write(&at, content);
    }
    let link = rig.folder.path().join(format!("hub/snapshots/{commit}/{name}"));
    std::fs::create_dir_all(link.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(blob, &link).unwrap();
    link
}

fn weights() -> Vec<u8> {
    safetensors(&[("a", b"one"), ("b", b"two")])
}

#[test]
fn a_terabyte_whose_blob_has_a_digest_for_a_name_is_known_without_reading_it() {
    let mut rig = Rig::new();
    let name = "ab".repeat(32);
    let link = in_snapshot(&rig, "c1", "model.safetensors", &name, b"");
    std::fs::File::options().write(true).open(&link).unwrap().set_len(1 << 40).unwrap();
    rig.open("weights", &link);
    rig.wait(3);
    assert_eq!(rig.full(), [name]);
    assert_eq!(rig.identities.bytes_read(), 0);
}

#[test]
fn the_same_model_from_a_directory_and_from_the_cache_is_equal() {
    let mut rig = Rig::new();
    let (weights, config) = (weights(), br#"{"model_type":"llama"}"#);
    for (name, factor, content, blob) in [
        ("model.safetensors", "weights", weights.as_slice(), sha256(&weights)),
        ("config.json", "config", config.as_slice(), git_name(config)),
    ] {
        let cached = in_snapshot(&rig, "c1", name, &blob, content);
        let local = rig.write(&format!("local/{name}"), content);
        rig.open_as("cached", factor, &cached);
        rig.open_as("local", factor, &local);
    }
    rig.wait(3);
    for factor in ["weights", "config"] {
        assert_eq!(rig.compared("cached", "local", factor), Some(Comparison::Equal), "{factor}");
    }
}

#[test]
fn a_commit_that_changes_only_the_readme_is_equal() {
    let mut rig = Rig::new();
    let (weights, config) = (weights(), br#"{"model_type":"llama"}"#);
    for commit in ["c1", "c2"] {
        in_snapshot(&rig, commit, "README.md", &git_name(commit.as_bytes()), commit.as_bytes());
        let config = in_snapshot(&rig, commit, "config.json", &git_name(config), config);
        let weights = in_snapshot(&rig, commit, "model.safetensors", &sha256(&weights), &weights);
        rig.open_as(commit, "config", &config);
        rig.open_as(commit, "weights", &weights);
    }
    rig.wait(3);
    for factor in ["weights", "config"] {
        assert_eq!(rig.compared("c1", "c2", factor), Some(Comparison::Equal), "{factor}");
    }
}

#[test]
fn a_blob_is_read_for_its_tensors_only_where_another_layout_runs_beside_it() {
    let mut rig = Rig::new();
    let weights = weights();
    let cached = in_snapshot(&rig, "c1", "model.safetensors", &sha256(&weights), &weights);
    rig.open_as("cached", "weights", &cached);
    rig.wait(3);
    assert_eq!(rig.last_of("cached", "weights").unwrap().meaning, None);
    for (name, tensor) in [("model-00001-of-00002", ("a", b"one")), ("model-00002-of-00002", ("b", b"two"))] {
        let shard =
            rig.write(&format!("local/{name}.safetensors"), &safetensors(&[(tensor.0, tensor.1.as_slice())]));
        rig.open_as("local", "weights", &shard);
    }
    rig.wait(3);
    assert!(rig.last_of("cached", "weights").unwrap().meaning.is_some());
    assert_eq!(rig.compared("cached", "local", "weights"), Some(Comparison::Equal));
}
