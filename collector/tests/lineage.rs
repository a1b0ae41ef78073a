//! Lineage: four points of a request, consistent only where all are known and agree.

#![allow(clippy::unwrap_used, reason = "tests")]

mod scene;

use kvprov_model::fact;
use kvprov_model::finding::Cause;
use kvprov_model::lineage::{Lineage, LineageStatus};
use kvprov_model::observation::{Body, RequestLeg, Worker};
use scene::Scene;
use scene::tell::*;

/// A request over a pair with these weights; an empty text leaves them unknown.
fn over_a_pair(prefill: &str, decode: &str) -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p");
    scene.worker("d0").decode();
    scene.worker("r0").router();
    for (worker, digest) in [("p0", prefill), ("d0", decode)] {
        if !digest.is_empty() {
            scene.worker(worker).weights(digest);
        }
    }
    scene
        .at("08:00:10")
        .on("r0")
        .tell(Body::RequestLeg(RequestLeg { model: Some("prod".to_owned()), ..prefill_leg("lab-1") }));
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(RequestLeg {
        remote_engine_id: Some("e-p".to_owned()),
        ..decode_leg("lab-1", true, 102)
    }));
    scene
}

fn lineage(scene: &Scene) -> Lineage {
    scene.lineages().remove("lab-1").unwrap()
}

#[test]
fn equal_weights_on_both_sides_are_consistent() {
    let found = lineage(&over_a_pair("aa", "aa"));
    assert_eq!(found.status, LineageStatus::Consistent);
    assert_eq!(found.points.request.model.as_deref(), Some("prod"));
    assert_eq!(found.points.prefill.worker.as_deref(), Some("p0"));
    assert_eq!(found.points.decode.worker.as_deref(), Some("d0"));
    assert_eq!(found.points.artifact.outcome.as_deref(), Some("transfer"));
    assert_eq!(found.points.prefill.weights.as_deref(), Some("sha256:aa"));
    assert_eq!(found.points.prefill.revision, found.points.decode.revision);
}

#[test]
fn kv_of_other_weights_is_divergent() {
    assert_eq!(lineage(&over_a_pair("aa", "bb")).status, LineageStatus::Divergent);
}

#[test]
fn a_point_that_no_source_shows_makes_it_unverified_and_says_so() {
    for (prefill, decode) in [("", "bb"), ("aa", ""), ("", "")] {
        let found = lineage(&over_a_pair(prefill, decode));
        assert_eq!(found.status, LineageStatus::Unverified);
        let unknown = [&found.points.prefill.unknown, &found.points.decode.unknown];
        assert!(unknown.iter().any(|point| point.is_some()));
    }
}

#[test]
fn a_recomputed_prompt_has_the_decode_workers_revision() {
    let mut scene = over_a_pair("aa", "bb");
    scene.at("08:00:11").on("d0").tell(handshake_failed("cmpl-lab-1-0", Cause::CompatHashMismatch));
    let found = lineage(&scene);
    assert_eq!(found.points.artifact.outcome.as_deref(), Some("recomputed"));
    assert_eq!(found.points.artifact.weights, found.points.decode.weights);
    assert_eq!(found.status, LineageStatus::Consistent);
}

#[test]
fn a_request_that_failed_has_no_artifact_and_is_unverified() {
    let mut scene = over_a_pair("aa", "aa");
    scene.at("08:00:11").on("d0").tell(aborted("cmpl-lab-1-0", Cause::TransferFailed));
    scene.at("08:00:12").on("d0").tell(failed_for_load(&["cmpl-lab-1-0"]));
    let found = lineage(&scene);
    assert_eq!(found.points.artifact.outcome.as_deref(), Some("failed"));
    assert_eq!(found.status, LineageStatus::Unverified);
}

#[test]
fn a_decode_only_request_is_its_own() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().weights("aa");
    scene.worker("d0").decode().weights("bb");
    scene.worker("r0").router();
    scene.at("08:00:12").on("r0").tell(Body::RequestLeg(decode_leg("lab-1", false, 102)));
    let found = lineage(&scene);
    assert_eq!(found.points.artifact.outcome.as_deref(), Some("local"));
    assert_eq!(found.status, LineageStatus::Consistent);
    assert!(found.points.prefill.unknown.is_some());
}

#[test]
fn an_epoch_decides_what_a_request_ran_under() {
    let mut scene = over_a_pair("aa", "aa");
    scene.worker("p0").weights_from("08:00:11", "bb");
    assert_eq!(lineage(&scene).status, LineageStatus::Divergent);
    let mut scene = over_a_pair("aa", "aa");
    scene.worker("p0").weights_from("08:00:30", "bb");
    assert_eq!(lineage(&scene).status, LineageStatus::Consistent);
}

#[test]
fn a_failure_alone_gives_a_lineage_of_the_worker_that_told_it() {
    let mut scene = Scene::new();
    scene.worker("d0").decode().weights("aa");
    scene.at("08:00:11").on("d0").tell(handshake_failed("lab-1", Cause::HandshakeTimeout));
    let found = lineage(&scene);
    assert_eq!(found.points.decode.worker.as_deref(), Some("d0"));
    assert_eq!(found.status, LineageStatus::Unverified);
    assert!(found.points.artifact.unknown.is_some());
}

#[test]
fn a_request_that_no_source_places_has_no_lineage() {
    let mut scene = Scene::new();
    scene.worker("p0").prefill();
    scene.at("08:00:11").on("p0").tell(retrieved("lab-1", 96));
    assert!(scene.lineages().is_empty());
}

#[test]
fn every_printed_form_of_an_id_is_one_request() {
    let mut scene = over_a_pair("aa", "aa");
    scene.at("08:00:11").on("d0").tell(transferred_from("e-p", "cmpl-lab-1-0-920717f1"));
    assert_eq!(scene.lineages().len(), 1);
}

/// The pair serves one adapter name; a digest for each side.
fn with_adapters(prefill: &str, decode: &str) -> Scene {
    let mut scene = over_a_pair("aa", "aa");
    for (worker, directory, digest) in [("p0", "/models/one", prefill), ("d0", "/models/two", decode)] {
        scene.worker(worker).fact(fact::ADAPTER_DIRECTORIES, &format!("ad={directory}"));
        scene.worker(worker).loaded("08:00:00", directory, digest);
    }
    scene
}

#[test]
fn a_request_that_may_have_used_an_adapter_that_differs_is_unverified() {
    assert_eq!(lineage(&with_adapters("11", "22")).status, LineageStatus::Unverified);
}

#[test]
fn a_request_that_may_have_used_an_adapter_that_both_have_is_consistent() {
    assert_eq!(lineage(&with_adapters("11", "11")).status, LineageStatus::Consistent);
}

#[test]
fn a_request_during_which_the_differing_adapter_ran_is_divergent() {
    let mut scene = with_adapters("11", "22");
    scene.at("08:00:30").on("r0").tell(Body::RequestLeg(RequestLeg {
        remote_engine_id: Some("e-p".to_owned()),
        duration_ns: Some(3_000_000_000),
        ..decode_leg("lab-2", true, 102)
    }));
    let facts = [(fact::ADAPTERS_RUNNING.to_owned(), "ad".to_owned())].into();
    scene.at("08:00:29").on("d0").tell(Body::Worker(Worker { facts, ..Worker::default() }));
    assert_eq!(scene.lineages().remove("lab-2").unwrap().status, LineageStatus::Divergent);
}
