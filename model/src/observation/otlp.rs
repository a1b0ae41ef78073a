//! Observation ⇄ OTLP log record, loss-free both ways.
//!
//! `event_name` is `kvprov.<kind>`, attributes are `kvprov.<name>`, node and boot are resource attributes
//! (`host.name`, `kvprov.boot_id`). A record that is no observation of ours gives an error that names what is
//! missing; the others of the same request are still read.

use super::{Body, Envelope, Observation, SCHEMA_VERSION, SourceKind};
use crate::clock::{MonotonicTime, WallTime};
use crate::id::{NodeId, ObservationId, WorkerId};
use crate::value::{Field, Value};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, KeyValueList, any_value,
};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::BTreeMap;

const PREFIX: &str = "kvprov.";
const NODE: &str = "host.name";
const BOOT: &str = "kvprov.boot_id";
/// Values nested deeper are refused by [`read_value`] instead of overflowing the stack.
const MAX_DEPTH: usize = 16;

/// Why bytes or a record are no observation.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OtlpError {
    /// The bytes are no export request.
    #[error(
        "not an OTLP export request of {bytes} bytes: {reason}; expected protobuf of ExportLogsServiceRequest"
    )]
    Malformed {
        /// Length of the input.
        bytes: usize,
        /// What the decoder said.
        reason: String,
    },
    /// A log record of somebody else.
    #[error("log record {index} is no observation: its event name is {event_name:?}, expected kvprov.<kind>")]
    Foreign {
        /// Position in the request.
        index: usize,
        /// Its event name.
        event_name: String,
    },
    /// An observation without a required attribute.
    #[error("observation {index} ({event_name}) has no usable {attribute}; it was skipped")]
    Missing {
        /// Position in the request.
        index: usize,
        /// Its event name.
        event_name: String,
        /// The attribute.
        attribute: &'static str,
    },
}

/// What a request held: the observations, and one error for each record that is none.
#[derive(Debug, Default)]
pub struct Decoded {
    /// The observations in order.
    pub observations: Vec<Observation>,
    /// One error a record that was skipped.
    pub skipped: Vec<OtlpError>,
}

fn write_value(value: Value) -> AnyValue {
    use any_value::Value as Any;
    let value = match value {
        Value::Str(text) => Some(Any::StringValue(text)),
        Value::Int(number) => Some(Any::IntValue(number)),
        Value::Float(number) => Some(Any::DoubleValue(number)),
        Value::Bool(flag) => Some(Any::BoolValue(flag)),
        Value::Bytes(bytes) => Some(Any::BytesValue(bytes)),
        Value::List(items) => {
            Some(Any::ArrayValue(ArrayValue { values: items.into_iter().map(write_value).collect() }))
        }
        Value::Map(pairs) => Some(Any::KvlistValue(KeyValueList {
            values: pairs.into_iter().map(|(key, value)| key_value(key, value)).collect(),
        })),
        Value::Empty => None,
    };
    AnyValue { value }
}

fn read_value(value: AnyValue, depth: usize) -> Value {
    use any_value::Value as Any;
    if depth > MAX_DEPTH {
        return Value::Empty;
    }
    match value.value {
        Some(Any::StringValue(text)) => Value::Str(text),
        Some(Any::IntValue(number)) => Value::Int(number),
        Some(Any::DoubleValue(number)) => Value::Float(number),
        Some(Any::BoolValue(flag)) => Value::Bool(flag),
        Some(Any::BytesValue(bytes)) => Value::Bytes(bytes),
        Some(Any::ArrayValue(list)) => {
            Value::List(list.values.into_iter().map(|item| read_value(item, depth + 1)).collect())
        }
        Some(Any::KvlistValue(list)) => Value::Map(
            list.values
                .into_iter()
                .map(|pair| (pair.key, pair.value.map_or(Value::Empty, |v| read_value(v, depth + 1))))
                .collect(),
        ),
        Some(_) | None => Value::Empty,
    }
}

