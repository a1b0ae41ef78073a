//! Processes: who is watched, and how they begin and end.

use crate::lab::{lab, of, perl, with};
use kvprov_agent_common::Kind;
use kvprov_agent_common::kernel::watch;
use kvprov_loader::attach::{Error, Options};
use std::path::PathBuf;

/// Perl's `wait`-encoded status of a process that a signal killed.
const SIGKILL: u32 = 9;

#[test]
fn children_and_their_children_are_watched_before_they_run() {
    let Some(mut lab) = lab() else { return };
    let seen = lab.watch(
        watch::ALL,
        "if (!fork()) { if (!fork()) { open(my $f, '<', '/kvprov-none/grandchild'); exit 3; } wait(); \
         open(my $f, '<', '/kvprov-none/child'); exit 2; } wait();",
    );
    let forks = of(&seen, Kind::Fork);
    assert_eq!(forks.len(), 2, "{seen:#?}");
    let (child, grandchild) = (forks[0].tgid, forks[1].tgid);
    assert_eq!(forks[1].parent, child);
    let opened = |name: &str| {
        seen.iter().find(|seen| seen.kind == Kind::Open && seen.path() == name).map(|seen| seen.tgid)
    };
    assert_eq!(opened("/kvprov-none/child"), Some(child));
    assert_eq!(opened("/kvprov-none/grandchild"), Some(grandchild));
    let exits: Vec<_> = of(&seen, Kind::Exit).iter().map(|seen| (seen.tgid, seen.flags >> 8)).collect();
    assert_eq!(exits[..2], [(grandchild, 3), (child, 2)]);
    assert_eq!(exits.len(), 3);
    assert!(lab.kernel.watched().is_empty(), "who ended is watched no more");
}

#[test]
fn programs_that_start_are_told_of_every_process() {
    let Some(mut lab) = lab() else { return };
    let child = std::process::Command::new("/bin/true").spawn().unwrap();
    let pid = child.id();
    child.wait_with_output().unwrap();
    let seen = lab.drain();
    let exec: Vec<_> = of(&seen, Kind::Exec).into_iter().filter(|seen| seen.tgid == pid).collect();
    assert_eq!(exec.len(), 1);
    assert_eq!(&exec[0].name[..5], b"true\0");
    assert_eq!(exec[0].parent, std::process::id());
    assert!(exec[0].started > 0);
}

#[test]
fn a_process_that_is_killed_in_mid_call_ends_without_a_record_of_the_call() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl("sysread(STDIN, my $b, 1); sysread(STDIN, $b, 1);");
    let pid = waiting.pid();
    lab.kernel.watch(pid, watch::ALL).unwrap();
    let mut child = waiting.child;
    child.kill().unwrap();
    child.wait().unwrap();
    let seen = lab.drain();
    assert_eq!(
        of(&seen, Kind::Exit).iter().map(|seen| (seen.tgid, seen.flags)).collect::<Vec<_>>(),
        [(pid, SIGKILL)]
    );
    assert!(of(&seen, Kind::Read).is_empty());
}

