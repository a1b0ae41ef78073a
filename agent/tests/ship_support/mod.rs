//! Receivers on loopback, and observations to send them.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part; a failed test says enough")]

use kvprov_agent::ship::{Outbox, Protocol, QueueConfig, ShipConfig, Shipper};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Artifact, Body, Envelope, Observation, SourceKind, otlp};
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{LogsService, LogsServiceServer};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsServiceRequest, ExportLogsServiceResponse};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::codec::CompressionEncoding;
use tonic::{Request, Response, Status};

pub(crate) fn observation(number: u64) -> Observation {
    let body = Body::Artifact(Artifact { key: Some("k".repeat(100)), ..Artifact::default() });
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("test", 0, number, 0),
            node: NodeId::from("n0"),
            boot_id: Some("b".to_owned()),
            worker: Some(WorkerId::from("w0")),
            source: SourceKind::Log,
            stream: "s".to_owned(),
            position: number as i64,
            monotonic: None,
            wall: Some(WallTime(number as i64)),
            says: None,
        },
        body,
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}

pub(crate) fn observations(numbers: std::ops::Range<u64>) -> Vec<Observation> {
    numbers.map(observation).collect()
}

pub(crate) fn outbox(directory: &Path) -> Outbox {
    Outbox::open(QueueConfig { capacity_bytes: 8 << 20, ..QueueConfig::new(directory, NodeId::from("n0")) })
        .unwrap()
}

/// Impatient settings for tests.
pub(crate) fn settings(address: SocketAddr, protocol: Protocol) -> ShipConfig {
    ShipConfig {
        linger: Duration::from_millis(5),
        timeout: Duration::from_millis(500),
        backoff: Duration::from_millis(5),
        backoff_max: Duration::from_millis(50),
        ..ShipConfig::new(format!("http://{address}"), protocol)
    }
}

pub(crate) fn ship(outbox: &Outbox, address: SocketAddr, protocol: Protocol) -> Shipper {
    Shipper::start(outbox, settings(address, protocol)).unwrap()
}

/// Waits until something holds; false when it does not within ten seconds.
pub(crate) fn eventually(holds: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if holds() {
            return true;
        }
        pause(5);
    }
    false
}

#[allow(clippy::disallowed_methods, reason = "a test that waits for a thread it has no signal of")]
pub(crate) fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// What a receiver got, in order.
#[derive(Clone, Default)]
pub(crate) struct Received(pub(crate) Arc<Mutex<Vec<Observation>>>);

impl Received {
    pub(crate) fn take(&self, request: ExportLogsServiceRequest) {
        let decoded = otlp::from_request(request);
        assert!(decoded.skipped.is_empty(), "{:?}", decoded.skipped);
        self.0.lock().unwrap().extend(decoded.observations);
    }

    pub(crate) fn positions(&self) -> Vec<u64> {
        let observations = self.0.lock().unwrap();
        let ours = observations.iter().filter(|observation| observation.envelope.stream == "s");
        ours.map(|observation| observation.envelope.position as u64).collect()
    }

    /// Losses that arrived, by reason.
    pub(crate) fn losses(&self) -> BTreeMap<String, u64> {
        let mut found = BTreeMap::new();
        for observation in self.0.lock().unwrap().iter() {
            if let Body::Loss(loss) = &observation.body {
                *found.entry(loss.reason.clone().unwrap()).or_default() += loss.records.unwrap() as u64;
            }
        }
        found
    }
}

type Answer =
    Arc<dyn Fn(u64, &ExportLogsServiceRequest) -> Result<ExportLogsServiceResponse, Status> + Send + Sync>;

/// A receiver by the generated service; `answer` gets the number of the request.
struct Generated {
    received: Received,
    number: Mutex<u64>,
    answer: Answer,
}

#[tonic::async_trait]
impl LogsService for Generated {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let number = {
            let mut number = self.number.lock().unwrap();
            *number += 1;
            *number - 1
        };
        let request = request.into_inner();
        let response = (self.answer)(number, &request)?;
        self.received.take(request);
        Ok(Response::new(response))
    }
}

/// Serves OTLP over gRPC on its own thread until the process ends.
pub(crate) fn grpc_at(
    address: &str,
    received: Received,
    answer: impl Fn(u64, &ExportLogsServiceRequest) -> Result<ExportLogsServiceResponse, Status>
    + Send
    + Sync
    + 'static,
) -> SocketAddr {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
    let bound = listener.local_addr().unwrap();
    let service = Generated { received, number: Mutex::default(), answer: Arc::new(answer) };
    let service = LogsServiceServer::new(service).accept_compressed(CompressionEncoding::Gzip);
    std::thread::spawn(move || {
        let incoming = tonic::transport::server::TcpIncoming::from(listener);
        runtime
            .block_on(tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming))
    });
    bound
}

pub(crate) fn grpc(received: Received) -> SocketAddr {
    grpc_at("127.0.0.1:0", received, |_, _| Ok(ExportLogsServiceResponse::default()))
}

/// What a hand-made HTTP receiver does with the n-th request: gets its body, gives the whole answer.
pub(crate) fn http(answer: impl Fn(u64, &[u8]) -> Vec<u8> + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming().flatten() {
            // One request a connection.
            let Some(body) = read_request(&stream) else { continue };
            let _ = (&stream).write_all(&answer(number, &body));
            number += 1;
        }
    });
    bound
}

fn read_request(stream: &TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

/// An HTTP answer that closes its connection.
pub(crate) fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// A listener that does something else with each connection.
pub(crate) fn raw(treat: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bound = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(treat));
    bound
}
