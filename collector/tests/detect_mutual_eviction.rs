//! `mutual_eviction`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Confidence, Detector};
use kvprov_model::observation::{Block, BlockAction, Body, Tier};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const EVICTION: Detector = Detector::MutualEviction;
const STORE: &str = "file:export-1:/kv";

/// Two engines that each keep a page on one store.
fn two_owners() -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both().node("node-b");
    scene.at("08:00:10").on("a0").line("a.jsonl", 1).tell(wrote(STORE, "of-a", 4096));
    scene.at("08:00:10").on("b0").line("b.jsonl", 1).tell(wrote(STORE, "of-b", 4096));
    scene
}

/// Each of them removes the other's page.
fn each_removes() -> Scene {
    let mut scene = two_owners();
    scene.at("08:00:20").on("a0").line("a.jsonl", 2).tell(removed(STORE, "of-b"));
    scene.at("08:00:21").on("b0").line("b.jsonl", 2).tell(removed(STORE, "of-a"));
    scene
}

// === fires ===

#[test]
fn two_engines_that_remove_and_miss_each_others_pages_are_confirmed() {
    let mut scene = each_removes();
    scene.at("08:00:30").on("a0").line("a.jsonl", 3).tell(missed(STORE, "of-a"));
    scene.at("08:00:31").on("b0").line("b.jsonl", 3).tell(wrote(STORE, "of-b", 4096));
    let found = scene.only(&EVICTION);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 2));
    assert_eq!(found.workers, ["a0", "b0"]);
    assert_eq!(found.subject, STORE);
    for place in ["a.jsonl:2", "b.jsonl:2", "a.jsonl:3", "b.jsonl:3"] {
        assert!(places(&found).contains(place), "{place} in {:?}", found.evidence);
    }
    assert!(found.summary.contains("8192 bytes"), "{}", found.summary);
}

#[test]
fn a_page_found_gone_at_eviction_is_a_reaction() {
    let mut scene = each_removes();
    scene.at("08:00:30").on("a0").tell(found_gone(STORE, "of-a"));
    scene.at("08:00:31").on("b0").tell(found_gone(STORE, "of-b"));
    assert_eq!(scene.only(&EVICTION).confidence, Confidence::Confirmed);
}

#[test]
fn a_loss_that_only_one_side_feels_is_suspected() {
    let mut scene = each_removes();
    scene.at("08:00:30").on("a0").tell(missed(STORE, "of-a"));
    let found = scene.only(&EVICTION);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "other side"), "{:?}", found.unknown);
}

#[test]
fn rounds_fold_into_one_finding() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    for round in 0..3 {
        for (step, key) in ["of-a", "of-b"].into_iter().enumerate() {
            let (owner, other) = if key == "of-a" { ("a0", "b0") } else { ("b0", "a0") };
            let at = |second: usize| format!("08:0{round}:{second:02}");
            scene.at(&at(10 + step)).on(owner).tell(wrote(STORE, key, 4096));
            scene.at(&at(20 + step)).on(other).tell(removed(STORE, key));
            scene.at(&at(30 + step)).on(owner).tell(missed(STORE, key));
        }
    }
    let found = scene.only(&EVICTION);
    assert_eq!((found.confidence, found.count), (Confidence::Confirmed, 6));
}

#[test]
fn an_evictor_whose_own_candidates_vanish_has_met_another() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    for page in 1..=3 {
        let key = format!("page-{page}");
        scene.at("08:00:10").on("a0").tell(wrote(STORE, &key, 4096));
        if page > 1 {
            scene.at("08:00:30").on("a0").tell(found_gone(STORE, &key));
        }
    }
    scene.at("08:00:29").on("a0").tell(removed(STORE, "page-1"));
    let found = scene.only(&EVICTION);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 2));
    assert!(names_unknown(&found, "one side"), "{:?}", found.unknown);
}

#[test]
fn a_second_reaction_raises_the_confidence_under_one_id() {
    let mut scene = each_removes();
    scene.at("08:00:30").on("a0").tell(missed(STORE, "of-a"));
    let before = scene.only(&EVICTION);
    scene.at("08:00:31").on("b0").tell(missed(STORE, "of-b"));
    let after = scene.only(&EVICTION);
    assert_eq!(before.id, after.id);
    assert!(before.confidence < after.confidence);
}

/// Two engines with a store in one place whose KV events tell what they store and remove there: worker, action, block.
fn told(events: &[(&str, BlockAction, &str)]) -> Scene {
    let mut scene = Scene::new();
    for worker in ["a0", "b0"] {
        scene.worker(worker).both().uses("file:/kv");
    }
    for (line, (worker, action, hash)) in events.iter().enumerate() {
        let block = Block {
            action: Some(action.clone()),
            hashes: vec![(*hash).to_owned()],
            medium: Some("STORAGE".to_owned()),
            ..Block::default()
        };
        let line = i64::try_from(line).unwrap();
        scene
            .at(&format!("08:00:{:02}", 10 + line))
            .on(worker)
            .line("e.jsonl", line)
            .tell(Body::Block(block));
    }
    scene
}

const EACH: [(&str, BlockAction, &str); 4] = [
    ("a0", BlockAction::Stored, "of-a"),
    ("b0", BlockAction::Stored, "of-b"),
    ("a0", BlockAction::Removed, "of-b"),
    ("b0", BlockAction::Removed, "of-a"),
];

