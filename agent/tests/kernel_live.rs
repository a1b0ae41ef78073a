//! What the ring of the kernel programs says, and what comes of it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/ring.rs"]
mod ring;

use kvprov_agent::kernel::live::journal::{DEFAULT_LIMIT, Journal};
use kvprov_agent::kernel::live::{Descriptor, FakeProcesses, LiveKernel, LiveOptions, Notice, Now};
use kvprov_agent::kernel::{ArtifactName, FileRole, ModelFile, Names};
use kvprov_agent_common::{Class, FileIdentity, Kind};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Artifact, Body, Observation};
use proptest::prelude::*;
use ring::{Bytes, FIRST_TIME, O_RDONLY, O_WRITE, Process, file};
use std::sync::{Arc, Mutex};

/// Stores in `/kv` and `/w/kv`: `*.bin` are keys, `*.tmp` temporary; models in `/models`.
struct Lab;

impl Names for Lab {
    fn role(&self, path: &str) -> FileRole {
        for store in ["/kv", "/w/kv", "/mnt/kv"] {
            let Some(key) = path.strip_prefix(store).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            return match key.rsplit_once('.') {
                Some((_, "bin")) => FileRole::Artifact(ArtifactName {
                    store_dir: store.to_owned(),
                    key: key.to_owned(),
                    grammar: "lab".to_owned(),
                    ..ArtifactName::default()
                }),
                Some((_, "tmp")) => FileRole::Temporary,
                _ => FileRole::Other,
            };
        }
        if path.starts_with("/models/") {
            return FileRole::Model(ModelFile { factor: "weights".to_owned(), digest: None, evidence: None });
        }
        FileRole::Other
    }
}

const ROOT: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
const WITH_NFS: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /kv rw - nfs4 nas:/export rw\n";
const NFS: u32 = 50;
const NOW: Now = Now { monotonic: FIRST_TIME, wall: 1_800_000_000_000_000_000 };

struct Rig {
    live: LiveKernel<'static>,
    processes: Arc<Mutex<FakeProcesses>>,
    position: u64,
    observations: Vec<Observation>,
    notices: Vec<String>,
}

impl Rig {
    fn new() -> Self {
        let mut fake = FakeProcesses::default();
        for pid in [7, 8] {
            fake.mountinfo.insert(pid, ROOT.into());
            fake.cwd.insert(pid, b"/w".to_vec());
        }
        let processes = Arc::new(Mutex::new(fake));
        let options = LiveOptions { node: NodeId("n1".to_owned()), ring: "boot ring".to_owned() };
        let mut live = LiveKernel::new(options, &Lab, Box::new(Arc::clone(&processes)), NOW);
        live.add_process(&WorkerId("w".to_owned()), 7, 5);
        Self { live, processes, position: 0, observations: Vec::new(), notices: Vec::new() }
    }

    fn take(&mut self, record: &Bytes) {
        let notices = &mut self.notices;
        self.live.event(self.position, record.as_slice(), &mut |notice| {
            notices.push(match notice {
                Notice::Exec(event, worker) => format!("exec {} {}", event.pid, worker.is_some()),
                Notice::Fork(event, worker) => format!("fork {} {worker}", event.pid),
                Notice::Exit(event, code, worker) => format!("exit {} {code} {worker}", event.pid),
                Notice::Output(piece, worker) => {
                    format!("output {} {} {worker}", piece.fd, String::from_utf8_lossy(piece.bytes))
                }
                Notice::Model(open, worker) => {
                    format!("model {} {} {worker}", open.path, open.identity.inode)
                }
                Notice::BlindSpot { pid, way, worker } => format!("blind {pid} {way} {worker}"),
            });
        });
        self.position += 100;
    }

    fn all(&mut self, records: &[Bytes]) {
        for record in records {
            self.take(record);
        }
    }

    fn commit(&mut self) {
        let observations = &mut self.observations;
        self.live.commit(self.position, &mut |observation| observations.push(observation));
    }

    fn tick(&mut self, time: u64) {
        let now = Now { monotonic: time, wall: NOW.wall + (time - FIRST_TIME) as i64 };
        let observations = &mut self.observations;
        self.live.tick(now, &mut |observation| observations.push(observation));
    }

