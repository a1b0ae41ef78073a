//! Requests as traces: what is told, under which span, how often, and that it arrives whatever is down or killed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scene;
mod sink;

use kvprov_collector::export::traces::{Endpoint, Settings};
use kvprov_collector::intake::{Batch, Intake};
use kvprov_collector::otlp::spans::{ExportTraceServiceRequest, ResourceSpans, ScopeSpans, Span};
use kvprov_collector::receive::ReceiveConfig;
use kvprov_collector::serve::{Collector, Config, StartError};
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::finding::Cause;
use kvprov_model::observation::{Body, Observation, RequestLeg};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message as _;
use scene::tell::*;
use scene::{Scene, clock};
use sink::{Sink, attributes};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Who takes part, their clocks as of now.
fn stage() -> Scene {
    let mut scene = Scene::new();
    scene.worker("p0").prefill().engine_id("e-p").weights("aa");
    scene.worker("d0").decode().engine_id("e-d").fact(fact::BLOCK_SIZE, "16").weights("aa");
    scene.worker("r0").router();
    scene
}

/// A request that was refused its KV, computed and answered.
fn recomputed(scene: &mut Scene, request: &str) {
    let failed = handshake_failed(&format!("cmpl-{request}-0-0a1b2c3d"), Cause::CompatHashMismatch);
    scene.at("08:00:01").on("d0").tell(failed);
    let leg = RequestLeg {
        duration_ns: Some(500_000_000),
        model: Some("m".to_owned()),
        completion_tokens: Some(8),
        ..decode_leg(request, true, 102)
    };
    scene.at("08:00:01.100").on("r0").tell(Body::RequestLeg(leg));
}

/// A request that nothing happened to.
fn usual(scene: &mut Scene, request: &str) {
    let prefill = RequestLeg { duration_ns: Some(100_000_000), ..prefill_leg(request) };
    scene.at("08:00:00.500").on("r0").tell(Body::RequestLeg(prefill));
    let leg = RequestLeg { remote_engine_id: Some("e-p".to_owned()), ..decode_leg(request, true, 102) };
    scene.at("08:00:01").on("r0").tell(Body::RequestLeg(leg));
}

/// The observations of a scene, as of now, and that everything up to there was delivered.
fn told(mut scene: Scene) -> Vec<Observation> {
    scene.at("08:00:09").tell(alive());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let offset = WallTime(now).since(clock("08:00:10"));
    let mut told = scene.observations().to_vec();
    for observation in &mut told {
        observation.envelope.wall = observation.envelope.wall.map(|wall| wall.plus(offset));
    }
    told
}

fn free() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn settings(endpoint: &str) -> Settings {
    Settings {
        sample: 0.0,
        settling: Duration::from_millis(100),
        backoff: Duration::from_millis(20),
        backoff_max: Duration::from_millis(200),
        timeout: Duration::from_secs(5),
        ..Settings::new(Endpoint::parse(endpoint).unwrap())
    }
}

fn start(settings: Settings, data: Option<&Path>) -> Collector {
    let receive = ReceiveConfig { grpc: None, http: Some(free()), ..ReceiveConfig::default() };
    let config = Config {
        data: data.map(Path::to_owned),
        http: free(),
        receive: Some(receive),
        traces: Some(settings),
        ..Config::default()
    };
    Collector::start(config).unwrap()
}

fn offer(collector: &Collector, observations: Vec<Observation>) {
    assert_eq!(collector.intake().offer(Batch { observations }).wait().unwrap().refused, 0);
}

fn ask(address: SocketAddr, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    // A server that refuses early closes before it has read everything.
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let text = String::from_utf8_lossy(&answer).into_owned();
    (text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), answer)
}

/// Sends spans as an engine does.
fn send_spans(collector: &Collector, request: &[u8]) -> u16 {
    let head = format!(
        "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        request.len()
    );
    ask(collector.otlp().1.unwrap(), &head, request).0
}

fn page(collector: &Collector, path: &str) -> String {
    let (status, body) =
        ask(collector.http(), &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), b"");
    assert_eq!(status, 200);
    String::from_utf8(body).unwrap()
}

fn metric(collector: &Collector, line: &str) -> Option<f64> {
    page(collector, "/metrics").lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn by_name(spans: &[Span]) -> BTreeMap<String, Span> {
    spans.iter().map(|span| (span.name.clone(), span.clone())).collect()
}

fn text(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
}

fn number(key: &str, value: i64) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::IntValue(value)) };
    KeyValue { key: key.to_owned(), value: Some(value), ..Default::default() }
}

