//! Machines as they may be, and what is told of them.

use super::*;
use rustix::thread::CapabilitySet;
use std::collections::BTreeMap;
use std::io;

/// A machine of files that a test states.
#[derive(Default, Clone)]
struct Stated {
    files: BTreeMap<&'static str, String>,
    links: BTreeMap<&'static str, &'static str>,
    refused: Vec<&'static str>,
    sockets: Vec<&'static str>,
    no_paths: bool,
}

impl Machine for Stated {
    fn read(&self, path: &str) -> io::Result<String> {
        self.opens(path)?;
        Ok(self.files[path].clone())
    }

    fn link(&self, path: &str) -> io::Result<String> {
        self.links.get(path).map(ToString::to_string).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn opens(&self, path: &str) -> io::Result<()> {
        if self.refused.iter().any(|refused| path.starts_with(refused)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.files.contains_key(path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn listens(&self, path: &str) -> io::Result<()> {
        if self.refused.contains(&path) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        if self.sockets.contains(&path) { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }

    fn resolves_paths(&self) -> bool {
        !self.no_paths
    }
}

const MOUNTS: &str = "21 28 0:20 / /sys rw - sysfs sysfs rw\n22 28 0:5 / /proc rw - proc proc rw\n\
    30 21 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n33 21 0:12 / /sys/kernel/tracing rw - tracefs tracefs rw\n";

/// A new kernel that forbids nothing.
fn fine() -> Stated {
    let files = [
        ("/proc/sys/kernel/osrelease", "6.18.44-cloud\n"),
        ("/sys/kernel/btf/vmlinux", ""),
        ("/sys/kernel/tracing/events/syscalls", ""),
        ("/proc/self/mountinfo", MOUNTS),
        ("/proc/sys/kernel/unprivileged_bpf_disabled", "2\n"),
        ("/proc/sys/kernel/bpf_stats_enabled", "1\n"),
        ("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
    ];
    Stated {
        files: files.into_iter().map(|(path, text)| (path, text.to_owned())).collect(),
        links: [("/proc/self/ns/pid", "pid:[4026531836]"), ("/proc/self/ns/user", "user:[4026531837]")]
            .into(),
        ..Stated::default()
    }
}

fn all_capabilities() -> Status {
    Status { effective: u64::MAX, ..Status::default() }
}

fn find<'a>(abilities: &'a [Ability], name: &str) -> &'a Ability {
    abilities.iter().find(|ability| ability.name == name).unwrap()
}

/// The one ability that a change of the fine machine worsens.
fn only_worse(machine: &Stated, status: &Status) -> Ability {
    let abilities = probe(machine, status);
    let mut worse: Vec<&Ability> = abilities.iter().filter(|ability| ability.state != State::Good).collect();
    assert_eq!(worse.len(), 1, "{worse:?}");
    let worse = worse.remove(0).clone();
    assert!(!worse.cost.is_empty() && !worse.advice.is_empty(), "{worse:?}");
    worse
}

#[test]
fn on_a_fine_machine_nothing_is_lost() {
    let abilities = probe(&fine(), &all_capabilities());
    assert!(abilities.iter().all(|ability| ability.state == State::Good), "{abilities:?}");
    assert_eq!(kernel_programs(&abilities), Ok(()));
}

#[test]
fn an_old_kernel_runs_no_programs() {
    let mut machine = fine();
    machine.files.insert("/proc/sys/kernel/osrelease", "4.19.0-26-amd64\n".into());
    let abilities = probe(&machine, &all_capabilities());
    assert_eq!(find(&abilities, "kernel").state, State::Missing);
    let reasons = kernel_programs(&abilities).unwrap_err();
    assert!(reasons[0].contains("4.19.0-26-amd64") && reasons[0].contains("5.15"), "{reasons:?}");
}

#[test]
fn releases_are_read_as_distributions_write_them() {
    assert_eq!(release("6.1.0-18-amd64\n"), Some((6, 1)));
    assert_eq!(release("5.15-rc3"), Some((5, 15)));
    assert_eq!(release("5.14.0-427.el9.x86_64"), Some((5, 14)));
    assert_eq!(release("6"), None);
    assert_eq!(release("six.one"), None);
    assert_eq!(release(""), None);
}

#[test]
fn without_btf_there_are_no_programs() {
    let mut machine = fine();
    machine.files.remove("/sys/kernel/btf/vmlinux");
    let worse = only_worse(&machine, &all_capabilities());
    assert_eq!((worse.name, worse.state), ("btf", State::Missing));
    assert!(worse.advice.contains("CONFIG_DEBUG_INFO_BTF"));
}

#[test]
fn tracefs_may_be_absent_refused_or_elsewhere() {
    let mut machine = fine();
    machine.files.remove("/sys/kernel/tracing/events/syscalls");
    machine.files.insert("/proc/self/mountinfo", MOUNTS.replace("tracefs", "other"));
    assert_eq!(only_worse(&machine, &all_capabilities()).found, "tracefs is not mounted");
    machine.files.insert("/proc/self/mountinfo", MOUNTS.replace("/sys/kernel/tracing", "/elsewhere"));
    assert!(only_worse(&machine, &all_capabilities()).advice.contains("mount --bind /elsewhere"));
    machine.files.insert("/proc/self/mountinfo", MOUNTS.into());
    assert!(only_worse(&machine, &all_capabilities()).advice.contains("CONFIG_FTRACE_SYSCALLS"));
    let some = probe(&machine, &all_capabilities());
    assert_eq!(kernel_programs(&some), Ok(()), "processes are still seen");
    assert_eq!(all_kernel_programs(&some).unwrap_err().len(), 1);
    machine.refused.push("/sys/kernel/tracing");
    assert!(only_worse(&machine, &all_capabilities()).advice.contains("CAP_DAC_READ_SEARCH"));
    machine.files.insert("/sys/kernel/debug/tracing/events/syscalls", String::new());
    assert_eq!(all_kernel_programs(&probe(&machine, &all_capabilities())), Ok(()), "the other place will do");
}

#[test]
fn lockdown_matters_only_where_it_hides_memory() {
    let mut machine = fine();
    machine.files.insert("/sys/kernel/security/lockdown", "none [integrity] confidentiality\n".into());
    assert_eq!(kernel_programs(&probe(&machine, &all_capabilities())), Ok(()));
    machine.files.insert("/sys/kernel/security/lockdown", "none integrity [confidentiality]\n".into());
    assert_eq!(only_worse(&machine, &all_capabilities()).name, "lockdown");
}

#[test]
fn locked_memory_matters_on_old_kernels_only() {
    let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                  Max locked memory         65536                65536                bytes     \n";
    let mut machine = fine();
    machine.files.insert("/proc/self/limits", limits.into());
    let without = Status { effective: !CapabilitySet::SYS_RESOURCE.bits(), ..Status::default() };
    assert_eq!(find(&probe(&machine, &without), "memlock").state, State::Good);
    machine.files.insert("/proc/sys/kernel/osrelease", "5.10.0".into());
    assert_eq!(find(&probe(&machine, &without), "memlock").state, State::Limited);
    assert_eq!(find(&probe(&machine, &all_capabilities()), "memlock").state, State::Good);
    machine.files.insert("/proc/self/limits", limits.replace("65536 ", "unlimited "));
    assert_eq!(find(&probe(&machine, &without), "memlock").state, State::Good);
}

#[test]
fn a_container_with_its_own_pids_cannot_join_what_the_kernel_tells() {
    let mut machine = fine();
    machine.links.insert("/proc/self/ns/pid", "pid:[4026532201]");
    let worse = only_worse(&machine, &all_capabilities());
    assert_eq!((worse.name, worse.state), ("pid_namespace", State::Missing));
    assert!(worse.advice.contains("hostPID"));
}

#[test]
fn capabilities_of_another_user_namespace_do_not_count() {
    let mut machine = fine();
    machine.links.insert("/proc/self/ns/user", "user:[4026532200]");
    assert_eq!(only_worse(&machine, &all_capabilities()).name, "user_namespace");
}

#[test]
fn a_hiding_proc_matters_without_ptrace() {
    let mut machine = fine();
    machine.files.insert("/proc/self/mountinfo", MOUNTS.replace("proc proc rw", "proc proc rw,hidepid=2"));
    assert_eq!(find(&probe(&machine, &all_capabilities()), "hidepid").state, State::Good);
    let nothing = probe(&machine, &Status::default());
    assert_eq!(find(&nothing, "hidepid").state, State::Missing);
}

#[test]
fn without_openat2_files_of_workers_are_not_opened() {
    let machine = Stated { no_paths: true, ..fine() };
    assert_eq!(only_worse(&machine, &all_capabilities()).name, "openat2");
    assert_eq!(kernel_programs(&probe(&machine, &all_capabilities())), Ok(()));
}

#[test]
fn old_control_groups_cost_the_scope_only() {
    let mut machine = fine();
    machine.files.insert("/proc/self/mountinfo", MOUNTS.replace("cgroup2 cgroup2", "cgroup cgroup"));
    let worse = only_worse(&machine, &all_capabilities());
    assert_eq!((worse.name, worse.state), ("cgroup", State::Limited));
    assert!(worse.cost.contains("--scope"));
}

#[test]
fn without_capabilities_every_one_is_named_with_its_loss() {
    let nobody = Status { user: 1000, ..Status::default() };
    let abilities = probe(&fine(), &nobody);
    let missing: Vec<&str> = abilities
        .iter()
        .filter(|ability| ability.state == State::Missing)
        .map(|ability| ability.name)
        .collect();
    assert_eq!(missing, ["cap_bpf", "cap_perfmon", "cap_dac_read_search", "cap_sys_ptrace"]);
    assert_eq!(kernel_programs(&abilities).unwrap_err().len(), 2);
}

#[test]
fn root_needs_no_capability_to_read_what_it_owns() {
    let status = Status {
        effective: (CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_PTRACE).bits(),
        ..Status::default()
    };
    let abilities = probe(&fine(), &status);
    assert_eq!(find(&abilities, "cap_dac_read_search").state, State::Limited);
    assert_eq!(kernel_programs(&abilities), Ok(()));
}

#[test]
fn a_machine_that_tells_nothing_is_told_as_such() {
    let abilities = probe(&Stated::default(), &Status::default());
    assert!(kernel_programs(&abilities).is_err());
    for ability in abilities.iter().filter(|ability| ability.state != State::Good) {
        assert!(!ability.cost.is_empty() && !ability.advice.is_empty(), "{ability:?}");
    }
}

#[test]
fn this_machine_can_be_probed() {
    let abilities = own().unwrap();
    assert!(find(&abilities, "kernel").found.starts_with("Linux "));
}

#[test]
fn a_container_runtime_that_may_be_asked_is_named_with_its_place() {
    let mut machine = fine();
    machine.sockets = vec!["/run/containerd/containerd.sock"];
    let abilities = probe(&machine, &all_capabilities());
    let found = find(&abilities, "container_runtime");
    assert_eq!(found.state, State::Good);
    assert!(found.found.contains("/run/containerd/containerd.sock"), "{}", found.found);
}

#[test]
fn a_machine_without_containers_lacks_nothing_and_says_that_nobody_can_be_asked() {
    let abilities = probe(&fine(), &all_capabilities());
    let found = find(&abilities, "container_runtime");
    assert_eq!((found.state, found.found.contains("no container runtime")), (State::Good, true));
}

#[test]
fn a_runtime_that_may_not_be_asked_is_unknown_with_the_reason() {
    let mut machine = fine();
    machine.refused = vec!["/run/crio/crio.sock"];
    let worse = only_worse(&machine, &all_capabilities());
    assert_eq!((worse.name, worse.state), ("container_runtime", State::Limited));
    assert!(worse.found.contains("CRI-O may not be asked at /run/crio/crio.sock"), "{}", worse.found);
}

#[test]
fn a_pod_without_the_socket_of_its_runtime_is_told_to_mount_it() {
    let mut machine = fine();
    machine.files.insert("/var/run/secrets/kubernetes.io", String::new());
    let worse = only_worse(&machine, &all_capabilities());
    assert_eq!(worse.name, "container_runtime");
    assert!(worse.advice.contains("mount"), "{}", worse.advice);
}
