//! Delivery to real servers on loopback: good ones, bad ones and none.
#![allow(clippy::unwrap_used, reason = "a failed test says enough")]

mod ship_support;

use kvprov_agent::ship::{Protocol, Reason, Shipper};
use kvprov_model::clock::{MonotonicTime, WallTime};
use kvprov_model::observation::{Body, Observation, otlp};
use opentelemetry_proto::tonic::collector::logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceResponse};
use prost::Message as _;
use ship_support::*;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tonic::Status;

const PATIENCE: Duration = Duration::from_secs(10);
const BOTH: [Protocol; 2] = [Protocol::Grpc, Protocol::Http];

fn decode(body: &[u8]) -> Vec<Observation> {
    otlp::decode(body).unwrap().observations
}

/// A receiver of one protocol that takes everything.
fn good(protocol: Protocol, received: &Received) -> SocketAddr {
    let received = received.clone();
    match protocol {
        Protocol::Grpc => grpc(received),
        Protocol::Http => http(move |_, body| {
            received.0.lock().unwrap().extend(decode(body));
            reply("200 OK", "content-type: application/x-protobuf\r\n", b"")
        }),
    }
}

#[test]
fn what_is_appended_arrives_once_and_in_order() {
    for protocol in BOTH {
        let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
        let outbox = outbox(directory.path());
        let shipper = ship(&outbox, good(protocol, &received), protocol);
        for number in 0..50 {
            outbox.append(&observations(number * 100..(number + 1) * 100)).unwrap();
        }
        assert!(outbox.flush(PATIENCE), "{protocol:?}: {:?}", shipper.stats());
        assert_eq!(*received.0.lock().unwrap(), observations(0..5000), "{protocol:?}");
        assert_eq!(outbox.stats().delivered, 5000);
    }
}

#[test]
fn compressed_requests_are_understood() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let config =
        kvprov_agent::ship::ShipConfig { gzip: true, ..settings(grpc(received.clone()), Protocol::Grpc) };
    let _shipper = Shipper::start(&outbox, config).unwrap();
    outbox.append(&observations(0..1000)).unwrap();
    assert!(outbox.flush(PATIENCE));
    assert_eq!(received.positions().len(), 1000);
}

#[test]
fn a_sign_of_life_arrives_after_what_it_vouches_for() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let _shipper = ship(&outbox, grpc(received.clone()), Protocol::Grpc);
    outbox.append(&observations(0..3000)).unwrap();
    outbox.alive(vec!["s".to_owned()], WallTime(5)).unwrap();
    outbox.clock(MonotonicTime(3), WallTime(6)).unwrap();
    assert!(outbox.flush(PATIENCE));
    let received = received.0.lock().unwrap();
    let kinds: Vec<&str> = received[3000..].iter().map(|observation| observation.body.kind()).collect();
    assert_eq!(kinds, ["alive", "clock"]);
    assert!(matches!(&received[3000].body, Body::Alive(alive) if alive.streams == ["s"]));
    assert_eq!(received[3001].envelope.monotonic, Some(MonotonicTime(3)));
}

#[test]
fn nobody_there_is_no_error_and_what_waited_arrives_when_somebody_comes() {
    for protocol in BOTH {
        let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
        let outbox = outbox(directory.path());
        // A port that was free a moment ago.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let shipper = ship(&outbox, address, protocol);
        outbox.append(&observations(0..10)).unwrap();
        assert!(eventually(|| shipper.stats().retried > 3), "{protocol:?}: {:?}", shipper.stats());
        assert!(!outbox.flush(Duration::from_millis(50)));
        drop(shipper);
        let _shipper = ship(&outbox, good(protocol, &received), protocol);
        assert!(outbox.flush(PATIENCE));
        assert_eq!(received.positions(), (0..10).collect::<Vec<_>>());
        assert!(outbox.stats().lost.is_empty());
    }
}

