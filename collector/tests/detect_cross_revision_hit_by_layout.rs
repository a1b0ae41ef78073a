//! `cross_revision_hit` from a store under whose keys bytes may lie in more than one way.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use scene::tell::*;
use scene::{Scene, places};

const CROSSED: Detector = Detector::CrossRevisionHit;
const STORE: &str = "file:export-1:/kv";

/// One engine reads a page that another one of the same weights wrote; facts by name, of the writer and of the reader.
fn shared(facts: &[(&str, &str, &str)]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both().weights("aa");
    scene.worker("b0").both().weights("aa");
    for (name, made, used) in facts {
        scene.worker("a0").fact(name, made);
        scene.worker("b0").fact(name, used);
    }
    scene.at("08:00:10").on("a0").line("a.jsonl", 1).tell(wrote(STORE, "page-1", 4096));
    scene.at("08:00:20").on("b0").line("b.jsonl", 1).tell(read(STORE, "page-1", 4096));
    scene
}

const OTHER_RANKS: (&str, &str, &str) = (fact::TP_SIZE, "1", "2");
const DIRECT: (&str, &str, &str) = (fact::STORE_LAYOUT, "direct", "direct");
const OTHER_ORDER: (&str, &str, &str) = (fact::KV_LAYOUT, "NHD", "HND");

// === fires ===

#[test]
fn a_page_of_another_layout_under_the_same_key_is_suspected() {
    let found = shared(&[OTHER_ORDER]).only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Representation));
    assert_eq!((found.count, found.workers.clone()), (1, vec!["a0".to_owned(), "b0".to_owned()]));
    assert!(found.summary.contains("NHD on one side, HND on the other"), "{}", found.summary);
    assert!(places(&found).contains("b.jsonl:1"));
}

#[test]
fn parts_of_ranks_laid_one_after_the_other_are_read_wrongly_by_another_number_of_ranks() {
    let found = shared(&[OTHER_RANKS, DIRECT]).only(&CROSSED);
    assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::Representation));
}

// === stays quiet ===

#[test]
fn an_artifact_that_all_sizes_and_layouts_read_alike_is_quiet() {
    let canonical = (fact::STORE_LAYOUT, "canonical", "canonical");
    shared(&[OTHER_RANKS, OTHER_ORDER, canonical]).assert_silent();
}

#[test]
fn what_nobody_knows_of_a_layout_accuses_nobody() {
    shared(&[OTHER_RANKS]).assert_silent();
    let mut scene = shared(&[]);
    scene.worker("a0").fact(fact::KV_LAYOUT, "NHD");
    scene.assert_silent();
}

#[test]
fn latent_attention_that_keeps_the_same_on_every_rank_is_quiet() {
    shared(&[OTHER_RANKS, DIRECT, (fact::ATTENTION_BACKEND, "FLASHMLA", "FLASHMLA")]).assert_silent();
}

#[test]
fn a_page_of_another_size_is_no_page_read_wrongly() {
    let mut scene = shared(&[]);
    for (worker, layout) in [("a0", "NHD"), ("c0", "HND")] {
        scene.worker(worker).both().weights("aa").fact(fact::KV_LAYOUT, layout);
    }
    scene.at("08:00:30").on("c0").tell(read(STORE, "page-1", 8192));
    scene.assert_quiet(&CROSSED);
}
