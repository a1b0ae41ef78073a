//! Content in spans: attributes that hold prompts or answers are taken out before spans touch a disk or go on.
//!
//! Engines of this field export none, but a library around one may. Everything else stays as it came, byte for byte.
//! Names: OpenTelemetry's conventions on generative AI (`opt-in` attributes and their older forms), OpenInference,
//! OpenLLMetry.

use aho_corasick::AhoCorasick;
use kvprov_wire::protobuf::{Field, fields, put};
use prost::bytes::Bytes;
use std::sync::OnceLock;

/// Beginnings of names of attributes, and of events, that hold content.
const CONTENT: &[&str] = &[
    "gen_ai.prompt",
    "gen_ai.completion",
    "gen_ai.content",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result",
    "gen_ai.system.message",
    "gen_ai.user.message",
    "gen_ai.assistant.message",
    "gen_ai.tool.message",
    "gen_ai.choice",
    "input.value",
    "output.value",
    "llm.prompt",
    "llm.completion",
    "llm.input_messages",
    "llm.output_messages",
    "traceloop.entity.input",
    "traceloop.entity.output",
];
/// Messages nested deeper are no spans of anybody.
const MAX_DEPTH: usize = 8;

/// The messages on the way to an attribute of a span or of one of its events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Message {
    Request,
    ResourceSpans,
    Resource,
    ScopeSpans,
    Scope,
    Span,
    Event,
    Link,
    Attribute,
}

/// The request without content, and how many attributes were taken out. The same bytes where there is none.
pub(crate) fn without(request: Bytes) -> (Bytes, u64) {
    if !may_hold(&request) {
        return (request, 0);
    }
    let (mut kept, mut removed) = (Vec::with_capacity(request.len()), 0);
    // What is no message was refused before; nothing of one that breaks off here goes on.
    match copy(&request, Message::Request, 0, &mut kept, &mut removed) {
        Some(()) => (Bytes::from(kept), removed),
        None => (Bytes::new(), removed + 1),
    }
}

fn copy(bytes: &[u8], message: Message, depth: usize, kept: &mut Vec<u8>, removed: &mut u64) -> Option<()> {
    if depth > MAX_DEPTH {
        return None;
    }
    fields(bytes, &mut |number, field| {
        let inner = match field {
            Field::Bytes(body) => inner(message, number).map(|inner| (inner, body)),
            _ => None,
        };
        match inner {
            Some((Message::Attribute, body)) if is_content(body, 1) => *removed += 1,
            Some((Message::Event, body)) if is_content(body, 2) => *removed += 1,
            Some((inner, body)) if inner != Message::Attribute => {
                let mut copied = Vec::new();
                copy(body, inner, depth + 1, &mut copied, removed)?;
                put(kept, number, Field::Bytes(&copied));
            }
            _ => put(kept, number, field),
        }
        Some(())
    })
}

fn inner(message: Message, field: u64) -> Option<Message> {
    Some(match (message, field) {
        (Message::Request, 1) => Message::ResourceSpans,
        (Message::ResourceSpans, 1) => Message::Resource,
        (Message::ResourceSpans, 2) => Message::ScopeSpans,
        (Message::ScopeSpans, 1) => Message::Scope,
        (Message::ScopeSpans, 2) => Message::Span,
        (Message::Span, 11) => Message::Event,
        (Message::Span, 13) => Message::Link,
        (Message::Span, 9)
        | (Message::Event | Message::Scope, 3)
        | (Message::Link, 4)
        | (Message::Resource, 1) => Message::Attribute,
        _ => return None,
    })
}

/// Whether the text in a field is the name of content.
fn is_content(message: &[u8], name: u64) -> bool {
    let mut found = false;
    let read = fields(message, &mut |number, field| {
        if let Field::Bytes(text) = field
            && number == name
        {
            found |= CONTENT.iter().any(|content| text.starts_with(content.as_bytes()));
        }
        Some(())
    });
    // What cannot be read may be anything.
    found || read.is_none()
}

/// Whether a name of content stands anywhere in the bytes. One pass over them.
fn may_hold(bytes: &[u8]) -> bool {
    static NAMES: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let names = NAMES.get_or_init(|| AhoCorasick::new(CONTENT).ok());
    names.as_ref().is_none_or(|names| names.is_match(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::spans::{Event, ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span};
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use proptest::prelude::*;
    use prost::Message as _;

    fn text(key: &str) -> KeyValue {
        let value = AnyValue { value: Some(any_value::Value::StringValue("words".to_owned())) };
        KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
    }

    fn request(attributes: &[&str], events: &[&str]) -> ExportTraceServiceRequest {
        let event = |name: &&str| Event {
            time_unix_nano: 7,
            name: (*name).to_owned(),
            attributes: attributes.iter().map(|name| text(name)).collect(),
        };
        let span = Span {
            trace_id: vec![1; 16],
            name: "llm_request".to_owned(),
            start_time_unix_nano: u64::MAX,
            kind: -1,
            attributes: attributes.iter().map(|name| text(name)).collect(),
            events: events.iter().map(event).collect(),
            flags: 7,
            ..Span::default()
        };
        let scope_spans = vec![ScopeSpans { spans: vec![span], ..ScopeSpans::default() }];
        ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }],
        }
    }

    #[test]
    fn content_goes_and_everything_else_stays() {
        let given = request(
            &["gen_ai.request.id", "gen_ai.prompt.0.content", "output.value", "gen_ai.usage.prompt_tokens"],
            &["gen_ai.choice", "first_token"],
        );
        let (kept, removed) = without(Bytes::from(given.encode_to_vec()));
        let expected = request(&["gen_ai.request.id", "gen_ai.usage.prompt_tokens"], &["first_token"]);
        assert_eq!(ExportTraceServiceRequest::decode(kept).unwrap(), expected);
        // Two of the span, two of the event that stays, and one event.
        assert_eq!(removed, 5);
    }

    #[test]
    fn bytes_without_content_are_the_same_bytes() {
        let given = Bytes::from(request(&["gen_ai.request.id"], &["first_token"]).encode_to_vec());
        assert_eq!(without(given.clone()), (given, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = bytes;
            bytes.extend_from_slice(b"gen_ai.prompt");
            let _ = without(Bytes::from(bytes));
        }
    }
}
