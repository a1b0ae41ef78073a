//! Files that change, are missing, are no files, or are too large: never a wrong digest, never a hang, always a reason.

use crate::rig::{Rig, options, sha256};
use kvprov_agent::identity::{FileOpener, Identities, OwnFiles};
use kvprov_model::factor::FactorState;
use kvprov_model::id::WorkerId;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

fn sparse(path: &Path, size: u64) {
    File::options().write(true).open(path).unwrap().set_len(size).unwrap();
}

#[test]
fn a_file_that_changes_while_it_is_read_is_unknown() {
    let mut rig = Rig::with(|options| options.rate = 4 << 20);
    let path = rig.write("m/model.safetensors", &vec![1; 2 << 20]);
    rig.open("weights", &path);
    rig.seconds += 3;
    rig.poll();
    let writer = File::options().write(true).open(&path).unwrap();
    for at in 0..10 {
        writer.write_all_at(b"x", at).unwrap();
        let (_kept, never) = std::sync::mpsc::channel::<()>();
        let _ = never.recv_timeout(Duration::from_millis(10));
    }
    rig.wait(0);
    assert!(rig.full().is_empty());
    let reason = rig.reason().unwrap();
    assert!(reason == "it changed while it was read" || reason == "another file was there when it was read");
}

#[test]
fn a_missing_shard_is_named_as_the_reason() {
    let mut rig = Rig::new();
    let path = rig.write("m/model-00001-of-00002.safetensors", b"one");
    rig.open("weights", &path);
    rig.wait(600);
    assert_eq!(rig.factors().last().unwrap().state, Some(FactorState::Provisional));
    assert_eq!(rig.reason().as_deref(), Some("files of it were not opened, or not yet"));
}

#[test]
fn a_pipe_a_device_and_a_directory_are_no_files_and_hold_nobody() {
    for what in ["pipe", "device", "directory"] {
        let mut rig = Rig::new();
        let path = rig.folder.path().join("model.safetensors");
        match what {
            "pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).unwrap(),
            "device" => std::os::unix::fs::symlink("/dev/zero", &path).unwrap(),
            _ => std::fs::create_dir(&path).unwrap(),
        }
        rig.open("weights", &path);
        rig.wait(3);
        assert!(rig.full().is_empty(), "{what}");
        assert_eq!(rig.reason().as_deref(), Some("it is no regular file"), "{what}");
    }
}

#[test]
fn a_terabyte_of_nothing_lets_other_files_pass_and_is_given_up_with_its_worker() {
    let mut rig = Rig::with(|options| options.rate = 100 << 20);
    let huge = rig.write("huge/model.safetensors", b"");
    sparse(&huge, 1 << 40);
    rig.open_as("huge", "weights", &huge);
    rig.seconds += 3;
    rig.until(|rig| rig.last_of("huge", "weights").is_some());
    assert_eq!(rig.last_of("huge", "weights").unwrap().state, FactorState::Provisional);
    // A small file of another worker is read although the only thread has begun with the huge one.
    let small = rig.write("small/config.json", b"{}");
    rig.open_as("small", "config", &small);
    rig.seconds += 3;
    rig.until(|rig| rig.last_of("small", "config").is_some());
    // A large one of another worker waits for it no longer than the huge one's worker is there.
    let large = rig.write("large/model.safetensors", b"");
    sparse(&large, 65 << 20);
    rig.open_as("large", "weights", &large);
    rig.seconds += 3;
    rig.poll();
    rig.identities.forget(&WorkerId("huge".to_owned()));
    rig.until(|rig| rig.last_of("large", "weights").is_some_and(|factor| factor.state == FactorState::Full));
    assert_eq!(rig.last_of("large", "weights").unwrap().value, sha256(&vec![0; 65 << 20]));
}

#[test]
fn who_ends_waits_for_no_file() {
    let mut rig = Rig::with(|options| options.rate = 1);
    let path = rig.write("m/model.safetensors", &vec![1; 2 << 20]);
    rig.open("weights", &path);
    rig.seconds += 3;
    rig.poll();
    let begin = Instant::now();
    drop(rig);
    assert!(begin.elapsed() < Duration::from_secs(1));
}

/// A process whose files cannot be opened, for a reason; or whose number belongs to another one by now.
struct Other(Option<ErrorKind>);

impl FileOpener for Other {
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<File> {
        match self.0 {
            Some(kind) => Err(Error::new(kind, "no")),
            None => {
                let other = [path, b".other"].concat();
                OwnFiles.open_file_of(pid, &other)
            }
        }
    }
}

#[test]
fn what_may_not_be_read_or_is_of_another_process_by_now_is_unknown() {
    for (opener, reason) in [
        (Other(Some(ErrorKind::PermissionDenied)), "it may not be read"),
        (Other(Some(ErrorKind::NotFound)), "it was gone when it was to be read"),
        (Other(Some(ErrorKind::Other)), "it could not be opened to be read"),
        (Other(None), "another file was there when it was read"),
    ] {
        let mut rig = Rig::new();
        rig.identities = Identities::new(options(rig.folder.path()), Box::new(opener)).unwrap();
        let path = rig.write("m/model.safetensors", b"x");
        rig.write("m/model.safetensors.other", b"x");
        rig.open("weights", &path);
        rig.wait(3);
        assert!(rig.full().is_empty());
        assert_eq!(rig.reason().as_deref(), Some(reason));
    }
}

#[test]
fn a_process_that_is_gone_leaves_a_reason() {
    let mut rig = Rig::new();
    rig.identities = Identities::new(options(rig.folder.path()), Box::new(OwnFiles)).unwrap();
    let path = rig.write("m/model.safetensors", b"x");
    let mut open = rig.open_of("weights", &path);
    open.pid = u32::MAX >> 1;
    rig.take(&open);
    rig.wait(3);
    assert_eq!(rig.reason().as_deref(), Some("it was gone when it was to be read"));
}

#[test]
fn thousands_of_adapters_are_all_known() {
    const ADAPTERS: usize = 3000;
    let mut rig = Rig::new();
    for adapter in 0..ADAPTERS {
        let settings = rig.write(&format!("a{adapter}/adapter_config.json"), b"{}");
        let weights = rig.write(&format!("a{adapter}/adapter_model.safetensors"), &adapter.to_le_bytes());
        rig.open("adapter", &settings);
        rig.open("adapter", &weights);
    }
    rig.wait(3);
    let mut full = rig.full();
    full.sort();
    full.dedup();
    assert_eq!(full.len(), ADAPTERS);
    let lost: Vec<_> = rig.identities.take_losses().iter().map(|(reason, _)| reason).collect();
    assert!(lost.is_empty(), "{lost:?}");
}
