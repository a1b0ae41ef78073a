//! The kernel programs: loads them, attaches them, tells them whom to watch, and reads what they counted.
//!
//! Every program is attached by itself: one that the kernel refuses is reported with what is lost, and the rest works.
//! What they see waits in a ring, whose descriptor anybody may be given to read ([`kvprov_agent_common::ring`]). The
//! programs stay for as long as [`Kernel`] lives.

mod btf;
mod counters;
mod error;
mod layout;
mod scope;
mod status;

pub use btf::Damaged;
pub use counters::{Counters, Counts};
pub use error::Error;
pub use layout::Unknown;
pub use scope::name as scope_name;
pub use status::{ProgramStatus, Unattached};

use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{Program, ProgramError};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use kvprov_agent_common::Kind;
use kvprov_agent_common::kernel::counter;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The programs, built by `build.rs`.
static PROGRAMS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/kvprov-kernel"));

const TYPES: &str = "/sys/kernel/btf/vmlinux";
const TRACEPOINTS: &str = "/sys/kernel/tracing";
/// Where older kernels have them.
const OLD_TRACEPOINTS: &str = "/sys/kernel/debug/tracing";
const NEEDED: &str = "5.15";
/// Bytes of the ring unless told otherwise.
pub const DEFAULT_RING_BYTES: u32 = 16 << 20;
const RING_BYTES_MAX: u32 = 1 << 30;
const EPERM: i32 = 1;
/// Of a verifier's log, the end that names the fault.
const REASON_LINES: usize = 4;

/// What to start with.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of the ring, a power of two of at least a page. Locked memory.
    pub ring_bytes: u32,
    /// Only processes in this control group (version 2) and below are watched, whatever else is asked for.
    pub scope: Option<PathBuf>,
    /// Processes of kvprov, which are never watched.
    pub own: Vec<u32>,
    /// Has the kernel keep run times of programs, which needs CAP_SYS_ADMIN and costs about 30 ns a run. Without, they are
    /// kept only where `kernel.bpf_stats_enabled` is set.
    pub statistics: bool,
    /// Attach only the programs of these names; empty: all.
    pub only: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            ring_bytes: DEFAULT_RING_BYTES,
            scope: None,
            own: Vec::new(),
            statistics: false,
            only: Vec::new(),
        }
    }
}