fn key_value(key: String, value: Value) -> KeyValue {
    KeyValue { key, value: Some(write_value(value)), ..Default::default() }
}

fn attribute(name: &str, value: Value) -> KeyValue {
    key_value(format!("{PREFIX}{name}"), value)
}

/// One observation as a log record, without its resource.
pub fn to_log_record(observation: &Observation) -> LogRecord {
    let envelope = &observation.envelope;
    let mut attributes = vec![
        attribute("schema_version", Value::Int(envelope.schema_version)),
        attribute("id", Value::Bytes(envelope.id.0.to_vec())),
        attribute("source", Value::Str(envelope.source.as_str().to_owned())),
        attribute("stream", Value::Str(envelope.stream.clone())),
        attribute("position", Value::Int(envelope.position)),
    ];
    if let Some(worker) = &envelope.worker {
        attributes.push(attribute("worker", Value::Str(worker.0.clone())));
    }
    if let Some(time) = envelope.monotonic {
        attributes.push(attribute("monotonic_ns", Value::Int(time.0.cast_signed())));
    }
    if let Some(time) = envelope.wall {
        attributes.push(attribute("wall_ns", Value::Int(time.0)));
    }
    if let Some(says) = &envelope.says {
        attributes.push(attribute("says", Value::Str(says.clone())));
    }
    observation.body.for_each_attribute(|name, value| attributes.push(attribute(name, value)));
    attributes.extend(observation.extra.iter().map(|(name, value)| key_value(name.clone(), value.clone())));
    LogRecord {
        time_unix_nano: envelope.wall.map_or(0, |time| u64::try_from(time.0).unwrap_or(0)),
        event_name: format!("{PREFIX}{}", observation.body.kind()),
        attributes,
        ..Default::default()
    }
}

fn resource_of(observation: &Observation) -> Resource {
    let mut attributes = vec![key_value(NODE.to_owned(), Value::Str(observation.envelope.node.0.clone()))];
    if let Some(boot) = &observation.envelope.boot_id {
        attributes.push(key_value(BOOT.to_owned(), Value::Str(boot.clone())));
    }
    attributes
        .extend(observation.resource.iter().map(|(name, value)| key_value(name.clone(), value.clone())));
    Resource { attributes, ..Default::default() }
}

/// Observations as one export request, grouped by resource; the order within a resource is kept.
pub fn to_request(observations: &[Observation]) -> ExportLogsServiceRequest {
    let mut groups: Vec<ResourceLogs> = Vec::new();
    for observation in observations {
        let resource = resource_of(observation);
        let record = to_log_record(observation);
        match groups.last_mut() {
            Some(group) if group.resource.as_ref() == Some(&resource) => {
                if let Some(scope) = group.scope_logs.first_mut() {
                    scope.log_records.push(record);
                }
            }
            _ => groups.push(ResourceLogs {
                resource: Some(resource),
                scope_logs: vec![ScopeLogs {
                    scope: Some(InstrumentationScope { name: "kvprov".to_owned(), ..Default::default() }),
                    log_records: vec![record],
                    ..Default::default()
                }],
                ..Default::default()
            }),
        }
    }
    ExportLogsServiceRequest { resource_logs: groups }
}

/// The bytes of one export request.
pub fn encode(observations: &[Observation]) -> Vec<u8> {
    to_request(observations).encode_to_vec()
}

/// Reads the bytes of one export request.
pub fn decode(bytes: &[u8]) -> Result<Decoded, OtlpError> {
    let request = ExportLogsServiceRequest::decode(bytes)
        .map_err(|error| OtlpError::Malformed { bytes: bytes.len(), reason: error.to_string() })?;
    Ok(from_request(request))
}

