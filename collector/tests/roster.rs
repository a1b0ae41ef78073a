//! The roster: what is known of each worker, merged field by field in any order.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_collector::view::Roster;
use kvprov_model::fact;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Role, Worker};
use scene::tell::adapter_loaded;
use scene::{Scene, clock};

fn roster(scene: &Scene) -> Roster {
    let forth = Roster::build(scene.observations());
    let mut back: Vec<_> = scene.observations().to_vec();
    back.reverse();
    assert_eq!(format!("{forth:?}"), format!("{:?}", Roster::build(&back)), "the order does not matter");
    forth
}

/// What a start-up line or a default says of a fact.
fn said(scene: &mut Scene, time: &str, name: &str, value: &str, origin: &str) {
    scene.at(time).on("e0").tell(Body::Worker(Worker {
        facts: [(name.to_owned(), value.to_owned())].into(),
        fact_origins: [(name.to_owned(), origin.to_owned())].into(),
        ..Worker::default()
    }));
}

fn fact_of(scene: &Scene, name: &str) -> Option<String> {
    roster(scene).get(&WorkerId::from("e0"))?.fact(name).map(str::to_owned)
}

#[test]
fn statements_on_one_worker_merge_field_by_field() {
    let mut scene = Scene::new();
    scene.worker("e0").decode().engine_id("e-1").engine_id("e-2").fact(fact::TP_SIZE, "2");
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    assert_eq!(member.role, Some(Role::Decode));
    assert_eq!(member.engine_ids.len(), 2);
    assert_eq!(member.number(fact::TP_SIZE), Some(2.0));
}

#[test]
fn what_a_container_is_called_takes_the_place_of_what_was_guessed() {
    let mut scene = Scene::new();
    let of = |pod: &str, namespace: Option<&str>| {
        Body::Worker(Worker {
            pod: Some(pod.to_owned()),
            namespace: namespace.map(str::to_owned),
            image_digest: namespace.map(|_| "sha256:5c".to_owned()),
            ..Worker::default()
        })
    };
    scene.at("08:00:00").on("e0").tell(of("a-host", None));
    scene.at("08:00:05").on("e0").tell(of("decode-0", Some("serving")));
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    assert_eq!((member.pod.as_deref(), member.namespace.as_deref()), (Some("decode-0"), Some("serving")));
    assert_eq!(member.image_digest.as_deref(), Some("sha256:5c"));
    assert_eq!((member.container.as_deref(), member.image.as_deref()), (None, None), "not told, not known");
}

#[test]
fn a_setting_beats_a_later_start_up_line() {
    let mut scene = Scene::new();
    scene.worker("e0").policy("recompute");
    said(&mut scene, "08:00:00", fact::LOAD_FAILURE_POLICY, "fail", "log line");
    assert_eq!(fact_of(&scene, fact::LOAD_FAILURE_POLICY).as_deref(), Some("recompute"));
}

#[test]
fn a_start_up_line_beats_a_default_whenever_it_comes() {
    for (line, default) in [("08:00:00", "08:00:05"), ("08:00:05", "08:00:00")] {
        let mut scene = Scene::new();
        said(&mut scene, line, fact::LOAD_FAILURE_POLICY, "recompute", "log line");
        said(&mut scene, default, fact::LOAD_FAILURE_POLICY, "fail", "default of 0.32");
        assert_eq!(fact_of(&scene, fact::LOAD_FAILURE_POLICY).as_deref(), Some("recompute"));
    }
}

#[test]
fn a_default_holds_where_nothing_else_is_known() {
    let mut scene = Scene::new();
    said(&mut scene, "08:00:00", fact::LOAD_FAILURE_POLICY, "fail", "default of 0.32");
    assert_eq!(fact_of(&scene, fact::LOAD_FAILURE_POLICY).as_deref(), Some("fail"));
}

#[test]
fn the_later_of_two_start_up_lines_holds() {
    let mut scene = Scene::new();
    said(&mut scene, "08:00:00", fact::HASH_SEED, "0", "log line");
    said(&mut scene, "09:00:00", fact::HASH_SEED, "7", "log line");
    assert_eq!(fact_of(&scene, fact::HASH_SEED).as_deref(), Some("7"));
}

