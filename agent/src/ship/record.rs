//! An observation as the bytes of its OTLP log record, written without the messages in between.
//!
//! The contract is [`otlp::to_log_record`]: the bytes are the same, and a property test holds that. It is written anew
//! here because the agent does this for everything that a node shows, and most of the time went into texts that were
//! made to be thrown away. Numbers of fields: LogRecord {1 time, 6 attributes, 12 event_name}, KeyValue {1 key, 2 value},
//! AnyValue {1 text, 2 flag, 3 integer, 4 number, 5 list, 6 map, 7 bytes}.
//!
//! [`otlp::to_log_record`]: kvprov_model::observation::otlp::to_log_record

use kvprov_model::observation::Observation;
use kvprov_model::value::Value;
use kvprov_wire::protobuf::{Field, field_size, open, put, varint_size};

const PREFIX: &str = "kvprov.";

/// A value without a copy of it.
#[derive(Clone, Copy)]
enum Borrowed<'a> {
    Str(&'a str),
    Int(i64),
    Bytes(&'a [u8]),
    Value(&'a Value),
}

/// Appends the log record of an observation.
pub(super) fn write(observation: &Observation, out: &mut Vec<u8>) {
    let envelope = &observation.envelope;
    let nanos = envelope.wall.map_or(0, |time| u64::try_from(time.0).unwrap_or(0));
    if nanos != 0 {
        put(out, 1, Field::Fixed64(nanos));
    }
    own(out, "schema_version", Borrowed::Int(envelope.schema_version));
    own(out, "id", Borrowed::Bytes(&envelope.id.0));
    own(out, "source", Borrowed::Str(envelope.source.as_str()));
    own(out, "stream", Borrowed::Str(&envelope.stream));
    own(out, "position", Borrowed::Int(envelope.position));
    if let Some(worker) = &envelope.worker {
        own(out, "worker", Borrowed::Str(worker.as_str()));
    }
    if let Some(time) = envelope.monotonic {
        own(out, "monotonic_ns", Borrowed::Int(time.0.cast_signed()));
    }
    if let Some(time) = envelope.wall {
        own(out, "wall_ns", Borrowed::Int(time.0));
    }
    if let Some(says) = &envelope.says {
        own(out, "says", Borrowed::Str(says));
    }
    observation.body.for_each_attribute(|name, value| own(out, name, Borrowed::Value(&value)));
    for (name, value) in &observation.extra {
        key_value(out, 6, ["", name], Borrowed::Value(value));
    }
    let kind = observation.body.kind();
    open(out, 12, PREFIX.len() + kind.len());
    out.extend_from_slice(PREFIX.as_bytes());
    out.extend_from_slice(kind.as_bytes());
}

fn own(out: &mut Vec<u8>, name: &str, value: Borrowed<'_>) {
    key_value(out, 6, [PREFIX, name], value);
}

/// A KeyValue in a field; its key in two parts.
fn key_value(out: &mut Vec<u8>, field: u64, key: [&str; 2], value: Borrowed<'_>) {
    let (key_length, value_length) = (key[0].len() + key[1].len(), value.size());
    // A text without characters is left out, as everywhere in proto3.
    let key_size = if key_length == 0 { 0 } else { field_size(key_length) };
    open(out, field, key_size + field_size(value_length));
    if key_length > 0 {
        open(out, 1, key_length);
        out.extend_from_slice(key[0].as_bytes());
        out.extend_from_slice(key[1].as_bytes());
    }
    open(out, 2, value_length);
    value.write(out);
}

fn key_value_size(key: &str, value: &Value) -> usize {
    let key_size = if key.is_empty() { 0 } else { field_size(key.len()) };
    key_size + field_size(Borrowed::Value(value).size())
}

impl Borrowed<'_> {
    /// Bytes of the AnyValue.
    fn size(self) -> usize {
        match self {
            Self::Str(text) => field_size(text.len()),
            Self::Bytes(bytes) => field_size(bytes.len()),
            Self::Int(number) => 1 + varint_size(number.cast_unsigned()),
            Self::Value(value) => match value {
                Value::Str(text) => Borrowed::Str(text).size(),
                Value::Int(number) => Borrowed::Int(*number).size(),
                Value::Bytes(bytes) => Borrowed::Bytes(bytes).size(),
                Value::Float(_) => 9,
                Value::Bool(_) => 2,
                Value::List(items) => field_size(list_size(items)),
                Value::Map(pairs) => field_size(map_size(pairs)),
                Value::Empty => 0,
            },
        }
    }

    fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Str(text) => put(out, 1, Field::Bytes(text.as_bytes())),
            Self::Bytes(bytes) => put(out, 7, Field::Bytes(bytes)),
            Self::Int(number) => put(out, 3, Field::Varint(number.cast_unsigned())),
            Self::Value(value) => match value {
                Value::Str(text) => Borrowed::Str(text).write(out),
                Value::Int(number) => Borrowed::Int(*number).write(out),
                Value::Bytes(bytes) => Borrowed::Bytes(bytes).write(out),
                Value::Float(number) => put(out, 4, Field::Fixed64(number.to_bits())),
                Value::Bool(flag) => put(out, 2, Field::Varint(u64::from(*flag))),
                Value::List(items) => {
                    open(out, 5, list_size(items));
                    for item in items {
                        let item = Borrowed::Value(item);
                        open(out, 1, item.size());
                        item.write(out);
                    }
                }
                Value::Map(pairs) => {
                    open(out, 6, map_size(pairs));
                    for (key, value) in pairs {
                        key_value(out, 1, ["", key], Borrowed::Value(value));
                    }
                }
                Value::Empty => {}
            },
        }
    }
}

