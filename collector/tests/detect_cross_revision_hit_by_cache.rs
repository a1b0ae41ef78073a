//! `cross_revision_hit` in an engine's own caches, after its weights or an adapter changed.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{
    AdminCall, AdminClass, Body, CacheUse, Outcome, RequestLeg, Role, Tier, Worker,
};
use kvprov_model::{counter, fact};
use scene::tell::*;
use scene::{Scene, names_unknown, places};

const CROSSED: Detector = Detector::CrossRevisionHit;

/// An engine that has computed a prompt before 08:01:00.
fn warm() -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0").both().fact(fact::PREFIX_CACHING, "true");
    let values = [(counter::PROMPT_TOTAL, 1040.0), (counter::PREFIX_QUERIES, 1040.0)];
    scene.at("08:00:50").on("e0").tell(counted("08:00:35", &values));
    scene
}

fn hit_afterwards(scene: &mut Scene, since: &str, until: &str) {
    let values = [(counter::PREFIX_HITS, 576.0), (counter::PROMPT_TOTAL, 636.0)];
    scene.at(until).on("e0").line(&format!("{until}.prom"), 0).tell(counted(since, &values));
}

/// An engine that names adapters in its keys by `key`, loads one, serves it, and loads it again.
fn reloaded(key: &str, second_path: &str) -> Scene {
    let mut scene = warm();
    scene.worker("e0").fact(fact::ADAPTER_KEY, key);
    scene.at("08:00:20").on("e0").tell(adapter_loaded("tenant", "/lora/a"));
    scene.at("08:01:00").on("e0").line("e.log", 7).tell(adapter_loaded("tenant", second_path));
    scene
}

// === fires ===

#[test]
fn prefix_hits_after_a_weight_update_are_suspected() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Weights));
    assert_eq!(found.tokens, 576);
    assert!(names_unknown(&found, "older than the change"), "{:?}", found.unknown);
    assert!(places(&found).contains("e.log:3") && places(&found).contains("08:01:20.prom:0"));
}

/// An engine whose events tell of two blocks before an update of its weights, and of some at 08:01:05.
fn stored_anew(afterwards: &[&str]) -> Scene {
    let mut scene = warm();
    scene.at("08:00:40").on("e0").tell(Body::Block(stored_blocks(&[("c1", "h1"), ("c2", "h2")])));
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    let blocks: Vec<_> = afterwards.iter().map(|hash| ("", *hash)).collect();
    scene.at("08:01:05").on("e0").tell(Body::Block(stored_blocks(&blocks)));
    scene
}

#[test]
fn hits_are_suspected_while_one_block_of_before_is_left() {
    for afterwards in [&["h2", "h3"][..], &["h3"][..]] {
        let mut scene = stored_anew(afterwards);
        hit_afterwards(&mut scene, "08:01:10", "08:01:20");
        assert_eq!(scene.only(&CROSSED).tokens, 576, "{afterwards:?}");
    }
}

#[test]
fn hits_before_everything_was_stored_anew_are_suspected() {
    let mut scene = stored_anew(&["h1", "h2"]);
    hit_afterwards(&mut scene, "08:01:01", "08:01:04");
    assert_eq!(scene.only(&CROSSED).tokens, 576);
}

/// The engine's log tells that it answered some request.
fn answered(scene: &mut Scene, at: &str, line: i64) {
    let leg = RequestLeg { status: Some(200), ..RequestLeg::default() };
    scene.at(at).on("e0").line("e.log", line).tell(Body::RequestLeg(leg));
}

#[test]
fn hits_of_an_interval_that_the_change_ends_count_when_a_request_was_answered_behind_it() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    answered(&mut scene, "08:01:00", 5);
    hit_afterwards(&mut scene, "08:00:50", "08:01:01");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.tokens), (Confidence::Suspected, 576));
    assert!(places(&found).contains("e.log:5"), "{:?}", places(&found));
}

#[test]
fn an_engine_that_began_within_the_interval_had_computed_something_when_it_answered_before_the_change() {
    for (answers, is_found) in [(2.0, true), (1.0, false)] {
        let mut scene = Scene::new();
        scene.worker("e0").both().fact(fact::PREFIX_CACHING, "true");
        scene.at("08:00:55").on("e0").tell(counted("08:00:50", &[(counter::PROMPT_TOTAL, 0.0)]));
        scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
        answered(&mut scene, "08:01:00", 5);
        let values = [(counter::PREFIX_HITS, 96.0), (counter::REQUESTS_ANSWERED, answers)];
        scene.at("08:01:06").on("e0").line("m.prom", 0).tell(counted("08:00:55", &values));
        assert_eq!(scene.by(&CROSSED).len(), usize::from(is_found), "{answers} answers");
    }
}

