//! `silent_recompute` where only counters show it: the worst recomputes print nothing.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::finding::{Cause, Confidence, Detector};
use kvprov_model::observation::{Body, RequestLeg, Role};
use kvprov_model::{counter, fact};
use scene::tell::*;
use scene::{NODE, Scene, names_unknown, places};

const RECOMPUTE: Detector = Detector::SilentRecompute;

/// A pair of which only counters are seen.
fn counted_only(values: &[(&str, f64)]) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.worker("d0").decode().fact(fact::BLOCK_SIZE, "16").fact(fact::LOCAL_COMPUTE_BASELINE, "1");
    scene.at("08:01:00").on("d0").line("d1.prom", 0).tell(counted("08:00:00", values));
    scene
}

const WHOLE_PROMPTS: [(&str, f64); 2] =
    [(counter::PROMPT_LOCAL_COMPUTE, 2400.0), (counter::REQUESTS_ANSWERED, 24.0)];

#[test]
fn prompts_computed_on_a_decode_worker_are_suspected_while_the_routing_is_unknown() {
    let found = counted_only(&WHOLE_PROMPTS).only(&RECOMPUTE);
    assert_eq!((found.confidence, found.tokens), (Confidence::Suspected, 2376));
    assert!(names_unknown(&found, "routing"), "{:?}", found.unknown);
    assert!(places(&found).contains("d1.prom:0"));
}

#[test]
fn prompts_computed_on_both_workers_without_a_transfer_are_suspected() {
    let mut scene = counted_only(&WHOLE_PROMPTS);
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 2400.0)];
    scene.at("08:01:00").on("p0").tell(counted("08:00:00", &values));
    assert_eq!(scene.only(&RECOMPUTE).confidence, Confidence::Suspected);
}

#[test]
fn prompts_computed_before_the_page_that_counts_their_answers_are_suspected() {
    let mut scene = counted_only(&[(counter::PROMPT_LOCAL_COMPUTE, 2400.0)]);
    scene.at("08:02:00").on("d0").tell(counted("08:01:00", &[(counter::REQUESTS_ANSWERED, 24.0)]));
    assert_eq!(scene.only(&RECOMPUTE).tokens, 2376);
}

#[test]
fn prompts_whose_kv_arrived_are_not_counted_with_those_that_were_computed() {
    let brought = [
        (counter::PROMPT_LOCAL_COMPUTE, 24_576.0),
        (counter::PROMPT_EXTERNAL, 57_344.0),
        (counter::REQUESTS_ANSWERED, 20.0),
        (counter::TRANSFERS_FAILED, 6.0),
    ];
    assert_eq!(counted_only(&brought).only(&RECOMPUTE).count, 6);
    assert_eq!(counted_only(&WHOLE_PROMPTS).only(&RECOMPUTE).count, 24);
}

// === stays quiet ===

#[test]
fn a_decode_only_leg_that_ends_after_the_page_explains_what_was_computed_before() {
    let mut scene = Scene::new();
    scene.worker("d0").decode();
    scene.worker("r0").router();
    let mut leg = decode_leg("lab-3", false, 102);
    leg.duration_ns = Some(20_000_000_000);
    scene.at("08:01:10").on("r0").tell(Body::RequestLeg(leg));
    // Another request, whose KV arrived, was answered meanwhile.
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 102.0), (counter::REQUESTS_ANSWERED, 1.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    scene.assert_silent();
}

#[test]
fn prompts_computed_again_after_a_preemption_wait_for_no_answer() {
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 2400.0), (counter::PREEMPTIONS, 3.0)];
    let mut scene = counted_only(&values);
    scene.at("08:02:00").on("d0").tell(counted("08:01:00", &[(counter::REQUESTS_ANSWERED, 24.0)]));
    scene.assert_silent();
}

#[test]
fn preemption_is_no_recompute() {
    let mut values = WHOLE_PROMPTS.to_vec();
    values.push((counter::PREEMPTIONS, 3.0));
    counted_only(&values).assert_silent();
}

#[test]
fn the_last_token_of_each_prompt_is_no_recompute() {
    let values = [
        (counter::PROMPT_LOCAL_COMPUTE, 24.0),
        (counter::PROMPT_EXTERNAL, 912.0),
        (counter::REQUESTS_ANSWERED, 24.0),
        (counter::TRANSFERS_SUCCEEDED, 24.0),
    ];
    counted_only(&values).assert_silent();
}

#[test]
fn prompts_shorter_than_a_block_are_no_recompute() {
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 24.0 * 9.0), (counter::REQUESTS_ANSWERED, 24.0)];
    counted_only(&values).assert_silent();
}

#[test]
fn prompts_that_were_told_one_by_one_to_be_decode_only_are_no_recompute() {
    let values = [
        (counter::PROMPT_LOCAL_COMPUTE, 4096.0),
        (counter::PROMPT_EXTERNAL, 22_000.0),
        (counter::REQUESTS_ANSWERED, 13.0),
        (counter::TRANSFERS_SUCCEEDED, 11.0),
    ];
    let told = |decisions: usize, by: &str| {
        let mut scene = counted_only(&values);
        scene.worker("r0").router();
        for _ in 0..decisions {
            let decision =
                RequestLeg { leg: Some(Role::Decode), kv_params_sent: Some(false), ..RequestLeg::default() };
            scene.at("08:00:30").on(by).tell(Body::RequestLeg(decision));
        }
        scene
    };
    told(2, "r0").assert_silent();
    told(2, "d0").assert_silent();
    assert_eq!(told(1, "r0").only(&RECOMPUTE).confidence, Confidence::Suspected);
}