/// The programs in the kernel.
pub struct Kernel {
    ebpf: Ebpf,
    ring: MapData,
    ring_bytes: u32,
    workers: HashMap<MapData, u32, u32>,
    own: HashMap<MapData, u32, u32>,
    counters: PerCpuArray<MapData, [u64; counter::COUNT]>,
    unfollowed: Array<MapData, u64>,
    unattached: BTreeMap<String, Unattached>,
    /// Keeps the kernel's statistics on.
    _statistics: Option<OwnedFd>,
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("ring_bytes", &self.ring_bytes)
            .field("unattached", &self.unattached)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Loads and attaches the programs. Nothing is watched yet, except programs that start.
    ///
    /// # Errors
    /// Nothing can be watched at all. A program that cannot be attached is none: [`Self::programs`] tells.
    pub fn start(options: &Options) -> Result<Self, Error> {
        let page = rustix::param::page_size();
        let bytes = options.ring_bytes;
        if !bytes.is_power_of_two() || (bytes as usize) < page || bytes > RING_BYTES_MAX {
            return Err(Error::RingSize { bytes, least: page });
        }
        let scope = options.scope.as_deref().map(scope::find).transpose()?.unwrap_or_default();
        let types = std::fs::read(TYPES).map_err(|source| Error::NoTypes { path: TYPES.into(), source })?;
        let layout = layout::of(&btf::Types::parse(&types)?)?;
        // The tracepoints on processes are found by their type.
        let btf = Btf::parse(&types, aya::Endianness::default())
            .map_err(|error| Error::Other { what: "reading the kernel's types", reason: chain(&error) })?;
        let mut ebpf = EbpfLoader::new()
            .btf(Some(&btf))
            .override_global("LAYOUT", layout.as_slice(), true)
            .override_global("SCOPE", scope.as_slice(), true)
            .map_max_entries("EVENTS", bytes)
            .load(PROGRAMS)
            .map_err(|error| refused(&error))?;

        let ring = match take(&mut ebpf, "EVENTS")? {
            Map::RingBuf(ring) => ring,
            _ => {
                return Err(Error::Other {
                    what: "opening the ring",
                    reason: "it is another map".to_owned(),
                });
            }
        };
        let mut kernel = Self {
            ring,
            ring_bytes: bytes,
            workers: HashMap::try_from(take(&mut ebpf, "WORKERS")?).map_err(map_error)?,
            own: HashMap::try_from(take(&mut ebpf, "OWN")?).map_err(map_error)?,
            counters: PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?).map_err(map_error)?,
            unfollowed: Array::try_from(take(&mut ebpf, "UNFOLLOWED")?).map_err(map_error)?,
            unattached: BTreeMap::new(),
            // Refused without CAP_SYS_ADMIN: run times are unknown then.
            _statistics: if options.statistics {
                aya::sys::enable_stats(aya::sys::Stats::RunTime).ok()
            } else {
                None
            },
            ebpf,
        };
        for tgid in options.own.iter().copied().chain([std::process::id()]) {
            kernel.exclude(tgid)?;
        }
        kernel.attach(&btf, &options.only)?;
        Ok(kernel)
    }

    fn attach(&mut self, btf: &Btf, only: &[String]) -> Result<(), Error> {
        let mut count = 0;
        let tracepoints = tracepoints();
        for (name, program) in self.ebpf.programs_mut() {
            let result = if only.is_empty() || only.iter().any(|one| one == name) {
                attach_one(name, program, btf, tracepoints.as_deref())
            } else {
                Err("it was not asked for".to_owned())
            };
            match result {
                Ok(()) => count += 1,
                Err(reason) => {
                    tracing::debug!(name, reason, "a kernel program is not attached");
                    let lost = status::lost_without(name);
                    self.unattached.insert(name.to_owned(), Unattached { reason, lost });
                }
            }
        }
        if count == 0 {
            let reason = self.unattached.values().next().map(|one| one.reason.clone()).unwrap_or_default();
            return Err(Error::Refused {
                what: format!("no program could be attached; the first: {reason}"),
            });
        }
        Ok(())
    }

    /// The ring's descriptor.
    pub fn ring_fd(&self) -> BorrowedFd<'_> {
        self.ring.fd().as_fd()
    }

    /// Bytes that the ring can hold.
    pub fn ring_bytes(&self) -> u32 {
        self.ring_bytes
    }

    /// Watches a process, and the children that it makes from now on. `flags` is a set of
    /// [`kvprov_agent_common::kernel::watch`].
    ///
    /// # Errors
    /// It is one of kvprov's own, or there are too many.
    pub fn watch(&mut self, tgid: u32, flags: u32) -> Result<(), Error> {
        if self.own.get(&tgid, 0).is_ok() {
            return Err(Error::Own(tgid));
        }
        self.workers.insert(tgid, flags, 0).map_err(|error| Error::Watch { tgid, reason: chain(&error) })
    }

    /// Watches a process no more; its children stay watched. No error if it was not.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn unwatch(&mut self, tgid: u32) -> Result<(), Error> {
        match self.workers.remove(&tgid) {
            Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::Watch { tgid, reason: chain(&error) }),
        }
    }

    /// Processes that are watched, with their flags, children that the kernel added included.
    pub fn watched(&self) -> BTreeMap<u32, u32> {
        self.workers.iter().filter_map(Result::ok).collect()
    }

    /// Never watches a process, for it is one of kvprov's.
    ///
    /// # Errors
    /// There are too many.
    pub fn exclude(&mut self, tgid: u32) -> Result<(), Error> {
        self.unwatch(tgid)?;
        self.own.insert(tgid, 1, 0).map_err(|error| Error::Watch { tgid, reason: chain(&error) })
    }

    /// Forgets a process of kvprov that has ended: its number may come again.
    pub fn include(&mut self, tgid: u32) {
        // It fails only if it was not excluded.
        let _ = self.own.remove(&tgid);
    }

    /// What the programs counted.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn counters(&self) -> Result<Counters, Error> {
        let mut counters =
            Counters { unfollowed: self.unfollowed.get(&0, 0).map_err(map_error)?, ..Counters::default() };
        for number in 0..Kind::SLOTS as u16 {
            let Some(kind) = Kind::from_number(number) else { continue };
            let numbers = self.counters.get(&u32::from(number), 0).map_err(map_error)?;
            let counts = Counts::sum(numbers.iter());
            if counts != Counts::default() {
                counters.by_kind.push((kind, counts));
            }
        }
        Ok(counters)
    }

    /// Every program with what became of it and what it cost, by name.
    pub fn programs(&self) -> Vec<ProgramStatus> {
        let mut programs: Vec<_> = self
            .ebpf
            .programs()
            .map(|(name, program)| {
                let numbers =
                    program.fd().map(|program| status::numbers(program.as_fd())).unwrap_or_default();
                ProgramStatus {
                    name: name.to_owned(),
                    attached: self.unattached.get(name).map_or(Ok(()), |why| Err(why.clone())),
                    run_time_ns: numbers.run_time_ns,
                    run_count: numbers.run_count,
                    missed: numbers.missed,
                }
            })
            .collect();
        programs.sort_by(|left, right| left.name.cmp(&right.name));
        programs
    }
}

