//! `store_conflict`: when it fires and when it must stay quiet.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Artifact, ArtifactAction, Body, Tier};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const CONFLICT: Detector = Detector::StoreConflict;
const STORE: &str = "file:export-1:/kv";

/// Two engines, each with pages of its own.
fn two_owners() -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    for page in 1..=3 {
        scene.at("08:00:10").on("a0").line("a.jsonl", page).tell(wrote(STORE, &format!("a-{page}"), 4096));
        scene.at("08:00:10").on("b0").tell(wrote(STORE, &format!("b-{page}"), 4096));
    }
    scene
}

/// One of them is asked to clear the store and removes everything in it.
fn cleared() -> Scene {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").line("b.log", 6).tell(emptied(&[Tier::Storage]));
    for page in 1..=3 {
        scene.at("08:00:20").on("b0").tell(removed(STORE, &format!("a-{page}")));
        scene.at("08:00:20").on("b0").tell(removed(STORE, &format!("b-{page}")));
    }
    scene
}

// === fires ===

#[test]
fn a_clear_that_took_foreign_keys_which_are_missed_is_confirmed() {
    let mut scene = cleared();
    for page in 1..=3 {
        scene.at("08:00:30").on("a0").tell(missed(STORE, &format!("a-{page}")));
        scene.at("08:00:31").on("a0").tell(wrote(STORE, &format!("a-{page}"), 4096));
    }
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::Cleared));
    assert_eq!((found.count, found.workers.clone()), (3, vec!["a0".to_owned(), "b0".to_owned()]));
    assert!(places(&found).contains("b.log:6") && places(&found).contains("a.jsonl:1"));
    scene.assert_quiet(&Detector::MutualEviction);
}

#[test]
fn a_clear_that_the_owner_has_not_felt_yet_is_suspected() {
    let before = cleared().only(&CONFLICT);
    assert_eq!(before.confidence, Confidence::Suspected);
    assert!(names_unknown(&before, "misses them"), "{:?}", before.unknown);
    let mut scene = cleared();
    scene.at("08:00:30").on("a0").tell(missed(STORE, "a-1"));
    let after = scene.only(&CONFLICT);
    assert_eq!((before.id, after.confidence), (after.id, Confidence::Confirmed));
}

#[test]
fn a_source_that_calls_it_a_clear_needs_no_call() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(Body::Artifact(artifact(STORE, "a-1", ArtifactAction::Cleared)));
    assert_eq!(scene.only(&CONFLICT).cause, Cause::Cleared);
}

#[test]
fn a_remover_that_owns_nothing_there_is_an_outsider() {
    let mut scene = two_owners();
    scene.worker("janitor");
    scene.at("08:00:20").on("janitor").tell(removed(STORE, "a-1"));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "a-1"));
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::ForeignRemoval));
    assert_eq!(found.workers, ["a0", "janitor"]);
}

#[test]
fn one_key_with_two_sizes_is_confirmed() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(Body::Artifact(Artifact {
        bytes: Some(2048),
        bytes_wanted: Some(8192),
        ..artifact(STORE, "a-1", ArtifactAction::Partial)
    }));
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause), (Confidence::Confirmed, Cause::SizeMismatch));
}

#[test]
fn metadata_without_data_in_the_engines_words_is_suspected() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:00:10").on("e0").line("e.log", 4).tell(store_says("dangling", 2));
    scene.at("08:00:11").on("e0").line("e.log", 5).tell(store_says("dangling", 1));
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::DanglingMetadata));
    assert_eq!((found.count, places(&found).len()), (3, 2));
    assert!(names_unknown(&found, "who else"), "{:?}", found.unknown);
}

#[test]
fn thousands_of_foreign_removals_are_one_bounded_finding() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("janitor");
    for page in 0..2000 {
        scene.at("08:00:10").on("a0").tell(Body::Artifact(Artifact {
            bytes: Some(4096),
            ..artifact(STORE, &format!("p{page}"), ArtifactAction::Written)
        }));
        scene.at("08:00:20").on("janitor").tell(removed(STORE, &format!("p{page}")));
    }
    let found = scene.only(&CONFLICT);
    assert_eq!(found.count, 2000);
    assert!(found.evidence.len() <= 24);
}