/// A request span of an engine.
fn engine_span(trace: u8, request: &str, answer: i64) -> Span {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    Span {
        trace_id: vec![trace; 16],
        span_id: vec![trace; 8],
        name: "llm_request".to_owned(),
        kind: 2,
        start_time_unix_nano: now - 1_000_000_000,
        end_time_unix_nano: now,
        attributes: vec![
            text("gen_ai.request.id", request),
            number("gen_ai.usage.completion_tokens", answer),
        ],
        ..Span::default()
    }
}

fn spans_request(spans: Vec<Span>) -> Vec<u8> {
    let scope_spans = vec![ScopeSpans { spans, ..ScopeSpans::default() }];
    let resource_spans = vec![ResourceSpans { scope_spans, ..ResourceSpans::default() }];
    ExportTraceServiceRequest { resource_spans }.encode_to_vec()
}

#[test]
fn a_recomputed_request_is_told_with_its_points_and_its_finding() {
    let sink = Sink::start();
    let collector = start(settings(&sink.endpoint()), None);
    let mut scene = stage();
    recomputed(&mut scene, "lab-1");
    offer(&collector, told(scene));
    // At first the request alone may be told, then again with the finding.
    until("no finding is told", || {
        sink.kept.spans().iter().any(|span| span.name == "kvprov.request" && !span.events.is_empty())
    });
    let spans = by_name(&sink.kept.spans());
    let root = &spans["kvprov.request"];
    let said = attributes(&root.attributes);
    assert_eq!(said["gen_ai.request.id"], "lab-1");
    assert_eq!(said["kvprov.request.ids"], "cmpl-lab-1-0-0a1b2c3d lab-1");
    assert_eq!(
        (said["gen_ai.usage.input_tokens"].as_str(), said["gen_ai.usage.output_tokens"].as_str()),
        ("102", "8")
    );
    assert_eq!(
        (said["gen_ai.request.model"].as_str(), said["http.response.status_code"].as_str()),
        ("m", "200")
    );
    assert_eq!(said["kvprov.traced_because"], "recomputed");
    assert!(root.parent_span_id.is_empty() && root.trace_id.len() == 16 && root.status.is_none());
    let event = attributes(&root.events[0].attributes);
    assert_eq!(root.events[0].name, "kvprov.finding");
    assert_eq!(
        (event["kvprov.finding.detector"].as_str(), event["kvprov.finding.cause"].as_str()),
        ("silent_recompute", "compat_hash_mismatch")
    );
    assert_eq!(said["kvprov.findings"], event["kvprov.finding.id"]);
    for (name, point) in [("prefill", "prefill"), ("kv transfer", "artifact"), ("decode", "decode")] {
        let child = &spans[name];
        assert_eq!(child.parent_span_id, root.span_id, "{name}");
        assert_eq!(child.trace_id, root.trace_id, "{name}");
        assert_eq!(attributes(&child.attributes)["kvprov.point"], point);
        assert!(child.start_time_unix_nano >= root.start_time_unix_nano);
        assert!(child.end_time_unix_nano <= root.end_time_unix_nano);
    }
    // The router's leg says when decoding began and ended; the handshake dates the transfer, nothing the prefill.
    let decode = &spans["decode"];
    assert_eq!(decode.end_time_unix_nano - decode.start_time_unix_nano, 500_000_000);
    let said = attributes(&decode.attributes);
    assert_eq!((said["kvprov.worker"].as_str(), said["host.name"].as_str()), ("d0", "node-a"));
    assert!(said["kvprov.revision"].starts_with("rev:") && said["kvprov.weights"] == "sha256:aa");
    let transfer = &spans["kv transfer"];
    assert_eq!(attributes(&transfer.attributes)["kvprov.kv.outcome"], "recomputed");
    let status = transfer.status.as_ref().unwrap();
    assert!(status.code == 2 && status.message.contains("compat_hash_mismatch"), "{status:?}");
    assert_eq!(attributes(&spans["prefill"].attributes)["kvprov.time_known"], "false");
    assert_eq!(metric(&collector, "kvprov_traces_requests_total{reason=\"recomputed\"}"), Some(1.0));
    assert!(page(&collector, "/readyz").contains("traces: 0 spans wait"));
}

#[test]
fn usual_requests_are_told_by_their_share() {
    for (sample, spans) in [(0.0, 0), (1.0, 4)] {
        let sink = Sink::start();
        let collector = start(Settings { sample, ..settings(&sink.endpoint()) }, None);
        let mut scene = stage();
        usual(&mut scene, "lab-1");
        offer(&collector, told(scene));
        until("the request waits", || metric(&collector, "kvprov_traces_waiting_requests") == Some(0.0));
        until("the request is not looked at", || page(&collector, "/api/v1/lineages").contains("lab-1"));
        let kept = sink.kept.until(spans);
        assert_eq!(kept.len(), spans);
        if let Some(prefill) = by_name(&kept).get("prefill") {
            assert_eq!(prefill.end_time_unix_nano - prefill.start_time_unix_nano, 100_000_000);
        }
    }
}

