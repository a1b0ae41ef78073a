//! Where workers serve what may be read, and what their answers say.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

use kvprov_packs::endpoint::PATHS;
use kvprov_packs::{PackError, Packs};
use serde_json::json;
use std::collections::BTreeMap;

fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Port and reason of the endpoint with counters.
fn metrics(engine: &str, pairs: &[(&str, &str)], with_defaults: bool) -> Vec<(u16, Option<&'static str>)> {
    let endpoints = Packs::builtin().endpoints(engine, &settings(pairs), with_defaults);
    let with_counters =
        endpoints.into_iter().filter(|found| found.serves.iter().any(|path| path == "/metrics"));
    with_counters.map(|found| (found.port, found.refused)).collect()
}

#[track_caller]
fn refused(entry: &str, words: &str) {
    let pack = format!("engine = \"e\"\n{entry}\n");
    let errors: Vec<PackError> = Packs::from_texts(&[("e/a.toml", &pack)]).err().unwrap_or_default();
    let is_named = |error: &PackError| error.line > 1 && error.to_string().contains(words);
    assert!(errors.iter().any(is_named), "{words:?} not in {errors:#?}");
}

#[test]
fn the_port_is_what_settings_say_or_the_default() {
    assert_eq!(metrics("vllm", &[("port", "8100")], true), [(8100, None)]);
    assert_eq!(metrics("vllm", &[], true), [(8000, None)]);
    assert_eq!(metrics("mooncake", &[], true), [(9003, None)]);
    assert_eq!(metrics("vllm", &[("DYN_SYSTEM_PORT", "9345"), ("port", "0")], true), [(9345, None)]);
}

#[test]
fn where_arguments_were_not_seen_no_default_is_taken() {
    assert_eq!(metrics("vllm", &[], false), []);
}

#[test]
fn what_cannot_be_read_says_why() {
    let why = |engine, pairs: &[(&str, &str)]| metrics(engine, pairs, true)[0].1.unwrap_or_default();
    assert!(why("vllm", &[("ssl_certfile", "/etc/tls/c.pem")]).contains("TLS"));
    assert!(why("vllm", &[("uds", "/run/vllm.sock")]).contains("Unix socket"));
    assert!(why("sglang", &[("port", "30000")]).contains("--enable-metrics"));
    assert_eq!(why("sglang", &[("enable_metrics", "true")]), "");
    assert_eq!(why("vllm", &[("disable_log_stats", "false")]), "");
}

#[test]
fn an_entry_that_cannot_work_is_refused_with_its_line() {
    let whole = "[[endpoint]]\nid = \"e-x\"\ndefault_port = 80\nserves = [\"/metrics\"]";
    assert!(Packs::from_texts(&[("e/a.toml", &format!("engine = \"e\"\n{whole}\n"))]).is_ok());
    refused(&whole.replace("default_port = 80", "default_port = 0"), "0 is no port");
    refused(&whole.replace("default_port = 80\n", ""), "nothing tells the port");
    refused(&whole.replace("\"/metrics\"", "\"/sleep\""), "`/sleep` is not read");
    refused(&whole.replace("\"/metrics\"", ""), "serves nothing");
    refused(&format!("{whole}\nunless = {{ uds = \"\" }}"), "gives no reason");
    let answer =
        "[[answer]]\nid = \"e-a\"\npath = \"/version\"\nengine_version = \"v\"\nexample = '{\"v\":\"1\"}'";
    assert!(Packs::from_texts(&[("e/a.toml", &format!("engine = \"e\"\n{answer}\n"))]).is_ok());
    refused(&answer.replace("{\"v\"", "{\"w\""), "nothing of the example is read");
    refused(&answer.replace("{\"v\"", "{v"), "no JSON");
    refused(&answer.replace("engine_version = \"v\"\n", ""), "reads nothing");
    refused(&answer.replace("engine_version = \"v\"", "facts = { luck = \"v\" }"), "`luck` is no fact");
}

#[test]
fn every_path_that_is_served_is_one_that_may_be_read() {
    for engine in ["vllm", "sglang", "lmcache", "mooncake", "dynamo", "llm-d"] {
        for found in Packs::builtin().endpoints(engine, &settings(&[("port", "1")]), true) {
            assert!(found.serves.iter().all(|path| PATHS.contains(&path.as_str())), "{}", found.id);
        }
    }
}

#[test]
fn of_an_answer_only_what_is_named_is_kept() {
    let answer = json!({"data": [
        {"id": "fr", "root": "/models/fr", "parent": "tiny", "api_key": "sk"},
        {"id": "tiny", "root": "/models/cur", "parent": null, "api_key": "sk"},
        {"id": "alias", "root": "/models/cur", "parent": null},
    ], "token": "sk"});
    let said = Packs::builtin().read_answer("vllm", "/v1/models", &answer).unwrap();
    assert_eq!(said.facts, settings(&[("model_name", "tiny"), ("model_path", "/models/cur")]));
    assert_eq!(said.adapters, Some(settings(&[("fr", "/models/fr")])));
    assert!(!format!("{said:?}").contains("sk"));
    assert_eq!(Packs::builtin().read_answer("vllm", "/v1/models", &json!({"data": 7})), None);
    assert_eq!(Packs::builtin().read_answer("vllm", "/metrics", &answer), None);
}
