//! A story as spans: one for the request, one for each of the points prefill, artifact and decode below it.

use super::attributes as name;
use super::ids;
use super::story::{Story, Stretch};
use crate::otlp::spans::{
    ERROR, Event, ExportTraceServiceRequest, INTERNAL, ResourceSpans, ScopeSpans, Span, Status,
};
use crate::run::requests::status_word;
use kvprov_model::finding::{Confidence, Finding};
use kvprov_model::lineage::Point;
use opentelemetry_proto::tonic::common::v1::{
    AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// The span of a request.
const REQUEST: &str = "kvprov.request";
/// The event of a finding.
const FINDING: &str = "kvprov.finding";
/// Names of the spans of points.
const PREFILL: &str = "prefill";
const ARTIFACT: &str = "kv transfer";
const DECODE: &str = "decode";
/// Longest text of an attribute, in characters.
const TEXT: usize = 512;
/// Findings told with one request.
const FINDINGS: usize = 16;
/// Flags of a span: sampled, and it is known whether its parent is elsewhere.
const FLAGS: u32 = 0x101;
/// The parent is of somebody else.
const REMOTE: u32 = 0x200;

/// An export request of these spans.
pub(super) fn request(spans: Vec<Span>) -> ExportTraceServiceRequest {
    let attributes =
        vec![text(name::SERVICE_NAME, "kvprov"), text(name::SERVICE_VERSION, env!("CARGO_PKG_VERSION"))];
    let scope = InstrumentationScope {
        name: "kvprov".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }],
    }
}

/// The spans of a story.
pub(super) fn of(story: &Story<'_>) -> Vec<Span> {
    let record = &story.record;
    let points = &record.lineage.points;
    let failed = points.artifact.outcome.as_deref() == Some("failed");
    let arrived_not = failed || points.artifact.outcome.as_deref() == Some("recomputed");
    let mut whole = span(story, REQUEST, &story.whole, request_attributes(story));
    whole.span_id = ids::span(&story.stem, REQUEST).to_vec();
    (whole.parent_span_id, whole.flags) = match story.parent {
        Some(parent) => (parent.span.to_vec(), FLAGS | REMOTE),
        None => (Vec::new(), FLAGS),
    };
    whole.events = story.findings.iter().take(FINDINGS).map(|finding| event(story, finding)).collect();
    whole.status = failed.then(|| error("its KV did not arrive, and the request failed"));
    let mut spans = vec![whole];
    let of_points = [
        (PREFILL, "prefill", &points.prefill, &story.prefill, false),
        (ARTIFACT, "artifact", &points.artifact, &story.artifact, arrived_not),
        (DECODE, "decode", &points.decode, &story.decode, failed),
    ];
    for (span_name, word, point, stretch, is_error) in of_points {
        let attributes = point_attributes(word, point, stretch.as_ref());
        let mut child = span(story, span_name, stretch.as_ref().unwrap_or(&story.whole), attributes);
        child.parent_span_id = ids::span(&story.stem, REQUEST).to_vec();
        child.status = is_error.then(|| error(&cause(story)));
        spans.push(child);
    }
    spans
}

fn span(story: &Story<'_>, called: &str, stretch: &Stretch, attributes: Vec<KeyValue>) -> Span {
    Span {
        trace_id: story.parent.map_or_else(|| ids::trace(&story.stem), |parent| parent.trace).to_vec(),
        span_id: ids::span(&story.stem, called).to_vec(),
        parent_span_id: Vec::new(),
        name: called.to_owned(),
        kind: INTERNAL,
        start_time_unix_nano: stretch.start.cast_unsigned(),
        end_time_unix_nano: stretch.end.cast_unsigned(),
        attributes,
        events: Vec::new(),
        status: None,
        flags: FLAGS,
    }
}

fn request_attributes(story: &Story<'_>) -> Vec<KeyValue> {
    let record = &story.record;
    let mut attributes = vec![
        text(name::REQUEST_ID, story.stem.as_str()),
        texts(name::REQUEST_IDS, record.ids.iter().map(String::as_str)),
        text(name::LINEAGE_STATUS, status_word(record.lineage.status)),
        text(name::TRACED_BECAUSE, story.why.as_str()),
    ];
    attributes
        .extend(record.lineage.points.request.model.as_deref().map(|model| text(name::REQUEST_MODEL, model)));
    let numbers = [
        (name::INPUT_TOKENS, record.prompt_tokens),
        (name::OUTPUT_TOKENS, record.completion_tokens),
        (name::CACHED_TOKENS, record.cached_tokens),
        (name::HTTP_STATUS, record.http_status),
    ];
    attributes.extend(numbers.into_iter().filter_map(|(name, value)| Some(number(name, value?))));
    if !story.findings.is_empty() {
        let ids = story.findings.iter().take(FINDINGS).map(|finding| finding.id.as_str());
        attributes.push(texts(name::FINDINGS, ids));
    }
    attributes
}

fn point_attributes(word: &str, point: &Point, stretch: Option<&Stretch>) -> Vec<KeyValue> {
    let mut attributes = vec![text(name::POINT, word)];
    let told = [
        (name::WORKER, &point.worker),
        (name::MODEL, &point.model),
        (name::REVISION, &point.revision),
        (name::WEIGHTS, &point.weights),
        (name::OUTCOME, &point.outcome),
        (name::UNKNOWN, &point.unknown),
    ];
    attributes.extend(told.into_iter().filter_map(|(name, value)| Some(text(name, value.as_deref()?))));
    match stretch {
        Some(stretch) => {
            attributes.push(text(name::HOST_NAME, stretch.node.as_str()));
            if stretch.ahead != 0 {
                attributes.push(number(name::CLOCK_AHEAD, stretch.ahead));
            }
        }
        None => attributes.push(value(name::TIME_KNOWN, any_value::Value::BoolValue(false))),
    }
    attributes
}

fn event(story: &Story<'_>, finding: &Finding) -> Event {
    let confidence = match finding.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Suspected => "suspected",
        Confidence::Risk => "risk",
    };
    Event {
        // Its own times are of the whole episode; within the request it stands at its end.
        time_unix_nano: story.whole.end.cast_unsigned(),
        name: FINDING.to_owned(),
        attributes: vec![
            text(name::FINDING_ID, finding.id.as_str()),
            text(name::FINDING_DETECTOR, finding.detector.as_str()),
            text(name::FINDING_CAUSE, finding.cause.as_str()),
            text(name::FINDING_CONFIDENCE, confidence),
            text(name::FINDING_SUMMARY, &finding.summary),
        ],
    }
}

/// Why KV did not arrive, in words.
fn cause(story: &Story<'_>) -> String {
    let found = story.findings.first();
    found.map_or_else(
        || "KV did not arrive".to_owned(),
        |finding| format!("KV did not arrive: {} ({})", finding.detector, finding.cause),
    )
}

fn error(message: &str) -> Status {
    Status { message: message.to_owned(), code: ERROR }
}

fn text(name: &str, of: &str) -> KeyValue {
    value(name, any_value::Value::StringValue(of.chars().take(TEXT).collect()))
}

fn texts<'t>(name: &str, of: impl Iterator<Item = &'t str>) -> KeyValue {
    let one = |text: &str| AnyValue {
        value: Some(any_value::Value::StringValue(text.chars().take(TEXT).collect())),
    };
    value(name, any_value::Value::ArrayValue(ArrayValue { values: of.map(one).collect() }))
}

fn number(name: &str, of: i64) -> KeyValue {
    value(name, any_value::Value::IntValue(of))
}

fn value(name: &str, of: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(of) }), ..KeyValue::default() }
}
