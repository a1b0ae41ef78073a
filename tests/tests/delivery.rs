//! From an agent's outbox over the wire into the ledger of a collector: everything, once, also when the collector is
//! started again in the middle.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed test says enough; the rate is worth a line"
)]

use kvprov_agent::ship::{Outbox, Protocol, QueueConfig, ShipConfig, Shipper};
use kvprov_collector::ledger::{EmbeddedLedger, Limits};
use kvprov_collector::receive::ReceiveConfig;
use kvprov_collector::serve::{Collector, Config};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Artifact, ArtifactAction, Body, Envelope, Observation, SourceKind};
use kvprov_model::value::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

const COUNT: u64 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as i64
}

fn observation(number: u64, wall: i64) -> Observation {
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("delivery", 0, number, 0),
            node: NodeId::from("n0"),
            boot_id: Some("b".to_owned()),
            worker: Some(WorkerId::from("w0")),
            source: SourceKind::Kernel,
            stream: "kernel".to_owned(),
            position: number as i64,
            monotonic: None,
            wall: Some(WallTime(wall + number as i64)),
            says: None,
        },
        body: Body::Artifact(Artifact {
            action: Some(ArtifactAction::Written),
            key: Some(format!("key-{number}")),
            ..Artifact::default()
        }),
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}

fn collector(data: &Path, grpc: SocketAddr, http: SocketAddr) -> Collector {
    let receive = ReceiveConfig { grpc: Some(grpc), http: Some(http), ..ReceiveConfig::default() };
    let http = SocketAddr::from(([127, 0, 0, 1], 0));
    Collector::start(Config {
        data: Some(data.to_owned()),
        http,
        receive: Some(receive),
        ..Config::default()
    })
    .unwrap()
}

#[test]
fn what_an_agent_appends_is_in_the_ledger_once() {
    for protocol in [Protocol::Grpc, Protocol::Http] {
        let directory = tempfile::tempdir().unwrap();
        let (data, anywhere) = (directory.path().join("data"), SocketAddr::from(([127, 0, 0, 1], 0)));
        let running = collector(&data, anywhere, anywhere);
        let (Some(grpc), Some(http)) = running.otlp() else { panic!("no receivers") };
        let endpoint = format!("http://{}", if protocol == Protocol::Grpc { grpc } else { http });
        let mut queue = QueueConfig::new(directory.path().join("queue"), NodeId::from("n0"));
        queue.resource = vec![("service.name".to_owned(), Value::Str("kvprov-agent".to_owned()))];
        let outbox = Outbox::open(queue).unwrap();
        let config = ShipConfig { backoff: Duration::from_millis(20), ..ShipConfig::new(endpoint, protocol) };
        let shipper = Shipper::start(&outbox, config).unwrap();

        let (wall, begin) = (now(), Instant::now());
        let all: Vec<Observation> = (0..COUNT).map(|number| observation(number, wall)).collect();
        for batch in all[..COUNT as usize / 2].chunks(100) {
            outbox.append(batch).unwrap();
        }
        assert!(outbox.flush(PATIENCE), "{protocol:?}: {:?}", shipper.stats());
        let rate = COUNT as f64 / 2.0 / begin.elapsed().as_secs_f64();
        println!("{protocol:?}: {rate:.0} observations/s from append to the ledger");
        running.stop();
        for batch in all[COUNT as usize / 2..].chunks(100) {
            outbox.append(batch).unwrap();
        }
        let running = collector(&data, grpc, http);
        assert!(outbox.flush(PATIENCE), "{protocol:?}: {:?}", shipper.stats());
        assert!(outbox.stats().lost.is_empty(), "{:?}", outbox.stats());
        drop(shipper);
        running.stop();

        let mut kept = BTreeMap::new();
        let ledger = EmbeddedLedger::open(&data.join("ledger"), Limits::unbounded()).unwrap();
        ledger
            .each_observation(&mut |observation| {
                kept.insert(observation.envelope.position, observation);
                ControlFlow::Continue(())
            })
            .unwrap();
        // To the last attribute: who sent it is no part of it.
        assert!(kept.into_values().eq(all), "{protocol:?}");
    }
}