#[test]
fn a_receiver_that_is_nonsense_loses_nothing() {
    let noise: Vec<u8> = (0..4096u32).map(|number| ((number * 7919) >> 3) as u8).collect();
    for protocol in BOTH {
        for kind in ["noise", "hangs", "closes", "hotel"] {
            let noise = noise.clone();
            let held = Mutex::new(Vec::new());
            let address = raw(move |mut stream| match kind {
                "noise" => {
                    let _ = stream.write_all(&noise);
                }
                "hangs" => held.lock().unwrap().push(stream),
                "hotel" => {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(&reply(
                        "200 OK",
                        "content-type: text/html\r\n",
                        b"<html>welcome</html>",
                    ));
                }
                _ => drop(stream),
            });
            let directory = tempfile::tempdir().unwrap();
            let outbox = outbox(directory.path());
            let shipper = ship(&outbox, address, protocol);
            let begin = Instant::now();
            for number in 0..100 {
                outbox.append(&observations(number * 10..(number + 1) * 10)).unwrap();
            }
            assert!(
                begin.elapsed() < Duration::from_millis(400),
                "appending waited for a receiver that {kind}"
            );
            assert!(eventually(|| shipper.stats().retried > 0), "{protocol:?} {kind}: {:?}", shipper.stats());
            let stats = outbox.stats();
            assert_eq!((stats.waiting, stats.delivered), (1000, 0), "{protocol:?} {kind}");
            assert!(stats.lost.is_empty(), "{protocol:?} {kind}: {:?}", shipper.stats());
            let begin = Instant::now();
            shipper.stop();
            assert!(begin.elapsed() < Duration::from_secs(1), "stopping waited for a receiver that {kind}");
        }
    }
}

#[test]
fn a_refusal_for_good_is_told_as_a_loss_and_the_next_ones_go_on() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let taken = received.clone();
    let address = http(move |number, body| {
        if number == 0 {
            return reply("400 Bad Request", "", b"no");
        }
        taken.0.lock().unwrap().extend(decode(body));
        reply("200 OK", "", b"")
    });
    outbox.append(&observations(0..10)).unwrap();
    let _shipper = ship(&outbox, address, Protocol::Http);
    assert!(outbox.flush(PATIENCE));
    outbox.append(&observations(10..20)).unwrap();
    assert!(outbox.flush(PATIENCE));
    assert_eq!(received.positions(), (10..20).collect::<Vec<_>>());
    assert_eq!(received.losses()["refused"], 10);
    assert_eq!((outbox.stats().lost[&Reason::Refused], outbox.stats().delivered), (10, 11));
}

#[test]
fn a_server_without_the_service_drains_the_queue_slowly() {
    let address = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let incoming = tonic::transport::server::TcpIncoming::from(listener);
            let routes = tonic::service::Routes::default();
            runtime.block_on(
                tonic::transport::Server::builder().add_routes(routes).serve_with_incoming(incoming),
            )
        });
        address
    };
    let directory = tempfile::tempdir().unwrap();
    let outbox = outbox(directory.path());
    let mut config = settings(address, Protocol::Grpc);
    (config.batch_records, config.backoff) = (10, Duration::from_millis(200));
    config.backoff_max = Duration::from_secs(10);
    outbox.append(&observations(0..1000)).unwrap();
    let shipper = Shipper::start(&outbox, config).unwrap();
    assert!(eventually(|| shipper.stats().refused > 0), "{:?}", shipper.stats());
    pause(500);
    let lost = outbox.stats().lost[&Reason::Refused];
    assert!((10..=50).contains(&lost), "{lost}");
}

#[test]
fn a_busy_receiver_is_left_alone_for_as_long_as_it_asks() {
    for status in ["429 Too Many Requests", "503 Service Unavailable"] {
        let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
        let outbox = outbox(directory.path());
        let (taken, begin) = (received.clone(), Instant::now());
        let address = http(move |number, body| {
            if number == 0 {
                return reply(status, "retry-after: 1\r\n", b"");
            }
            assert!(begin.elapsed() >= Duration::from_secs(1));
            taken.0.lock().unwrap().extend(decode(body));
            reply("200 OK", "", b"")
        });
        outbox.append(&observations(0..10)).unwrap();
        let _shipper = ship(&outbox, address, Protocol::Http);
        assert!(outbox.flush(PATIENCE));
        assert_eq!(received.positions(), (0..10).collect::<Vec<_>>());
    }
}

