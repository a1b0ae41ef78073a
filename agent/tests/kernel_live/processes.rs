//! Processes that begin, end and share files.

use crate::rig::{A, Rig};
use crate::ring::{FIRST_TIME, O_RDONLY, Process};
use kvprov_agent_common::Kind;
use kvprov_model::id::WorkerId;

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
