//! Probes of what is mounted.

use super::{Ability, Machine, Part, State};
use std::io::ErrorKind;

/// Where kernel programs look for tracepoints, best first.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// A line of `mountinfo`.
struct Mount<'t> {
    point: &'t str,
    kind: &'t str,
}

fn mounts(text: &str) -> impl Iterator<Item = Mount<'_>> {
    text.lines().filter_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        Some(Mount { point: mount.split(' ').nth(4)?, kind: system.split(' ').next()? })
    })
}

pub(super) fn tracefs(machine: &dyn Machine) -> Ability {
    let (name, part) = ("tracefs", Part::KernelPrograms);
    let cost = "file and socket calls of workers, output that goes to no file; starts and ends of processes are seen";
    let mut refused = None;
    for place in TRACEFS {
        match machine.opens(&format!("{place}/events/syscalls")) {
            Ok(()) => return Ability::good(name, part, format!("tracepoints in {place}")),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => refused = Some(place),
            Err(_) => {}
        }
    }
    if let Some(place) = refused {
        return Ability::lacking(
            name,
            part,
            State::Limited,
            format!("{place} is mounted but may not be read"),
            cost,
            "start kvprov as root or with CAP_DAC_READ_SEARCH",
        );
    }
    let text = machine.read("/proc/self/mountinfo").unwrap_or_default();
    let elsewhere = mounts(&text).find(|mount| mount.kind == "tracefs").map(|mount| mount.point);
    let (found, advice) = match elsewhere {
        Some(place) if TRACEFS.contains(&place) => (
            format!("tracefs in {place} has no system call tracepoints"),
            "use a kernel with CONFIG_FTRACE_SYSCALLS".to_owned(),
        ),
        Some(place) => (
            format!("tracefs is mounted at {place}, not at {}", TRACEFS[0]),
            format!("mount --bind {place} {}", TRACEFS[0]),
        ),
        None => (
            "tracefs is not mounted".to_owned(),
            format!("mount -t tracefs tracefs {0}; in a container, mount the host's {0}", TRACEFS[0]),
        ),
    };
    Ability::lacking(name, part, State::Limited, found, cost, advice)
}

pub(super) fn cgroup(machine: &dyn Machine) -> Ability {
    let (name, part) = ("cgroup", Part::Processes);
    let text = machine.read("/proc/self/mountinfo").unwrap_or_default();
    let version_2 = mounts(&text).find(|mount| mount.kind == "cgroup2").map(|mount| mount.point);
    let version_1 = mounts(&text).any(|mount| mount.kind == "cgroup");
    match (version_2, version_1) {
        (Some(point), false) => Ability::good(name, part, format!("control groups (version 2) in {point}")),
        (Some(point), true) => {
            Ability::good(name, part, format!("control groups of both versions; version 2 in {point}"))
        }
        (None, true) => Ability::lacking(
            name,
            part,
            State::Limited,
            "control groups of version 1 only",
            "`--scope cgroup:PATH`; containers and pods are still told",
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
        (None, false) => Ability::lacking(
            name,
            part,
            State::Limited,
            "control groups are not mounted",
            "`--scope cgroup:PATH`; containers and pods are still told by /proc",
            "mount -t cgroup2 none /sys/fs/cgroup; in a container, mount the host's",
        ),
    }
}
