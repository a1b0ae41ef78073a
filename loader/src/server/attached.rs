//! The kernel programs as the server needs them.

use super::KernelPrograms;
use crate::attach::{Kernel, ProgramStatus as Attached};
use crate::protocol::{KernelCounter, KernelCounters, Problem, ProgramStatus};
use rustix::fd::BorrowedFd;

impl KernelPrograms for Kernel {
    fn ring(&self) -> Option<(BorrowedFd<'_>, u32)> {
        Some((self.ring_fd(), self.ring_bytes()))
    }

    fn watch(&mut self, tgid: u32, flags: u32) -> Result<(), String> {
        Self::watch(self, tgid, flags).map_err(|error| error.to_string())
    }

    fn unwatch(&mut self, tgid: u32) -> Result<(), String> {
        Self::unwatch(self, tgid).map_err(|error| error.to_string())
    }

    fn exclude(&mut self, tgid: u32) -> Result<(), String> {
        Self::exclude(self, tgid).map_err(|error| error.to_string())
    }

    fn include(&mut self, tgid: u32) {
        Self::include(self, tgid);
    }

    fn counters(&mut self) -> Result<KernelCounters, String> {
        let counters = Self::counters(self).map_err(|error| error.to_string())?;
        let by_kind = counters.by_kind.iter().map(|(kind, counts)| KernelCounter {
            kind: *kind as u16,
            fired: counts.fired,
            filtered: counts.filtered,
            delivered: counts.delivered,
            dropped: counts.dropped,
            unreadable: counts.unreadable,
        });
        Ok(KernelCounters { by_kind: by_kind.collect(), unfollowed: counters.unfollowed })
    }

    fn programs(&mut self) -> Vec<ProgramStatus> {
        Self::programs(self).into_iter().map(status).collect()
    }

    /// One entry for everything that is lost, whatever the number of programs that are missing for it.
    fn lost(&self) -> Vec<String> {
        let mut lost: Vec<String> = Self::programs(self)
            .into_iter()
            .filter_map(|program| program.attached.err())
            .map(|problem| format!("{}: {}", problem.lost, problem.reason))
            .collect();
        lost.sort();
        lost.dedup();
        lost
    }
}

fn status(program: Attached) -> ProgramStatus {
    ProgramStatus {
        name: program.name,
        problem: program.attached.err().map(|problem| Problem { reason: problem.reason, lost: problem.lost }),
        run_time_ns: program.run_time_ns,
        run_count: program.run_count,
        missed: program.missed,
    }
}
