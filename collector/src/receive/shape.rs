//! What a request will take in memory, found before it is decoded.
//!
//! Two bytes of protobuf can become an object of hundreds, and the attributes of a resource are copied to each of its
//! records. So the bytes are walked first, along the messages of OTLP alone, and what they would become is summed. The
//! walk allocates nothing and reads each byte at most a few times.
//!
//! Numbers of fields: `opentelemetry/proto/collector/logs/v1`, `logs/v1`, `common/v1`, `resource/v1`.

use kvprov_wire::protobuf::each_field;

/// Bytes that a log record takes, without its attributes, as a message and as an observation.
const RECORD: u64 = 1024;
/// Bytes that an attribute takes beside its text.
const ATTRIBUTE: u64 = 256;
/// Bytes that any other message takes.
const MESSAGE: u64 = 192;
/// Messages nested deeper are no request of anybody; prost refuses them at 100.
const MAX_DEPTH: u32 = 64;

/// What a request holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Log records.
    pub(super) records: u64,
    /// Bytes that it takes when it is decoded, roughly and rather too many.
    pub(super) memory: u64,
}

/// The messages of an export request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    ResourceLogs,
    Resource,
    ScopeLogs,
    Scope,
    Record,
    KeyValue,
    AnyValue,
    Array,
    KeyValueList,
    EntityRef,
}

/// Measures a request; `None`: it is no protobuf, or nested too deep.
pub(super) fn measure(bytes: &[u8]) -> Option<Shape> {
    let mut shape = Shape { records: 0, memory: bytes.len() as u64 };
    each_field(bytes, &mut |number, body| {
        match inner(Message::Request, number) {
            Some(message) => add_resource_logs(message, body, &mut shape)?,
            None => shape.memory += MESSAGE,
        }
        Some(())
    })?;
    Some(shape)
}

/// A group of records: its resource counts for each of them.
fn add_resource_logs(message: Message, bytes: &[u8], shape: &mut Shape) -> Option<()> {
    let (mut group, mut resource) = (Shape::default(), 0);
    each_field(bytes, &mut |number, body| {
        if let Some(inner) = inner(message, number) {
            if inner == Message::Resource {
                // Several of them are merged into one.
                let mut one = Shape::default();
                walk(inner, body, 0, &mut one)?;
                resource += one.memory + body.len() as u64;
            } else {
                walk(inner, body, 0, &mut group)?;
            }
        }
        Some(())
    })?;
    shape.records += group.records;
    shape.memory = shape
        .memory
        .saturating_add(MESSAGE + group.memory)
        .saturating_add(resource.saturating_mul(group.records + 1));
    Some(())
}

fn walk(message: Message, bytes: &[u8], depth: u32, shape: &mut Shape) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    shape.memory += match message {
        Message::Record => RECORD,
        Message::KeyValue => ATTRIBUTE,
        _ => MESSAGE,
    };
    shape.records += u64::from(message == Message::Record);
    each_field(bytes, &mut |number, body| match inner(message, number) {
        Some(inner) => walk(inner, body, depth + 1, shape),
        None => Some(()),
    })
}

/// The message in a field, where it is one.
fn inner(message: Message, field: u64) -> Option<Message> {
    Some(match (message, field) {
        (Message::Request, 1) => Message::ResourceLogs,
        (Message::ResourceLogs, 1) => Message::Resource,
        (Message::ResourceLogs, 2) => Message::ScopeLogs,
        (Message::Resource, 1) | (Message::Scope, 3) | (Message::Record, 6) | (Message::KeyValueList, 1) => {
            Message::KeyValue
        }
        // Lists of texts count as messages too: each is an allocation.
        (Message::Resource, 3) | (Message::EntityRef, 3 | 4) => Message::EntityRef,
        (Message::ScopeLogs, 1) => Message::Scope,
        (Message::ScopeLogs, 2) => Message::Record,
        (Message::Record, 5) | (Message::KeyValue, 2) | (Message::Array, 1) => Message::AnyValue,
        (Message::AnyValue, 5) => Message::Array,
        (Message::AnyValue, 6) => Message::KeyValueList,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use proptest::prelude::*;
    use prost::Message as _;

    fn request(records: usize, resource_bytes: usize) -> Vec<u8> {
        let value = AnyValue { value: Some(any_value::Value::StringValue("x".repeat(resource_bytes))) };
        let attributes = vec![KeyValue { key: "k".to_owned(), value: Some(value), ..Default::default() }];
        ExportLogsServiceRequest {
            resource_logs: vec![ResourceLogs {
                resource: Some(Resource { attributes, ..Default::default() }),
                scope_logs: vec![ScopeLogs {
                    log_records: vec![LogRecord::default(); records],
                    ..Default::default()
                }],
                ..Default::default()
            }],
        }
        .encode_to_vec()
    }

    #[test]
    fn records_are_counted() {
        assert_eq!(measure(&request(17, 10)).unwrap().records, 17);
        assert_eq!(measure(b"").unwrap(), Shape::default());
    }

    #[test]
    fn an_empty_record_counts_for_what_it_becomes() {
        let bytes = request(1000, 0);
        assert!(bytes.len() < 2500 && measure(&bytes).unwrap().memory > 1_000_000);
    }

    #[test]
    fn a_resource_counts_once_for_each_record() {
        assert!(measure(&request(1000, 100_000)).unwrap().memory > 100_000_000);
    }

    #[test]
    fn nesting_without_end_is_refused() {
        let mut value = AnyValue::default();
        for _ in 0..80 {
            value =
                AnyValue { value: Some(any_value::Value::ArrayValue(ArrayValue { values: vec![value] })) };
        }
        let record = LogRecord { body: Some(value), ..Default::default() };
        let scope = ScopeLogs { log_records: vec![record], ..Default::default() };
        let group = ResourceLogs { scope_logs: vec![scope], ..Default::default() };
        let bytes = ExportLogsServiceRequest { resource_logs: vec![group] }.encode_to_vec();
        assert_eq!(measure(&bytes), None);
    }

    proptest! {
        #[test]
        fn what_decodes_is_measured(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if ExportLogsServiceRequest::decode(bytes.as_slice()).is_ok() {
                // Groups and unknown nesting are stricter here; they are never written by a sender of ours.
                let _ = measure(&bytes);
            }
        }
    }
}
