//! What an append costs beside a plain write of the same bytes, and how fast the queue is sent to a receiver that throws
//! everything away.
//!
//! Run: `cargo bench -p kvprov-agent --bench queue [-- OBSERVATIONS]`. Each round measures both sides one after the other
//! in the same directory (`KVPROV_BENCH_DIR`, default the system's for temporary files); the median round counts. Last
//! lines: `append: 900 ns an observation, 4.0 times a plain write of the same bytes`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench speaks to a terminal and has no data to lose"
)]

use kvprov_agent::ship::{Outbox, Protocol, QueueConfig, ShipConfig, Shipper};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Artifact, ArtifactAction, Body, Envelope, Observation, SourceKind};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

/// Observations that a source hands in at once.
const BATCH: usize = 128;
const ROUNDS: usize = 5;

fn observation(number: u64) -> Observation {
    let body = Body::Artifact(Artifact {
        action: Some(ArtifactAction::Written),
        key: Some(format!("llama-3-70b_0123456789abcdef_{number:016x}_8_3.bin")),
        ..Artifact::default()
    });
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("bench", 0, number, 0),
            node: NodeId::from("node-a"),
            boot_id: Some("f3b0c442-98fc-4c14-9afb-f4c8996fb924".to_owned()),
            worker: Some(WorkerId::from("sglang-4242-0badcafe")),
            source: SourceKind::Kernel,
            stream: "kernel".to_owned(),
            position: number as i64,
            monotonic: None,
            wall: Some(WallTime(1_800_000_000_000_000_000 + number as i64)),
            says: Some("wrote a page of KV under its final name".to_owned()),
        },
        body,
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}

fn outbox(directory: &Path) -> Outbox {
    Outbox::open(QueueConfig {
        capacity_bytes: 1 << 30,
        ..QueueConfig::new(directory, NodeId::from("node-a"))
    })
    .unwrap()
}

fn main() {
    let count: usize = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(200_000);
    let base = std::env::var_os("KVPROV_BENCH_DIR").map_or_else(std::env::temp_dir, Into::into);
    let batches: Vec<Vec<Observation>> = (0..count as u64)
        .map(observation)
        .collect::<Vec<_>>()
        .chunks(BATCH)
        .map(<[Observation]>::to_vec)
        .collect();
    let (mut append, mut plain, mut ship) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    for _ in 0..ROUNDS {
        let directory = tempfile::tempdir_in(&base).unwrap();
        let outbox = outbox(directory.path());
        let begin = Instant::now();
        for batch in &batches {
            outbox.append(batch).unwrap();
        }
        append.push(begin.elapsed().as_secs_f64());
        bytes = outbox.stats().disk_bytes;
        plain.push(write_plainly(directory.path(), bytes, batches.len()));
        ship.push(send(&outbox));
    }
    let (append, plain, ship) = (median(append), median(plain), median(ship));
    let each = |seconds: f64| seconds * 1e9 / count as f64;
    println!("{count} observations, {bytes} bytes on disk, {:.0} bytes each", bytes as f64 / count as f64);
    println!("plain write: {:.0} ns an observation", each(plain));
    println!(
        "send: {:.0} observations/s, {:.1} times a plain write of the same bytes",
        count as f64 / ship,
        ship / plain
    );
    println!(
        "append: {:.0} ns an observation, {:.1} times a plain write of the same bytes",
        each(append),
        append / plain
    );
}

/// The same bytes in as many writes, without anything else.
fn write_plainly(directory: &Path, bytes: u64, writes: usize) -> f64 {
    let piece = vec![0x5a; bytes as usize / writes];
    let path = directory.join("plain");
    let mut file = File::create(&path).unwrap();
    let begin = Instant::now();
    for _ in 0..writes {
        file.write_all(&piece).unwrap();
    }
    let seconds = begin.elapsed().as_secs_f64();
    fs::remove_file(path).unwrap();
    seconds
}

/// Sends everything to a receiver that reads and forgets.
fn send(outbox: &Outbox) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(&stream);
            while let Some(length) = head(&mut reader) {
                let mut body = vec![0; length];
                if reader.read_exact(&mut body).is_err() {
                    break;
                }
                let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n");
            }
        }
    });
    let begin = Instant::now();
    let shipper =
        Shipper::start(outbox, ShipConfig::new(format!("http://{address}"), Protocol::Http)).unwrap();
    assert!(outbox.flush(Duration::from_secs(120)), "{:?}", shipper.stats());
    begin.elapsed().as_secs_f64()
}

/// Reads a head; the length of the body.
fn head(reader: &mut impl std::io::BufRead) -> Option<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line == "\r\n" {
            return Some(length);
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}