#[test]
fn an_adapter_whose_first_content_was_overwritten_before_it_was_read_is_not_the_same() {
    let mut scene = reloaded("name_and_path", "/lora/a");
    scene.worker("e0").loaded("08:01:00", "/lora/a", "11");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    assert_eq!(scene.only(&CROSSED).confidence, Confidence::Suspected);
}

/// A reset of the prefix cache that was refused.
fn refused() -> Body {
    Body::AdminCall(AdminCall {
        class: Some(AdminClass::CacheReset),
        tiers: vec![Tier::Device.as_str().to_owned()],
        outcome: Some(Outcome::Failed),
        ..AdminCall::default()
    })
}

#[test]
fn prefix_hits_after_the_kernel_saw_other_weights_loaded_are_suspected_although_no_line_tells() {
    let mut scene = warm();
    scene.worker("e0").loaded("08:00:00", "weights", "aa").loaded("08:01:00", "weights", "bb");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    let found = scene.only(&CROSSED);
    assert_eq!(
        (found.confidence, found.cause.clone(), found.tokens),
        (Confidence::Suspected, Cause::Weights, 576)
    );
}

#[test]
fn prefix_hits_after_an_adapter_got_other_content_at_its_path_are_suspected() {
    let mut scene = warm();
    scene.worker("e0").fact(fact::ADAPTER_KEY, "name_and_path");
    scene.worker("e0").loaded("08:00:00", "/lora/a", "11").loaded("08:01:00", "/lora/a", "22");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Adapter));
}

#[test]
fn a_reset_refused_after_a_weight_update_is_suspected_without_any_counter() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    scene.at("08:01:02").on("e0").line("e.log", 4).tell(refused());
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Weights));
    assert!(places(&found).contains("e.log:3") && places(&found).contains("e.log:4"));
}

/// The outcome of a reset in one rank's own cache.
fn of_rank(rank: &str, outcome: Outcome) -> Body {
    let Body::AdminCall(call) = refused() else { return refused() };
    Body::AdminCall(AdminCall { process: Some(rank.to_owned()), outcome: Some(outcome), ..call })
}

#[test]
fn a_reset_that_one_of_two_ranks_refused_leaves_what_that_rank_holds() {
    for (first, second) in [("DP0", "DP1"), ("DP1", "DP0")] {
        let mut scene = warm();
        scene.at("08:01:00").on("e0").tell(weights_updated());
        scene.at("08:01:01").on("e0").tell(of_rank(first, Outcome::Succeeded));
        scene.at("08:01:01").on("e0").tell(of_rank(second, Outcome::Failed));
        hit_afterwards(&mut scene, "08:01:05", "08:01:20");
        assert_eq!(scene.only(&CROSSED).confidence, Confidence::Suspected);
    }
}

#[test]
fn a_reset_of_the_device_leaves_the_offload_tier() {
    let mut scene = warm();
    scene.worker("e0").fact(fact::OFFLOAD_TIER, "cpu");
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:01").on("e0").tell(emptied(&[Tier::Device]));
    scene.at("08:01:20").on("e0").tell(counted("08:01:05", &[(counter::PROMPT_EXTERNAL, 1024.0)]));
    let found = scene.only(&CROSSED);
    assert_eq!(found.tokens, 1024);
    assert!(found.summary.contains("offload"), "{}", found.summary);
}

#[test]
fn updates_that_only_a_counter_shows_are_suspected() {
    let mut scene = warm();
    let values = [(counter::WEIGHT_UPDATES, 17.0), (counter::PREFIX_HITS, 1_175_961.0)];
    scene.at("09:02:10").on("e0").tell(counted("08:00:50", &values));
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.tokens), (Confidence::Suspected, 1_175_961));
}

#[test]
fn hits_after_two_updates_are_counted_once() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:02").on("e0").tell(weights_updated());
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    assert_eq!(scene.only(&CROSSED).tokens, 576);
}

#[test]
fn an_adapter_that_was_replaced_under_its_name_is_suspected() {
    for (key, path) in [("name", "/lora/b"), ("name_and_path", "/lora/a")] {
        let mut scene = reloaded(key, path);
        hit_afterwards(&mut scene, "08:01:05", "08:01:20");
        let found = scene.only(&CROSSED);
        assert_eq!((found.confidence, found.cause), (Confidence::Suspected, Cause::Adapter), "{key}");
    }
}

