//! Probes of the kernel: its release, its types, and what it forbids.

use super::{Ability, Machine, Part, State};
use crate::privileges::Status;
use rustix::thread::CapabilitySet;

/// Oldest release whose kernel has all that the programs use.
pub const KERNEL_NEEDED: (u32, u32) = (5, 15);
/// From this release on, maps are not counted as locked memory.
const NO_MEMORY_LOCK: (u32, u32) = (5, 11);
/// Bytes that a ring and its maps take.
const MEMORY: u64 = 32 << 20;

/// Major and minor number of a release like `6.1.0-18-amd64`.
pub fn release(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor: String = numbers.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}

pub(super) fn version(machine: &dyn Machine) -> Option<(u32, u32)> {
    release(&machine.read("/proc/sys/kernel/osrelease").ok()?)
}

pub(super) fn release_is_new_enough(machine: &dyn Machine) -> Ability {
    let (name, part) = ("kernel", Part::KernelPrograms);
    let text = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (major, minor) = KERNEL_NEEDED;
    match release(&text) {
        Some(found) if found >= KERNEL_NEEDED => Ability::good(name, part, format!("Linux {}", text.trim())),
        Some(_) => Ability::lacking(
            name,
            part,
            State::Missing,
            format!("Linux {} is older than {major}.{minor}", text.trim()),
            "file and socket calls of workers, output that goes to no file; logs and metrics still work",
            format!("use a kernel of {major}.{minor} or newer"),
        ),
        None => Ability::lacking(
            name,
            part,
            State::Limited,
            format!("the release of the kernel is not told ({:?})", text.trim()),
            "nothing, if it is new enough",
            format!("check that it is {major}.{minor} or newer"),
        ),
    }
}

pub(super) fn btf(machine: &dyn Machine) -> Ability {
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    let (name, part) = ("btf", Part::KernelPrograms);
    match machine.opens(PATH) {
        Ok(()) => Ability::good(name, part, format!("types of the kernel in {PATH}")),
        Err(error) => Ability::lacking(
            name,
            part,
            State::Missing,
            format!("no types of the kernel in {PATH}: {error}"),
            "file and socket calls of workers, output that goes to no file",
            "use a kernel with CONFIG_DEBUG_INFO_BTF; in a container, mount /sys",
        ),
    }
}

pub(super) fn lockdown(machine: &dyn Machine) -> Ability {
    let (name, part) = ("lockdown", Part::KernelPrograms);
    let Ok(text) = machine.read("/sys/kernel/security/lockdown") else {
        return Ability::good(name, part, "the kernel tells of no lockdown");
    };
    match text.split(['[', ']']).nth(1).unwrap_or("none") {
        "confidentiality" => Ability::lacking(
            name,
            part,
            State::Missing,
            "lockdown is `confidentiality`: programs may not read kernel memory",
            "file and socket calls of workers, output that goes to no file",
            "boot with lockdown=integrity, or without",
        ),
        other => Ability::good(name, part, format!("lockdown is `{other}`")),
    }
}

pub(super) fn memory_lock(machine: &dyn Machine, status: &Status, kernel: Option<(u32, u32)>) -> Ability {
    let (name, part) = ("memlock", Part::KernelPrograms);
    if kernel.is_none_or(|kernel| kernel >= NO_MEMORY_LOCK) {
        return Ability::good(name, part, "this kernel does not count maps as locked memory");
    }
    if status.effective & CapabilitySet::SYS_RESOURCE.bits() != 0 {
        return Ability::good(name, part, "the limit of locked memory can be raised");
    }
    let limits = machine.read("/proc/self/limits").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|rest| rest.split_ascii_whitespace().next());
    match limit.map(|limit| (limit, limit.parse::<u64>())) {
        Some(("unlimited", _)) => Ability::good(name, part, "locked memory is not limited"),
        Some((_, Ok(bytes))) if bytes >= MEMORY => {
            Ability::good(name, part, format!("{bytes} bytes of memory may be locked"))
        }
        found => Ability::lacking(
            name,
            part,
            State::Limited,
            format!("{} bytes of memory may be locked", found.map_or("unknown", |(text, _)| text)),
            "kernel programs, unless the ring is made small",
            "raise the limit (`ulimit -l unlimited`, LimitMEMLOCK=infinity) or grant CAP_SYS_RESOURCE",
        ),
    }
}

pub(super) fn unprivileged_bpf(machine: &dyn Machine, kernel: Option<(u32, u32)>) -> Ability {
    let (name, part) = ("unprivileged_bpf", Part::Information);
    let setting = machine.read("/proc/sys/kernel/unprivileged_bpf_disabled").unwrap_or_default();
    let old = kernel.is_some_and(|kernel| kernel < (5, 19));
    let effect = match (setting.trim(), old) {
        ("1" | "2", true) => {
            "on this kernel also map calls on descriptors are refused; the ring is read by mmap, which is not"
        }
        _ => "it does not matter: the ring is read by mmap",
    };
    Ability::good(name, part, format!("kernel.unprivileged_bpf_disabled is {:?}; {effect}", setting.trim()))
}

pub(super) fn statistics(machine: &dyn Machine) -> Ability {
    let (name, part) = ("bpf_stats", Part::Information);
    match machine.read("/proc/sys/kernel/bpf_stats_enabled").as_deref().map(str::trim) {
        Ok("1") => Ability::good(name, part, "the kernel measures the run time of programs"),
        _ => Ability::lacking(
            name,
            part,
            State::Limited,
            "the kernel does not measure the run time of programs",
            "the own cost of each kernel program as a metric",
            "sysctl kernel.bpf_stats_enabled=1 (costs about 30 ns a run)",
        ),
    }
}