#[test]
fn a_request_is_told_below_the_engine_s_span_and_what_engines_send_is_handed_on() {
    let sink = Sink::start();
    let collector = start(settings(&sink.endpoint()), None);
    // The prefill side answers one token, the decode side all of them.
    let of_prefill = spans_request(vec![engine_span(7, "cmpl-lab-1-0", 1)]);
    let of_decode = spans_request(vec![engine_span(9, "cmpl-lab-1-0", 8), engine_span(5, "cmpl-other-0", 8)]);
    assert_eq!(send_spans(&collector, &of_decode), 200);
    assert_eq!(send_spans(&collector, &of_prefill), 200);
    let mut scene = stage();
    recomputed(&mut scene, "lab-1");
    offer(&collector, told(scene));
    let spans = by_name(&sink.kept.until(4));
    assert_eq!(spans["kvprov.request"].trace_id, vec![9; 16]);
    assert_eq!(spans["kvprov.request"].parent_span_id, vec![9; 8]);
    assert_eq!(spans["decode"].trace_id, vec![9; 16]);
    let kept = sink.kept.requests();
    assert!(
        kept.iter().any(|request| *request == of_decode) && kept.iter().any(|request| *request == of_prefill)
    );
    let lineages = page(&collector, "/api/v1/lineages?request=cmpl-lab-1-0");
    assert!(lineages.contains(&format!("00-{}-{}-01", "09".repeat(16), "09".repeat(8))), "{lineages}");
    assert_eq!(metric(&collector, "kvprov_engine_spans_total{outcome=\"told\"}"), Some(3.0));
    assert_eq!(metric(&collector, "kvprov_traces_spans_delivered_total{origin=\"engine\"}"), Some(3.0));
    // A span vouches for no node.
    assert_eq!(metric(&collector, "kvprov_nodes{state=\"speaking\"}"), Some(1.0));
}

#[test]
fn what_a_router_passed_on_goes_before_the_engine_s_span() {
    let sink = Sink::start();
    let collector = start(Settings { forward: false, ..settings(&sink.endpoint()) }, None);
    assert_eq!(send_spans(&collector, &spans_request(vec![engine_span(9, "lab-1", 8)])), 200);
    let mut scene = stage();
    recomputed(&mut scene, "lab-1");
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".to_owned();
    let leg = RequestLeg { traceparent: Some(traceparent), ..prefill_leg("lab-1") };
    scene.at("08:00:00.900").on("r0").tell(Body::RequestLeg(leg));
    offer(&collector, told(scene));
    let spans = by_name(&sink.kept.until(4));
    assert_eq!(spans["kvprov.request"].trace_id[..2], [0x0a, 0xf7]);
    assert_eq!(spans["kvprov.request"].parent_span_id[..2], [0xb7, 0xad]);
    assert_eq!(sink.kept.requests().len(), sink.kept.spans().len() / 4, "nothing of engines is handed on");
}

#[test]
fn the_same_request_has_the_same_ids_everywhere_and_over_grpc() {
    let ids = |endpoint: &str, kept: &sink::Kept| {
        let collector = start(settings(endpoint), None);
        let mut scene = stage();
        recomputed(&mut scene, "lab-1");
        offer(&collector, told(scene));
        let spans = by_name(&kept.until(4));
        spans.into_values().map(|span| (span.name, span.trace_id, span.span_id)).collect::<Vec<_>>()
    };
    let over_http = Sink::start();
    let (_runtime, receivers, kept) = sink::grpc();
    let grpc = format!("http://{}", receivers.grpc_address().unwrap());
    assert_eq!(ids(&over_http.endpoint(), &over_http.kept), ids(&grpc, &kept));
}

