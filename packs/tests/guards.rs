//! What engines compare before they share KV, by version and settings.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use kvprov_packs::{GuardState, Packs, Version};
use std::collections::BTreeMap;

fn facts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn guards(engine: &str, version: &str, pairs: &[(&str, &str)]) -> Vec<(String, GuardState)> {
    let held = Packs::builtin().guards(engine, Version::parse(version).as_ref(), &facts(pairs));
    held.into_iter().map(|(guard, state)| (guard.id.clone(), state)).collect()
}

const NIXL: (&str, &str) = ("connector", "NixlConnector");

#[test]
fn a_guard_is_there_from_its_release_on() {
    let id = "vllm-nixl-compatibility-hash".to_owned();
    assert_eq!(guards("vllm", "0.32.0", &[NIXL]), [(id, GuardState::On)]);
    assert_eq!(guards("vllm", "0.12.0", &[NIXL]), []);
}

#[test]
fn a_guard_that_a_setting_switches_off_is_off() {
    let off = guards("vllm", "0.32.0", &[NIXL, ("compat_check", "false")]);
    assert_eq!(off.into_iter().map(|(_, state)| state).collect::<Vec<_>>(), [GuardState::Off]);
    let on = guards("vllm", "0.32.0", &[NIXL, ("compat_check", "true")]);
    assert_eq!(on.into_iter().map(|(_, state)| state).collect::<Vec<_>>(), [GuardState::On]);
}

#[test]
fn an_unknown_version_or_another_connector_has_none() {
    assert_eq!(guards("vllm", "", &[NIXL]), []);
    assert_eq!(guards("vllm", "0.32.0", &[("connector", "MooncakeConnector")]), []);
    assert_eq!(guards("sglang", "0.5.23", &[]), []);
    assert_eq!(guards("mooncake", "0.32.0", &[NIXL]), []);
}

#[test]
fn no_guard_of_any_engine_covers_weights_or_adapters() {
    for (engine, version) in [("vllm", "0.33.0"), ("sglang", "0.5.23")] {
        for (guard, _) in Packs::builtin().guards(engine, Version::parse(version).as_ref(), &facts(&[NIXL])) {
            assert!(guard.covers.iter().all(|name| name != "weights" && name != "adapter"), "{guard:?}");
        }
    }
}

#[test]
fn an_entry_that_says_nothing_or_names_no_factor_is_refused() {
    let entry = |covers: &str, outcome: &str| {
        let text = format!(
            "engine = \"e\"\n[[guard]]\nid = \"e-g\"\nname = \"a check\"\ncovers = [{covers}]\noutcome = \"{outcome}\"\n"
        );
        Packs::from_texts(&[("e/guards.toml", text.as_str())]).err().map(|errors| errors[0].to_string())
    };
    assert_eq!(entry("\"dtype\"", "it fails"), None);
    for (covers, outcome, says) in [
        ("", "it fails", "covers nothing"),
        ("\"wieghts\"", "it fails", "wieghts"),
        ("\"dtype\"", " ", "has no words"),
    ] {
        let error = entry(covers, outcome).unwrap();
        assert!(error.contains(says), "{error}");
    }
}