#[test]
fn short_prompts_that_the_router_prefills_there_on_purpose_are_no_recompute() {
    let mut scene = counted_only(&WHOLE_PROMPTS);
    scene.worker("r0").router().fact(fact::LOCAL_PREFILL_LIMIT, "128");
    scene.assert_silent();
}

#[test]
fn prompts_that_the_router_decided_to_decode_only_are_no_recompute() {
    let mut scene = counted_only(&WHOLE_PROMPTS);
    scene.worker("r0").router();
    let values = [(counter::ROUTED_DECODE_ONLY, 24.0)];
    scene.at("08:01:00").on("r0").tell(counted("08:00:00", &values));
    scene.assert_silent();
}

#[test]
fn a_request_without_a_prefill_leg_is_decode_only() {
    let mut scene = Scene::new();
    scene.worker("d0").decode();
    scene.worker("r0").router();
    scene.at("08:00:30").on("r0").tell(Body::RequestLeg(decode_leg("lab-3", false, 102)));
    let values = [(counter::PROMPT_LOCAL_COMPUTE, 102.0), (counter::REQUESTS_ANSWERED, 1.0)];
    scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
    scene.assert_silent();
}

#[test]
fn a_decision_for_decode_alone_explains_what_was_computed_though_nobody_tells_its_answer() {
    let told = |status: Option<i64>| {
        let mut scene = Scene::new();
        scene.worker("d0").decode();
        scene.worker("r0").router();
        let mut leg = decode_leg("lab-3", false, 102);
        leg.status = status;
        scene.at("08:00:30").on("r0").tell(Body::RequestLeg(leg));
        let values = [(counter::PROMPT_LOCAL_COMPUTE, 102.0), (counter::REQUESTS_ANSWERED, 1.0)];
        scene.at("08:01:00").on("d0").tell(counted("08:00:00", &values));
        scene
    };
    told(None).assert_silent();
    assert_eq!(told(Some(502)).only(&RECOMPUTE).tokens, 101);
}

#[test]
fn workers_that_prefill_compute_prompts_by_trade() {
    for role in [Role::Prefill, Role::Both] {
        let mut scene = Scene::new();
        match role {
            Role::Prefill => scene.worker("w0").prefill(),
            _ => scene.worker("w0").both(),
        };
        scene.at("08:01:00").on("w0").tell(counted("08:00:00", &WHOLE_PROMPTS));
        scene.assert_silent();
    }
}

// === what is absent, lost or late ===

#[test]
fn counters_wait_for_the_watermark_of_every_node() {
    let mut scene = counted_only(&WHOLE_PROMPTS);
    scene.worker("r0").router().node("node-b");
    assert!(scene.findings_so_far().is_empty(), "nothing may be concluded before node-b has spoken");
    scene.at("08:01:20").on("d0").tell(alive());
    assert!(scene.findings_so_far().is_empty(), "{NODE} has passed, node-b has not");
    scene.at("08:01:20").on("r0").tell(alive());
    assert_eq!(scene.so_far_by(&RECOMPUTE).len(), 1);
}

#[test]
fn what_a_router_lost_is_named_as_unknown() {
    let mut scene = counted_only(&WHOLE_PROMPTS);
    scene.worker("r0").router();
    scene.at("08:00:30").on("r0").tell(lost(12));
    let found = scene.only(&RECOMPUTE);
    assert_eq!(found.confidence, Confidence::Suspected);
    assert!(names_unknown(&found, "lost lines"), "{:?}", found.unknown);
}

// === counted by the router ===

#[test]
fn requests_that_a_router_sent_on_without_parameters_are_suspected() {
    let mut scene = Scene::new();
    scene.worker("r0").router();
    let values = [(counter::ROUTED_WITHOUT_PARAMS, 14.0)];
    scene.at("08:10:00").on("r0").line("r.prom", 0).tell(counted("08:00:00", &values));
    let found = scene.only(&RECOMPUTE);
    assert_eq!((found.confidence, found.count), (Confidence::Suspected, 14));
    assert_eq!(found.cause, Cause::ParamsMissing);
    assert!(places(&found).contains("r.prom:0"));
}

#[test]
fn a_total_of_a_router_that_does_not_move_is_quiet() {
    let mut scene = Scene::new();
    scene.worker("r0").router();
    scene.at("08:00:00").on("r0").tell(totals(&[(counter::ROUTED_WITHOUT_PARAMS, 3.0)]));
    let values = [(counter::ROUTED_WITHOUT_PARAMS, 0.0), (counter::REQUESTS_ANSWERED, 40.0)];
    scene.at("08:10:00").on("r0").tell(counted("08:00:00", &values));
    scene.assert_quiet(&RECOMPUTE);
}
