//! Observation ⇄ OTLP is loss-free both ways, for every kind and for what this version does not know.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

use kvprov_model::clock::{MonotonicTime, WallTime};
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, Envelope, Observation, SourceKind, otlp};
use kvprov_model::value::Value;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        ".{0,12}".prop_map(Value::Str),
        any::<i64>().prop_map(Value::Int),
        (-1e9f64..1e9).prop_map(Value::Float),
        any::<bool>().prop_map(Value::Bool),
        proptest::collection::vec(any::<u8>(), 0..6).prop_map(Value::Bytes),
        Just(Value::Empty),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::List),
            proptest::collection::vec(("[a-z]{1,4}", inner), 0..3).prop_map(Value::Map),
        ]
    })
}

fn known_value(field_type: &'static str) -> BoxedStrategy<Value> {
    let text = "[a-zA-Z0-9 /:_-]{1,12}";
    match field_type {
        "text" | "word" => text.prop_map(Value::Str).boxed(),
        "integer" => any::<i64>().prop_map(Value::Int).boxed(),
        "number" => (-1e9f64..1e9).prop_map(Value::Float).boxed(),
        "flag" => any::<bool>().prop_map(Value::Bool).boxed(),
        "list of text" => {
            proptest::collection::vec(text.prop_map(Value::Str), 1..4).prop_map(Value::List).boxed()
        }
        "map of text" => proptest::collection::btree_map("[a-z]{1,4}", text.prop_map(Value::Str), 1..4)
            .prop_map(|map| Value::Map(map.into_iter().collect()))
            .boxed(),
        _ => proptest::collection::btree_map("[a-z]{1,4}", (-1e9f64..1e9).prop_map(Value::Float), 1..4)
            .prop_map(|map| Value::Map(map.into_iter().collect()))
            .boxed(),
    }
}

fn any_body() -> impl Strategy<Value = Body> {
    (0..=Body::KINDS.len()).prop_flat_map(|index| match Body::KINDS.get(index) {
        None => "[a-z]{3,8}_new".prop_map(|kind| Body::Unknown { kind }).boxed(),
        Some(kind) => {
            let fields: Vec<_> = kind
                .fields
                .iter()
                .map(|field| (Just(field.name), proptest::option::of(known_value(field.field_type))))
                .collect();
            fields
                .prop_map(|fields| {
                    let mut body = Body::empty(kind.name);
                    for (name, value) in fields {
                        if let Some(value) = value {
                            body.set(name, value).unwrap();
                        }
                    }
                    body
                })
                .boxed()
        }
    })
}

fn any_observation() -> impl Strategy<Value = Observation> {
    let envelope = (
        any::<[u8; 16]>(),
        "[a-z]{1,6}",
        proptest::option::of("[a-f0-9]{8}"),
        proptest::option::of("[a-z]{1,6}"),
        0..6usize,
        "[a-z./]{0,12}",
        any::<i64>(),
        proptest::option::of(any::<u64>()),
        proptest::option::of(any::<i64>()),
        proptest::option::of(".{0,20}"),
    )
        .prop_map(|(id, node, boot_id, worker, source, stream, position, monotonic, wall, says)| Envelope {
            schema_version: 1,
            id: ObservationId(id),
            node: NodeId(node),
            boot_id,
            worker: worker.map(WorkerId),
            source: SourceKind::from(*SourceKind::ALL.get(source).unwrap_or(&"sonar")),
            stream,
            position,
            monotonic: monotonic.map(MonotonicTime),
            wall: wall.map(WallTime),
            says,
        });
    let extra = proptest::collection::btree_map("(kvprov\\.)?zz_[a-z]{1,5}", any_value(), 0..3);
    let resource = proptest::collection::btree_map("k8s\\.[a-z]{1,5}", any_value(), 0..2);
    (envelope, any_body(), extra, resource).prop_map(|(envelope, body, extra, resource)| Observation {
        envelope,
        body,
        extra,
        resource,
    })
}

proptest! {
    #[test]
    fn what_is_sent_arrives(observations in proptest::collection::vec(any_observation(), 0..6)) {
        let decoded = otlp::decode(&otlp::encode(&observations)).unwrap();
        prop_assert!(decoded.skipped.is_empty());
        prop_assert_eq!(decoded.observations, observations);
    }

    #[test]
    fn reading_and_writing_again_changes_no_byte(observations in proptest::collection::vec(any_observation(), 0..6)) {
        let bytes = otlp::encode(&observations);
        prop_assert_eq!(otlp::encode(&otlp::decode(&bytes).unwrap().observations), bytes);
    }

    #[test]
    fn truncated_bytes_give_an_error_or_fewer_records_but_no_panic(
        observations in proptest::collection::vec(any_observation(), 1..4),
        cut in 0.0f64..1.0,
    ) {
        let bytes = otlp::encode(&observations);
        let _ = otlp::decode(&bytes[..(bytes.len() as f64 * cut) as usize]);
    }
}

#[test]
fn a_known_attribute_of_another_type_is_kept_unread() {
    let mut observation = sample();
    observation.extra = BTreeMap::from([("kvprov.engine".to_owned(), Value::Int(7))]);
    let decoded = otlp::decode(&otlp::encode(&[observation.clone()])).unwrap();
    assert_eq!(decoded.observations, [observation]);
}

#[test]
fn foreign_records_are_skipped_with_a_reason_and_ours_survive() {
    let mut request = otlp::to_request(&[sample(), sample()]);
    request.resource_logs[0].scope_logs[0].log_records[0].event_name = "somebody.else".to_owned();
    let decoded = otlp::from_request(request);
    assert_eq!(decoded.observations.len(), 1);
    assert!(decoded.skipped[0].to_string().contains("somebody.else"));
}

#[test]
fn the_reference_names_every_kind_and_attribute() {
    let page = kvprov_model::observation::reference::markdown();
    for kind in Body::KINDS {
        assert!(page.contains(&format!("## `{}`", kind.name)));
        for field in kind.fields {
            assert!(page.contains(&format!("| `{}` |", field.name)), "{}.{}", kind.name, field.name);
        }
    }
}

fn sample() -> Observation {
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("x", 0, 1, 0),
            node: NodeId::from("node-a"),
            boot_id: None,
            worker: Some(WorkerId::from("d0")),
            source: SourceKind::Log,
            stream: "d.log".to_owned(),
            position: 1,
            monotonic: None,
            wall: Some(WallTime(1)),
            says: None,
        },
        body: Body::empty("worker"),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}
