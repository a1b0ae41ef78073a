//! What merging costs beside bare decoding, and which storage engine costs less.
//!
//! Run: `cargo bench -p kvprov-collector --bench ledger_ingest [-- OBSERVATIONS]`. Both engines sit under the same
//! ledger and get the same OTLP bytes, batch by batch, each batch durable before the next.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench speaks to a terminal and has no data to lose"
)]

use kvprov_collector::ledger::storage::{Changes, DiskStorage, MemoryStorage, Order, Storage, Visit};
use kvprov_collector::ledger::{Ledger, LedgerError, Limits, StoredLedger};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Envelope, Lease, Observation, SourceKind, Transfer, otlp};
use redb::{Database, ReadableDatabase as _, TableDefinition};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const BATCH: usize = 512;
const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("ledger");

/// The engine that was not chosen, as a storage of the same ledger.
struct RedbStorage {
    database: Database,
    directory: PathBuf,
}

impl RedbStorage {
    fn open(directory: &Path) -> Self {
        let database =
            Database::builder().set_cache_size(64 << 20).create(directory.join("ledger.redb")).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(TABLE).unwrap();
        transaction.commit().unwrap();
        Self { database, directory: directory.to_owned() }
    }

    fn failed(&self, error: impl std::fmt::Display) -> LedgerError {
        LedgerError::Storage { doing: "use", directory: self.directory.clone(), reason: error.to_string() }
    }
}

impl Storage for RedbStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError> {
        let table = self.database.begin_read().unwrap().open_table(TABLE).unwrap();
        let value = table.get(key).map_err(|error| self.failed(error))?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        order: Order,
        visit: Visit<'_>,
    ) -> Result<(), LedgerError> {
        let table = self.database.begin_read().unwrap().open_table(TABLE).unwrap();
        let mut range = match until {
            Some(until) if until <= from => return Ok(()),
            Some(until) => table.range(from..until),
            None => table.range(from..),
        }
        .map_err(|error| self.failed(error))?;
        loop {
            let entry = if order == Order::Ascending { range.next() } else { range.next_back() };
            let Some(entry) = entry else { return Ok(()) };
            let (key, value) = entry.map_err(|error| self.failed(error))?;
            if visit(key.value(), value.value()).is_break() {
                return Ok(());
            }
        }
    }

    fn commit(&mut self, changes: Changes) -> Result<(), LedgerError> {
        let transaction = self.database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            changes.each(|key, value| match value {
                Some(value) => drop(table.insert(key, value).unwrap()),
                None => drop(table.remove(key).unwrap()),
            });
        }
        transaction.commit().map_err(|error| self.failed(error))
    }
}

/// A prefill and decode pair under load: transfers, leases and cache use, five observations a request.
fn observation(index: u64) -> Observation {
    let request = index / 5;
    let id = format!("cmpl-7c1f{request:08x}-43a9-8f7e-0-0a1b2c3d");
    let decode = index % 5 > 2;
    let body = match index % 5 {
        0 | 1 => Body::Lease(Lease { request_id: Some(id), readers: Some(1), ..Lease::default() }),
        2 => Body::CacheUse(CacheUse {
            request_id: Some(id),
            asked: Some(8192),
            hit: Some(4096),
            computed: Some(4096),
            ..CacheUse::default()
        }),
        _ => Body::Transfer(Transfer {
            remote_request_id: Some(format!("cmpl-7c1f{request:08x}-43a9-8f7e-0-99887766")),
            request_id: Some(id),
            local_engine_id: Some("engine-d-4711".to_owned()),
            remote_engine_id: Some("engine-p-0815".to_owned()),
            peer: Some("10.0.0.7:5600".to_owned()),
            bytes_expected: Some(2_684_354_560),
            ..Transfer::default()
        }),
    };
    let worker = if decode { request % 8 + 8 } else { request % 8 };
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("bench", 0, index, 0),
            node: NodeId(format!("node-{}", worker / 4)),
            boot_id: Some("5b1f0c52-8f0e-4b5e-9a53-0b9a6c1f2d11".to_owned()),
            worker: Some(WorkerId(format!("node-{}/5b1f0c52/{}/991", worker / 4, 4000 + worker))),
            source: SourceKind::Log,
            stream: format!("/var/log/pods/serving_w{worker}/0.log"),
            position: index as i64,
            monotonic: None,
            wall: Some(WallTime(1_755_331_200_000_000_000 + index as i64 * 40_000)),
            says: Some("KV blocks of the request were sent to the reader".to_owned()),
        },
        body,
        extra: BTreeMap::new(),
        resource: BTreeMap::new(),
    }
}