    fn artifacts(&self) -> Vec<Artifact> {
        let artifact = |observation: &Observation| match &observation.body {
            Body::Artifact(artifact) => Some(artifact.clone()),
            _ => None,
        };
        self.observations.iter().filter_map(artifact).collect()
    }

    /// Actions with bytes and key.
    fn told(&mut self) -> Vec<String> {
        self.commit();
        let words = |artifact: Artifact| {
            let bytes = artifact.bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
            format!("{}{bytes} {}", artifact.action.unwrap(), artifact.key.unwrap())
        };
        self.artifacts().into_iter().map(words).collect()
    }

    fn losses(&mut self) -> Vec<String> {
        self.live.take_losses().iter().map(|(reason, count)| format!("{count} {reason}")).collect()
    }
}

const A: FileIdentity = FileIdentity { device: 8 << 20 | 1, open_file: 1, inode: 11 };

#[test]
fn a_key_written_in_place_and_read_again_is_written_and_read() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/kv/a.bin", O_WRITE, 4, 1, 11),
        p.write(A, 60, 60),
        p.write(A, 40, 40),
        p.close(A, 1),
        p.open("/kv/a.bin", O_RDONLY, 4, 2, 11),
        p.read(file(A.device, 2, 11), 100, 100),
        p.close(file(A.device, 2, 11), 1),
    ]);
    assert_eq!(rig.told(), ["written 100 a.bin", "read 100 a.bin"]);
    assert_eq!(rig.artifacts()[0].store.as_deref(), Some("file:ext4:n1:8:1:/kv"));
    assert!(rig.losses().is_empty());
}

#[test]
fn a_write_through_a_duplicate_counts_for_the_name_it_gets() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.named(Kind::Stat, "/kv/a.bin", -2),
        p.open("/kv/x.tmp", O_WRITE, 4, 1, 11),
        p.write(A, 100, 100),
        p.close(A, 2),
        p.close(A, 1),
        p.rename("/kv/x.tmp", "/kv/a.bin", 0),
    ]);
    assert_eq!(rig.told(), ["missed a.bin", "written 100 a.bin"]);
}

#[test]
fn a_relative_path_starts_where_the_process_stands() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.named(Kind::Stat, "kv/a.bin", -2),
        p.named(Kind::Chdir, "kv", 0),
        p.named(Kind::Stat, "./b.bin", -2),
        p.named(Kind::Chdir, "nowhere", -2),
        p.named(Kind::Stat, "../kv/c.bin", -2),
    ]);
    assert_eq!(rig.told(), ["missed a.bin", "missed b.bin", "missed c.bin"]);
}

#[test]
fn a_directory_descriptor_is_followed_and_its_number_forgotten_when_it_is_closed() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let directory = file(A.device, 9, 2);
    rig.all(&[
        p.open_directory("/kv", 5, 9, 2),
        p.open_at(5, "a.bin", O_RDONLY, 1, 11),
        p.read(A, 100, 100),
        p.close(A, 1),
    ]);
    let mut closed = p.call(Kind::Close, Class::Directory, directory, 0, 0, 1);
    // The close names descriptor 5.
    let record = kvprov_agent_common::FileRecord {
        header: p.header(Kind::Close, Class::Directory, 0, 5, 0),
        file: directory,
        wanted: 0,
        references: 1,
    };
    closed.clone_from(&Bytes::new(&[zerocopy::IntoBytes::as_bytes(&record)]));
    rig.take(&closed);
    rig.take(&p.open_at(5, "b.bin", O_RDONLY, 3, 12));
    assert_eq!(rig.told(), ["read 100 a.bin"]);
    assert_eq!(rig.losses(), ["1 directory of a relative path not known"]);
}

#[test]
fn a_file_opened_before_the_records_began_is_looked_up_and_must_be_the_same_file() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let descriptor = |inode| Descriptor { path: b"/kv/a.bin".to_vec(), mount: Some(1), inode: Some(inode) };
    rig.processes.lock().unwrap().descriptors.insert((7, 4), descriptor(11));
    rig.all(&[p.read(A, 100, 100), p.close(A, 1)]);
    assert_eq!(rig.told(), ["read 100 a.bin"]);
    // The number stands for another file by now.
    rig.take(&p.read(file(A.device, 5, 12), 100, 100));
    rig.take(&p.read(file(A.device, 5, 12), 100, 100));
    assert_eq!(rig.told().len(), 1);
    assert_eq!(rig.losses(), ["1 descriptor was another file when it was looked at"]);
}