#[test]
fn a_backend_that_is_down_gets_everything_when_it_is_back_whoever_was_killed_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let address = Sink::start().address;
    let endpoint = format!("http://{address}/v1/traces");
    let first = start(settings(&endpoint), Some(directory.path()));
    let mut scene = stage();
    recomputed(&mut scene, "lab-1");
    offer(&first, told(scene));
    let of_engine = spans_request(vec![engine_span(5, "cmpl-other-0", 8)]);
    assert_eq!(send_spans(&first, &of_engine), 200);
    until("nothing waits", || metric(&first, "kvprov_traces_queue_spans").is_some_and(|waits| waits >= 5.0));
    assert!(page(&first, "/readyz").contains("does not take them"));
    first.stop();
    // A file that was being written when it was killed.
    std::fs::write(directory.path().join("traces/0000000000000fff.kvt-new"), b"half").unwrap();
    let sink = Sink::at(address);
    sink.kept.fail_with(503);
    let again = start(settings(&endpoint), Some(directory.path()));
    until("it is not tried", || {
        metric(&again, "kvprov_traces_retries_total").is_some_and(|times| times >= 2.0)
    });
    sink.kept.fail_with(0);
    let spans = sink.kept.until(4);
    until("the engine's spans are lost", || sink.kept.requests().iter().any(|request| *request == of_engine));
    until("something waits", || metric(&again, "kvprov_traces_queue_spans") == Some(0.0));
    assert!(spans.iter().any(|span| span.name == "kvprov.request"));
    // What was told before the restart is not told again.
    let before = sink.kept.spans().len();
    let mut scene = stage();
    recomputed(&mut scene, "lab-2");
    offer(&again, told(scene));
    let more = sink.kept.until(before + 4);
    let told_of = |request: &str| {
        let roots = more.iter().filter(|span| span.name == "kvprov.request");
        roots.filter(|span| attributes(&span.attributes)["gen_ai.request.id"] == request).count()
    };
    assert!(told_of("lab-1") <= 2 && told_of("lab-2") >= 1);
    assert_eq!(metric(&again, "kvprov_traces_lost_total{"), None);
}

#[test]
fn a_request_is_told_again_under_the_same_ids_when_it_becomes_another() {
    let sink = Sink::start();
    let collector = start(Settings { sample: 1.0, ..settings(&sink.endpoint()) }, None);
    let mut scene = stage();
    usual(&mut scene, "lab-1");
    let at_first = told(scene);
    offer(&collector, at_first.clone());
    let first = by_name(&sink.kept.until(4));
    assert_eq!(attributes(&first["kvprov.request"].attributes)["kvprov.lineage.status"], "consistent");
    // The file that the decode side opened turns out to be another one.
    let mut scene = stage();
    usual(&mut scene, "lab-1");
    scene.worker("d0").weights_from("07:59:00", "bb");
    let mut later = told(scene);
    let offset =
        at_first.last().unwrap().envelope.wall.unwrap().since(later.last().unwrap().envelope.wall.unwrap());
    for observation in &mut later {
        observation.envelope.wall = observation.envelope.wall.map(|wall| wall.plus(offset));
    }
    // And more is said of the request, so that it is looked at.
    let mut touch = later.iter().find(|told| matches!(told.body, Body::RequestLeg(_))).unwrap().clone();
    touch.envelope.id.0[0] ^= 1;
    later.push(touch);
    offer(&collector, later);
    until("it is not told again", || {
        metric(&collector, "kvprov_traces_requests_again_total").is_some_and(|again| again >= 1.0)
    });
    let spans = sink.kept.until(8);
    let again = by_name(&spans);
    for (name, span) in &again {
        assert_eq!((&span.trace_id, &span.span_id), (&first[name].trace_id, &first[name].span_id), "{name}");
    }
    assert_eq!(attributes(&again["kvprov.request"].attributes)["kvprov.lineage.status"], "divergent");
}

#[test]
fn hostile_spans_are_bounded_and_counted() {
    let sink = Sink::start();
    let collector = start(settings(&sink.endpoint()), None);
    let huge = "x".repeat(3 << 20);
    let mut spans = vec![
        Span { attributes: vec![text("gen_ai.request.id", &huge)], ..engine_span(1, "", 1) },
        Span { trace_id: Vec::new(), ..engine_span(1, "a", 1) },
        Span { attributes: Vec::new(), ..engine_span(1, "a", 1) },
        engine_span(2, "good", 1),
    ];
    assert_eq!(send_spans(&collector, &spans_request(spans.clone())), 200);
    spans = vec![Span { name: "x".to_owned(), ..Span::default() }; 100_000];
    assert_eq!(send_spans(&collector, &spans_request(spans)), 200);
    let of_one = Span { attributes: vec![text("gen_ai.request.id", "a")], ..engine_span(3, "", 1) };
    assert_eq!(send_spans(&collector, &spans_request(vec![of_one; 30_000])), 200);
    assert_eq!(send_spans(&collector, &vec![0xff; 5000]), 400);
    assert_eq!(send_spans(&collector, &vec![0; 5 << 20]), 413);
    let count =
        |outcome: &str| metric(&collector, &format!("kvprov_engine_spans_total{{outcome=\"{outcome}\"}}"));
    assert_eq!((count("told"), count("unknown")), (Some(1.0 + 4096.0), Some(100_000.0)));
    assert_eq!(count("dropped"), Some(3.0 + 30_000.0 - 4096.0));
    let requests = |outcome: &str| {
        metric(&collector, &format!("kvprov_engine_span_requests_total{{outcome=\"{outcome}\"}}"))
    };
    assert_eq!((requests("ok"), requests("malformed")), (Some(3.0), Some(1.0)));
}

