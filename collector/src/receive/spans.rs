//! Spans of engines' own tracing: which request each tells of, and where it stands in its trace.
//!
//! The bytes are walked and never decoded whole: of a span only its ids, name, times and the attributes that a pack names
//! are looked at, so that neither huge attributes nor a hundred thousand spans cost memory. What no pack knows is
//! counted and left.
//!
//! Invariant: at most [`LEGS`] spans of one request are kept, with ids of at most [`ID_BYTES`].

use crate::otlp::context::Context;
use kvprov_model::clock::{ReceiveTime, WallTime};
use kvprov_model::id::{NodeId, ObservationId, hex};
use kvprov_model::observation::{Body, Envelope, Observation, RequestLeg, SCHEMA_VERSION, SourceKind};
use kvprov_model::value::Value;
use kvprov_packs::{SpanSignature, SpanTable};
use kvprov_wire::protobuf::{Field, each_field, fields};
use std::collections::BTreeMap;

/// The node of every span. Who exports spans rarely says on which machine it runs, and its clock vouches for no node's
/// sources: nothing is concluded from how far it has come.
pub const NODE: &str = "(spans)";
/// The stream of every span.
const STREAM: &str = "traces";
/// The span above the one that tells of the request.
pub const PARENT: &str = "kvprov.span_parent";
/// Spans of one request that are kept.
const LEGS: usize = 4_096;
/// Longest id of a request.
const ID_BYTES: usize = 256;
/// Attributes of one span that are looked at.
const ATTRIBUTES: usize = 256;

/// What a request held.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// One leg for each span that tells of a request.
    pub(super) legs: Vec<Observation>,
    /// All spans.
    pub(super) total: u64,
    /// Spans that no pack knows.
    pub(super) unknown: u64,
    /// Spans without usable ids: of the trace, of themselves, of the request.
    pub(super) without_id: u64,
    /// Spans beyond [`LEGS`].
    pub(super) too_many: u64,
}

/// The head of a span.
#[derive(Debug, Default)]
struct Head<'a> {
    trace: &'a [u8],
    span: &'a [u8],
    parent: &'a [u8],
    name: &'a [u8],
    start: u64,
    end: u64,
}

/// Reads a request; `None` when the bytes are none.
pub(super) fn read(bytes: &[u8], known: &SpanTable, received: ReceiveTime) -> Option<Read> {
    let mut read = Read::default();
    each_field(bytes, &mut |number, resource_spans| match number {
        1 => each_field(resource_spans, &mut |number, scope_spans| match number {
            2 => each_field(scope_spans, &mut |number, span| match number {
                2 => read.take(span, known, received),
                _ => Some(()),
            }),
            _ => Some(()),
        }),
        _ => Some(()),
    })?;
    Some(read)
}

// === impl Read ===

impl Read {
    fn take(&mut self, bytes: &[u8], known: &SpanTable, received: ReceiveTime) -> Option<()> {
        self.total += 1;
        let mut head = Head::default();
        fields(bytes, &mut |number, field| {
            match (number, field) {
                (1, Field::Bytes(id)) => head.trace = id,
                (2, Field::Bytes(id)) => head.span = id,
                (4, Field::Bytes(id)) => head.parent = id,
                (5, Field::Bytes(name)) => head.name = name,
                (7, Field::Fixed64(time)) => head.start = time,
                (8, Field::Fixed64(time)) => head.end = time,
                _ => {}
            }
            Some(())
        })?;
        let signature = std::str::from_utf8(head.name).ok().and_then(|name| known.lookup(name));
        let Some(signature) = signature else {
            self.unknown += 1;
            return Some(());
        };
        let context = Context::of(head.trace, head.span);
        let leg = leg(bytes, signature)?;
        match (context, leg) {
            (Some(_), Some(_)) if self.legs.len() >= LEGS => self.too_many += 1,
            (Some(context), Some(leg)) => self.legs.push(observation(&head, context, leg, received)),
            _ => self.without_id += 1,
        }
        Some(())
    }
}

/// What the attributes say; `Some(None)` when no usable id of a request is among them.
fn leg(bytes: &[u8], signature: &SpanSignature) -> Option<Option<RequestLeg>> {
    let mut body = Body::RequestLeg(RequestLeg::default());
    let mut seen = 0;
    each_field(bytes, &mut |number, attribute| {
        if number != 9 || seen >= ATTRIBUTES {
            return Some(());
        }
        seen += 1;
        let (mut key, mut value) = (&[][..], None);
        fields(attribute, &mut |number, field| {
            match (number, field) {
                (1, Field::Bytes(name)) => key = name,
                (2, Field::Bytes(any)) => value = Some(any),
                _ => {}
            }
            Some(())
        })?;
        let meaning = std::str::from_utf8(key).ok().and_then(|key| signature.meaning(key));
        if let (Some(meaning), Some(value)) = (meaning, value)
            && let Some(value) = scalar(value)
        {
            // One of another type than it should have says nothing.
            let _ = body.set(meaning, value);
        }
        Some(())
    })?;
    let Body::RequestLeg(leg) = body else { return Some(None) };
    let is_usable = |id: &String| !id.is_empty() && !id.chars().any(char::is_control);
    Some(leg.request_id.as_ref().is_some_and(is_usable).then_some(leg))
}

