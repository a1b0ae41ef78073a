//! The queue as a whole: what survives, what goes, and that nothing goes untold.

use super::batch::{Batch, Limit};
use super::loss::Tally;
use super::queue::Queue;
use super::{QueueConfig, QueueError, Reason};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::observation::{
    Alive, Artifact, Body, Envelope, Factor, Observation, SourceKind, Worker, otlp,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ALL: Limit = Limit { records: 1000, bytes: 1 << 20 };

fn config(directory: &Path) -> QueueConfig {
    QueueConfig {
        capacity_bytes: 1 << 20,
        memory_bytes: 256 << 10,
        ..QueueConfig::new(directory, NodeId::from("n0"))
    }
}

fn open(directory: &Path) -> Queue {
    Queue::open(config(directory)).unwrap()
}

fn observation(number: u64, body: Body) -> Observation {
    Observation {
        envelope: Envelope {
            schema_version: 1,
            id: ObservationId::derive("test", 0, number, 0),
            node: NodeId::from("n0"),
            boot_id: None,
            worker: Some(WorkerId(format!("w{}", number % 2))),
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

fn bulk(number: u64) -> Observation {
    let body = Body::Artifact(Artifact { key: Some("k".repeat(300)), ..Artifact::default() });
    observation(number, body)
}

fn bulks(numbers: std::ops::Range<u64>) -> Vec<Observation> {
    numbers.map(bulk).collect()
}

fn decode(batch: &Batch) -> Vec<Observation> {
    let decoded = otlp::decode(&batch.request).unwrap();
    assert!(decoded.skipped.is_empty());
    assert_eq!(decoded.observations.len() as u64, batch.records);
    decoded.observations
}

/// Takes out everything.
fn drain(queue: &Queue) -> Vec<Observation> {
    let mut found = Vec::new();
    while let Some(batch) = queue.next(ALL) {
        found.extend(decode(&batch));
        queue.done(&batch, &Tally::default());
    }
    found
}

fn positions(observations: &[Observation]) -> Vec<u64> {
    observations
        .iter()
        .filter(|observation| observation.envelope.stream == "s")
        .map(|observation| observation.envelope.position as u64)
        .collect()
}

fn losses(observations: &[Observation]) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for observation in observations {
        if let Body::Loss(loss) = &observation.body {
            *found.entry(loss.reason.clone().unwrap()).or_default() += loss.records.unwrap() as u64;
        }
    }
    found
}

fn segments(directory: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[test]
fn what_was_appended_comes_out_in_order_and_once() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    for number in 0..10 {
        let committed = queue.append(&bulks(number * 50..(number + 1) * 50)).unwrap();
        assert!(committed.durable && committed.records == 50);
    }
    let limit = Limit { records: 33, bytes: 1 << 20 };
    let mut found = Vec::new();
    while let Some(batch) = queue.next(limit) {
        assert!(batch.records <= 33);
        found.extend(decode(&batch));
        queue.done(&batch, &Tally::default());
    }
    assert_eq!(found, bulks(0..500));
    let stats = queue.stats();
    assert_eq!((stats.waiting, stats.delivered, stats.oldest), (0, 500, None));
}

#[test]
fn a_batch_that_is_not_done_comes_again() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..10)).unwrap();
    let (first, second) = (queue.next(ALL).unwrap(), queue.next(ALL).unwrap());
    assert_eq!(decode(&first), decode(&second));
}

#[test]
fn what_was_not_delivered_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..20)).unwrap();
    drop(queue);
    let queue = open(directory.path());
    assert_eq!(queue.stats().waiting, 20);
    queue.append(&bulks(20..30)).unwrap();
    assert_eq!(positions(&drain(&queue)), (0..30).collect::<Vec<_>>());
    queue.close();
    drop(queue);
    assert_eq!(open(directory.path()).stats().waiting, 0);
}

#[test]
fn a_write_that_was_cut_off_loses_nothing_that_was_committed() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..3)).unwrap();
    let committed = fs::metadata(&segments(directory.path())[0]).unwrap().len() as usize;
    queue.append(&bulks(3..6)).unwrap();
    drop(queue);
    let path = segments(directory.path())[0].clone();
    let whole = fs::read(&path).unwrap();
    for cut in (committed..whole.len()).step_by(37) {
        fs::write(&path, &whole[..cut]).unwrap();
        let queue = open(directory.path());
        assert_eq!(queue.stats().torn_bytes as usize, cut - committed);
        let found = drain(&queue);
        assert_eq!((positions(&found), losses(&found)), ((0..3).collect(), BTreeMap::new()), "cut at {cut}");
        drop(queue);
        segments(directory.path()).iter().for_each(|path| fs::remove_file(path).unwrap());
    }
}