#[test]
fn a_deleted_file_and_one_on_another_device_are_no_guess() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let path = |path: &str, mount| Descriptor { path: path.into(), mount: Some(mount), inode: Some(11) };
    rig.processes.lock().unwrap().descriptors.insert((7, 4), path("/kv/a.bin (deleted)", 1));
    rig.take(&p.read(A, 100, 100));
    rig.processes.lock().unwrap().descriptors.insert((7, 4), path("/kv/a.bin", 1));
    rig.take(&p.read(file(77, 2, 11), 100, 100));
    assert!(rig.told().is_empty());
    assert_eq!(
        rig.losses(),
        [
            "1 descriptor was another file when it was looked at",
            "1 open file was deleted when it was looked at"
        ]
    );
}

#[test]
fn an_inode_that_was_reused_is_not_the_old_file() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/kv/a.bin", O_WRITE, 4, 1, 11),
        p.write(A, 100, 100),
        // The close was lost; the file went, and open file and inode come again under another name.
        p.named(Kind::Unlink, "/kv/a.bin", 0),
        p.open("/kv/b.bin", O_RDONLY, 4, 1, 11),
        p.read(A, 50, 50),
        p.close(A, 1),
        p.open("/kv/c.bin", O_RDONLY, 4, 1, 11),
        p.read(A, 70, 70),
        p.open("/etc/passwd", O_RDONLY, 4, 1, 11),
        p.read(A, 9, 9),
        p.close(A, 1),
    ]);
    assert_eq!(rig.told(), ["removed a.bin", "written 100 a.bin", "read 50 b.bin", "read 70 c.bin"]);
}

#[test]
fn files_of_no_interest_are_neither_told_nor_looked_up() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.take(&p.open("/kv/a.bin", O_RDONLY, 4, 1, 11));
    let asked = rig.processes.lock().unwrap().asked;
    for index in 0..1000 {
        let identity = file(A.device, 100 + index, 1000 + u64::from(index));
        let path = format!("/usr/lib/{index}.so");
        rig.all(&[
            p.open(&path, O_RDONLY, 5, identity.open_file, identity.inode),
            p.read(identity, 10, 10),
            p.read(identity, 10, 10),
            p.close(identity, 1),
        ]);
    }
    assert!(rig.told().is_empty());
    assert_eq!(rig.processes.lock().unwrap().asked, asked);
}

#[test]
fn a_worker_with_a_hundred_thousand_descriptors_is_followed_and_what_has_no_room_is_counted() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    for index in 0..140_000u32 {
        p.time -= 1_000_000;
        let path = format!("/kv/{index}.bin");
        rig.take(&p.open(&path, O_RDONLY, 5, index + 1, u64::from(index) + 1));
        rig.take(&p.read(file(p.device, index + 1, u64::from(index) + 1), 10, 10));
    }
    rig.commit();
    let room = 128 * 1024;
    assert_eq!(rig.losses(), [format!("{} too many open files", 140_000 - room)]);
    // What made room was used all the same.
    assert_eq!(rig.artifacts().len(), 140_000 - room);
    p.time += 1_000_000;
    rig.take(&p.close(file(p.device, 139_999, 139_999), 1));
    assert_eq!(rig.told().last().map(String::as_str), Some("read 10 139998.bin"));
}

#[test]
fn a_log_beside_a_store_is_followed_only_below_the_store() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.named(Kind::Stat, "/kv/a.bin", -2),
        p.open("/var/log/x", O_WRITE, 4, 3, 13),
        p.write(file(A.device, 3, 13), 100, 100),
        p.open("/kv/part-1", O_WRITE, 4, 1, 11),
        p.write(A, 100, 100),
        p.rename("/kv/part-1", "/kv/a.bin", 0),
    ]);
    assert_eq!(rig.told(), ["missed a.bin", "written 100 a.bin"]);
}

