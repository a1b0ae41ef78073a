//! What workers answer about their models.

use super::http_double::Double;
use super::room::{Room, for_a_while, options, scraper, until, vllm};
use kvprov_agent::http::ReadPath;
use kvprov_agent::metrics::scrape::ScrapeOptions;
use kvprov_model::fact;
use std::time::Duration;

fn asking(paths: &[ReadPath]) -> ScrapeOptions {
    ScrapeOptions { counters: false, answers: paths.to_vec(), ..options() }
}

const MODELS: &str = r#"{"object":"list","data":[
    {"id":"tiny","object":"model","root":"/models/cur","parent":null,"api_key":"sk-secret"},
    {"id":"fr","object":"model","root":"/models/lora-fr","parent":"tiny"}]}"#;

#[test]
fn served_models_and_adapters_are_told_and_nothing_else_of_the_answer() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/v1/models", MODELS);
    let mut scraper = scraper(folder.path(), asking(&[ReadPath::Models]));
    scraper.worker(&vllm("d0", &double), &room);
    until(&mut scraper, &room, "the models are told", |room| !room.told("d0").is_empty());
    let told = room.told("d0").remove(0);
    assert_eq!(told.facts[fact::MODEL_NAME], "tiny");
    assert_eq!(told.facts[fact::MODEL_PATH], "/models/cur");
    assert_eq!(told.facts[fact::ADAPTERS_LOADED], "fr=/models/lora-fr");
    assert_eq!(told.fact_origins[fact::MODEL_PATH], "GET /v1/models");
    assert!(!format!("{:?}", room.taken.lock().unwrap()).contains("secret"));
}

#[test]
fn what_settings_say_stands_and_what_is_only_a_default_does_not() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page(
        "/server_info?config_format=json",
        r#"{"vllm_config":{"model_config":{"model":"/models/other"},"cache_config":{"block_size":32},
            "kv_transfer_config":{"engine_id":"e-1"}},"vllm_env":{"VLLM_API_KEY":"sk-secret"}}"#,
    );
    let mut worker = vllm("d0", &double);
    worker.facts.insert(fact::MODEL_PATH.to_owned(), "/models/cur".to_owned());
    worker.fact_origins.insert(fact::MODEL_PATH.to_owned(), "setting model".to_owned());
    worker.facts.insert(fact::BLOCK_SIZE.to_owned(), "16".to_owned());
    worker.fact_origins.insert(fact::BLOCK_SIZE.to_owned(), "default of 0.32.0".to_owned());
    let mut scraper = scraper(folder.path(), asking(&[ReadPath::ServerInfo]));
    scraper.worker(&worker, &room);
    until(&mut scraper, &room, "the configuration is told", |room| !room.told("d0").is_empty());
    let told = room.told("d0").remove(0);
    assert_eq!(told.facts.get(fact::MODEL_PATH), None);
    assert_eq!(told.facts[fact::BLOCK_SIZE], "32");
    assert_eq!(told.engine_ids, ["e-1"]);
}

#[test]
fn a_version_that_nothing_else_tells_gives_its_defaults() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    double.page("/version", r#"{"version":"0.32.0"}"#);
    let mut worker = vllm("d0", &double);
    worker.engine_version = None;
    let mut scraper = scraper(folder.path(), asking(&[ReadPath::Version]));
    scraper.worker(&worker, &room);
    until(&mut scraper, &room, "the version is told", |room| !room.told("d0").is_empty());
    let told = room.told("d0").remove(0);
    assert_eq!(told.engine_version.as_deref(), Some("0.32.0"));
    assert_eq!(told.facts[fact::LOAD_FAILURE_POLICY], "fail");
    for_a_while(&mut scraper, &room, Duration::from_millis(300));
    assert_eq!(double.times_asked("/version"), 1, "a version is for life");
}

#[test]
fn what_is_not_served_is_said_once_and_not_asked_for_again() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    let mut scraper = scraper(folder.path(), asking(&[ReadPath::WeightInfo]));
    let worker = vllm("d0", &double);
    scraper.worker(&worker, &room);
    until(&mut scraper, &room, "it is said", |room| !room.blind().is_empty());
    scraper.worker(&worker, &room);
    for_a_while(&mut scraper, &room, Duration::from_millis(300));
    assert_eq!(double.times_asked("/weight_info"), 1);
    assert_eq!(room.blind().len(), 1);
    assert!(room.blind()[0].contains("404"), "{:?}", room.blind());
}

#[test]
fn an_answer_that_is_none_is_no_news() {
    let (double, room, folder) = (Double::start(), Room::default(), tempfile::tempdir().unwrap());
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let mut scraper = scraper(folder.path(), asking(&[ReadPath::Models]));
    for (name, answer) in
        [("a", "{}"), ("b", "<html>"), ("c", r#"{"data":[7,null,{"id":{}}]}"#), ("d", &deep)]
    {
        double.page("/v1/models", answer);
        scraper.worker(&vllm(name, &double), &room);
        let asked = double.times_asked("/v1/models");
        until(&mut scraper, &room, "it is asked", |_| double.times_asked("/v1/models") > asked);
        for_a_while(&mut scraper, &room, Duration::from_millis(100));
    }
    assert!(room.taken.lock().unwrap().is_empty(), "{room:?}");
}