#[test]
fn a_damaged_segment_is_told_as_a_loss_and_the_rest_is_delivered() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    for number in 0..4 {
        queue.append(&bulks(number * 5..(number + 1) * 5)).unwrap();
    }
    drop(queue);
    let path = segments(directory.path())[0].clone();
    let mut bytes = fs::read(&path).unwrap();
    let third = bytes.len() / 3;
    bytes[third] ^= 1;
    fs::write(&path, &bytes).unwrap();

    let queue = open(directory.path());
    let found = drain(&queue);
    assert_eq!(positions(&found), [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
    assert_eq!(losses(&found), BTreeMap::from([("damaged".to_owned(), 5)]));
    assert_eq!(queue.stats().lost[&Reason::Damaged], 5);
}

#[test]
fn a_segment_that_vanishes_under_the_queue_is_told_as_a_loss() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..5)).unwrap();
    fs::remove_file(&segments(directory.path())[0]).unwrap();
    let found = drain(&queue);
    assert_eq!((positions(&found).len(), losses(&found)["damaged"]), (0, 5));
    assert_eq!(queue.stats().waiting, 0);
}

#[test]
fn one_process_alone_has_a_queue() {
    let directory = tempfile::tempdir().unwrap();
    let first = open(directory.path());
    let error = Queue::open(config(directory.path())).unwrap_err();
    assert!(matches!(error, QueueError::Locked { .. }), "{error}");
    drop(first);
    open(directory.path());
}

#[test]
fn what_is_no_segment_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["thesis.tex", "00.kvq.bak", "zz.kvq"] {
        fs::write(directory.path().join(name), "x").unwrap();
    }
    fs::write(directory.path().join("0000000000000007.kvq-new"), "half").unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..3)).unwrap();
    assert_eq!(drain(&queue).len(), 3);
    assert_eq!(segments(directory.path()).len(), 4);
}

#[test]
fn rubbish_under_the_name_of_a_segment_is_no_reason_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("0000000000000007.kvq"), vec![7; 5000]).unwrap();
    fs::write(directory.path().join("0000000000000008.kvq"), "").unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..3)).unwrap();
    assert_eq!(positions(&drain(&queue)), [0, 1, 2]);
}

#[test]
fn an_observation_beyond_all_measure_is_refused_and_told() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    let huge = Body::Artifact(Artifact { key: Some("k".repeat(2 << 20)), ..Artifact::default() });
    let committed = queue.append(&[bulk(0), observation(1, huge), bulk(2)]).unwrap();
    assert_eq!((committed.records, committed.oversized), (2, 1));
    let found = drain(&queue);
    assert_eq!((positions(&found), losses(&found)["oversized"]), (vec![0, 2], 1));
}

#[test]
fn after_closing_nothing_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.close();
    assert!(matches!(queue.append(&bulks(0..1)), Err(QueueError::Closed)));
}

/// Bulk with a worker, a factor and a sign of life now and then.
fn mixed(number: u64) -> Observation {
    match number % 1000 {
        0 => observation(number, Body::Worker(Worker::default())),
        1 => observation(number, Body::Factor(Factor::default())),
        2 => observation(number, Body::Alive(Alive::default())),
        _ => bulk(number),
    }
}

#[test]
fn a_full_queue_keeps_to_its_bound_and_tells_what_went() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    let count = 20_000;
    for start in (0..count).step_by(20) {
        let batch: Vec<Observation> = (start..start + 20).map(mixed).collect();
        assert!(queue.append(&batch).unwrap().durable);
        let size: u64 = segments(directory.path()).iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(size <= 1 << 20, "{size}");
    }
    let lost = queue.stats().lost[&Reason::QueueFull];
    let found = drain(&queue);
    let kept: BTreeSet<u64> = positions(&found).into_iter().collect();
    // Every worker and factor is there; signs of life that later ones replace are no loss.
    assert!((0..count).filter(|number| number % 1000 < 2).all(|number| kept.contains(&number)));
    let bulk_gone = (0..count).filter(|number| number % 1000 > 2 && !kept.contains(number)).count() as u64;
    assert_eq!(losses(&found)["queue_full"], bulk_gone);
    assert_eq!(lost, bulk_gone);
    assert!(bulk_gone > 10_000);
    // Of each worker by itself.
    let workers: BTreeSet<&str> = found
        .iter()
        .filter(|observation| matches!(observation.body, Body::Loss(_)))
        .map(Observation::worker)
        .collect();
    assert_eq!(workers, BTreeSet::from(["w0", "w1"]));
    // Nothing that vouches for what went comes before the loss was told.
    let first_loss = found.iter().position(|observation| matches!(observation.body, Body::Loss(_))).unwrap();
    let first_alive =
        found.iter().position(|observation| matches!(observation.body, Body::Alive(_))).unwrap();
    assert!(first_loss < first_alive);
    assert_eq!(queue.stats().waiting, 0);
}

#[test]
fn essentials_without_end_are_bounded_too() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    for number in 0..30_000 {
        queue.append(&[observation(number, Body::Worker(Worker::default()))]).unwrap();
    }
    let stats = queue.stats();
    assert!(stats.disk_bytes <= 1 << 20);
    let found = drain(&queue);
    assert_eq!(positions(&found).len() as u64 + losses(&found)["queue_full"], 30_000);
}