#[test]
fn a_process_that_dies_in_mid_call_has_used_what_it_had_open() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/kv/a.bin", O_RDONLY, 4, 1, 11),
        p.read(A, 100, 100),
        p.event(Kind::Exit, 7, 1, 5),
        p.read(A, 100, 100),
    ]);
    assert_eq!(rig.told(), ["read 100 a.bin"]);
    assert_eq!(rig.notices, ["exit 7 0 w"]);
    // At the place of the read, as at the end of a recording.
    assert_eq!(rig.observations[0].envelope.position, 100);
    assert_eq!(rig.losses(), ["1 process of no worker"]);
}

#[test]
fn a_child_is_of_its_parents_worker_and_stands_where_it_stood() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.processes.lock().unwrap().cwd.remove(&8);
    rig.all(&[p.named(Kind::Chdir, "/kv", 0), p.event(Kind::Fork, 8, 7, 9_000_000_000)]);
    let mut child = Process::new(8);
    rig.take(&child.named(Kind::Stat, "a.bin", -2));
    assert_eq!(rig.told(), ["missed a.bin"]);
    assert_eq!(rig.notices, ["fork 8 w"]);
}

#[test]
fn a_pid_that_is_used_again_is_another_process() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/kv/a.bin", O_RDONLY, 4, 1, 11),
        p.read(A, 100, 100),
        p.event(Kind::Exec, 7, 1, 99_000_000_000),
        p.named(Kind::Stat, "/kv/b.bin", -2),
    ]);
    assert_eq!(rig.told(), ["read 100 a.bin"]);
    assert_eq!(rig.notices, ["exec 7 false"]);
    // Nor does a late word of the first one's end concern the second.
    rig.live.add_process(&WorkerId("other".to_owned()), 7, 99_000_000_000);
    rig.take(&p.event(Kind::Exit, 7, 1, 5));
    rig.take(&p.named(Kind::Stat, "/kv/b.bin", -2));
    assert_eq!(rig.told().len(), 2);
    assert_eq!(rig.observations[1].worker(), "other");
}

#[test]
fn a_close_that_a_forked_child_outlives_ends_the_use_after_a_while_whenever_it_is_asked() {
    for ticks in [&[][..], &[1000, 2000, 3500, 4000], &[9000]] {
        let (mut rig, mut p) = (Rig::new(), Process::new(7));
        rig.all(&[p.open("/kv/a.bin", O_RDONLY, 4, 1, 11), p.read(A, 100, 100), p.close(A, 2)]);
        for tick in ticks {
            rig.commit();
            rig.tick(FIRST_TIME + tick * 1_000_000);
        }
        p.wait(10_000);
        rig.all(&[p.read(A, 50, 50), p.close(A, 1)]);
        assert_eq!(rig.told(), ["read 100 a.bin", "read 50 a.bin"], "{ticks:?}");
        assert_eq!(rig.observations[0].envelope.position, 100);
    }
}

#[test]
fn a_store_that_is_unmounted_under_the_agent_is_not_mixed_with_what_lies_beneath() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.processes.lock().unwrap().mountinfo.insert(7, WITH_NFS.into());
    p.device = NFS;
    let on_nfs = file(NFS, 1, 11);
    rig.all(&[
        p.open("/kv/a.bin", O_WRITE, 4, 1, 11),
        p.write(on_nfs, 100, 100),
        p.close(on_nfs, 1),
        p.named(Kind::Stat, "/kv/a.bin", 0),
    ]);
    rig.processes.lock().unwrap().mountinfo.insert(7, ROOT.into());
    p.wait(300);
    // Not "gone": what is missing is missing on another file system.
    rig.take(&p.named(Kind::Stat, "/kv/a.bin", -2));
    assert_eq!(rig.told(), ["written 100 a.bin", "found a.bin", "missed a.bin"]);
    let stores: Vec<_> = rig.artifacts().into_iter().filter_map(|artifact| artifact.store).collect();
    assert_eq!(stores, ["file:nfs:nas:/export", "file:nfs:nas:/export", "file:ext4:n1:8:1:/kv"]);
}

#[test]
fn a_file_on_no_mount_of_the_process_is_a_loss() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    p.device = NFS;
    rig.all(&[p.open("/kv/a.bin", O_RDONLY, 4, 1, 11), p.read(file(NFS, 1, 11), 10, 10)]);
    assert!(rig.told().is_empty());
    assert!(rig.losses().contains(&"1 file system not among the mounts".to_owned()));
}