#[test]
fn a_full_queue_drops_the_oldest_and_says_so() {
    let address = Sink::start().address;
    let queue_bytes = 1 << 20;
    let collector = start(Settings { queue_bytes, ..settings(&format!("http://{address}/v1/traces")) }, None);
    let large = Span { attributes: vec![text("note", &"x".repeat(300 << 10))], ..engine_span(1, "", 1) };
    let sent: Vec<Vec<u8>> = (1..=6)
        .map(|trace| spans_request(vec![Span { trace_id: vec![trace; 16], ..large.clone() }]))
        .collect();
    for request in &sent {
        assert_eq!(send_spans(&collector, request), 200);
    }
    let lost = "kvprov_traces_lost_total{origin=\"engine\",reason=\"queue_full\"}";
    assert_eq!(metric(&collector, lost), Some(3.0));
    assert!(metric(&collector, "kvprov_traces_queue_bytes").unwrap() <= queue_bytes as f64);
    let sink = Sink::at(address);
    until("what waits is not delivered", || sink.kept.requests().len() == 3);
    assert_eq!(sink.kept.requests().last().unwrap(), sent.last().unwrap());
}

#[test]
fn what_the_backend_never_takes_is_dropped_and_counted() {
    let sink = Sink::start();
    sink.kept.fail_with(400);
    let collector = start(settings(&sink.endpoint()), None);
    assert_eq!(send_spans(&collector, &spans_request(vec![engine_span(1, "a", 1)])), 200);
    let lost = "kvprov_traces_lost_total{origin=\"engine\",reason=\"refused\"}";
    until("nothing is dropped", || metric(&collector, lost) == Some(1.0));
    assert_eq!(metric(&collector, "kvprov_traces_queue_spans"), Some(0.0));
}

#[test]
fn nobody_traces_into_himself() {
    let listener = std::net::TcpListener::bind(free()).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let config = Config {
        http: free(),
        receive: Some(ReceiveConfig { grpc: Some(address), http: None, ..ReceiveConfig::default() }),
        traces: Some(settings(&format!("http://localhost:{}", address.port()))),
        ..Config::default()
    };
    let error = Collector::start(config).err().unwrap();
    assert!(matches!(error, StartError::Traces(_)) && error.to_string().contains("backend"), "{error}");
}

#[test]
fn content_comes_out_nowhere() {
    const WORDS: &str = "CANARYlittlebird";
    let directory = tempfile::tempdir().unwrap();
    let sink = Sink::start();
    let collector = start(Settings { sample: 1.0, ..settings(&sink.endpoint()) }, Some(directory.path()));
    let mut span = engine_span(9, "cmpl-lab-1-0", 8);
    for name in ["gen_ai.prompt", "gen_ai.completion.0.content", "gen_ai.input.messages", "input.value"] {
        span.attributes.push(text(name, WORDS));
    }
    sink.kept.fail_with(503);
    assert_eq!(send_spans(&collector, &spans_request(vec![span])), 200);
    let mut scene = stage();
    recomputed(&mut scene, "lab-1");
    usual(&mut scene, "lab-2");
    offer(&collector, told(scene));
    until("nothing waits", || {
        metric(&collector, "kvprov_traces_queue_spans").is_some_and(|waits| waits >= 9.0)
    });
    let holds = |bytes: &[u8]| bytes.windows(WORDS.len()).any(|window| window == WORDS.as_bytes());
    let mut open = vec![directory.path().to_owned()];
    let mut files = 0;
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            if entry.path().is_dir() {
                open.push(entry.path());
            } else {
                files += 1;
                assert!(!holds(&std::fs::read(entry.path()).unwrap()), "{}", entry.path().display());
            }
        }
    }
    assert!(files > 3);
    sink.kept.fail_with(0);
    sink.kept.until(8);
    assert!(sink.kept.requests().iter().all(|request| !holds(request)));
    for path in ["/metrics", "/api/v1/lineages", "/api/v1/findings"] {
        assert!(!holds(page(&collector, path).as_bytes()), "{path}");
    }
    assert_eq!(metric(&collector, "kvprov_engine_span_content_removed_total"), Some(4.0));
}