#[test]
fn what_is_being_sent_does_not_go() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..100)).unwrap();
    let batch = queue.next(Limit { records: 10, bytes: 1 << 20 }).unwrap();
    queue.append(&bulks(100..6000)).unwrap();
    assert!(queue.stats().lost[&Reason::QueueFull] > 1000);
    queue.done(&batch, &Tally::default());
    let rest = drain(&queue);
    let found = positions(&rest);
    assert!(found[0] > 99 && losses(&rest)["queue_full"] == found[0] - 10, "{}", found[0]);
}

#[test]
fn a_segment_that_goes_while_it_is_sent_is_not_sent_twice() {
    let directory = tempfile::tempdir().unwrap();
    let queue = open(directory.path());
    queue.append(&bulks(0..50)).unwrap();
    let mut found = Vec::new();
    let mut next = 50;
    for _ in 0..60 {
        let batch = queue.next(Limit { records: 7, bytes: 1 << 20 }).unwrap();
        queue.append(&bulks(next..next + 300)).unwrap();
        next += 300;
        found.extend(decode(&batch));
        queue.done(&batch, &Tally::default());
    }
    found.extend(drain(&queue));
    let kept = positions(&found);
    assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(kept.len() as u64 + losses(&found)["queue_full"], next);
}

/// A file system of its own; `None` where this user may not mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        mount(&["-t", "tmpfs", "-o", options, "tmpfs"], directory.path()).then(|| Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

fn mount(arguments: &[&str], at: &Path) -> bool {
    Command::new("mount")
        .args(arguments)
        .arg(at)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn a_full_disk_moves_the_queue_into_memory_until_there_is_room() {
    let Some(disk) = SmallDisk::mount("size=300k") else { return };
    let path = disk.0.path().join("queue");
    let queue = open(&path);
    let mut number = 0;
    while queue.append(&bulks(number..number + 10)).unwrap().durable {
        number += 10;
        assert!(number < 5000, "the disk never filled");
    }
    number += 10;
    // Within memory nothing is lost.
    queue.append(&bulks(number..number + 100)).unwrap();
    number += 100;
    let stats = queue.stats();
    assert!(stats.lost.is_empty() && stats.memory_bytes > 0 && stats.disk_failures > 0 && !stats.durable);
    assert!(mount(&["-o", "remount,size=8m"], disk.0.path()));
    queue.close();
    assert!(queue.is_durable());
    drop(queue);
    assert_eq!(positions(&drain(&open(&path))), (0..number).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_stays_full_bounds_memory_and_tells_what_went() {
    let Some(disk) = SmallDisk::mount("size=200k") else { return };
    let queue = open(&disk.0.path().join("queue"));
    for number in 0..300 {
        queue.append(&bulks(number * 20..(number + 1) * 20)).unwrap();
        assert!(queue.stats().memory_bytes <= 256 << 10);
    }
    let found = drain(&queue);
    let kept = positions(&found);
    assert!(kept.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(kept.len() as u64 + losses(&found)["disk_full"], 6000);
    // What was on the disk before it was full is the oldest, and is there.
    assert!(kept.len() > 100 && kept[50] == 50);
}

#[test]
fn a_read_only_disk_is_told_at_the_start() {
    let Some(disk) = SmallDisk::mount("size=1m,ro") else { return };
    let error = Queue::open(config(&disk.0.path().join("queue"))).unwrap_err();
    assert!(matches!(error, QueueError::Io { .. }) && error.to_string().contains("--data"), "{error}");
}

#[derive(Debug, Clone)]
enum Step {
    Append(u64),
    Send(usize),
    Fail(usize),
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1u64..400).prop_map(Step::Append),
        3 => (1usize..500).prop_map(Step::Send),
        1 => (1usize..500).prop_map(Step::Fail),
        1 => Just(Step::Reopen),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_observation_is_delivered_or_told_as_lost(steps in proptest::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut queue = open(directory.path());
        let (mut next, mut found) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Append(count) => {
                    queue.append(&bulks(next..next + count)).unwrap();
                    next += count;
                }
                Step::Send(records) => {
                    if let Some(batch) = queue.next(Limit { records, bytes: 1 << 20 }) {
                        found.extend(decode(&batch));
                        queue.done(&batch, &Tally::default());
                    }
                }
                Step::Fail(records) => {
                    queue.next(Limit { records, bytes: 1 << 20 });
                }
                Step::Reopen => {
                    drop(queue);
                    queue = open(directory.path());
                }
            }
        }
        found.extend(drain(&queue));
        prop_assert_eq!(queue.stats().waiting, 0);
        // A restart sends the oldest segment again from its begin; ids tell.
        let kept: BTreeSet<u64> = positions(&found).into_iter().collect();
        let mut told = BTreeMap::new();
        for observation in &found {
            if let Body::Loss(loss) = &observation.body {
                told.insert(observation.envelope.id, loss.records.unwrap() as u64);
            }
        }
        let told: u64 = told.values().sum();
        let gone = (0..next).filter(|number| !kept.contains(number)).count() as u64;
        prop_assert!(gone <= told, "{} are missing, {} told", gone, told);
    }
}