#[test]
fn where_mounts_may_not_be_read_the_node_names_the_store() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.processes.lock().unwrap().mountinfo.clear();
    rig.take(&p.named(Kind::Stat, "/kv/a.bin", -2));
    assert_eq!(rig.told(), ["missed a.bin"]);
    assert_eq!(rig.artifacts()[0].store.as_deref(), Some("file:n1:/kv"));
    assert_eq!(rig.losses(), ["1 mounts of a process not readable"]);
}

#[test]
fn a_listing_explains_the_removals_behind_it() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let directory = file(A.device, 9, 2);
    rig.all(&[
        p.open_directory("/kv", 4, 9, 2),
        p.call(Kind::Readdir, Class::Directory, directory, 96, 32768, 0),
        p.call(Kind::Readdir, Class::Directory, directory, 0, 32768, 0),
        p.named(Kind::Stat, "/kv/a.bin", 0),
        p.named(Kind::Unlink, "/kv/a.bin", 0),
        p.named(Kind::Unlink, "/kv/x.tmp", 0),
        p.named(Kind::Unlink, "/kv/b.bin", 0),
    ]);
    assert_eq!(rig.told(), ["cleared a.bin", "cleared b.bin"]);
}

#[test]
fn an_unlink_of_what_another_removed_is_gone() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[p.named(Kind::Stat, "/kv/a.bin", 0), p.named(Kind::Unlink, "/kv/a.bin", -2)]);
    assert_eq!(rig.told(), ["found a.bin", "gone a.bin"]);
}

#[test]
fn a_mapped_file_is_read() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/kv/a.bin", O_RDONLY, 4, 1, 11),
        p.call(Kind::Mmap, Class::Regular, A, 0x7f00_0000_0000, 4096, 0),
        p.close(A, 1),
    ]);
    assert_eq!(rig.told(), ["read a.bin"]);
}

#[test]
fn a_model_that_is_opened_is_noticed_and_its_reads_cost_nothing() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[p.open("/models/m/model.safetensors", O_RDONLY, 4, 1, 11), p.read(A, 100, 100), p.close(A, 1)]);
    rig.commit();
    assert_eq!(rig.notices, ["model /models/m/model.safetensors 11 w"]);
    assert!(rig.observations.is_empty());
    // A load is told once no open can belong to it any more.
    rig.tick(p.time + 30_000_000_000);
    assert!(rig.observations.is_empty());
    rig.tick(p.time + 70_000_000_000);
    assert_eq!(rig.observations.len(), 1);
}

#[test]
fn calls_on_a_connection_are_summed_and_a_quiet_burst_is_told() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    for round in 0..4 {
        for _ in 0..100 {
            rig.take(&p.socket(Kind::Recv, 3, ends, 1000));
        }
        if round % 2 == 0 {
            rig.commit();
        }
    }
    rig.take(&p.socket(Kind::Send, 3, ends, 41));
    rig.commit();
    rig.tick(p.time + 500_000_000);
    assert!(rig.observations.is_empty());
    rig.tick(p.time + 3_000_000_000);
    rig.tick(p.time + 4_000_000_000);
    assert_eq!(rig.observations.len(), 1);
    let Body::Transfer(transfer) = &rig.observations[0].body else { unreachable!() };
    assert_eq!((transfer.bytes_seen, transfer.peer.as_deref()), (Some(400_000), Some(ends.1)));
    assert_eq!(rig.observations[0].envelope.position, 40_000);
}

#[test]
fn a_connection_that_broke_failed() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let ends = ("[fd00::1]:1000", "[fd00::2]:2000");
    rig.all(&[
        p.socket(Kind::Send, 3, ends, 65536),
        p.socket(Kind::Send, 3, ends, -104),
        p.socket(Kind::Close, 3, ends, 0),
    ]);
    rig.commit();
    rig.tick(p.time + 3_000_000_000);
    let Body::Transfer(transfer) = &rig.observations[0].body else { unreachable!() };
    assert_eq!(transfer.outcome, Some(kvprov_model::observation::Outcome::Failed));
    assert_eq!(transfer.local.as_deref(), Some(ends.0));
}