#[test]
fn a_data_parallel_rank_is_known_by_its_base_id() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    let roster = roster(&scene);
    assert_eq!(roster.by_engine_id("e-p_dp1").unwrap().id.as_str(), "p0");
    assert!(roster.by_engine_id("e-q").is_none());
}

#[test]
fn an_endpoint_is_found_by_its_port_else_by_the_only_worker_of_the_role() {
    let mut scene = Scene::new();
    scene.worker("d0").decode().fact(fact::HTTP_ADDRESS, "0.0.0.0:8200");
    scene.worker("d1").decode().fact(fact::HTTP_ADDRESS, "0.0.0.0:8300");
    scene.worker("p0").prefill();
    let roster = roster(&scene);
    let at = |endpoint: Option<&str>, role| roster.by_endpoint(endpoint, &role, None).map(|m| m.id.0.clone());
    assert_eq!(at(Some("http://10.0.0.1:8300/v1"), Role::Decode).as_deref(), Some("d1"));
    assert_eq!(at(Some("10.0.0.1:9999"), Role::Prefill).as_deref(), Some("p0"));
    assert_eq!(at(None, Role::Decode), None, "two decoders and no port");
}

#[test]
fn of_two_workers_at_one_port_the_one_that_ran_then_answered() {
    let mut scene = Scene::new();
    for name in ["d0", "d1"] {
        scene.worker(name).decode().fact(fact::HTTP_ADDRESS, "127.0.0.1:8200");
    }
    scene.worker("d0").loaded("08:00:00", "weights", "aa").gone("08:01:00");
    scene.worker("d1").loaded("08:02:00", "weights", "aa");
    let roster = roster(&scene);
    let at = |time: &str| {
        let mut told = scene.observations()[0].envelope.clone();
        told.wall = Some(clock(time));
        let found = roster.by_endpoint(Some("http://127.0.0.1:8200"), &Role::Decode, Some(&told));
        found.map(|member| member.id.as_str().to_owned())
    };
    assert_eq!(at("08:00:30").as_deref(), Some("d0"));
    assert_eq!(at("08:02:30").as_deref(), Some("d1"));
    assert_eq!(at("08:01:30"), None, "nobody");
}

#[test]
fn factors_hold_from_their_time_on() {
    let mut scene = Scene::new();
    scene.worker("e0").weights("aa").weights_from("08:00:10", "bb");
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    let weights = |time: &str| member.factors_at(Some(clock(time)), None).0["weights"].value.clone();
    assert_eq!((weights("08:00:09"), weights("08:00:10")), ("aa".to_owned(), "bb".to_owned()));
    assert_eq!(member.changes(), [(clock("08:00:10"), "weights".to_owned())]);
}

#[test]
fn an_adapters_factor_counts_only_for_requests_that_use_it() {
    let mut scene = Scene::new();
    scene.worker("e0").weights("aa").adapter("ad", "11");
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    assert!(!member.factors_at(None, None).0.contains_key("adapter"));
    assert_eq!(member.factors_at(None, Some("ad")).0["adapter"].value, "11");
    assert!(!member.factors_at(None, Some("prod")).0.contains_key("adapter"));
}

fn adapter_at(scene: &Scene, name: &str, time: &str) -> Option<String> {
    let roster = roster(scene);
    roster.get(&WorkerId::from("e0"))?.adapter_at(name, Some(clock(time))).map(|factor| factor.value.clone())
}

#[test]
fn an_adapter_is_known_by_the_name_that_arguments_give_its_directory() {
    let mut scene = Scene::new();
    scene.worker("e0").fact(fact::ADAPTER_DIRECTORIES, "ad=/models/one,other=/models/two/");
    scene.worker("e0").loaded("08:00:00", "/models/one", "11").loaded("08:00:00", "/models/two", "22");
    assert_eq!(adapter_at(&scene, "ad", "08:01:00").as_deref(), Some("11"));
    assert_eq!(adapter_at(&scene, "other", "08:01:00").as_deref(), Some("22"));
    assert_eq!(adapter_at(&scene, "third", "08:01:00"), None);
}

