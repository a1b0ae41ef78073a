//! `cross_revision_hit` from a store, where only block events tell what a block was made of.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Artifact, ArtifactAction, Block, Body};
use scene::tell::*;
use scene::{Scene, places};

const CROSSED: Detector = Detector::CrossRevisionHit;
const STORE: &str = "file:export-1:/kv";
const HASH: &str = "185a3bfeb5a1c42e";

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