#[test]
fn output_is_handed_on_with_its_worker() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.take(&p.output(b"hello"));
    assert_eq!(rig.notices, ["output 1 hello w"]);
}

#[test]
fn names_with_newlines_and_bad_bytes_are_names() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.take(&p.named(Kind::Stat, b"/kv/a\nb\xff.bin", -2));
    assert_eq!(rig.told(), ["missed a\nb\u{10f7ff}.bin"]);
}

#[test]
fn a_path_that_could_not_be_read_is_a_loss() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    let mut record = p.path_record(Kind::Stat, Class::None, -2, ring::AT_FDCWD, 0, FileIdentity::default());
    record.header.notes = kvprov_agent_common::notes::PATH_UNREADABLE;
    rig.take(&p.path(record, b"", b""));
    assert_eq!(rig.losses(), ["1 path not readable"]);
}

#[test]
fn the_wall_clock_may_step_and_records_are_dated_by_the_clock_of_their_time() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.take(&p.named(Kind::Stat, "/kv/a.bin", -2));
    rig.commit();
    let hour = 3_600_000_000_000;
    let observations = &mut rig.observations;
    let now = Now { monotonic: p.time, wall: NOW.wall + 1_000_000 - hour };
    rig.live.tick(now, &mut |observation| observations.push(observation));
    rig.take(&p.named(Kind::Stat, "/kv/b.bin", -2));
    rig.commit();
    let dates: Vec<_> = rig.observations.iter().filter_map(|one| one.envelope.wall).collect();
    let near = |wall: WallTime, expected: i64| (wall.0 - expected).abs() < 1_000;
    assert!(near(dates[0], NOW.wall + 1_000_000), "{dates:?}");
    assert!(near(dates[1], NOW.wall + 2_000_000 - hour), "{dates:?}");
}

#[test]
fn bytes_that_are_no_record_are_counted() {
    let mut rig = Rig::new();
    rig.take(&Bytes::new(&[&[0xff; 64]]));
    rig.take(&Bytes::new(&[&[1, 0, 0, 0]]));
    assert_eq!(rig.losses(), ["2 record of the ring not readable"]);
}

/// Reads a script of records with an agent that is killed at places, and gives the observations by id.
fn with_kills(
    records: &[(u64, Bytes)],
    batch: usize,
    kills: &[usize],
    limit: u64,
) -> std::collections::BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut told = std::collections::BTreeMap::new();
    let mut sink = |observation: Observation| {
        let Observation { envelope, body, .. } = observation;
        let says = format!("{:?} {:?} {body:?}", envelope.wall, envelope.says);
        let before = told.insert(format!("{:?}", envelope.id), says.clone());
        assert!(
            before.as_ref().is_none_or(|before| *before == says),
            "one id, two contents: {says}, {before:?}"
        );
    };
    let begin = |sink: &mut dyn FnMut(Observation)| {
        let mut live = Rig::new().live;
        let journal = Journal::open(folder.path(), "boot ring", limit).unwrap();
        live.with_journal(journal, &mut |_| {}, sink).unwrap();
        live
    };
    let mut live = begin(&mut sink);
    let mut released = 0;
    let mut run = 0;
    loop {
        let batch_end = (released + batch).min(records.len());
        for (position, record) in &records[released..batch_end] {
            live.event(*position, record.as_slice(), &mut |_| {});
        }
        let upto = records.get(batch_end).map_or(u64::MAX >> 1, |(position, _)| *position);
        let is_killed = kills.contains(&run);

        run += 1;
        if is_killed && run % 2 == 0 {
            live = begin(&mut sink); // before the commit
            continue;
        }
        live.commit(upto, &mut sink);
        if is_killed {
            live = begin(&mut sink); // before the ring was released
            continue;
        }
        released = batch_end;
        if released == records.len() {
            break;
        }
    }
    live.finish(&mut sink);
    told
}

