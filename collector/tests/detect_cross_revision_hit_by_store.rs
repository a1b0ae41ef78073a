//! `cross_revision_hit` from a store, where only block events or the paths of opened files tell what a block was made of.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Artifact, ArtifactAction, Block, Body};
use scene::tell::*;
use scene::{Scene, places};

const CROSSED: Detector = Detector::CrossRevisionHit;
const STORE: &str = "file:export-1:/kv";
const HASH: &str = "185a3bfeb5a1c42e";
const COMMITS: [&str; 2] =
    ["0123456789abcdef0123456789abcdef01234567", "89abcdef0123456789abcdef0123456789abcdef"];

/// The block of that hash in the store.
fn block(action: ArtifactAction) -> Body {
    Body::Artifact(Artifact {
        content: Some(HASH.to_owned()),
        bytes: Some(4096),
        ..artifact(STORE, "page-1", action)
    })
}

/// An engine keeps the block of that hash for an adapter, or for none.
fn keeps(adapter: Option<&str>) -> Body {
    let block = Block { adapter: adapter.map(str::to_owned), ..stored_blocks(&[("c1", HASH)]) };
    Body::Block(block)
}

/// Two engines of equal weights, each with an adapter `ad` of some content; the second reads a block that the first wrote.
fn with_adapters(made: &str, used: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa").adapter("ad", made);
    scene.worker("b0").both().weights("aa").adapter("ad", used);
    scene.at("08:00:10").on("a0").line("a.jsonl", 1).tell(block(ArtifactAction::Written));
    scene.at("08:00:20").on("b0").line("b.jsonl", 1).tell(block(ArtifactAction::Read));
    scene
}

/// Two engines of one model, of which is only seen which snapshot they opened.
fn with_snapshots(made: &str, used: &str) -> Scene {
    let mut scene = Scene::new();
    for (worker, commit) in [("a0", made), ("b0", used)] {
        let engine = scene.worker(worker).both().fact(fact::MODEL_PATH, "org/model");
        engine.fact(fact::MODEL_REVISION, "main").provisional("weights", &format!("commit:{commit}"));
    }
    scene.at("08:00:10").on("a0").line("a.jsonl", 1).tell(block(ArtifactAction::Written));
    scene.at("08:00:20").on("b0").line("b.jsonl", 1).tell(block(ArtifactAction::Read));
    scene
}

// === fires ===

#[test]
fn a_block_that_both_sides_keep_for_an_adapter_of_other_content_is_confirmed() {
    let mut scene = with_adapters("11", "22");
    scene.at("08:00:09").on("a0").line("a.events", 4).tell(keeps(Some("ad")));
    scene.at("08:00:21").on("b0").line("b.events", 5).tell(keeps(Some("ad")));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Adapter));
    assert_eq!(found.count, 1);
    for place in ["a.jsonl:1", "b.jsonl:1", "a.events:4", "b.events:5"] {
        assert!(places(&found).contains(place), "{place}");
    }
}

#[test]
fn a_block_of_another_snapshot_is_suspected() {
    let found = with_snapshots(COMMITS[0], COMMITS[1]).only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::Weights));
}

// === stays quiet ===

#[test]
fn a_block_that_is_kept_for_no_adapter_is_the_base_models() {
    let mut scene = with_adapters("11", "22");
    scene.at("08:00:09").on("a0").tell(keeps(None));
    scene.at("08:00:21").on("b0").tell(keeps(None));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_hash_that_is_told_with_and_without_an_adapter_belongs_to_none() {
    let mut scene = with_adapters("11", "22");
    scene.at("08:00:09").on("a0").tell(keeps(Some("ad")));
    scene.at("08:00:21").on("b0").tell(keeps(Some("ad")));
    scene.at("08:00:22").on("b0").tell(keeps(None));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn one_side_alone_does_not_tell_what_the_other_kept_it_for() {
    let mut scene = with_adapters("11", "22");
    scene.at("08:00:09").on("a0").tell(keeps(Some("ad")));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn an_adapter_of_equal_content_is_shared() {
    let mut scene = with_adapters("11", "11");
    scene.at("08:00:09").on("a0").tell(keeps(Some("ad")));
    scene.at("08:00:21").on("b0").tell(keeps(Some("ad")));
    scene.assert_silent();
}

#[test]
fn one_snapshot_or_snapshots_of_two_models_prove_nothing() {
    with_snapshots(COMMITS[0], COMMITS[0]).assert_quiet(&CROSSED);
    let mut scene = with_snapshots(COMMITS[0], COMMITS[1]);
    scene.worker("b0").fact(fact::MODEL_PATH, "org/other");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn snapshots_of_equal_weights_are_one() {
    let mut scene = with_snapshots(COMMITS[0], COMMITS[1]);
    scene.worker("a0").loaded("08:00:05", "weights", "aa");
    scene.worker("b0").loaded("08:00:05", "weights", "aa");
    scene.assert_quiet(&CROSSED);
}