#[test]
fn temporary_failures_are_tried_again_until_they_pass() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let address = grpc_at("127.0.0.1:0", received.clone(), |number, _| match number {
        0 => Err(Status::unavailable("starting")),
        1 => Err(Status::aborted("")),
        2 => Err(Status::data_loss("")),
        _ => Ok(ExportLogsServiceResponse::default()),
    });
    let shipper = ship(&outbox, address, Protocol::Grpc);
    outbox.append(&observations(0..100)).unwrap();
    assert!(outbox.flush(PATIENCE));
    assert_eq!(*received.0.lock().unwrap(), observations(0..100));
    assert_eq!(shipper.stats().retried, 3);
}

#[test]
fn records_that_are_rejected_are_counted_and_not_sent_again() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let address = grpc_at("127.0.0.1:0", received.clone(), |number, _| {
        let rejected_log_records = if number == 0 { 3 } else { 0 };
        let partial = ExportLogsPartialSuccess { rejected_log_records, error_message: "too old".to_owned() };
        Ok(ExportLogsServiceResponse { partial_success: Some(partial) })
    });
    outbox.append(&observations(0..10)).unwrap();
    let _shipper = ship(&outbox, address, Protocol::Grpc);
    assert!(eventually(|| received.losses().get("rejected") == Some(&3)));
    assert_eq!(received.positions().len(), 10);
    assert_eq!(outbox.stats().lost[&Reason::Rejected], 3);
}

#[test]
fn a_request_that_is_too_large_goes_in_smaller_ones() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let taken = received.clone();
    let address = http(move |_, body| {
        if body.len() > 10_000 {
            return reply("413 Payload Too Large", "", b"");
        }
        taken.0.lock().unwrap().extend(decode(body));
        reply("200 OK", "", &ExportLogsServiceResponse::default().encode_to_vec())
    });
    outbox.append(&observations(0..500)).unwrap();
    let shipper = ship(&outbox, address, Protocol::Http);
    assert!(outbox.flush(PATIENCE));
    assert_eq!(*received.0.lock().unwrap(), observations(0..500));
    assert!(shipper.stats().split >= 3 && outbox.stats().lost.is_empty());
}

#[test]
fn one_record_that_no_receiver_takes_does_not_block_the_others() {
    let (directory, received) = (tempfile::tempdir().unwrap(), Received::default());
    let outbox = outbox(directory.path());
    let taken = received.clone();
    let address = http(move |_, body| {
        let observations = decode(body);
        if observations.iter().any(|observation| observation.envelope.position == 5) {
            return reply("413 Payload Too Large", "", b"");
        }
        taken.0.lock().unwrap().extend(observations);
        reply("200 OK", "", b"")
    });
    outbox.append(&observations(0..10)).unwrap();
    let _shipper = ship(&outbox, address, Protocol::Http);
    assert!(outbox.flush(PATIENCE));
    assert!(eventually(|| received.losses().get("refused") == Some(&1)));
    assert_eq!(received.positions(), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
}

#[test]
fn an_endpoint_that_is_none_is_told_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let outbox = outbox(directory.path());
    for endpoint in ["", "localhost:4317", "https://localhost:4317", "http://", "http://[::1"] {
        for protocol in BOTH {
            let config = kvprov_agent::ship::ShipConfig::new(endpoint, protocol);
            let error =
                Shipper::start(&outbox, config).err().unwrap_or_else(|| panic!("{endpoint} {protocol:?}"));
            assert!(error.to_string().contains("http://host:4317"), "{error}");
        }
    }
}