fn a_busy_script() -> Vec<(u64, Bytes)> {
    let mut p = Process::new(7);
    let mut records = Vec::new();
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    for index in 0..40u32 {
        let identity = file(p.device, index % 5 + 1, u64::from(index % 7) + 10);
        let (temporary, key) = (format!("/kv/{}.tmp", index % 5), format!("/kv/{}.bin", index % 9));
        let directory = file(p.device, 99, 2);
        records.extend([
            p.named(Kind::Stat, &key, if index < 9 { -2 } else { 0 }),
            p.open(&temporary, O_WRITE, 4, identity.open_file, identity.inode),
            p.write(identity, 100, 100),
            p.socket(Kind::Send, 3, ends, 5000),
            p.close(identity, 2),
            p.write(identity, 100, 100),
            p.close(identity, 1),
            p.rename(&temporary, &key, 0),
            p.socket(Kind::Recv, 3, ends, 4096),
            p.open(&key, O_RDONLY, 4, identity.open_file, identity.inode),
            p.read(identity, 200, 200),
            p.close(identity, 2),
            p.open_directory("/kv", 4, 99, 2),
            p.call(Kind::Readdir, Class::Directory, directory, 96, 32768, 0),
            p.named(Kind::Unlink, &key, if index % 3 == 0 { 0 } else { -2 }),
        ]);
        if index % 10 == 0 {
            p.wait(4000);
        }
    }
    let all = records.into_iter().enumerate();
    all.map(|(index, record)| (index as u64 * 64, record)).collect()
}

#[test]
fn an_agent_that_is_killed_again_and_again_tells_what_an_undisturbed_one_tells() {
    let records = a_busy_script();
    let undisturbed = with_kills(&records, 16, &[], DEFAULT_LIMIT);
    assert!(undisturbed.len() > 80, "{}", undisturbed.len());
    for kills in [&[1][..], &[2], &[5, 6, 7], &[0, 3, 4, 8, 9, 12, 15, 18, 21, 22, 23, 30]] {
        let disturbed = with_kills(&records, 16, kills, DEFAULT_LIMIT);
        let missing: Vec<_> = undisturbed.iter().filter(|(id, _)| !disturbed.contains_key(*id)).collect();
        let more: Vec<_> = disturbed.iter().filter(|(id, _)| !undisturbed.contains_key(*id)).collect();
        assert!(missing.is_empty() && more.is_empty(), "{kills:?}: missing {missing:#?}, more {more:#?}");
        assert_eq!(disturbed, undisturbed);
    }
}

#[test]
fn what_the_journal_dropped_is_not_forgotten() {
    let records = a_busy_script();
    let undisturbed = with_kills(&records, 16, &[], DEFAULT_LIMIT);
    for kills in [&[30][..], &[7, 14, 21, 28, 35], &[20, 21, 33, 36]] {
        assert_eq!(with_kills(&records, 16, kills, 60_000), undisturbed, "{kills:?}");
    }
}

/// What happens to one of a few files, in a few ways.
fn happenings() -> impl Strategy<Value = Vec<(u8, u32, u64, u64)>> {
    proptest::collection::vec((0u8..18, 0u32..4, 0u64..5, 0u64..40), 1..120)
}

fn script(steps: &[(u8, u32, u64, u64)]) -> Vec<Bytes> {
    let mut p = Process::new(7);
    let ends = ("10.0.0.1:1000", "10.0.0.2:2000");
    let mut records = Vec::new();
    for (what, open_file, inode, more) in steps.iter().copied() {
        let identity = file(p.device, open_file + 1, inode + 10);
        let key = format!("/kv/{}.bin", more % 5);
        let temporary = format!("/kv/{}.tmp", more % 3);
        let (open_file, inode) = (identity.open_file, identity.inode);
        records.push(match what {
            0 => p.open(&key, O_RDONLY, 4, open_file, inode),
            1 => p.open(&key, O_WRITE, 4, open_file, inode),
            2 => p.open(&temporary, O_WRITE, 4, open_file, inode),
            3 | 4 => p.read(identity, 100, 100 + more),
            5 | 6 => p.write(identity, 100, 100),
            7 | 8 => p.close(identity, 1),
            9 => p.close(identity, 2),
            10 => p.rename(&temporary, &key, if more % 4 == 0 { -2 } else { 0 }),
            11 => p.named(Kind::Unlink, &key, if more % 2 == 0 { -2 } else { 0 }),
            12 => p.named(Kind::Stat, &key, if more % 2 == 0 { -2 } else { 0 }),
            13 => p.socket(Kind::Send, 3, ends, 1000 * more as i64),
            14 => p.socket(Kind::Recv, 3, ends, if more == 0 { -104 } else { 70_000 }),
            15 => p.open("/models/m", O_RDONLY, 4, open_file, inode),
            16 => p.call(Kind::Mmap, Class::Regular, identity, 4096, 4096, 0),
            _ => {
                p.wait(more * 100);
                p.open_failed(&key, O_RDONLY, -2)
            }
        });
    }
    records
}

