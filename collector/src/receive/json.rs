//! OTLP/JSON: a request as JSON, read as far as an observation needs it.
//!
//! By the rules of the specification: names in lower camel case, 64-bit numbers as text or number, bytes in base64,
//! unknown fields passed over. Fields that no observation has (severity, trace ids, scope) are not kept.

use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonRequest {
    resource_logs: Vec<JsonResourceLogs>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonResourceLogs {
    resource: JsonResource,
    scope_logs: Vec<JsonScopeLogs>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonResource {
    attributes: Vec<JsonKeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonScopeLogs {
    log_records: Vec<JsonRecord>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonRecord {
    event_name: String,
    attributes: Vec<JsonKeyValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonKeyValue {
    key: String,
    value: Option<Box<JsonValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct JsonValue {
    string_value: Option<String>,
    bool_value: Option<bool>,
    int_value: Option<Number>,
    double_value: Option<Number>,
    array_value: Option<JsonArray>,
    kvlist_value: Option<JsonList>,
    bytes_value: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonArray {
    values: Vec<JsonValue>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JsonList {
    values: Vec<JsonKeyValue>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Integer(i64),
    Float(f64),
    Text(String),
}

/// Reads a request; the error says where it is none.
pub(super) fn read(bytes: &[u8]) -> Result<ExportLogsServiceRequest, String> {
    let request: JsonRequest = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let groups = request.resource_logs.into_iter().map(|group| {
        let scopes = group.scope_logs.into_iter().map(|scope| {
            let records = scope.log_records.into_iter().map(|record| {
                let attributes = key_values(record.attributes)?;
                Ok(LogRecord { event_name: record.event_name, attributes, ..LogRecord::default() })
            });
            Ok(ScopeLogs { log_records: records.collect::<Result<_, String>>()?, ..ScopeLogs::default() })
        });
        let attributes = key_values(group.resource.attributes)?;
        Ok(ResourceLogs {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_logs: scopes.collect::<Result<_, String>>()?,
            ..ResourceLogs::default()
        })
    });
    Ok(ExportLogsServiceRequest { resource_logs: groups.collect::<Result<_, String>>()? })
}

/// A response as JSON.
pub(super) fn write(response: &ExportLogsServiceResponse) -> String {
    match &response.partial_success {
        None => "{}".to_owned(),
        Some(partial) => json!({"partialSuccess": {
            // 64-bit numbers are text.
            "rejectedLogRecords": partial.rejected_log_records.to_string(),
            "errorMessage": partial.error_message,
        }})
        .to_string(),
    }
}

fn key_values(pairs: Vec<JsonKeyValue>) -> Result<Vec<KeyValue>, String> {
    let pair = |pair: JsonKeyValue| {
        let value = pair.value.map(|value| any_value(*value)).transpose()?;
        Ok(KeyValue { key: pair.key, value, ..KeyValue::default() })
    };
    pairs.into_iter().map(pair).collect()
}

/// Nesting is bounded by the parser.
fn any_value(value: JsonValue) -> Result<AnyValue, String> {
    use any_value::Value as Any;
    let value = if let Some(text) = value.string_value {
        Some(Any::StringValue(text))
    } else if let Some(flag) = value.bool_value {
        Some(Any::BoolValue(flag))
    } else if let Some(number) = value.int_value {
        Some(Any::IntValue(number.integer().ok_or("an intValue is no integer of 64 bits")?))
    } else if let Some(number) = value.double_value {
        Some(Any::DoubleValue(number.float().ok_or("a doubleValue is no number")?))
    } else if let Some(array) = value.array_value {
        let values = array.values.into_iter().map(any_value).collect::<Result<_, String>>()?;
        Some(Any::ArrayValue(ArrayValue { values }))
    } else if let Some(list) = value.kvlist_value {
        Some(Any::KvlistValue(KeyValueList { values: key_values(list.values)? }))
    } else if let Some(text) = value.bytes_value {
        Some(Any::BytesValue(base64(&text).ok_or("a bytesValue is no base64")?))
    } else {
        None
    };
    Ok(AnyValue { value })
}

/// Standard or URL-safe alphabet, padded or not, as the JSON mapping of protobuf allows.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for four in digits.chunks(4) {
        let mut bits = 0u32;
        for (digit, shift) in four.iter().zip([18, 12, 6, 0]) {
            let value = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' | b'-' => 62,
                b'/' | b'_' => 63,
                _ => return None,
            };
            bits |= u32::from(value) << shift;
        }
        let whole = match four.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        bytes.extend_from_slice(bits.to_be_bytes().get(1..=whole)?);
    }
    Some(bytes)
}

// === impl Number ===

impl Number {
    fn integer(self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(number),
            Self::Text(text) => text.parse().ok(),
            Self::Float(_) => None,
        }
    }

    fn float(self) -> Option<f64> {
        match self {
            Self::Integer(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            // "NaN", "Infinity" and "-Infinity" are numbers here as there.
            Self::Text(text) => text.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_type_of_value_is_read() {
        let text = r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"host.name","value":{"stringValue":"n"}}]},
            "scopeLogs":[{"scope":{"name":"s"},"logRecords":[{"timeUnixNano":"1","severityText":"x","eventName":"e",
            "attributes":[{"key":"a","value":{"intValue":"-5"}},{"key":"b","value":{"intValue":7}},
            {"key":"c","value":{"doubleValue":"NaN"}},{"key":"d","value":{"bytesValue":"AQID/w=="}},
            {"key":"e","value":{"arrayValue":{"values":[{"boolValue":true},{}]}}},
            {"key":"f","value":{"kvlistValue":{"values":[{"key":"g","value":null}]}}},
            {"key":"h","value":{"of the future":[1]}}]}]}]}],"new":1}"#;
        let request = read(text.as_bytes()).unwrap();
        let record = &request.resource_logs[0].scope_logs[0].log_records[0];
        let values: Vec<String> = record
            .attributes
            .iter()
            .map(|pair| format!("{:?}", pair.value.as_ref().unwrap().value))
            .collect();
        assert_eq!(record.event_name, "e");
        assert!(values[0].contains("IntValue(-5)") && values[1].contains("IntValue(7)"), "{values:?}");
        assert!(values[2].contains("NaN") && values[3].contains("[1, 2, 3, 255]"), "{values:?}");
        assert!(values[6].contains("None"), "{values:?}");
    }

    #[test]
    fn what_is_no_request_is_refused_with_a_reason() {
        for text in [
            "",
            "[",
            "7",
            r#"{"resourceLogs":7}"#,
            r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"intValue":"x"}}]}}]}"#,
            r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"intValue":1e300}}]}}]}"#,
            r#"{"resourceLogs":[{"resource":{"attributes":[{"key":"a","value":{"bytesValue":"A"}}]}}]}"#,
        ] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[\\[\\]{}\":,a-zA-Z0-9]{0,200}") {
            let _ = read(text.as_bytes());
        }

        #[test]
        fn base64_of_any_bytes_is_read(bytes in proptest::collection::vec(any::<u8>(), 0..50)) {
            const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
            let mut text = String::new();
            for three in bytes.chunks(3) {
                let bits = three.iter().zip([16, 8, 0]).fold(0u32, |bits, (byte, shift)| bits | u32::from(*byte) << shift);
                for shift in [18, 12, 6, 0].iter().take(three.len() + 1) {
                    text.push(char::from(DIGITS[(bits >> shift) as usize & 63]));
                }
            }
            prop_assert_eq!(base64(&text), Some(bytes));
        }
    }
}
