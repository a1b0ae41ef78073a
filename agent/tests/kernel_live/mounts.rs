//! Mounts: which store a path belongs to.

use crate::rig::{NFS, ROOT, Rig, WITH_NFS};
use crate::ring::{O_RDONLY, O_WRITE, Process, file};
use kvprov_agent_common::Kind;
use kvprov_model::id::WorkerId;

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
    let (mut rig, mut p) = (Rig::new(), Process::new(9));
    rig.live.add_process(&WorkerId("w".to_owned()), 9, 5);
    rig.take(&p.named(Kind::Stat, "/kv/a.bin", -2));
    assert_eq!(rig.told(), ["missed a.bin"]);
    assert_eq!(rig.artifacts()[0].store.as_deref(), Some("file:n1:/kv"));
    assert_eq!(rig.losses(), ["1 mounts of a process not readable"]);
}

#[test]
fn a_process_that_ended_before_its_records_are_read_keeps_what_it_saw_mounted() {
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.processes.lock().unwrap().mountinfo.clear();
    rig.take(&p.named(Kind::Stat, "/kv/a.bin", -2));
    assert_eq!(rig.told(), ["missed a.bin"]);
    assert_eq!(rig.artifacts()[0].store.as_deref(), Some("file:ext4:n1:8:1:/kv"));
    assert!(rig.losses().is_empty());
}
