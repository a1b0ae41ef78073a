//! The documented set of capabilities, with a reason for each.
//!
//! What a kernel demands was measured on Linux 6.18, function by function, with one capability after the other taken
//! away (`loader/examples/what_works.rs`), as root and as another user. CAP_SYS_ADMIN does for both CAP_BPF and
//! CAP_PERFMON, and nothing of the set replaces CAP_SYS_PTRACE.

use rustix::thread::CapabilitySet;

/// Linux release in which CAP_BPF and CAP_PERFMON were split from CAP_SYS_ADMIN.
const SPLIT: (u32, u32) = (5, 8);

/// A capability that the loader wants.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// Which.
    pub capability: CapabilitySet,
    /// What works with it.
    pub feature: &'static str,
    /// On which kernels.
    pub kernels: &'static str,
    /// Why the kernel asks for it.
    pub reason: &'static str,
    /// What is not seen without it.
    pub lost: &'static str,
    short: &'static str,
    /// The first release that asks for it.
    from: (u32, u32),
    /// The first release that does not ask for it any more.
    until: Option<(u32, u32)>,
}

/// What is wanted, and what of it is there.
#[derive(Debug, Clone)]
pub struct Held {
    /// An entry for each capability that this kernel asks for, and whether it is held.
    pub needs: Vec<(Need, bool)>,
}

/// The documented set.
pub const CAPABILITIES: [Need; 6] = [
    Need {
        capability: CapabilitySet::BPF,
        short: "cap_bpf",
        feature: "kernel programs",
        kernels: "5.8 and newer",
        reason: "loading programs and making maps",
        lost: "file and socket calls of workers; output that goes to no file",
        from: SPLIT,
        until: None,
    },
    Need {
        capability: CapabilitySet::PERFMON,
        short: "cap_perfmon",
        feature: "kernel programs",
        kernels: "5.8 and newer",
        reason: "loading programs that read kernel memory, and attaching them to tracepoints",
        lost: "file and socket calls of workers; output that goes to no file",
        from: SPLIT,
        until: None,
    },
    Need {
        capability: CapabilitySet::DAC_READ_SEARCH,
        short: "cap_dac_read_search",
        feature: "kernel programs, files of other users",
        kernels: "all",
        reason: "what only its owner may read: tracefs (root's), environment and descriptors of a process, model files, \
                 logs and stores",
        lost: "environment, descriptors and files of workers of other users; as another user than root also their file \
               and socket calls",
        from: (0, 0),
        until: None,
    },
    Need {
        capability: CapabilitySet::SYS_PTRACE,
        short: "cap_sys_ptrace",
        feature: "processes of other users",
        kernels: "all",
        reason: "root, directory, namespaces, descriptors and memory map of a process of another user, or of one with \
                 capabilities that the loader has not",
        lost: "files, open files, containers and libraries of workers of other users",
        from: (0, 0),
        until: None,
    },
    Need {
        capability: CapabilitySet::SYS_ADMIN,
        short: "cap_sys_admin",
        feature: "kernel programs",
        kernels: "before 5.8",
        reason: "one capability for all of BPF; newer kernels do not need it and kvprov does not keep it there",
        lost: "file and socket calls of workers; output that goes to no file",
        from: (0, 0),
        until: Some(SPLIT),
    },
    Need {
        capability: CapabilitySet::SYS_RESOURCE,
        short: "cap_sys_resource",
        feature: "kernel programs",
        kernels: "before 5.11",
        reason: "maps count as locked memory, whose limit has to be raised for the ring",
        lost: "a ring larger than the limit of locked memory (`ulimit -l`)",
        from: (0, 0),
        until: Some((5, 11)),
    },
];

// === impl Need ===

impl Need {
    /// Its name as `capabilities(7)` writes it.
    pub fn name(&self) -> String {
        name(self.capability)
    }

    /// Its name for machines: small letters.
    pub fn short_name(&self) -> &'static str {
        self.short
    }

    /// Whether this release asks for it.
    pub fn applies_to(&self, kernel: (u32, u32)) -> bool {
        kernel >= self.from && self.until.is_none_or(|until| kernel < until)
    }
}

// === impl Held ===

impl Held {
    /// What of the documented set a process with these effective capabilities has.
    pub fn of(effective: u64, kernel: (u32, u32)) -> Self {
        let held = CapabilitySet::from_bits_retain(effective);
        // CAP_SYS_ADMIN stands for those that were split from it.
        let admin = held.contains(CapabilitySet::SYS_ADMIN);
        let stands_in = |need: &Need| admin && need.from == SPLIT;
        let needs = CAPABILITIES
            .into_iter()
            .filter(|need| need.applies_to(kernel))
            .map(|need| (need, held.contains(need.capability) || stands_in(&need)))
            .collect();
        Self { needs }
    }

    /// Those that are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Need> {
        self.needs.iter().filter(|(_, held)| !held).map(|(need, _)| need)
    }
}

/// From this release on, watching goes through descriptors that are open, which takes no capability.
const BY_DESCRIPTOR: (u32, u32) = (5, 19);

/// What the loader keeps once the kernel programs are attached: what is wanted, without that which only starting them
/// took.
pub fn kept(permitted: u64, kernel: (u32, u32)) -> CapabilitySet {
    let start = if kernel >= BY_DESCRIPTOR {
        CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_RESOURCE
    } else {
        CapabilitySet::SYS_RESOURCE
    };
    wanted(permitted, kernel) - start
}

/// What of the permitted capabilities starting takes on this kernel: the documented set, and CAP_SYS_ADMIN where there is
/// nothing better.
pub fn wanted(permitted: u64, kernel: (u32, u32)) -> CapabilitySet {
    let held = CapabilitySet::from_bits_retain(permitted);
    let documented = CAPABILITIES
        .into_iter()
        .filter(|need| need.applies_to(kernel))
        .fold(CapabilitySet::empty(), |set, need| set | need.capability);
    let split = CapabilitySet::BPF | CapabilitySet::PERFMON;
    let fallback = if held.contains(split) { CapabilitySet::empty() } else { CapabilitySet::SYS_ADMIN };
    (documented | fallback) & held
}

/// The names of a set as `capabilities(7)` writes them, with commas between.
pub fn name(set: CapabilitySet) -> String {
    let mut names: Vec<String> = set.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
    let known = set.iter_names().fold(CapabilitySet::empty(), |known, (_, one)| known | one);
    let rest = set.difference(known).bits();
    if rest != 0 {
        names.push(format!("{rest:#x}"));
    }
    names.join(",")
}

/// The capability of a name as `capabilities(7)` writes it.
pub fn by_name(name: &str) -> Option<CapabilitySet> {
    CapabilitySet::from_name(name.strip_prefix("CAP_")?)
}