/// Two workers on one store; one of them had used it.
fn sharers() -> Scene {
    let mut scene = Scene::new();
    for name in ["e0", "e1"] {
        scene.worker(name).both().fact(fact::STORE, "mooncake:192.0.2.80:50051");
    }
    scene.at("08:00:10").on("e1").line("e1.log", 2).tell(looked_up("cmpl-a1", 4100, 4096, 4096));
    scene
}

#[test]
fn a_store_that_one_worker_empties_under_another_is_told_by_their_words() {
    let mut scene = sharers();
    scene.at("08:00:12").on("e0").line("e0.log", 7).tell(emptied(&[Tier::Storage]));
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Cleared));
    assert_eq!(found.workers, ["e0", "e1"]);
    assert!(places(&found).contains("e0.log:7") && places(&found).contains("e1.log:2"));
}

/// A cleaner of the volume that says what it removes, and an engine that wrote pages before, asks for them later and writes them
/// again. Its own calls are not seen.
fn vanished(pages: i64, removed_at: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("cleaner").uses("file:/kv");
    for page in 1..=pages {
        let key = format!("a-{page}");
        scene.at("08:00:10").on("a0").line("a.jsonl", page).tell(wrote(STORE, &key, 4096));
        scene.at("08:00:30").on("a0").tell(missed(STORE, &key));
        scene.at("08:00:31").on("a0").tell(wrote(STORE, &key, 4096));
    }
    scene.at(removed_at).on("cleaner").line("c.log", 9).tell(store_says("evicted", 100));
    scene
}

#[test]
fn files_that_vanish_while_somebody_says_that_it_removes_are_suspected() {
    let found = vanished(3, "08:00:20").only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::ForeignRemoval));
    assert_eq!((found.count, found.workers.clone()), (3, vec!["a0".to_owned(), "cleaner".to_owned()]));
    assert!(places(&found).contains("c.log:9") && places(&found).contains("a.jsonl:1"));
    assert!(names_unknown(&found, "its own calls are not seen"), "{:?}", found.unknown);
}

// === stays quiet ===

#[test]
fn a_store_that_nobody_else_uses_may_be_emptied() {
    let mut scene = sharers();
    scene.worker("e0").fact(fact::STORE, "mooncake:192.0.2.81:50051");
    scene.at("08:00:12").on("e0").tell(emptied(&[Tier::Storage]));
    scene.assert_quiet(&CONFLICT);
}

#[test]
fn a_store_that_was_emptied_before_anybody_used_it_is_quiet() {
    let mut scene = sharers();
    scene.at("08:00:05").on("e0").tell(emptied(&[Tier::Storage]));
    scene.assert_quiet(&CONFLICT);
}

#[test]
fn a_clear_that_took_only_its_own_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("b0").both();
    scene.worker("a0").both();
    scene.at("08:00:10").on("b0").tell(wrote(STORE, "b-1", 4096));
    scene.at("08:00:12").on("a0").tell(missed(STORE, "a-1"));
    scene.at("08:00:20").on("b0").tell(emptied(&[Tier::Storage]));
    scene.at("08:00:20").on("b0").tell(removed(STORE, "b-1"));
    scene.assert_silent();
}

#[test]
fn an_actor_that_removes_its_own_is_quiet() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("a0").tell(removed(STORE, "a-1"));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "a-1"));
    scene.assert_silent();
}

#[test]
fn a_clear_of_keys_that_were_gone_before_is_quiet() {
    let mut scene = two_owners();
    scene.at("08:00:15").on("a0").tell(removed(STORE, "a-1"));
    scene.at("08:00:20").on("b0").tell(emptied(&[Tier::Storage]));
    scene.at("08:00:20").on("b0").tell(removed(STORE, "a-1"));
    scene.assert_quiet(&CONFLICT);
}

#[test]
fn an_evictor_that_owns_something_there_is_no_outsider() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(removed(STORE, "a-1"));
    scene.at("08:00:30").on("a0").tell(missed(STORE, "a-1"));
    scene.assert_quiet(&CONFLICT);
}

#[test]
fn a_reset_of_the_device_clears_no_store() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(emptied(&[Tier::Device]));
    scene.at("08:00:20").on("b0").tell(removed(STORE, "b-1"));
    scene.assert_silent();
}

