//! Export requests put together from parts that are encoded already.
//!
//! The queue keeps every record and resource as protobuf. A request is these bytes behind lengths, so that sending
//! neither decodes nor encodes anything. The numbers are the field numbers of `opentelemetry.proto`: request
//! {1 resource_logs}, resource_logs {1 resource, 2 scope_logs}, scope_logs {1 scope, 2 log_records}, scope {1 name}.

use kvprov_wire::protobuf::{Field, field_size, open, put};

/// `InstrumentationScope { name: "kvprov" }`.
const SCOPE: &[u8] = b"\x0a\x06kvprov";

/// Records of one resource.
#[derive(Debug)]
pub(super) struct Group<'a> {
    /// An OTLP Resource.
    pub(super) resource: &'a [u8],
    /// OTLP LogRecords.
    pub(super) records: Vec<&'a [u8]>,
}

/// The bytes of an ExportLogsServiceRequest.
pub(super) fn request(groups: &[Group<'_>]) -> Vec<u8> {
    let sizes: Vec<(usize, usize)> = groups.iter().map(sizes).collect();
    let total = sizes.iter().map(|(_, group)| field_size(*group)).sum();
    let mut out = Vec::with_capacity(total);
    for (group, (scope_logs, resource_logs)) in groups.iter().zip(sizes) {
        open(&mut out, 1, resource_logs);
        put(&mut out, 1, Field::Bytes(group.resource));
        open(&mut out, 2, scope_logs);
        put(&mut out, 1, Field::Bytes(SCOPE));
        for record in &group.records {
            put(&mut out, 2, Field::Bytes(record));
        }
    }
    out
}

/// Bytes of the scope_logs and of the resource_logs of a group.
fn sizes(group: &Group<'_>) -> (usize, usize) {
    let records: usize = group.records.iter().map(|record| field_size(record.len())).sum();
    let scope_logs = field_size(SCOPE.len()) + records;
    (scope_logs, field_size(group.resource.len()) + field_size(scope_logs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
    use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
    use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use proptest::prelude::*;
    use prost::Message as _;

    proptest! {
        #[test]
        fn the_parts_give_the_bytes_that_prost_gives(lengths in proptest::collection::vec(
            proptest::collection::vec(0usize..40_000, 0..4), 0..4)
        ) {
            let groups: Vec<ResourceLogs> = lengths.iter().enumerate().map(|(number, lengths)| ResourceLogs {
                resource: Some(Resource { dropped_attributes_count: number as u32, ..Default::default() }),
                scope_logs: vec![ScopeLogs {
                    scope: Some(InstrumentationScope { name: "kvprov".to_owned(), ..Default::default() }),
                    log_records: lengths.iter().map(|length| LogRecord {
                        event_name: "x".repeat(*length),
                        ..Default::default()
                    }).collect(),
                    ..Default::default()
                }],
                ..Default::default()
            }).collect();
            let parts: Vec<(Vec<u8>, Vec<Vec<u8>>)> = groups.iter().map(|group| (
                group.resource.as_ref().unwrap().encode_to_vec(),
                group.scope_logs[0].log_records.iter().map(prost::Message::encode_to_vec).collect(),
            )).collect();
            let borrowed: Vec<Group<'_>> = parts.iter().map(|(resource, records)| Group {
                resource,
                records: records.iter().map(Vec::as_slice).collect(),
            }).collect();
            let expected = ExportLogsServiceRequest { resource_logs: groups }.encode_to_vec();
            prop_assert_eq!(request(&borrowed), expected);
        }
    }
}
