//! Probes of what can be seen of other processes.

use super::{Ability, Machine, Part, State};
use crate::privileges::Status;
use rustix::thread::CapabilitySet;

/// The initial pid namespace, as the kernel numbers it (`PROC_PID_INIT_INO`).
const INITIAL_PIDS: &str = "pid:[4026531836]";
/// The initial user namespace (`PROC_USER_INIT_INO`).
const INITIAL_USERS: &str = "user:[4026531837]";

pub(super) fn pid_namespace(machine: &dyn Machine) -> Ability {
    let (name, part) = ("pid_namespace", Part::KernelPrograms);
    match machine.link("/proc/self/ns/pid") {
        Ok(link) if link == INITIAL_PIDS => Ability::good(name, part, "the pid namespace of the host"),
        Ok(link) => Ability::lacking(
            name,
            part,
            State::Missing,
            format!(
                "a pid namespace of its own ({link}): the kernel numbers processes otherwise than /proc here"
            ),
            "file and socket calls of workers; processes outside of this container",
            "run it in the host's pid namespace (hostPID: true, --pid=host)",
        ),
        Err(error) => Ability::lacking(
            name,
            part,
            State::Limited,
            format!("the pid namespace is not told: {error}"),
            "workers are not recognised in what the kernel tells, if it is not the host's",
            "mount /proc",
        ),
    }
}

pub(super) fn user_namespace(machine: &dyn Machine) -> Ability {
    let (name, part) = ("user_namespace", Part::KernelPrograms);
    match machine.link("/proc/self/ns/user") {
        Ok(link) if link != INITIAL_USERS => Ability::lacking(
            name,
            part,
            State::Missing,
            format!("a user namespace of its own ({link}): its capabilities do not count for the kernel"),
            "file and socket calls of workers; processes and files of users outside of it",
            "run it outside of user namespaces (no rootless container, hostUsers: true)",
        ),
        Ok(_) => Ability::good(name, part, "the user namespace of the host"),
        Err(_) => Ability::good(name, part, "this kernel has no user namespaces"),
    }
}

pub(super) fn hiding(machine: &dyn Machine, status: &Status) -> Ability {
    let (name, part) = ("hidepid", Part::Processes);
    let text = machine.read("/proc/self/mountinfo").unwrap_or_default();
    if !hides_processes(&text) {
        return Ability::good(name, part, "/proc shows all processes");
    }
    if status.effective & CapabilitySet::SYS_PTRACE.bits() != 0 {
        return Ability::good(name, part, "/proc hides processes (hidepid), but not from CAP_SYS_PTRACE");
    }
    Ability::lacking(
        name,
        part,
        State::Missing,
        "/proc hides the processes of other users (hidepid)",
        "workers of other users",
        "start kvprov with CAP_SYS_PTRACE, or put it into the group of the mount option gid=",
    )
}

/// Whether `/proc` is mounted so that it hides the processes of other users from whoever lacks CAP_SYS_PTRACE.
pub fn hides_processes(mountinfo: &str) -> bool {
    mountinfo.lines().any(|line| {
        let Some((mount, system)) = line.split_once(" - ") else { return false };
        let options = system.split(' ').nth(2).unwrap_or_default();
        mount.split(' ').nth(4) == Some("/proc")
            && system.starts_with("proc ")
            && options
                .split(',')
                .filter_map(|option| option.strip_prefix("hidepid="))
                .any(|value| !matches!(value, "0" | "off"))
    })
}

pub(super) fn paths(machine: &dyn Machine) -> Ability {
    let (name, part) = ("openat2", Part::Processes);
    if machine.resolves_paths() {
        return Ability::good(name, part, "paths of other processes can be resolved");
    }
    Ability::lacking(
        name,
        part,
        State::Missing,
        "openat2 is refused: a kernel before 5.6, or a seccomp filter that does not know it",
        "files of workers: identity of models, logs in containers",
        "use a newer kernel or container runtime",
    )
}

pub(super) fn yama(machine: &dyn Machine) -> Ability {
    let setting = machine.read("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    let found = match setting.trim() {
        "" => "no Yama".to_owned(),
        value => format!(
            "Yama's ptrace_scope is {value}; it does not matter: nothing is attached to, only looked at"
        ),
    };
    Ability::good("yama", Part::Information, found)
}

pub(super) fn container(machine: &dyn Machine) -> Ability {
    let marks = ["/.dockerenv", "/run/.containerenv"];
    let mark = marks.into_iter().find(|mark| machine.opens(mark).is_ok());
    let found = match (mark, is_in_pod(machine)) {
        (_, true) => "runs in a pod".to_owned(),
        (Some(mark), false) => format!("runs in a container ({mark})"),
        (None, false) => "no sign of a container".to_owned(),
    };
    Ability::good("container", Part::Information, found)
}

/// Whether this process runs in a pod of Kubernetes.
pub(super) fn is_in_pod(machine: &dyn Machine) -> bool {
    machine.opens("/var/run/secrets/kubernetes.io").is_ok()
}