#[test]
fn a_read_of_the_size_that_was_written_is_quiet() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(read(STORE, "a-1", 4096));
    scene.assert_silent();
}

#[test]
fn a_larger_buffer_that_got_the_whole_artifact_is_quiet() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("b0").tell(Body::Artifact(Artifact {
        bytes: Some(4096),
        bytes_wanted: Some(65_536),
        ..artifact(STORE, "a-1", ArtifactAction::Read)
    }));
    scene.assert_silent();
}

#[test]
fn sizes_that_nobody_saw_prove_nothing() {
    let mut scene = Scene::new();
    scene.worker("a0").both();
    scene.worker("b0").both();
    scene.at("08:00:10").on("a0").tell(Body::Artifact(artifact(STORE, "a-1", ArtifactAction::Written)));
    scene.at("08:00:20").on("b0").tell(read(STORE, "a-1", 2048));
    scene.assert_silent();
}

#[test]
fn an_artifact_that_was_rewritten_in_another_size_is_the_new_one() {
    let mut scene = two_owners();
    scene.at("08:00:15").on("a0").tell(wrote(STORE, "a-1", 8192));
    scene.at("08:00:20").on("b0").tell(read(STORE, "a-1", 8192));
    scene.assert_silent();
}

#[test]
fn writing_and_missing_is_no_conflict() {
    let mut scene = two_owners();
    scene.at("08:00:20").on("a0").tell(missed(STORE, "a-9"));
    scene.at("08:00:20").on("a0").tell(store_says("evicted", 9));
    scene.assert_silent();
}

#[test]
fn who_is_no_engine_and_empties_a_store_removes_from_outside() {
    let mut scene = two_owners();
    scene.worker("cleanup");
    for page in 1..=3 {
        for owner in ["a", "b"] {
            let key = format!("{owner}-{page}");
            let taken = artifact(STORE, &key, ArtifactAction::Cleared);
            scene.at("08:00:20").on("cleanup").tell(Body::Artifact(taken));
            scene.at("08:00:30").on(&format!("{owner}0")).tell(missed(STORE, &key));
        }
    }
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::ForeignRemoval));
}

#[test]
fn who_asks_for_as_much_as_it_writes_itself_wants_another_size() {
    let mut scene = two_owners();
    scene.at("08:00:15").on("b0").tell(wrote(STORE, "b-9", 8192));
    let short = Artifact {
        bytes: Some(4096),
        bytes_wanted: Some(8192),
        ..artifact(STORE, "a-1", ArtifactAction::Partial)
    };
    scene.at("08:00:20").on("b0").tell(Body::Artifact(short));
    let found = scene.only(&CONFLICT);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Confirmed, Cause::SizeMismatch));
}

#[test]
fn a_cleaner_that_removed_before_or_after_what_is_missed_took_nothing_of_it() {
    vanished(3, "08:00:05").assert_quiet(&CONFLICT);
    vanished(3, "08:00:40").assert_quiet(&CONFLICT);
}

#[test]
fn one_file_or_another_volume_or_a_removal_of_the_owner_accuses_no_cleaner() {
    vanished(1, "08:00:20").assert_quiet(&CONFLICT);
    let mut scene = vanished(3, "08:00:20");
    scene.worker("cleaner").uses("file:/k");
    scene.assert_quiet(&CONFLICT);
    let mut scene = vanished(3, "08:00:20");
    for page in 1..=3 {
        scene.at("08:00:15").on("a0").tell(removed(STORE, &format!("a-{page}")));
    }
    scene.assert_quiet(&CONFLICT);
}

#[test]
fn a_key_that_could_not_be_read_because_the_store_gave_no_answer_is_no_metadata_without_data() {
    let scene = |unanswered: &str| {
        let mut scene = Scene::new();
        scene.worker("e0").both();
        scene.at(unanswered).on("e0").tell(load_failed(Tier::Storage, Cause::StoreUnreachable));
        scene.at("08:00:10").on("e0").tell(store_says("dangling", 1));
        scene
    };
    scene("08:00:09").assert_quiet(&CONFLICT);
    assert_eq!(scene("08:00:01").only(&CONFLICT).cause, Cause::DanglingMetadata);
    assert_eq!(scene("08:00:11").only(&CONFLICT).cause, Cause::DanglingMetadata);
}
