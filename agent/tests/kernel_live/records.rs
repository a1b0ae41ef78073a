//! Single records: output, odd names, times, and bytes that are no record.

use crate::rig::{NOW, Rig};
use crate::ring::{self, Bytes, Process};
use kvprov_agent::kernel::live::Now;
use kvprov_agent_common::{Class, FileIdentity, Kind};
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Body;

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

#[test]
fn what_the_ring_had_no_room_for_is_told_to_every_worker_and_the_same_again_is_the_same() {
    let mut rig = Rig::new();
    rig.live.add_process(&WorkerId("v".to_owned()), 8, 5);
    let mut told = Vec::new();
    for _ in 0..2 {
        rig.live.records_lost(40, 100, NOW, &mut |observation| told.push(observation));
    }
    let workers: Vec<_> =
        told.iter().filter_map(|one| one.envelope.worker.as_ref()).map(WorkerId::as_str).collect();
    assert_eq!(workers, ["w", "v", "w", "v"]);
    assert!(told.iter().all(|one| matches!(&one.body, Body::Loss(loss) if loss.records == Some(40))));
    assert_eq!((told[0].envelope.id, told[1].envelope.id), (told[2].envelope.id, told[3].envelope.id));
    assert_ne!(told[0].envelope.id, told[1].envelope.id);
    assert_eq!(rig.losses(), ["80 the ring was full"]);
}

#[test]
fn a_worker_that_comes_after_a_loss_lost_nothing() {
    let mut rig = Rig::new();
    rig.live.records_lost(1, 1, NOW, &mut |_| {});
    rig.live.add_process(&WorkerId("v".to_owned()), 8, 5);
    rig.commit();
    assert!(rig.observations.iter().all(|one| !matches!(one.body, Body::Loss(_))));
}