/// A short text or a whole number.
fn scalar(any: &[u8]) -> Option<Value> {
    let mut value = None;
    fields(any, &mut |number, field| {
        value = match (number, field) {
            (1, Field::Bytes(text)) if text.len() <= ID_BYTES => {
                std::str::from_utf8(text).ok().map(|text| Value::Str(text.to_owned()))
            }
            (3, Field::Varint(number)) => Some(Value::Int(number.cast_signed())),
            _ => None,
        };
        Some(())
    })?;
    value
}

/// The leg as it goes to the ledger: dated by the engine's clock, spoken by no worker.
fn observation(head: &Head<'_>, context: Context, mut leg: RequestLeg, received: ReceiveTime) -> Observation {
    let end = i64::try_from(head.end).ok().filter(|end| *end > 0).map(WallTime);
    let end = end.filter(|end| !super::clocks::is_far_ahead(*end, received));
    leg.traceparent = Some(context.to_string());
    leg.duration_ns = head.end.checked_sub(head.start).and_then(|duration| i64::try_from(duration).ok());
    let mut extra = BTreeMap::new();
    if head.parent.len() == 8 {
        extra.insert(PARENT.to_owned(), Value::Str(hex(head.parent)));
    }
    let instance = format!("span {}", hex(&[&context.trace[..], &context.span[..]].concat()));
    Observation {
        envelope: Envelope {
            schema_version: SCHEMA_VERSION,
            id: ObservationId::derive(&instance, 0, 0, 0),
            node: NodeId::from(NODE),
            boot_id: None,
            worker: None,
            source: SourceKind::Traces,
            stream: STREAM.to_owned(),
            position: 0,
            monotonic: None,
            wall: end,
            says: None,
        },
        body: Body::RequestLeg(leg),
        extra,
        resource: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::otlp::spans::{ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span};
    use kvprov_packs::Packs;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use proptest::prelude::*;
    use prost::Message as _;

    const NOW: ReceiveTime = ReceiveTime(1_795_971_700_000_000_000);

    fn text(key: &str, value: &str) -> KeyValue {
        let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
        KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
    }

    fn span(name: &str, attributes: Vec<KeyValue>) -> Span {
        Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            parent_span_id: vec![3; 8],
            name: name.to_owned(),
            start_time_unix_nano: 1_795_971_691_000_000_000,
            end_time_unix_nano: 1_795_971_693_000_000_000,
            attributes,
            ..Span::default()
        }
    }

    fn request(spans: Vec<Span>) -> Vec<u8> {
        let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
        let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
        ExportTraceServiceRequest { resource_spans }.encode_to_vec()
    }

    fn take(spans: Vec<Span>) -> Read {
        read(&request(spans), Packs::builtin().spans(), NOW).unwrap()
    }

    #[test]
    fn a_span_of_a_request_becomes_a_leg_with_its_place_in_the_trace() {
        let tokens = AnyValue { value: Some(any_value::Value::IntValue(102)) };
        let tokens = KeyValue {
            key: "gen_ai.usage.prompt_tokens".to_owned(),
            value: Some(tokens),
            ..Default::default()
        };
        let attributes = vec![text("gen_ai.request.id", "cmpl-r1-0"), tokens, text("prompt", "never read")];
        let read = take(vec![span("llm_request", attributes)]);
        let Body::RequestLeg(leg) = &read.legs[0].body else { panic!("a leg") };
        assert_eq!(leg.request_id.as_deref(), Some("cmpl-r1-0"));
        assert_eq!(leg.prompt_tokens, Some(102));
        assert_eq!(leg.duration_ns, Some(2_000_000_000));
        let expected = format!("00-{}-{}-01", "01".repeat(16), "02".repeat(8));
        assert_eq!(leg.traceparent.as_deref(), Some(expected.as_str()));
        assert_eq!(read.legs[0].extra[PARENT], Value::Str("03".repeat(8)));
        assert!(!format!("{:?}", read.legs).contains("never read"));
    }

    #[test]
    fn the_same_span_has_the_same_id() {
        let one = span("llm_request", vec![text("gen_ai.request.id", "a")]);
        assert_eq!(take(vec![one.clone()]).legs, take(vec![one]).legs);
    }

    #[test]
    fn what_no_pack_knows_or_has_no_ids_is_counted() {
        let huge = "x".repeat(1 << 20);
        let mut no_trace = span("llm_request", vec![text("gen_ai.request.id", "a")]);
        no_trace.trace_id = vec![0; 16];
        let read = take(vec![
            span("GET /", vec![]),
            span("llm_request", vec![]),
            span("llm_request", vec![text("gen_ai.request.id", &huge)]),
            span("llm_request", vec![text("gen_ai.request.id", "a\nb")]),
            no_trace,
        ]);
        assert_eq!((read.total, read.unknown, read.without_id, read.legs.len()), (5, 1, 4, 0));
    }

    #[test]
    fn spans_of_one_request_are_bounded() {
        let one = span("llm_request", vec![text("gen_ai.request.id", "a")]);
        let read = take(vec![one; LEGS + 7]);
        assert_eq!((read.legs.len(), read.too_many), (LEGS, 7));
    }

    #[test]
    fn a_time_far_ahead_is_no_time() {
        let mut one = span("llm_request", vec![text("gen_ai.request.id", "a")]);
        one.end_time_unix_nano = u64::MAX;
        assert_eq!(take(vec![one]).legs[0].envelope.wall, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes, Packs::builtin().spans(), NOW);
        }
    }
}
