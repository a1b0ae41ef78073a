//! What this machine lets kvprov see, what it costs where it does not, and what to do.
//!
//! Probes look at files of `/proc` and `/sys` through [`Machine`], so that a test can state a machine: no BTF, no
//! tracefs, an old kernel. A probe reads and concludes; it never tries anything that has an effect.

mod containers;
mod kernel;
mod machine;
mod mounts;
mod processes;

pub use kernel::{KERNEL_NEEDED, release};
pub use machine::{Machine, RealMachine};
pub use processes::hides_processes;

use crate::privileges::{Held, Status};

/// How well something works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// As it should.
    Good,
    /// In part.
    Limited,
    /// Not at all.
    Missing,
}

/// Which part of kvprov depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// File, socket and output calls as the kernel sees them.
    KernelPrograms,
    /// Settings, files and descriptors of processes.
    Processes,
    /// Nothing is lost; told for those who look for a reason.
    Information,
}

/// What was found of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// A short name that does not change: `btf`, `tracefs`.
    pub name: &'static str,
    /// What depends on it.
    pub part: Part,
    /// How well it works.
    pub state: State,
    /// What was found, in words.
    pub found: String,
    /// What is not seen; empty when nothing.
    pub cost: String,
    /// What to do; empty when nothing.
    pub advice: String,
}

// === impl Ability ===

impl Ability {
    pub(crate) fn good(name: &'static str, part: Part, found: impl Into<String>) -> Self {
        Self {
            name,
            part,
            state: State::Good,
            found: found.into(),
            cost: String::new(),
            advice: String::new(),
        }
    }

    pub(crate) fn lacking(
        name: &'static str,
        part: Part,
        state: State,
        found: impl Into<String>,
        cost: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, part, state, found: found.into(), cost: cost.into(), advice: advice.into() }
    }
}

/// Everything that can be told of a machine and a process with these privileges.
pub fn probe(machine: &dyn Machine, status: &Status) -> Vec<Ability> {
    let kernel = kernel::version(machine);
    let mut abilities = vec![
        kernel::release_is_new_enough(machine),
        kernel::btf(machine),
        mounts::tracefs(machine),
        kernel::lockdown(machine),
        kernel::memory_lock(machine, status, kernel),
        kernel::unprivileged_bpf(machine, kernel),
        kernel::statistics(machine),
        mounts::cgroup(machine),
        processes::pid_namespace(machine),
        processes::user_namespace(machine),
        processes::hiding(machine, status),
        processes::paths(machine),
        processes::yama(machine),
        processes::container(machine),
        containers::runtime(machine),
    ];
    abilities.extend(capabilities(status, kernel));
    abilities
}

/// One entry for each capability of the documented set.
fn capabilities(status: &Status, kernel: Option<(u32, u32)>) -> Vec<Ability> {
    // Of an unknown kernel what a new one asks for.
    let held = Held::of(status.effective, kernel.unwrap_or((u32::MAX, 0)));
    held.needs
        .iter()
        .map(|(need, held)| {
            let part = if need.feature == "kernel programs" { Part::KernelPrograms } else { Part::Processes };
            // A process of root owns tracefs.
            let spare = need.capability == rustix::thread::CapabilitySet::DAC_READ_SEARCH && status.user == 0;
            let name = need.short_name();
            match (held, spare) {
                (true, _) => Ability::good(name, part, format!("{} is held", need.name())),
                (false, true) => Ability::lacking(
                    name,
                    Part::Processes,
                    State::Limited,
                    format!("{} is not held, but this is root", need.name()),
                    "files that root may not read without it",
                    format!("start kvprov with {}", need.name()),
                ),
                (false, false) => Ability::lacking(
                    name,
                    part,
                    State::Missing,
                    format!("{} is not held; it is for {}", need.name(), need.reason),
                    need.lost,
                    format!("start kvprov as root or with {}", need.name()),
                ),
            }
        })
        .collect()
}

/// Whether kernel programs can run at all, if only some of them; else every reason why not.
///
/// # Errors
/// The reasons, in words, with what to do.
pub fn kernel_programs(abilities: &[Ability]) -> Result<(), Vec<String>> {
    without(abilities, |state| state != State::Missing)
}

/// Whether all kernel programs can run, which their tests need; else every reason why not.
///
/// # Errors
/// The reasons, in words, with what to do.
pub fn all_kernel_programs(abilities: &[Ability]) -> Result<(), Vec<String>> {
    without(abilities, |state| state == State::Good)
}

fn without(abilities: &[Ability], is_enough: impl Fn(State) -> bool) -> Result<(), Vec<String>> {
    let reasons: Vec<String> = abilities
        .iter()
        .filter(|ability| ability.part == Part::KernelPrograms && !is_enough(ability.state))
        .map(|ability| format!("{} ({})", ability.found, ability.advice))
        .collect();
    if reasons.is_empty() { Ok(()) } else { Err(reasons) }
}

/// [`probe`] of this machine and this process.
///
/// # Errors
/// When the process cannot see its own privileges.
pub fn own() -> Result<Vec<Ability>, crate::privileges::StatusError> {
    Ok(probe(&RealMachine, &Status::own()?))
}

/// The release of the running kernel; (0, 0) where it does not tell.
pub fn kernel_version() -> (u32, u32) {
    kernel::version(&RealMachine).unwrap_or_default()
}

#[cfg(test)]
mod tests;