fn list_size(items: &[Value]) -> usize {
    items.iter().map(|item| field_size(Borrowed::Value(item).size())).sum()
}

fn map_size(pairs: &[(String, Value)]) -> usize {
    pairs.iter().map(|(key, value)| field_size(key_value_size(key, value))).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_model::clock::{MonotonicTime, WallTime};
    use kvprov_model::id::{NodeId, ObservationId, WorkerId};
    use kvprov_model::observation::{Body, Envelope, SourceKind, Worker, otlp};
    use proptest::prelude::*;
    use prost::Message as _;
    use std::collections::BTreeMap;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            "[a-zé]{0,200}".prop_map(Value::Str),
            any::<i64>().prop_map(Value::Int),
            any::<f64>().prop_map(Value::Float),
            any::<bool>().prop_map(Value::Bool),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::Bytes),
            Just(Value::Empty),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::List),
                proptest::collection::vec(("[a-z]{0,3}", inner), 0..4).prop_map(Value::Map),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_bytes_are_those_of_the_contract(
            extra in proptest::collection::btree_map("[a-z.]{0,5}", value(), 0..4),
            engine in proptest::option::of("[a-z]{0,5}"),
            pids in proptest::collection::vec("[0-9]{0,3}", 0..3),
            wall in proptest::option::of(any::<i64>()),
            monotonic in proptest::option::of(any::<u64>()),
            position in any::<i64>(),
            text in "\\PC{0,300}",
        ) {
            let observation = Observation {
                envelope: Envelope {
                    schema_version: 1,
                    id: ObservationId::derive("i", 1, 2, 3),
                    node: NodeId::from("n"),
                    boot_id: None,
                    worker: engine.as_deref().map(WorkerId::from),
                    source: SourceKind::Kernel,
                    stream: text.clone(),
                    position,
                    monotonic: monotonic.map(MonotonicTime),
                    wall: wall.map(WallTime),
                    says: wall.map(|_| text.clone()),
                },
                body: match position % 2 {
                    0 => Body::Unknown { kind: text },
                    _ => Body::Worker(Worker {
                        engine,
                        pids,
                        facts: BTreeMap::from([("a".to_owned(), text)]),
                        ..Worker::default()
                    }),
                },
                extra,
                resource: BTreeMap::new(),
            };
            let mut bytes = Vec::new();
            write(&observation, &mut bytes);
            prop_assert_eq!(bytes, otlp::to_log_record(&observation).encode_to_vec());
        }
    }
}
