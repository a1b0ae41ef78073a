//! What was acknowledged survives `kill -9` and a full disk; what is no ledger of ours is left alone.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed test says enough; the child speaks by stdout"
)]

mod ledger_support;

use kvprov_collector::ledger::{EmbeddedLedger, IndexKind, Ledger, LedgerError, Limits};
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Observation;
use ledger_support::observation;
use std::collections::BTreeSet;
use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const CHILD: &str = "KVPROV_TEST_LEDGER";
const FIRST: &str = "KVPROV_TEST_FIRST_BATCH";
const BATCH: u64 = 100;

fn batch(number: u64) -> Vec<Observation> {
    (number * BATCH..(number + 1) * BATCH).map(|index| observation(index, "n0", Some(index as i64))).collect()
}

fn open(directory: &Path) -> Result<EmbeddedLedger, LedgerError> {
    EmbeddedLedger::open(directory, Limits::unbounded())
}

fn ids(ledger: &EmbeddedLedger) -> BTreeSet<ObservationId> {
    let mut ids = BTreeSet::new();
    ledger
        .each_observation(&mut |observation| {
            ids.insert(observation.envelope.id);
            ControlFlow::Continue(())
        })
        .unwrap();
    ids
}

/// Batches of which something, and of which everything is there.
fn batches_present(ledger: &EmbeddedLedger, upto: u64) -> Vec<u64> {
    let ids = ids(ledger);
    (0..upto)
        .filter(|number| {
            let present = batch(*number).iter().filter(|o| ids.contains(&o.envelope.id)).count() as u64;
            assert!(present == 0 || present == BATCH, "batch {number} is torn: {present} of {BATCH}");
            present == BATCH
        })
        .collect()
}

/// Not a test of its own: the process that is killed.
#[test]
fn child_that_is_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let first: u64 = std::env::var(FIRST).unwrap().parse().unwrap();
    let mut ledger = open(Path::new(&directory)).unwrap();
    println!();
    for number in first.. {
        ledger.merge(&batch(number)).unwrap();
        println!("acknowledged {number}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn every_acknowledged_batch_survives_kill_9_and_a_torn_one_is_absent() {
    let directory = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..10 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_that_is_killed", "--nocapture"])
            .env(CHILD, directory.path())
            .env(FIRST, acknowledged.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let numbers = |lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
            lines
                .filter_map(|line| line.ok()?.strip_prefix("acknowledged ")?.parse::<u64>().ok())
                .map(|number| number + 1)
                .next()
        };
        acknowledged = numbers(&mut lines).unwrap();
        #[allow(
            clippy::disallowed_methods,
            reason = "no signal is missing: the kill has to come at any moment"
        )]
        std::thread::sleep(Duration::from_micros(RandomState::new().hash_one(round) % 60_000));
        // `Child::kill` sends SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        while let Some(number) = numbers(&mut lines) {
            acknowledged = number;
        }

        let mut ledger = open(directory.path()).unwrap();
        let present = batches_present(&ledger, acknowledged + 2);
        assert!(present.len() as u64 >= acknowledged, "{present:?} after {acknowledged} were acknowledged");
        let merged = ledger.merge(&batch(acknowledged - 1)).unwrap();
        assert_eq!((merged.added, merged.duplicates), (0, BATCH));
        assert_eq!(ids(&ledger).len() as u64, present.len() as u64 * BATCH);
    }
}

#[test]
fn a_second_process_is_told_who_is_in_the_way() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path()).unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(matches!(error, LedgerError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("in use by another process"));
}

#[test]
fn a_ledger_of_a_newer_version_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    fs::write(directory.path().join("kvprov-ledger"), "kvprov ledger schema 7\n").unwrap();
    let message = open(directory.path()).err().unwrap().to_string();
    for part in ["schema version 7", "up to 3", directory.path().to_str().unwrap(), "use the newer kvprov"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_ledger_of_an_older_version_is_refused_and_named() {
    let directory = tempfile::tempdir().unwrap();
    drop(open(directory.path()).unwrap());
    fs::write(directory.path().join("kvprov-ledger"), "kvprov ledger schema 1\n").unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(matches!(error, LedgerError::Older { .. }), "{error}");
    assert!(error.to_string().contains("move the directory away"), "{error}");
}

#[test]
fn a_foreign_directory_is_left_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("thesis.tex"), "x").unwrap();
    let error = open(directory.path()).err().unwrap();
    assert!(
        matches!(error, LedgerError::Foreign { .. }) && error.to_string().contains("thesis.tex"),
        "{error}"
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_in_place_of_the_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "x").unwrap();
    for path in [file.clone(), file.join("below")] {
        let error = open(&path).err().unwrap();
        assert!(matches!(error, LedgerError::Foreign { .. }), "{error}");
    }
}

#[test]
fn a_damaged_marker_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for words in ["", "kvprov ledger schema 0\n", "kvprov ledger schema x", "\u{0}\u{1}"] {
        fs::write(directory.path().join("kvprov-ledger"), words).unwrap();
        assert!(matches!(open(directory.path()), Err(LedgerError::Foreign { .. })), "{words:?}");
    }
}

#[test]
fn a_creation_that_was_interrupted_is_taken_up() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("lock"), "").unwrap();
    fs::write(directory.path().join("kvprov-ledger.new"), "kvprov led").unwrap();
    open(directory.path()).unwrap();
}

/// A file system of its own; `None` where this user may not mount.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(options: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = mount(&["-t", "tmpfs", "-o", options, "tmpfs"], directory.path());
        if !mounted {
            println!("skipped: mounting a tmpfs needs root");
        }
        mounted.then(|| Self(directory))
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
fn a_full_disk_keeps_what_is_there_and_goes_on_when_there_is_room() {
    let Some(disk) = SmallDisk::mount("size=3m") else { return };
    let path = disk.0.path().join("ledger");
    let mut ledger = open(&path).unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match ledger.merge(&batch(acknowledged)) {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
        assert!(acknowledged < 1000, "the disk never filled");
    };
    assert!(matches!(error, LedgerError::DiskFull { .. }), "{error}");
    assert!(acknowledged > 5);

    // Still full: refused again, and readable all the time.
    for _ in 0..2 {
        assert_eq!(batches_present(&ledger, acknowledged + 1).len() as u64, acknowledged);
        assert!(!ledger.keys(IndexKind::Worker).unwrap().is_empty());
        let error = ledger.merge(&batch(acknowledged)).err().unwrap();
        assert!(matches!(error, LedgerError::DiskFull { .. }), "{error}");
    }

    assert!(mount(&["-o", "remount,size=64m"], disk.0.path()));
    // The refused batch may have reached the disk as a whole after all; delivered again, it merges either way.
    let merged = ledger.merge(&batch(acknowledged)).unwrap();
    assert_eq!(merged.added + merged.duplicates, BATCH);
    assert_eq!(ledger.merge(&batch(acknowledged + 1)).unwrap().added, BATCH);
    drop(ledger);
    assert_eq!(batches_present(&open(&path).unwrap(), acknowledged + 3).len() as u64, acknowledged + 2);
}

#[test]
fn a_read_only_place_is_a_permission_error() {
    let Some(disk) = SmallDisk::mount("size=1m,ro") else { return };
    for path in [disk.0.path().to_owned(), disk.0.path().join("new")] {
        let error = open(&path).err().unwrap();
        assert!(matches!(error, LedgerError::Permission { .. }), "{error}");
        assert!(error.to_string().contains("no permission"));
    }
}