/// Reads an export request; records that are no observations are skipped with a reason.
pub fn from_request(request: ExportLogsServiceRequest) -> Decoded {
    let mut decoded = Decoded::default();
    let mut index = 0;
    for group in request.resource_logs {
        let mut resource: BTreeMap<String, Value> = group
            .resource
            .map(|resource| resource.attributes)
            .unwrap_or_default()
            .into_iter()
            .map(|pair| (pair.key, pair.value.map_or(Value::Empty, |value| read_value(value, 0))))
            .collect();
        let node = take_text(&mut resource, NODE).unwrap_or_default();
        let boot_id = take_text(&mut resource, BOOT);
        for record in group.scope_logs.into_iter().flat_map(|scope| scope.log_records) {
            match from_record(record, index, &node, boot_id.as_ref(), &resource) {
                Ok(observation) => decoded.observations.push(observation),
                Err(error) => decoded.skipped.push(error),
            }
            index += 1;
        }
    }
    decoded
}

/// Takes a text attribute; one of another type stays where it is.
fn take_text(attributes: &mut BTreeMap<String, Value>, name: &str) -> Option<String> {
    match attributes.remove(name)? {
        Value::Str(text) => Some(text),
        other => {
            attributes.insert(name.to_owned(), other);
            None
        }
    }
}

fn from_record(
    record: LogRecord,
    index: usize,
    node: &str,
    boot_id: Option<&String>,
    resource: &BTreeMap<String, Value>,
) -> Result<Observation, OtlpError> {
    let event_name = record.event_name;
    let Some(kind) = event_name.strip_prefix(PREFIX) else {
        return Err(OtlpError::Foreign { index, event_name });
    };
    let missing = |attribute| OtlpError::Missing { index, event_name: event_name.clone(), attribute };

    let mut envelope = Envelope {
        schema_version: SCHEMA_VERSION,
        id: ObservationId::default(),
        node: NodeId(node.to_owned()),
        boot_id: boot_id.cloned(),
        worker: None,
        source: SourceKind::Other(String::new()),
        stream: String::new(),
        position: 0,
        monotonic: None,
        wall: None,
        says: None,
    };
    let mut body = Body::empty(kind);
    let mut extra = BTreeMap::new();
    let (mut has_id, mut has_source) = (false, false);
    for KeyValue { key, value, .. } in record.attributes {
        let mut value = value.map_or(Value::Empty, |value| read_value(value, 0));
        if let Some(name) = key.strip_prefix(PREFIX) {
            let taken = match name {
                "schema_version" => i64::take(value).map(|version| envelope.schema_version = version),
                "id" => read_id(value).map(|id| {
                    envelope.id = id;
                    has_id = true;
                }),
                "source" => SourceKind::take(value).map(|source| {
                    envelope.source = source;
                    has_source = true;
                }),
                "stream" => String::take(value).map(|stream| envelope.stream = stream),
                "position" => i64::take(value).map(|position| envelope.position = position),
                "worker" => String::take(value).map(|worker| envelope.worker = Some(WorkerId(worker))),
                "monotonic_ns" => {
                    i64::take(value).map(|ns| envelope.monotonic = Some(MonotonicTime(ns.cast_unsigned())))
                }
                "wall_ns" => i64::take(value).map(|ns| envelope.wall = Some(WallTime(ns))),
                "says" => String::take(value).map(|says| envelope.says = Some(says)),
                _ => body.set(name, value),
            };
            match taken {
                Ok(()) => continue,
                Err(untaken) => value = untaken,
            }
        }
        extra.insert(key, value);
    }
    if !has_id {
        return Err(missing("kvprov.id"));
    }
    if !has_source {
        return Err(missing("kvprov.source"));
    }
    Ok(Observation { envelope, body, extra, resource: resource.clone() })
}

fn read_id(value: Value) -> Result<ObservationId, Value> {
    match value {
        Value::Bytes(bytes) => match <[u8; 16]>::try_from(bytes) {
            Ok(id) => Ok(ObservationId(id)),
            Err(bytes) => Err(Value::Bytes(bytes)),
        },
        other => Err(other),
    }
}
