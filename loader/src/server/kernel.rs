//! What the server needs of the kernel programs, and which processes it told them to watch.

use crate::inspect;
use crate::process::{Failure, Page, ProcessId};
use crate::protocol::{Answer, KernelCounters, ProgramStatus};
use rustix::fd::{BorrowedFd, OwnedFd};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Processes that may be watched by name at once; their children are not counted.
const WATCHED_MAX: usize = 65_536;

/// Kernel programs that run.
pub trait KernelPrograms: Send + std::fmt::Debug {
    /// The ring that they write to, and its size in bytes.
    fn ring(&self) -> Option<(BorrowedFd<'_>, u32)>;
    /// Follow a process and its children.
    ///
    /// # Errors
    /// A reason in words.
    fn watch(&mut self, tgid: u32, flags: u32) -> Result<(), String>;
    /// Follow a process no longer.
    ///
    /// # Errors
    /// A reason in words.
    fn unwatch(&mut self, tgid: u32) -> Result<(), String>;
    /// What was counted.
    fn counters(&mut self) -> KernelCounters;
    /// Every program, also one that does not run.
    fn programs(&mut self) -> Vec<ProgramStatus>;
    /// What cannot be seen, each with its reason.
    fn lost(&self) -> Vec<String>;
}

/// No kernel programs: only `/proc` is served.
#[derive(Debug, Default)]
pub struct NoKernel {
    /// Why there are none.
    pub reasons: Vec<String>,
}

// === impl NoKernel ===

impl KernelPrograms for NoKernel {
    fn ring(&self) -> Option<(BorrowedFd<'_>, u32)> {
        None
    }

    fn watch(&mut self, _: u32, _: u32) -> Result<(), String> {
        Err(self.reasons.first().cloned().unwrap_or_else(|| Failure::NoKernel.to_string()))
    }

    fn unwatch(&mut self, _: u32) -> Result<(), String> {
        Ok(())
    }

    fn counters(&mut self) -> KernelCounters {
        KernelCounters::default()
    }

    fn programs(&mut self) -> Vec<ProgramStatus> {
        Vec::new()
    }

    fn lost(&self) -> Vec<String> {
        self.reasons.clone()
    }
}

/// The programs, and which processes were named to them.
#[derive(Debug)]
pub(super) struct Kernel {
    programs: Box<dyn KernelPrograms>,
    watched: BTreeMap<u32, u64>,
}

// === impl Kernel ===

impl Kernel {
    pub(super) fn new(programs: Box<dyn KernelPrograms>) -> Self {
        Self { programs, watched: BTreeMap::new() }
    }

    pub(super) fn ring(&self) -> (Option<OwnedFd>, u32) {
        match self.programs.ring().map(|(ring, bytes)| (ring.try_clone_to_owned(), bytes)) {
            Some((Ok(ring), bytes)) => (Some(ring), bytes),
            _ => (None, 0),
        }
    }

    pub(super) fn watch(&mut self, process: ProcessId, flags: u32) -> Answer {
        self.forget_the_dead();
        if self.watched.len() >= WATCHED_MAX && !self.watched.contains_key(&process.pid) {
            return Answer::Failed(Failure::Busy);
        }
        if inspect::identify(process.pid) != Ok(process) {
            return Answer::Failed(Failure::Gone);
        }
        if let Err(reason) = self.programs.watch(process.pid, flags) {
            return Answer::KernelFailed(reason);
        }
        // It may have ended between the two, and its pid may name another process by now.
        if inspect::identify(process.pid) != Ok(process) {
            return match self.programs.unwatch(process.pid) {
                Ok(()) => Answer::Failed(Failure::Gone),
                Err(reason) => Answer::KernelFailed(reason),
            };
        }
        self.watched.insert(process.pid, process.started);
        Answer::Done
    }

    /// An older holder of the pid is not followed any more anyway; the present one goes on being followed.
    pub(super) fn unwatch(&mut self, process: ProcessId) -> Answer {
        if self.watched.get(&process.pid) != Some(&process.started) {
            return Answer::Done;
        }
        self.watched.remove(&process.pid);
        match self.programs.unwatch(process.pid) {
            Ok(()) => Answer::Done,
            Err(reason) => Answer::KernelFailed(reason),
        }
    }

    pub(super) fn watched(&self, after: u32, limit: usize) -> Page<ProcessId> {
        let mut above = self.watched.range((Bound::Excluded(after), Bound::Unbounded));
        let items: Vec<ProcessId> = above
            .by_ref()
            .take(limit)
            .map(|(pid, started)| ProcessId { pid: *pid, started: *started })
            .collect();
        let next = above.next().and_then(|_| items.last()).map(|last| u64::from(last.pid));
        Page { items, next }
    }

    pub(super) fn counters(&mut self) -> KernelCounters {
        self.programs.counters()
    }

    pub(super) fn programs(&mut self) -> Vec<ProgramStatus> {
        self.programs.programs()
    }

    pub(super) fn lost(&self) -> Vec<String> {
        self.programs.lost()
    }

    /// Only when the table is full: the kernel forgets a process by itself when it ends.
    fn forget_the_dead(&mut self) {
        if self.watched.len() >= WATCHED_MAX {
            self.watched.retain(|pid, started| {
                inspect::identify(*pid) == Ok(ProcessId { pid: *pid, started: *started })
            });
        }
    }
}