#[test]
fn a_restart_with_other_weights_that_finds_its_prompt_in_the_store_is_suspected() {
    let mut scene = warm();
    scene.worker("e0").weights("aa").weights_from("08:01:00", "bb");
    for (second, request) in [("10", "r1"), ("20", "r2")] {
        scene.at(&format!("08:01:{second}")).on("e0").tell(Body::CacheUse(CacheUse {
            request_id: Some(request.to_owned()),
            tier: Some(Tier::Storage),
            retrieved: Some(96),
            ..CacheUse::default()
        }));
    }
    let found = scene.only(&CROSSED);
    assert_eq!((found.confidence, found.tokens), (Confidence::Suspected, 192));
}

/// A fresh engine that serves one adapter after the other and hits KV for the second one's first request.
fn second_adapter(first: &str, second: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("e0").both().adapter("a", first).adapter("b", second);
    scene.at("08:00:00").on("e0").tell(totals(&[(counter::PROMPT_TOTAL, 0.0)]));
    for (second, adapter, external) in [("10", "a", 0.0), ("30", "b", 256.0)] {
        scene.at(&format!("08:00:{second}")).on("e0").tell(Body::RequestLeg(RequestLeg {
            leg: Some(Role::Both),
            request_id: Some(format!("for-{adapter}")),
            adapter: Some(adapter.to_owned()),
            status: Some(200),
            ..RequestLeg::default()
        }));
        let from = if adapter == "a" { "08:00:00" } else { "08:00:20" };
        let until = if adapter == "a" { "08:00:20" } else { "08:00:40" };
        scene.at(until).on("e0").tell(counted(from, &[(counter::PROMPT_EXTERNAL, external)]));
    }
    scene
}

#[test]
fn a_first_request_that_hits_what_only_another_adapter_stored_is_suspected() {
    let found = second_adapter("11", "22").only(&CROSSED);
    assert_eq!((found.confidence, found.cause.clone()), (Confidence::Suspected, Cause::Adapter));
    assert_eq!((found.requests.clone(), found.tokens), (vec!["for-b".to_owned()], 256));
    assert!(names_unknown(&found, "who stored"), "{:?}", found.unknown);
}

// === stays quiet ===