#[test]
fn an_adapter_that_moves_to_another_directory_is_another_from_then_on() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "/models/one", "11").loaded("08:01:00", "/models/two", "22");
    scene.at("08:00:01").on("e0").tell(adapter_loaded("ad", "/models/one"));
    scene.at("08:01:01").on("e0").tell(adapter_loaded("ad", "/models/two"));
    assert_eq!(adapter_at(&scene, "ad", "08:00:30").as_deref(), Some("11"));
    assert_eq!(adapter_at(&scene, "ad", "08:01:30").as_deref(), Some("22"));
    assert!(roster(&scene).get(&WorkerId::from("e0")).unwrap().changes().is_empty());
}

#[test]
fn an_adapter_that_nobody_placed_is_the_only_directory_called_like_it() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "/adapters/tenant", "11");
    assert_eq!(adapter_at(&scene, "tenant", "08:01:00").as_deref(), Some("11"));
    scene.worker("e0").loaded("08:00:00", "/elsewhere/tenant", "22");
    assert_eq!(adapter_at(&scene, "tenant", "08:01:00"), None);
}

#[test]
fn a_name_of_a_hub_is_no_directory() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "/cache/blobs", "11");
    scene.at("08:00:01").on("e0").tell(adapter_loaded("ad", "org/blobs"));
    assert_eq!(adapter_at(&scene, "ad", "08:01:00"), None);
}

#[test]
fn content_that_is_not_known_ends_what_was_known() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "weights", "aa").opened_unknown("08:01:00", "weights");
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    assert!(member.factors_at(Some(clock("08:00:30")), None).0.contains_key("weights"));
    assert!(!member.factors_at(Some(clock("08:01:30")), None).0.contains_key("weights"));
    assert_eq!(member.revision_at(Some(clock("08:01:30")), None), None);
    assert!(member.changes().is_empty(), "what is unknown is no change to accuse of");
}

#[test]
fn a_sample_stands_where_nothing_is_known_and_goes_when_content_is() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "weights", "aa").opened_unknown("08:01:00", "weights");
    scene.worker("e0").sampled("08:01:00", "weights", "ss").sampled("08:01:00", "/models/ad", "ss");
    let stated = |scene: &Scene| {
        let roster = roster(scene);
        let member = roster.get(&WorkerId::from("e0")).unwrap();
        assert_eq!(member.revision_at(Some(clock("08:01:30")), None), None);
        member.factors().into_iter().map(|stated| stated.factor.value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(stated(&scene), ["ss", "ss"]);
    scene.worker("e0").loaded("08:01:00", "/models/ad", "11");
    assert_eq!(stated(&scene), ["ss", "11"], "in whatever order they are told");
    scene.worker("e0").loaded("08:01:00", "weights", "bb");
    let roster = roster(&scene);
    let member = roster.get(&WorkerId::from("e0")).unwrap();
    assert_eq!(member.changes(), [(clock("08:01:00"), "weights".to_owned())]);
    assert!(member.revision_at(Some(clock("08:01:30")), None).is_some());
}

#[test]
fn the_same_tensors_in_other_files_are_no_new_epoch() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "weights", "aa layout=l meaning=tensors-v1:t");
    scene.worker("e0").opened_unknown("08:01:00", "weights").loaded("08:01:00", "weights", "bb layout=m");
    let changes = |scene: &Scene| roster(scene).get(&WorkerId::from("e0")).unwrap().changes();
    assert!(changes(&scene).is_empty(), "not known to be others");
    scene.worker("e0").loaded("08:01:00", "weights", "bb layout=m meaning=tensors-v1:t");
    assert!(changes(&scene).is_empty());
    scene.worker("e0").loaded("08:02:00", "weights", "cc layout=l meaning=tensors-v1:u");
    assert_eq!(changes(&scene), [(clock("08:02:00"), "weights".to_owned())]);
}