#[test]
fn events_of_two_engines_that_remove_and_store_again_what_is_the_others_are_suspected() {
    let found = told(&[&EACH[..], &[("a0", BlockAction::Stored, "of-a")]].concat()).only(&EVICTION);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 2));
    assert_eq!((found.workers.clone(), found.subject.as_str()), (vec!["a0".into(), "b0".into()], "file:/kv"));
    assert_eq!(places(&found), ["e.jsonl:2", "e.jsonl:3", "e.jsonl:4"].map(str::to_owned).into());
}

// === stays quiet ===

#[test]
fn one_actor_that_evicts_its_own_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    for page in 1..=9 {
        let key = format!("page-{page}");
        scene.at("08:00:10").on("a0").tell(wrote(STORE, &key, 4096));
        scene.at("08:00:20").on("a0").tell(removed(STORE, &key));
        scene.at("08:00:30").on("a0").tell(missed(STORE, &key));
        scene.at("08:00:31").on("a0").tell(wrote(STORE, &key, 4096));
    }
    scene.assert_silent();
}

#[test]
fn two_actors_that_evict_their_own_are_quiet() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("a0").tell(removed(STORE, "of-a"));
    scene.at("08:00:20").on("b0").tell(removed(STORE, "of-b"));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "of-a"));
    scene.at("08:00:30").on("b0").tell(missed(STORE, "of-b"));
    scene.assert_silent();
}

#[test]
fn removals_in_one_direction_are_not_mutual() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("a0").tell(removed(STORE, "of-b"));
    scene.at("08:00:30").on("b0").tell(missed(STORE, "of-b"));
    scene.assert_quiet(&EVICTION);
}

#[test]
fn removals_that_nobody_feels_are_quiet() {
    each_removes().assert_quiet(&EVICTION);
}

#[test]
fn a_clear_is_a_conflict_and_no_eviction() {
    let mut scene = each_removes();
    scene.at("08:00:20").on("a0").tell(emptied(&[Tier::Storage]));
    scene.at("08:00:21").on("b0").tell(emptied(&[Tier::Storage]));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "of-a"));
    scene.at("08:00:31").on("b0").tell(missed(STORE, "of-b"));
    scene.assert_quiet(&EVICTION);
}

#[test]
fn a_remover_that_owns_nothing_there_is_a_conflict_and_no_eviction() {
    let mut scene = two_owners();
    scene.worker("janitor");
    scene.at("08:00:20").on("janitor").tell(removed(STORE, "of-a"));
    scene.at("08:00:20").on("janitor").tell(removed(STORE, "of-b"));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "of-a"));
    scene.assert_quiet(&EVICTION);
}

#[test]
fn two_stores_are_two_places() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    for (store, owner, other) in [("file:/x", "a0", "b0"), ("file:/y", "b0", "a0")] {
        scene.at("08:00:10").on(owner).tell(wrote(store, "page", 4096));
        scene.at("08:00:20").on(other).tell(removed(store, "page"));
        scene.at("08:00:30").on(owner).tell(missed(store, "page"));
    }
    scene.assert_quiet(&EVICTION);
}

#[test]
fn a_miss_before_the_removal_is_cold() {
    let mut scene = two_owners();
    scene.at("08:00:05").on("a0").tell(missed(STORE, "of-a"));
    scene.at("08:00:05").on("b0").tell(missed(STORE, "of-b"));
    scene.at("08:00:20").on("a0").tell(removed(STORE, "of-b"));
    scene.at("08:00:21").on("b0").tell(removed(STORE, "of-a"));
    scene.assert_quiet(&EVICTION);
}

#[test]
fn a_loss_on_the_only_evictor_explains_its_vanished_candidates() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    for page in 1..=3 {
        scene.at("08:00:10").on("a0").tell(wrote(STORE, &format!("page-{page}"), 4096));
        scene.at("08:00:30").on("a0").tell(found_gone(STORE, &format!("page-{page}")));
    }
    scene.at("08:00:29").on("a0").tell(removed(STORE, "page-1"));
    scene.at("08:00:20").on("a0").tell(lost(3));
    scene.assert_quiet(&EVICTION);
}

#[test]
fn events_of_blocks_that_nobody_stores_again_are_quiet() {
    told(&EACH).assert_silent();
}

#[test]
fn events_of_engines_that_remove_their_own_are_quiet() {
    let own = [
        ("a0", BlockAction::Stored, "one"),
        ("b0", BlockAction::Stored, "one"),
        ("a0", BlockAction::Removed, "one"),
        ("a0", BlockAction::Stored, "one"),
        ("b0", BlockAction::Removed, "one"),
        ("b0", BlockAction::Stored, "one"),
    ];
    told(&own).assert_silent();
}

#[test]
fn events_of_stores_in_two_places_are_quiet() {
    let mut scene = told(&[&EACH[..], &[("a0", BlockAction::Stored, "of-a")]].concat());
    scene.worker("b0").node("node-b");
    scene.assert_silent();
}

#[test]
fn events_of_the_memory_of_each_engine_are_quiet() {
    let mut scene = Scene::new();
    scene.worker("a0").both().uses("file:/kv");
    scene.worker("b0").both().uses("file:/kv");
    for (at, (worker, action, hash)) in ["08:00:10", "08:00:11", "08:00:12", "08:00:13"].iter().zip(EACH) {
        let hashes = vec![hash.to_owned()];
        let block =
            Block { action: Some(action), hashes, medium: Some("GPU".to_owned()), ..Block::default() };
        scene.at(at).on(worker).tell(Body::Block(block));
    }
    scene.at("08:00:14").on("a0").tell(Body::Block(stored_blocks(&[("", "of-a")])));
    scene.assert_silent();
}