/// Whether a process runs a 32-bit program, whose system calls the programs do not see.
///
/// # Errors
/// Its program cannot be read: it is gone, or CAP_SYS_PTRACE is missing.
pub fn is_32_bit(tgid: u32) -> io::Result<bool> {
    use std::io::Read;
    let mut head = [0; 5];
    std::fs::File::open(format!("/proc/{tgid}/exe"))?.read_exact(&mut head)?;
    // ELFCLASS32
    Ok(head == *b"\x7fELF\x01")
}

/// Attaches one program to the tracepoint of its name.
fn attach_one(
    name: &str,
    program: &mut Program,
    btf: &Btf,
    tracepoints: Result<&Path, &String>,
) -> Result<(), String> {
    let attached = match program {
        Program::TracePoint(program) => {
            let tracepoints = tracepoints.map_err(Clone::clone)?;
            if !tracepoints.join(name).join("id").exists() {
                return Err("this kernel has no such call".to_owned());
            }
            program.load().and_then(|()| program.attach("syscalls", name).map(|_| ()))
        }
        Program::BtfTracePoint(program) => {
            program.load(name, btf).and_then(|()| program.attach().map(|_| ()))
        }
        _ => return Err("it is of an unknown type".to_owned()),
    };
    attached.map_err(|error| match &error {
        ProgramError::LoadError { io_error, .. } if io_error.raw_os_error() == Some(EPERM) => {
            format!("the kernel refuses to load it: {io_error}; this process needs CAP_BPF and CAP_PERFMON")
        }
        ProgramError::LoadError { io_error, verifier_log } => {
            let log = verifier_log.to_string();
            let lines: Vec<_> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            let end = lines[lines.len().saturating_sub(REASON_LINES)..].join("; ");
            format!("the kernel refuses to load it: {io_error}: {end}")
        }
        _ if io_kind(&error) == Some(io::ErrorKind::PermissionDenied) => {
            format!("{}; this process needs CAP_PERFMON", chain(&error))
        }
        _ => chain(&error),
    })
}

/// Where the tracepoints of system calls are, or why they are not to be found and what to do.
fn tracepoints() -> Result<PathBuf, String> {
    for root in [TRACEPOINTS, OLD_TRACEPOINTS] {
        let calls = Path::new(root).join("events/syscalls");
        match std::fs::read_dir(&calls) {
            Ok(_) => return Ok(calls),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(format!("{root}: {error}; this process needs CAP_DAC_READ_SEARCH"));
            }
            Err(_) => {}
        }
    }
    Err(format!(
        "there are no tracepoints of system calls in {TRACEPOINTS}: tracefs is not mounted (`mount -t tracefs tracefs \
         {TRACEPOINTS}`), or the kernel lacks CONFIG_FTRACE_SYSCALLS"
    ))
}

fn take(ebpf: &mut Ebpf, name: &'static str) -> Result<Map, Error> {
    ebpf.take_map(name).ok_or_else(|| Error::Other {
        what: "opening a map of the programs",
        reason: format!("there is none of name {name}"),
    })
}

#[allow(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
fn map_error(error: MapError) -> Error {
    Error::Other { what: "using a map of the programs", reason: chain(&error) }
}

/// The object was not loaded: the kernel lacks the right or the means.
fn refused(error: &EbpfError) -> Error {
    let reason = chain(error);
    let kind = io_kind(error);
    if kind == Some(io::ErrorKind::PermissionDenied) {
        return Error::Refused { what: reason };
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    if older_than(&release, (5, 15)) {
        return Error::TooOld { release, needed: NEEDED };
    }
    Error::Other { what: "loading the kernel programs", reason }
}

/// Whether a release like `5.10.0-28-amd64` is older than a version. False where that cannot be told.
fn older_than(release: &str, version: (u32, u32)) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < version,
        _ => false,
    }
}

/// The first error of the operating system among the causes.
fn io_kind(error: &(dyn std::error::Error + 'static)) -> Option<io::ErrorKind> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        next = error.source();
    }
    None
}

/// An error and its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_of_no_power_of_two_is_refused() {
        for ring_bytes in [0, 1, 4095, 6000, (1 << 30) + 1] {
            let options = Options { ring_bytes, ..Options::default() };
            assert!(matches!(Kernel::start(&options), Err(Error::RingSize { .. })), "{ring_bytes}");
        }
    }

    #[test]
    fn a_release_is_compared_by_its_numbers() {
        assert!(older_than("5.10.0-28-amd64", (5, 15)));
        assert!(!older_than("5.15.1", (5, 15)));
        assert!(!older_than("6.1", (5, 15)));
        assert!(!older_than("unknown", (5, 15)));
    }

    #[test]
    fn this_process_runs_no_32_bit_program() {
        assert_eq!(is_32_bit(std::process::id()).ok(), Some(cfg!(target_pointer_width = "32")));
    }
}