fn in_words(observations: &[Observation]) -> Vec<String> {
    let words = |observation: &Observation| {
        format!("{:?} {:?} {:?}", observation.envelope.wall, observation.envelope.says, observation.body)
    };
    let mut words: Vec<String> = observations.iter().map(words).collect();
    words.sort();
    words
}

proptest! {
    #[test]
    fn a_recording_gives_in_replay_what_was_told_live(steps in happenings(), batch in 1usize..30) {
        use kvprov_agent::kernel::KernelReader;
        use kvprov_agent::source::{Place, SourceContext};
        let mut rig = Rig::new();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&lines);
        rig.live.record_to(Some(Box::new(move |_, record| {
            let mut line = Vec::new();
            record.write_json(&mut line);
            taken.lock().unwrap().push(line);
        })));
        for records in script(&steps).chunks(batch) {
            rig.all(records);
            rig.commit();
        }
        let Rig { live, mut observations, .. } = rig;
        live.finish(&mut |observation| observations.push(observation));
        let source = SourceContext {
            node: NodeId("n1".to_owned()),
            worker: Some(WorkerId("w".to_owned())),
            stream: "k.jsonl".to_owned(),
            instance: "w k.jsonl".to_owned(),
            generation: 0,
        };
        let mut reader = KernelReader::new(source, &Lab);
        let mut replayed = Vec::new();
        for (index, line) in lines.lock().unwrap().iter().enumerate() {
            let place = Place { position: index as u64 + 1, offset: index as u64 };
            reader.line(place, line, &mut |observation| replayed.push(observation));
        }
        reader.finish(&mut |observation| replayed.push(observation));
        prop_assert_eq!(in_words(&observations), in_words(&replayed));
    }

    #[test]
    fn ticks_change_when_something_is_told_not_what(
        steps in happenings(), ticks in proptest::collection::vec(any::<bool>(), 120)
    ) {
        let records = script(&steps);
        let run = |ticks: &[bool]| {
            let mut rig = Rig::new();
            let mut time = FIRST_TIME;
            for (record, tick) in records.iter().zip(ticks) {
                // A tick is of now, which is before the next record.
                let next = u64::from_ne_bytes(record.as_slice()[8..16].try_into().unwrap());
                rig.commit();
                while *tick && time + 400_000_000 < next {
                    time += 400_000_000;
                    rig.tick(time);
                }
                time = next;
                rig.take(record);
            }
            rig.commit();
            let Rig { live, mut observations, .. } = rig;
            live.finish(&mut |observation| observations.push(observation));
            let mut ids: Vec<_> = observations.iter().map(|one| one.envelope.id).collect();
            ids.sort();
            let count = ids.len();
            ids.dedup();
            assert_eq!(ids.len(), count, "one id, two observations");
            in_words(&observations)
        };
        prop_assert_eq!(run(&ticks), run(&[false; 120]));
    }

    #[test]
    fn kills_change_nothing(steps in happenings(), batch in 1usize..20, kills in proptest::collection::vec(0usize..40, 0..6), limit in prop_oneof![Just(16_384u64), Just(40_000), Just(DEFAULT_LIMIT)]) {
        let records: Vec<(u64, Bytes)> =
            script(&steps).into_iter().enumerate().map(|(index, record)| (index as u64 * 64, record)).collect();
        prop_assert_eq!(with_kills(&records, batch, &kills, limit), with_kills(&records, batch, &[], DEFAULT_LIMIT));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0u16..100) {
        let mut rig = Rig::new();
        let mut bytes = bytes;
        if bytes.len() > 20 {
            bytes[..2].copy_from_slice(&kind.to_ne_bytes());
            bytes[16..20].copy_from_slice(&7u32.to_ne_bytes());
        }
        rig.take(&Bytes::new(&[&bytes]));
        rig.told();
    }
}
