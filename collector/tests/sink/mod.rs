//! A tracing backend that keeps what it is sent, over HTTP by hand or over gRPC by the receivers, and can be made to fail.

#![allow(dead_code, reason = "each test binary uses the part that it needs")]
#![allow(unreachable_pub, reason = "a module of a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a double that cannot do its part has to stop")]

use kvprov_collector::intake::{Answer, Batch, Intake, Refusal};
use kvprov_collector::otlp::spans::{ExportTraceServiceRequest, Span};
use kvprov_collector::receive::{Beside, Forward, ReceiveConfig, Receivers};
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What was sent to the backend.
#[derive(Debug, Default)]
pub struct Kept {
    requests: Mutex<Vec<Bytes>>,
    /// Status of the next answers over HTTP; 0: 200.
    status: AtomicU16,
}

/// A backend over HTTP.
pub struct Sink {
    pub address: SocketAddr,
    pub kept: Arc<Kept>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

// === impl Kept ===

impl Kept {
    /// The requests as they came.
    pub fn requests(&self) -> Vec<Bytes> {
        self.requests.lock().unwrap().clone()
    }

    /// Answers with this status from now on.
    pub fn fail_with(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// The spans that kvprov made, in the order in which they came.
    pub fn spans(&self) -> Vec<Span> {
        let requests = self.requests();
        let decoded = requests.iter().map(|bytes| ExportTraceServiceRequest::decode(bytes.clone()).unwrap());
        decoded
            .flat_map(|request| request.resource_spans)
            .filter(|group| {
                let attributes = group.resource.iter().flat_map(|resource| &resource.attributes);
                attributes.into_iter().any(|a| a.key == "service.name" && string(a) == Some("kvprov"))
            })
            .flat_map(|group| group.scope_spans)
            .flat_map(|scope| scope.spans)
            .collect()
    }

    /// Waits until there are as many spans of kvprov.
    pub fn until(&self, spans: usize) -> Vec<Span> {
        let began = Instant::now();
        loop {
            let kept = self.spans();
            if kept.len() >= spans {
                return kept;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "{spans} spans expected, {} came", kept.len());
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }
}

impl Forward for Kept {
    fn forward(&self, request: Bytes, _: u64) -> Result<(), String> {
        self.requests.lock().unwrap().push(request);
        Ok(())
    }
}

// === impl Sink ===

impl Sink {
    /// Listens on any port.
    pub fn start() -> Self {
        Self::at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Listens on one.
    pub fn at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (kept, stop): (Arc<Kept>, Arc<AtomicBool>) = (Arc::default(), Arc::default());
        let (shared, stopped) = (Arc::clone(&kept), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                answer(&stream.unwrap(), &shared, &stopped);
            }
        });
        Self { address, kept, stop, thread: Some(thread) }
    }

    /// The endpoint as it is configured.
    pub fn endpoint(&self) -> String {
        format!("http://{}/v1/traces", self.address)
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Answers requests on one connection until it ends.
fn answer(stream: &TcpStream, kept: &Kept, stop: &AtomicBool) {
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        loop {
            match reader.read_until(b'\n', &mut head) {
                Ok(0) => return,
                Ok(_) if head.ends_with(b"\r\n\r\n") => break,
                Ok(_) => {}
                Err(_) if stop.load(Ordering::SeqCst) => return,
                Err(_) => {}
            }
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("post /v1/traces "), "{head}");
        assert!(head.contains("content-type: application/x-protobuf"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        reader.read_exact(&mut body).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let status = match kept.status.load(Ordering::SeqCst) {
            0 => {
                kept.requests.lock().unwrap().push(Bytes::from(body));
                200
            }
            status => status,
        };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
        if reader.get_mut().write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// Takes no observations.
struct Nobody;

impl Intake for Nobody {
    fn offer(&self, _: Batch) -> Answer {
        Answer::refused(Refusal::Stopping)
    }

    fn lost(&self, _: &'static str, _: &'static str, _: u64) {}
}

/// A backend over gRPC, on a runtime that has to be kept.
pub fn grpc() -> (tokio::runtime::Runtime, Receivers, Arc<Kept>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let kept: Arc<Kept> = Arc::default();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = ReceiveConfig { grpc: Some(any), http: None, ..ReceiveConfig::default() };
    let beside = Beside { forward: Some(Arc::clone(&kept) as Arc<dyn Forward>), ..Beside::default() };
    let receivers = runtime.block_on(Receivers::start_beside(config, Arc::new(Nobody), beside)).unwrap();
    (runtime, receivers, kept)
}

fn string(attribute: &KeyValue) -> Option<&str> {
    match attribute.value.as_ref()?.value.as_ref()? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    }
}

/// The attributes of a span or an event as text.
pub fn attributes(of: &[KeyValue]) -> BTreeMap<String, String> {
    let value = |any: &AnyValue| match any.value.as_ref().unwrap() {
        any_value::Value::StringValue(text) => text.clone(),
        any_value::Value::IntValue(number) => number.to_string(),
        any_value::Value::BoolValue(flag) => flag.to_string(),
        any_value::Value::ArrayValue(list) => {
            let texts = list.values.iter().map(|value| match value.value.as_ref().unwrap() {
                any_value::Value::StringValue(text) => text.clone(),
                other => panic!("{other:?}"),
            });
            texts.collect::<Vec<_>>().join(" ")
        }
        other => panic!("{other:?}"),
    };
    of.iter().map(|pair| (pair.key.clone(), value(pair.value.as_ref().unwrap()))).collect()
}