#[test]
fn hits_of_an_interval_that_the_change_ends_are_older_when_nobody_was_answered_behind_it() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    hit_afterwards(&mut scene, "08:00:50", "08:01:01");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn answers_before_the_change_or_in_a_later_interval_say_nothing_of_its_hits() {
    let mut scene = warm();
    answered(&mut scene, "08:00:59", 2);
    scene.at("08:01:00").on("e0").line("e.log", 3).tell(weights_updated());
    answered(&mut scene, "08:01:30", 9);
    hit_afterwards(&mut scene, "08:00:50", "08:01:01");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn an_adapter_loaded_again_with_equal_content_is_quiet() {
    let mut scene = reloaded("name_and_path", "/lora/a");
    scene.worker("e0").loaded("08:00:20", "/lora/a", "11").loaded("08:01:00", "/lora/a", "11");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn weights_opened_anew_with_equal_content_are_quiet() {
    let mut scene = warm();
    scene.worker("e0").loaded("08:00:00", "weights", "aa").opened_unknown("08:01:00", "weights");
    scene.worker("e0").loaded("08:01:00", "weights", "aa");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_reset_after_the_kernel_saw_other_weights_loaded_closes_the_window() {
    let mut scene = warm();
    scene.worker("e0").loaded("08:00:00", "weights", "aa").loaded("08:01:00", "weights", "bb");
    scene.at("08:01:02").on("e0").tell(emptied(&[Tier::Device]));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_declared_change_at_a_start_of_the_engine_leaves_no_cache() {
    let mut scene = warm();
    scene.worker("e0").weights("aa").weights_from("08:01:00", "bb");
    scene
        .at("08:01:03")
        .on("e0")
        .tell(Body::Worker(Worker { engine_ids: vec!["new".to_owned()], ..Worker::default() }));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_refused_reset_that_works_at_the_second_try_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:02").on("e0").tell(refused());
    scene.at("08:01:05").on("e0").tell(emptied(&[Tier::Device]));
    scene.assert_quiet(&CROSSED);
}

#[test]
fn ranks_that_emptied_their_caches_one_after_another_are_quiet() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:01").on("e0").tell(of_rank("DP0", Outcome::Succeeded));
    scene.at("08:01:01").on("e0").tell(of_rank("DP1", Outcome::Failed));
    scene.at("08:01:03").on("e0").tell(of_rank("DP1", Outcome::Succeeded));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_refused_reset_without_an_update_is_quiet() {
    let mut scene = warm();
    scene.at("08:01:02").on("e0").tell(refused());
    scene.assert_quiet(&CROSSED);
}

#[test]
fn a_reset_that_emptied_the_tier_is_quiet() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:01").on("e0").tell(emptied(&[Tier::Device]));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn hits_after_everything_was_stored_anew_are_quiet() {
    let mut scene = stored_anew(&["h1", "h2", "h3"]);
    hit_afterwards(&mut scene, "08:01:10", "08:01:20");
    scene.assert_silent();
}

#[test]
fn a_reset_within_the_scrape_that_saw_the_update_is_quiet() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    scene.at("08:01:01").on("e0").tell(emptied(&[Tier::Device]));
    hit_afterwards(&mut scene, "08:00:50", "08:01:05");
    scene.assert_silent();
}

#[test]
fn a_reset_without_any_change_is_quiet() {
    let mut scene = warm();
    scene.worker("e0").fact(fact::OFFLOAD_TIER, "cpu");
    scene.at("08:01:01").on("e0").tell(emptied(&[Tier::Device]));
    scene.at("08:01:20").on("e0").tell(counted("08:01:05", &[(counter::PROMPT_EXTERNAL, 1024.0)]));
    scene.assert_silent();
}

#[test]
fn with_prefix_caching_off_nothing_can_be_reused() {
    let mut scene = reloaded("name", "/lora/b");
    scene.worker("e0").fact(fact::PREFIX_CACHING, "false");
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn an_adapter_that_gets_a_new_key_at_each_load_is_quiet() {
    for (key, path) in [("load_number", "/lora/a"), ("name_and_path", "/lora/b")] {
        let mut scene = reloaded(key, path);
        hit_afterwards(&mut scene, "08:01:05", "08:01:20");
        scene.assert_silent();
    }
}

#[test]
fn the_first_load_of_an_adapter_changes_nothing() {
    let mut scene = warm();
    scene.worker("e0").fact(fact::ADAPTER_KEY, "name");
    scene.at("08:01:00").on("e0").tell(adapter_loaded("tenant", "/lora/a"));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn an_update_that_failed_changed_nothing() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(Body::AdminCall(AdminCall {
        class: Some(AdminClass::WeightsUpdate),
        outcome: Some(Outcome::Failed),
        ..AdminCall::default()
    }));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn hits_before_the_update_are_right() {
    let mut scene = warm();
    hit_afterwards(&mut scene, "08:00:50", "08:01:05");
    scene.at("08:01:10").on("e0").tell(weights_updated());
    scene.assert_silent();
}

#[test]
fn an_engine_that_was_updated_before_it_held_anything_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0").both();
    scene.at("08:01:00").on("e0").tell(weights_updated());
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn resets_that_are_not_supported_tell_nothing_without_a_change() {
    let mut scene = warm();
    scene.at("08:01:00").on("e0").tell(Body::AdminCall(AdminCall {
        class: Some(AdminClass::CacheReset),
        outcome: Some(Outcome::Failed),
        ..AdminCall::default()
    }));
    hit_afterwards(&mut scene, "08:01:05", "08:01:20");
    scene.assert_silent();
}

#[test]
fn an_adapter_whose_first_request_misses_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("e0").both().adapter("a", "11").adapter("b", "22");
    scene.at("08:00:00").on("e0").tell(totals(&[(counter::PROMPT_TOTAL, 0.0)]));
    let spans = [("08:00:10", "08:00:20", "a", 0.0), ("08:00:30", "08:00:40", "b", 0.0)];
    let again = ("08:00:50", "08:01:00", "b", 256.0);
    for (at, until, adapter, external) in spans.into_iter().chain([again]) {
        let leg =
            RequestLeg { adapter: Some(adapter.to_owned()), status: Some(200), ..RequestLeg::default() };
        scene.at(at).on("e0").tell(Body::RequestLeg(leg));
        scene.at(until).on("e0").tell(counted(at, &[(counter::PROMPT_EXTERNAL, external)]));
    }
    scene.assert_silent();
}

#[test]
fn equal_adapters_under_two_names_are_quiet() {
    second_adapter("11", "11").assert_silent();
}
