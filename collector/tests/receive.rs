//! The receivers over real connections: what is taken, what is refused and how, and that hostile input is bounded.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed test says enough")]

use flate2::Compression;
use flate2::write::GzEncoder;
use kvprov_collector::intake::{Accepted, Answer, Batch, Intake, Refusal};
use kvprov_collector::receive::{CLAIMED_WALL, Outcome, ReceiveConfig, Receivers};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{NodeId, ObservationId};
use kvprov_model::observation::{Alive, Body, Envelope, Observation, SourceKind, otlp};
use kvprov_model::value::Value;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_client::LogsServiceClient;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use proptest::prelude::*;
use prost::Message as _;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::codec::CompressionEncoding;
use tonic::{Code, Status};

/// Who waits for an answer.
type Held = Vec<tokio::sync::oneshot::Sender<Result<Accepted, Refusal>>>;

/// A ledger for tests: keeps what it takes, or refuses as it is told.
#[derive(Default)]
struct Shelf {
    kept: Mutex<Vec<Observation>>,
    lost: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    refusal: Mutex<Option<Refusal>>,
    /// Offers that wait, where nothing is answered.
    held: Mutex<Option<Held>>,
}

impl Intake for Shelf {
    fn offer(&self, batch: Batch) -> Answer {
        if let Some(refusal) = self.refusal.lock().unwrap().clone() {
            return Answer::refused(refusal);
        }
        let (sender, answer) = Answer::coming();
        if let Some(held) = self.held.lock().unwrap().as_mut() {
            held.push(sender);
            return answer;
        }
        // What is beyond a count is what a ledger would never take.
        let refused = batch.observations.iter().filter(|o| o.envelope.position == 666).count() as u64;
        let kept = batch.observations.len() as u64 - refused;
        self.kept
            .lock()
            .unwrap()
            .extend(batch.observations.into_iter().filter(|o| o.envelope.position != 666));
        sender.send(Ok(Accepted { kept, refused })).unwrap();
        answer
    }

    fn lost(&self, stage: &'static str, reason: &'static str, records: u64) {
        *self.lost.lock().unwrap().entry((stage, reason)).or_default() += records;
    }
}

fn config() -> ReceiveConfig {
    ReceiveConfig {
        grpc: Some("127.0.0.1:0".parse().unwrap()),
        http: Some("127.0.0.1:0".parse().unwrap()),
        read_timeout: Duration::from_millis(500),
        patience: Duration::from_millis(500),
        ..ReceiveConfig::default()
    }
}

async fn start(config: ReceiveConfig) -> (Receivers, Arc<Shelf>) {
    let shelf = Arc::new(Shelf::default());
    let intake: Arc<dyn Intake> = Arc::<Shelf>::clone(&shelf);
    (Receivers::start(config, intake).await.unwrap(), shelf)
}

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn observation(number: u64, wall: i64) -> Observation {
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("test", 0, number, 0),
            node: NodeId::from("n0"),
            boot_id: None,
            worker: None,
            source: SourceKind::Log,
            stream: "s".to_owned(),
            position: number as i64,
            monotonic: None,
            wall: Some(WallTime(wall)),
            says: None,
        },
        body: Body::Alive(Alive { streams: vec!["s".to_owned()] }),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}

fn observations(count: u64) -> Vec<Observation> {
    (0..count).map(|number| observation(number, 1)).collect()
}

async fn export(receivers: &Receivers, request: ExportLogsServiceRequest) -> Result<(i64, String), Status> {
    let address = format!("http://{}", receivers.grpc_address().unwrap());
    let mut client =
        LogsServiceClient::connect(address).await.unwrap().send_compressed(CompressionEncoding::Gzip);
    let partial = client.export(request).await?.into_inner().partial_success.unwrap_or_default();
    Ok((partial.rejected_log_records, partial.error_message))
}

/// Sends a request over HTTP; status, head and body of the answer.
async fn post(receivers: &Receivers, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
    let mut stream = TcpStream::connect(receivers.http_address().unwrap()).await.unwrap();
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A server that refuses early closes before it has read everything.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(answer.len());
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head, answer.get(end + 4..).unwrap_or_default().to_vec())
}