#[test]
fn a_process_that_is_watched_no_more_is_not_seen() {
    let Some(mut lab) = lab() else { return };
    let waiting = perl("open(my $f, '<', '/kvprov-none');");
    let pid = waiting.pid();
    lab.kernel.watch(pid, watch::ALL).unwrap();
    lab.kernel.unwatch(pid).unwrap();
    lab.kernel.unwatch(pid).unwrap();
    assert!(waiting.run().0.success());
    let seen: Vec<_> =
        lab.drain().into_iter().filter(|seen| seen.tgid == pid && seen.kind != Kind::Exec).collect();
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn kvprov_does_not_watch_itself() {
    let Some(mut lab) = lab() else { return };
    assert!(matches!(lab.kernel.watch(std::process::id(), watch::ALL), Err(Error::Own(_))));
}

#[test]
fn outside_the_scope_nothing_is_seen() {
    let root = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"]
        .into_iter()
        .map(PathBuf::from)
        .find(|root| root.join("cgroup.procs").exists() && root.join("cgroup.controllers").exists());
    let Some(root) = root else { return };
    let group = root.join(format!("kvprov-test-{}", std::process::id()));
    if std::fs::create_dir_all(group.join("below")).is_err() {
        return;
    }
    let mut inside = Vec::new();
    let pids = {
        let options = Options { scope: Some(group.clone()), ..Options::default() };
        let Some(mut lab) = with(&options) else { return };
        let mut pids = Vec::new();
        for place in [None, Some(group.clone()), Some(group.join("below"))] {
            let waiting = perl("open(my $f, '<', '/kvprov-none'); exec('/bin/true');");
            pids.push(waiting.pid());
            if let Some(place) = place {
                std::fs::write(place.join("cgroup.procs"), waiting.pid().to_string()).unwrap();
            }
            lab.kernel.watch(waiting.pid(), watch::ALL).unwrap();
            assert!(waiting.run().0.success());
        }
        for seen in lab.drain() {
            if seen.kind == Kind::Exec || seen.path() == "/kvprov-none" {
                inside.push((seen.tgid, seen.kind));
            }
        }
        pids
    };
    std::fs::remove_dir(group.join("below")).unwrap();
    std::fs::remove_dir(&group).unwrap();
    assert_eq!(
        inside,
        [(pids[1], Kind::Open), (pids[1], Kind::Exec), (pids[2], Kind::Open), (pids[2], Kind::Exec)],
        "outside was {}",
        pids[0]
    );
}

#[test]
fn a_scope_that_is_no_group_is_refused() {
    let options = Options { scope: Some("/kvprov-none".into()), ..Options::default() };
    assert!(matches!(kvprov_loader::attach::Kernel::start(&options), Err(Error::Scope { .. })));
}

#[test]
fn a_transfer_between_processes_names_the_other_one() {
    let Some(mut lab) = lab() else { return };
    // Reads four bytes of its own memory, as if it were another's.
    let seen = lab.watch(
        watch::ALL,
        "sub at { unpack('Q', pack('P', $_[0])) } my ($a, $b) = ('abcd', 'xxxx'); \
         my $to = pack('QQ', at($b), 4); my $from = pack('QQ', at($a), 4); \
         syscall(310, $$ + 0, $to, 1, $from, 1, 0); syscall(311, $$ + 0, $to, 1, $from, 1, 0);",
    );
    if cfg!(target_arch = "x86_64") {
        for kind in [Kind::ProcessVmReadv, Kind::ProcessVmWritev] {
            let moved = of(&seen, kind);
            assert_eq!(moved.len(), 1);
            assert_eq!((moved[0].result, moved[0].fd as u32), (4, moved[0].tgid));
        }
    }
}

#[test]
fn run_times_are_kept_where_they_are_asked_for() {
    let options = Options { statistics: true, ..Options::default() };
    let Some(mut lab) = with(&options) else { return };
    lab.watch(watch::ALL, "for (1..10) { stat('/kvprov-none'); }");
    let programs = lab.kernel.programs();
    let stat = programs.iter().find(|program| program.name == "sys_exit_newfstatat").unwrap();
    assert!(stat.run_count >= Some(10), "{stat:?}");
    assert!(stat.run_time_ns > Some(0), "{stat:?}");
    assert_eq!(stat.missed, Some(0));
}

#[test]
fn a_program_that_is_not_attached_says_what_is_lost_and_the_rest_works() {
    let options = Options { only: vec!["sys_exit_openat".to_owned()], ..Options::default() };
    let Some(mut lab) = with(&options) else { return };
    let seen = lab.watch(watch::ALL, "sysopen(my $f, '/kvprov-none', O_RDONLY); stat('/kvprov-none');");
    assert_eq!(seen.iter().map(|seen| seen.kind).collect::<Vec<_>>(), [Kind::Open]);
    let programs = lab.kernel.programs();
    let rename = programs.iter().find(|program| program.name == "sys_exit_renameat2").unwrap();
    let why = rename.attached.clone().unwrap_err();
    assert_eq!(why.lost, "renamed files (renameat2)");
}
