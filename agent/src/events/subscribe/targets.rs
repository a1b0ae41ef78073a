//! Which publishers a worker has, by its facts or by its own answer.

use super::{Endpoint, NoEndpoint};
use kvprov_model::fact;
use serde_json::Value;
use std::collections::BTreeMap;

/// Ranks of one worker whose publishers are followed.
pub const MAX_RANKS: u16 = 64;

/// A publisher: one rank of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publisher {
    /// Where it publishes.
    pub endpoint: Endpoint,
    /// Where it is asked for batches that were published before.
    pub replay: Option<Endpoint>,
    /// The topic; empty: all.
    pub topic: String,
}

/// The publishers of a worker with these facts; none where it publishes nothing.
///
/// # Errors
/// When it publishes where nobody can subscribe.
pub fn of_facts(facts: &BTreeMap<String, String>) -> Result<Vec<Publisher>, NoEndpoint> {
    let fact = |name: &str| facts.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let Some(endpoint) = fact(fact::KV_EVENTS) else { return Ok(Vec::new()) };
    if fact(fact::KV_EVENTS_ENABLED) == Some("false") {
        return Ok(Vec::new());
    }
    let endpoint = Endpoint::parse(endpoint)?;
    // Without a replay that can be asked the events are followed all the same.
    let replay = fact(fact::KV_EVENTS_REPLAY).and_then(|replay| Endpoint::parse(replay).ok());
    let ranks = fact(fact::DP_SIZE).and_then(|size| size.parse().ok()).unwrap_or(1).clamp(1, MAX_RANKS);
    let publisher = |rank| {
        Some(Publisher {
            endpoint: endpoint.of_rank(rank)?,
            replay: replay.as_ref().and_then(|replay| replay.of_rank(rank)),
            topic: fact(fact::KV_EVENTS_TOPIC).unwrap_or_default().to_owned(),
        })
    };
    Ok((0..ranks).filter_map(publisher).collect())
}

/// The publishers that a worker names when it is asked: an object of ranks, each with `endpoint`, `replay_endpoint` and
/// `topic` as they are in use. Those to which nobody can subscribe are left out.
pub fn of_answer(answer: &[u8]) -> Vec<Publisher> {
    let Ok(Value::Object(ranks)) = serde_json::from_slice(answer) else { return Vec::new() };
    let publisher = |source: &Value| {
        let text = |name: &str| source.get(name).and_then(Value::as_str).filter(|text| text.len() <= 1024);
        if source.get("enable_kv_cache_events").and_then(Value::as_bool) == Some(false) {
            return None;
        }
        Some(Publisher {
            endpoint: Endpoint::parse(text("endpoint")?).ok()?,
            replay: text("replay_endpoint").and_then(|replay| Endpoint::parse(replay).ok()),
            topic: text("topic").unwrap_or_default().to_owned(),
        })
    };
    ranks.values().take(MAX_RANKS.into()).filter_map(publisher).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(facts: &[(&str, &str)]) -> BTreeMap<String, String> {
        facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_rank_has_its_ports() {
        let found = of_facts(&facts(&[
            ("kv_events", "tcp://*:5557"),
            ("kv_events_replay", "tcp://*:6557"),
            ("kv_events_topic", "kv"),
            ("dp_size", "2"),
        ]))
        .unwrap();
        let ports: Vec<(String, String)> = found
            .iter()
            .map(|one| (one.endpoint.to_string(), one.replay.as_ref().unwrap().to_string()))
            .collect();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(ports, [pair("tcp://*:5557", "tcp://*:6557"), pair("tcp://*:5558", "tcp://*:6558")]);
        assert!(found.iter().all(|one| one.topic == "kv"));
    }

    /// The publishers of an engine that runs with this `--kv-events-config`.
    fn configured(engine: &str, config: &str) -> Vec<String> {
        let settings = facts(&[("kv_events_config", config)]);
        let version = kvprov_packs::Version::parse("0.32.0");
        let resolved = kvprov_packs::Packs::builtin().facts(Some(engine), version.as_ref(), &settings);
        of_facts(&resolved.facts)
            .unwrap()
            .iter()
            .map(|one| {
                let replay = one.replay.as_ref().map_or("-".to_owned(), ToString::to_string);
                format!("{} {replay} {}", one.endpoint, one.topic)
            })
            .collect()
    }

    #[test]
    fn the_settings_of_engines_say_where_they_publish() {
        let all = r#"{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:7","replay_endpoint":"tcp://*:8","topic":"kv@p"}"#;
        assert_eq!(configured("vllm", all), ["tcp://*:7 tcp://*:8 kv@p"]);
        assert_eq!(configured("vllm", r#"{"enable_kv_cache_events":true}"#), ["tcp://*:5557 - "]);
        assert_eq!(configured("sglang", r#"{"publisher":"zmq","topic":"kv"}"#), ["tcp://*:5557 - kv"]);
    }

    #[test]
    fn engines_that_publish_nothing_say_so() {
        for config in [
            r#"{"enable_kv_cache_events":false,"endpoint":"tcp://*:7"}"#,
            r#"{"enable_kv_cache_events":true,"publisher":"null","endpoint":"tcp://*:7"}"#,
        ] {
            assert!(configured("vllm", config).is_empty(), "{config}");
        }
        assert!(configured("sglang", r#"{"publisher":"null"}"#).is_empty());
    }

    #[test]
    fn a_worker_that_publishes_nothing_has_no_publisher() {
        assert!(of_facts(&facts(&[])).unwrap().is_empty());
        assert!(
            of_facts(&facts(&[("kv_events", "tcp://*:1"), ("kv_events_enabled", "false")]))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn ranks_are_bounded_and_a_size_that_is_none_is_one() {
        let ranks =
            |size| of_facts(&facts(&[("kv_events", "tcp://*:1000"), ("dp_size", size)])).unwrap().len();
        assert_eq!((ranks("60000"), ranks("0"), ranks("x")), (64, 1, 1));
    }

    #[test]
    fn a_port_that_the_system_chose_is_told_by_the_worker() {
        let answer =
            br#"{"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://192.0.2.1:40001",
            "replay_endpoint":null,"buffer_steps":10000,"topic":"kv"}}"#;
        let found = of_answer(answer);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].endpoint.to_string(), "tcp://192.0.2.1:40001");
        assert_eq!(found[0].replay, None);
    }

    #[test]
    fn an_answer_that_is_none_names_nobody() {
        for answer in [
            "",
            "[]",
            "{}",
            r#"{"0":null}"#,
            r#"{"0":{"endpoint":"inproc://x"}}"#,
            r#"{"detail":"Not Found"}"#,
        ] {
            assert!(of_answer(answer.as_bytes()).is_empty(), "{answer}");
        }
    }
}
