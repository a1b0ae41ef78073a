//! The programs as the server of the loader needs them.

use super::Kernel;
use crate::protocol::{KernelCounter, KernelCounters, Problem, ProgramStatus};
use crate::server::KernelPrograms;
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

    fn counters(&mut self) -> KernelCounters {
        let Ok(counters) = Self::counters(self) else { return KernelCounters::default() };
        let by_kind = counters
            .by_kind
            .iter()
            .map(|(kind, counts)| KernelCounter {
                kind: *kind as u16,
                fired: counts.fired,
                filtered: counts.filtered,
                delivered: counts.delivered,
                dropped: counts.dropped,
                unreadable: counts.unreadable,
            })
            .collect();
        KernelCounters { by_kind, unfollowed: counters.unfollowed }
    }

    fn programs(&mut self) -> Vec<ProgramStatus> {
        let told = |program: super::ProgramStatus| ProgramStatus {
            name: program.name,
            problem: program.attached.err().map(|why| Problem { reason: why.reason, lost: why.lost }),
            run_time_ns: program.run_time_ns,
            run_count: program.run_count,
            missed: program.missed,
        };
        Self::programs(self).into_iter().map(told).collect()
    }

    fn lost(&self) -> Vec<String> {
        Self::programs(self).into_iter().filter_map(|program| Some(program.attached.err()?.lost)).collect()
    }
}