const PROTOBUF: &str = "content-type: application/x-protobuf\r\n";
const JSON: &str = "content-type: application/json\r\n";

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn both_protocols_take_observations_whole() {
    let (receivers, shelf) = start(config()).await;
    let sent = observations(100);
    assert_eq!(export(&receivers, otlp::to_request(&sent)).await.unwrap(), (0, String::new()));
    assert_eq!(*shelf.kept.lock().unwrap(), sent);
    for (headers, body) in [
        (PROTOBUF.to_owned(), otlp::encode(&sent)),
        (format!("{PROTOBUF}content-encoding: gzip\r\n"), gzip(&otlp::encode(&sent))),
    ] {
        shelf.kept.lock().unwrap().clear();
        let (status, head, body) = post(&receivers, &headers, &body).await;
        assert_eq!((status, body.len()), (200, 0), "{head}");
        assert_eq!(*shelf.kept.lock().unwrap(), sent);
    }
    assert_eq!(receivers.stats().of(Outcome::Ok), 3);
    receivers.stop().await;
}

#[tokio::test]
async fn json_is_taken_and_answered_as_json() {
    let (receivers, shelf) = start(config()).await;
    let id = "AAECAwQFBgcICQoLDA0ODw==";
    let text = format!(
        r#"{{"resourceLogs":[{{"resource":{{"attributes":[{{"key":"host.name","value":{{"stringValue":"n7"}}}}]}},
        "scopeLogs":[{{"logRecords":[
        {{"eventName":"kvprov.alive","attributes":[{{"key":"kvprov.id","value":{{"bytesValue":"{id}"}}}},
        {{"key":"kvprov.source","value":{{"stringValue":"log"}}}}]}},
        {{"eventName":"somebody.else"}}]}}]}}]}}"#
    );
    let (status, head, body) = post(&receivers, JSON, text.as_bytes()).await;
    assert!(status == 200 && head.contains("content-type: application/json"), "{head}");
    let answer = String::from_utf8(body).unwrap();
    assert!(answer.contains(r#""rejectedLogRecords":"1""#), "{answer}");
    assert_eq!(shelf.kept.lock().unwrap()[0].envelope.node, NodeId::from("n7"));
}

#[tokio::test]
async fn foreign_records_are_refused_by_number_and_the_others_kept() {
    let (receivers, shelf) = start(config()).await;
    let mut request = otlp::to_request(&observations(3));
    let foreign = LogRecord { event_name: "my.app.event".to_owned(), ..LogRecord::default() };
    let incomplete = LogRecord { event_name: "kvprov.alive".to_owned(), ..LogRecord::default() };
    request.resource_logs[0].scope_logs[0].log_records.extend([foreign, incomplete]);
    let (rejected, message) = export(&receivers, request).await.unwrap();
    assert!(rejected == 2 && message.contains("my.app.event"), "{rejected} {message}");
    assert_eq!(shelf.kept.lock().unwrap().len(), 3);
    let lost = shelf.lost.lock().unwrap().clone();
    assert_eq!(lost, BTreeMap::from([(("receive", "foreign"), 1), (("receive", "incomplete"), 1)]));
}

#[tokio::test]
async fn what_the_ledger_never_takes_is_told_too() {
    let (receivers, _) = start(config()).await;
    let (rejected, message) = export(&receivers, otlp::to_request(&[observation(666, 1)])).await.unwrap();
    assert!(rejected == 1 && message.contains("never"), "{message}");
}

#[tokio::test]
async fn unknown_kinds_and_attributes_are_kept_and_counted() {
    let (receivers, shelf) = start(config()).await;
    let mut newer = observation(1, 1);
    newer.body = Body::Unknown { kind: "of_the_future".to_owned() };
    newer.extra.insert("kvprov.new".to_owned(), Value::Int(7));
    export(&receivers, otlp::to_request(std::slice::from_ref(&newer))).await.unwrap();
    assert_eq!(*shelf.kept.lock().unwrap(), vec![newer]);
    assert_eq!((receivers.stats().unknown_kinds, receivers.stats().unknown_attributes), (1, 1));
}

#[tokio::test]
async fn what_describes_the_agent_is_no_part_of_what_it_saw() {
    let (receivers, shelf) = start(config()).await;
    let mut sent = observation(1, 1);
    for (name, value) in [("service.name", "kvprov-agent"), ("k8s.pod.uid", "u"), ("k8s.cluster.name", "c")] {
        sent.resource.insert(name.to_owned(), Value::Str(value.to_owned()));
    }
    let mut of_another = sent.clone();
    of_another.resource.insert("service.name".to_owned(), Value::Str("other".to_owned()));
    export(&receivers, otlp::to_request(&[sent, of_another])).await.unwrap();
    let kept = shelf.kept.lock().unwrap();
    assert_eq!(kept[0].resource.keys().collect::<Vec<_>>(), ["k8s.cluster.name"]);
    assert_eq!(kept[1].resource.len(), 3);
}

#[tokio::test]
async fn nothing_is_acknowledged_before_the_ledger_has_it() {
    let (receivers, shelf) = start(config()).await;
    *shelf.held.lock().unwrap() = Some(Vec::new());
    let begin = Instant::now();
    let status = export(&receivers, otlp::to_request(&observations(1))).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(begin.elapsed() >= Duration::from_millis(500));
    let (status, head, _) = post(&receivers, PROTOBUF, &otlp::encode(&observations(1))).await;
    assert!(status == 503 && head.contains("retry-after: 1"), "{head}");
}

#[tokio::test]
async fn a_ledger_that_is_behind_makes_senders_wait() {
    let (receivers, shelf) = start(config()).await;
    let busy = Refusal::Busy { waiting: 9, retry_after: Duration::from_millis(1500) };
    *shelf.refusal.lock().unwrap() = Some(busy);
    let status = export(&receivers, otlp::to_request(&observations(1))).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    // The pause stands in the details: seconds 1, nanoseconds 500,000,000.
    let details = status.details().to_vec();
    assert!(String::from_utf8_lossy(&details).contains("google.rpc.RetryInfo"));
    assert!(details.ends_with(&[0x08, 0x01, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]), "{details:?}");
    let (status, head, _) = post(&receivers, PROTOBUF, &otlp::encode(&observations(1))).await;
    assert!(status == 429 && head.contains("retry-after: 2"), "{head}");
    *shelf.refusal.lock().unwrap() = Some(Refusal::Ledger { reason: "the disk is full".to_owned() });
    let status = export(&receivers, otlp::to_request(&observations(1))).await.unwrap_err();
    assert!(status.code() == Code::Unavailable && status.message().contains("the disk is full"));
}

#[tokio::test]
async fn what_is_no_request_is_refused_for_good() {
    let (receivers, shelf) = start(config()).await;
    let good = otlp::encode(&observations(1));
    let gzipped = format!("{PROTOBUF}content-encoding: gzip\r\n");
    for (headers, body, expected) in [
        (PROTOBUF, &b"\xff\xff\xff"[..], 400),
        (JSON, b"{", 400),
        (&gzipped, b"no gzip", 400),
        (&format!("{PROTOBUF}content-encoding: br\r\n"), &good, 400),
        ("content-type: text/plain\r\n", &good, 415),
        ("", &good, 415),
    ] {
        let (status, head, _) = post(&receivers, headers, body).await;
        assert_eq!(status, expected, "{headers} {head}");
    }
    assert!(shelf.kept.lock().unwrap().is_empty());
}

#[tokio::test]
async fn requests_beyond_the_limits_are_refused_as_too_large() {
    let (receivers, _) = start(ReceiveConfig { request_bytes: 100_000, ..config() }).await;
    let large = vec![0; 200_000];
    assert_eq!(post(&receivers, PROTOBUF, &large).await.0, 413);
    assert_eq!(post(&receivers, JSON, &large[..50_000]).await.0, 413);
    // A bomb: little that becomes much.
    let bomb = gzip(&vec![0; 50_000_000]);
    assert!(bomb.len() < 300_000);
    let (receivers, _) = start(config()).await;
    assert_eq!(post(&receivers, &format!("{PROTOBUF}content-encoding: gzip\r\n"), &bomb).await.0, 413);
    // Empty records, two bytes each, that would become hundreds of bytes each.
    let scope = ScopeLogs { log_records: vec![LogRecord::default(); 200_000], ..ScopeLogs::default() };
    let group = ResourceLogs { scope_logs: vec![scope], ..ResourceLogs::default() };
    let bytes = ExportLogsServiceRequest { resource_logs: vec![group] }.encode_to_vec();
    assert!(bytes.len() < 1 << 20);
    assert_eq!(post(&receivers, PROTOBUF, &bytes).await.0, 413);
    let request = ExportLogsServiceRequest::decode(bytes.as_slice()).unwrap();
    let status = export(&receivers, request).await.unwrap_err();
    assert_eq!((status.code(), status.details().is_empty()), (Code::ResourceExhausted, false));
}

#[tokio::test]
async fn connections_that_do_not_speak_do_not_keep_others_out() {
    let (receivers, shelf) = start(ReceiveConfig { requests: 4, ..config() }).await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        for address in [receivers.grpc_address(), receivers.http_address()] {
            silent.push(TcpStream::connect(address.unwrap()).await.unwrap());
        }
        // One that holds a slot until its body is late.
        let mut stream = TcpStream::connect(receivers.http_address().unwrap()).await.unwrap();
        let head = format!("POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n{PROTOBUF}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    let end = Instant::now() + Duration::from_secs(5);
    while export(&receivers, otlp::to_request(&observations(1))).await.is_err() {
        assert!(Instant::now() < end, "kept out");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(shelf.kept.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn other_methods_and_services_are_unknown() {
    let (receivers, _) = start(config()).await;
    for (address, request, expected) in [
        (receivers.http_address(), "GET /v1/logs HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "405"),
        (
            receivers.http_address(),
            "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
            "404",
        ),
    ] {
        let mut stream = TcpStream::connect(address.unwrap()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{answer}");
    }
}

#[tokio::test]
async fn a_clock_far_ahead_moves_no_watermark_and_others_keep_their_time() {
    let (receivers, shelf) = start(config()).await;
    let (now, hours) = (now(), 3600 * SECOND);
    let sent = [observation(1, now - hours), observation(2, now + 2 * hours), observation(3, now)];
    export(&receivers, otlp::to_request(&sent)).await.unwrap();
    let walls: Vec<Option<WallTime>> =
        shelf.kept.lock().unwrap().iter().map(|observation| observation.envelope.wall).collect();
    assert_eq!(walls, [Some(WallTime(now - hours)), None, Some(WallTime(now))]);
    assert_eq!(shelf.kept.lock().unwrap()[1].extra[CLAIMED_WALL], Value::Int(now + 2 * hours));
    let clock = receivers.clocks().node(&NodeId::from("n0")).unwrap();
    assert_eq!((clock.far_ahead, clock.samples, receivers.stats().far_ahead), (1, 2, 1));
    // The least difference counts: the one that was made just now.
    assert!(clock.ahead_ns.unwrap().abs() < 5 * SECOND, "{clock:?}");
}

#[tokio::test]
async fn an_address_in_use_is_told_with_what_to_do_and_nothing_runs() {
    let (first, _) = start(config()).await;
    let taken = ReceiveConfig { http: first.http_address(), ..config() };
    let error = Receivers::start(taken, Arc::new(Shelf::default())).await.err().unwrap().to_string();
    assert!(error.contains("HTTP") && error.contains("configure another address"), "{error}");
}

#[tokio::test]
async fn after_stopping_nobody_listens() {
    let (receivers, _) = start(config()).await;
    let addresses = [receivers.grpc_address().unwrap(), receivers.http_address().unwrap()];
    // A connection that is idle does not hold it up.
    let _idle = TcpStream::connect(addresses[1]).await.unwrap();
    let begin = Instant::now();
    receivers.stop().await;
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    for address in addresses {
        assert!(TcpStream::connect(address).await.is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn hostile_bytes_are_answered_and_the_next_request_is_taken(
        noise in proptest::collection::vec(any::<u8>(), 0..300),
        at in 0usize..2000,
        protobuf in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (receivers, shelf) = start(config()).await;
            let mut body = otlp::encode(&observations(5));
            let at = at % body.len();
            let end = (at + noise.len()).min(body.len());
            body.splice(at..end, noise);
            let (status, head, _) = post(&receivers, if protobuf { PROTOBUF } else { JSON }, &body).await;
            assert!([200, 400, 413].contains(&status), "{head}");
            shelf.kept.lock().unwrap().clear();
            assert_eq!(post(&receivers, PROTOBUF, &otlp::encode(&observations(2))).await.0, 200);
            assert_eq!(shelf.kept.lock().unwrap().len(), 2);
        });
    }
}
