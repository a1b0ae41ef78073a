//! Files of stores and models: which name a read or a write belongs to.

use crate::rig::{A, Rig};
use crate::ring::{Bytes, O_RDONLY, O_WRITE, Process, file};
use kvprov_agent::kernel::live::Descriptor;
use kvprov_agent_common::{Class, Kind};

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
fn a_model_that_is_opened_past_the_page_cache_is_noticed_too() {
    const O_DIRECT: u32 = 0o40000;
    const O_CLOEXEC: u32 = 0o2_000_000;
    let (mut rig, mut p) = (Rig::new(), Process::new(7));
    rig.all(&[
        p.open("/models/m/model.safetensors", O_RDONLY | O_DIRECT | O_CLOEXEC, 4, 1, 11),
        p.close(A, 1),
    ]);
    rig.commit();
    assert_eq!(rig.notices, ["model /models/m/model.safetensors 11 w"]);
}