#[test]
fn why_a_factor_is_not_known_stands_until_it_is() {
    let mut scene = Scene::new();
    scene.worker("e0").opened_in_vain("08:00:00", "weights", "it may not be read");
    let reasons = |scene: &Scene| {
        let roster = roster(scene);
        let unknown = roster.get(&WorkerId::from("e0")).unwrap().unknown();
        unknown.into_iter().map(|(name, _, _, reason)| format!("{name}: {reason}")).collect::<Vec<_>>()
    };
    assert_eq!(reasons(&scene), ["weights: it may not be read"]);
    scene.worker("e0").loaded("08:00:00", "weights", "aa");
    assert!(reasons(&scene).is_empty());
}

#[test]
fn equal_content_opened_anew_is_no_new_epoch_and_other_content_is() {
    let mut scene = Scene::new();
    scene.worker("e0").loaded("08:00:00", "/models/ad", "11").opened_unknown("08:01:00", "/models/ad");
    scene.worker("e0").loaded("08:01:00", "/models/ad", "11");
    assert!(roster(&scene).get(&WorkerId::from("e0")).unwrap().changes().is_empty());
    scene.worker("e0").opened_unknown("08:02:00", "/models/ad").loaded("08:02:00", "/models/ad", "22");
    let changes = roster(&scene).get(&WorkerId::from("e0")).unwrap().changes();
    assert_eq!(changes, [(clock("08:02:00"), "adapter".to_owned())]);
}

#[test]
fn an_adapter_that_was_overwritten_before_it_was_read_begins_an_epoch_when_it_is_loaded_again() {
    let epochs = |loads: &[&str]| {
        let mut scene = Scene::new();
        scene.worker("e0").loaded("08:00:03", "/models/ad", "22");
        for load in loads {
            scene.at(load).on("e0").tell(adapter_loaded("ad", "/models/ad"));
        }
        roster(&scene).get(&WorkerId::from("e0")).unwrap().epochs()
    };
    assert_eq!(epochs(&["08:00:01", "08:00:03"]), [(clock("08:00:03"), "adapter".to_owned())]);
    assert!(epochs(&[]).is_empty());
    assert!(epochs(&["08:00:03", "08:00:04"]).is_empty(), "one load that two sources tell");
    assert!(epochs(&["08:00:01"]).is_empty(), "a load whose content was read later");
}

#[test]
fn a_worker_that_only_speaks_is_no_member_yet() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.at("08:00:00").tell(scene::tell::alive());
    assert_eq!(roster(&scene).members().count(), 1);
}

#[test]
fn the_end_of_a_worker_is_known() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().gone("08:00:05");
    assert_eq!(roster(&scene).get(&WorkerId::from("p0")).unwrap().gone, Some(clock("08:00:05")));
}

#[test]
fn an_endpoint_is_of_the_worker_that_has_its_port_else_of_the_only_one_of_the_role() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().fact(fact::HTTP_ADDRESS, "10.0.0.1:8100");
    scene.worker("d0").decode().fact(fact::HTTP_ADDRESS, "10.0.0.1:8200");
    scene.worker("d1").decode().fact(fact::HTTP_ADDRESS, "10.0.0.2:8200");
    scene.worker("d2").decode().fact(fact::HTTP_ADDRESS, "10.0.0.3:8300");
    let roster = roster(&scene);
    let found =
        |endpoint, role: Role| roster.by_endpoint(endpoint, &role, None).map(|member| member.id.0.clone());
    assert_eq!(found(Some("http://engine-c:8300/v1"), Role::Decode).as_deref(), Some("d2"));
    assert_eq!(
        found(Some("10.9.9.9:8100"), Role::Decode).as_deref(),
        Some("p0"),
        "the port says more than the role"
    );
    assert_eq!(found(Some("10.0.0.1:8200"), Role::Decode), None, "two have that port");
    assert_eq!(found(Some("10.0.0.1:8999"), Role::Prefill).as_deref(), Some("p0"));
    assert_eq!(found(None, Role::Prefill).as_deref(), Some("p0"));
    assert_eq!(found(None, Role::Decode), None);
}