/// Time on the clock, and on the processors over all threads: on a busy machine only the second compares.
#[derive(Clone, Copy)]
struct Cost {
    wall: Duration,
    cpu: Duration,
}

struct Meter {
    start: Instant,
    cpu: Duration,
}

impl Meter {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: cpu_time() }
    }

    fn stop(&self) -> Cost {
        Cost { wall: self.start.elapsed(), cpu: cpu_time().saturating_sub(self.cpu) }
    }
}

/// What the threads that live have run, from `/proc/self/task/*/schedstat`.
fn cpu_time() -> Duration {
    let nanos = std::fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter_map(|task| {
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        })
        .sum();
    Duration::from_nanos(nanos)
}

fn decode_alone(requests: &[Vec<u8>]) -> Cost {
    let meter = Meter::start();
    for bytes in requests {
        std::hint::black_box(otlp::decode(bytes).unwrap());
    }
    meter.stop()
}

/// The cost of decoding and merging.
fn ingest<S: Storage>(storage: S, requests: &[Vec<u8>]) -> Cost {
    let mut ledger = StoredLedger::over(storage, Limits::default()).unwrap();
    let meter = Meter::start();
    for bytes in requests {
        let observations = otlp::decode(bytes).unwrap().observations;
        ledger.merge(&observations).unwrap();
    }
    meter.stop()
}

fn disk_bytes(directory: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::read_dir(directory)
        .unwrap()
        .flatten()
        .map(|entry| {
            let metadata = entry.metadata().unwrap();
            if metadata.is_dir() { disk_bytes(&entry.path()) } else { metadata.blocks() * 512 }
        })
        .sum()
}

fn main() {
    let count = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(200_000u64);
    let requests: Vec<Vec<u8>> = (0..count)
        .collect::<Vec<_>>()
        .chunks(BATCH)
        .map(|indices| otlp::encode(&indices.iter().map(|index| observation(*index)).collect::<Vec<_>>()))
        .collect();
    let bytes: usize = requests.iter().map(Vec::len).sum();
    println!("{count} observations of {} bytes in batches of {BATCH}", bytes as u64 / count);

    decode_alone(&requests);
    let decode = decode_alone(&requests);
    let rate = |time: Duration| count as f64 / time.as_secs_f64();
    let ratio = |time: Duration, base: Duration| time.as_secs_f64() / base.as_secs_f64();
    let line = |name: &str, cost: Cost, size: u64| {
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} | {:.2} | {:.0} |",
            rate(cost.wall),
            ratio(cost.wall, decode.wall),
            cost.cpu.as_secs_f64() * 1e6 / count as f64,
            ratio(cost.cpu, decode.cpu),
            size as f64 / count as f64,
        );
    };
    println!(
        "| decode and merge into | obs/s | of decoding | CPU us/obs | of decoding | bytes/obs on disk |"
    );
    println!("|---|---|---|---|---|---|");
    line("nothing (decode alone)", decode, 0);
    line("memory", ingest(MemoryStorage::default(), &requests), 0);
    let directory = tempfile::tempdir().unwrap();
    let chosen = ingest(DiskStorage::open(directory.path()).unwrap(), &requests);
    line("fjall", chosen, disk_bytes(directory.path()));
    let directory = tempfile::tempdir().unwrap();
    line("redb", ingest(RedbStorage::open(directory.path()), &requests), disk_bytes(directory.path()));
    println!(
        "ledger ingest: {:.0} obs/s, decode alone: {:.0} obs/s, ratio {:.2} (goal <= 4), by CPU time {:.2}",
        rate(chosen.wall),
        rate(decode.wall),
        ratio(chosen.wall, decode.wall),
        ratio(chosen.cpu, decode.cpu)
    );
}
