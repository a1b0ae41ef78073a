//! The kernel programs as the server needs them.

use super::KernelPrograms;
use crate::attach::{Kernel, ProgramStatus as Attached, Unattached};
use crate::protocol::{KernelCounter, KernelCounters, Problem, ProgramStatus};
use rustix::fd::BorrowedFd;
use std::collections::{BTreeMap, BTreeSet};

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

    fn lost(&self) -> Vec<String> {
        by_reason(Self::programs(self).into_iter().filter_map(|program| program.attached.err()))
    }
}

/// One entry for every reason, whatever the number of programs that are missing for it.
fn by_reason(problems: impl Iterator<Item = Unattached>) -> Vec<String> {
    let mut reasons: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for problem in problems {
        reasons.entry(problem.reason).or_default().insert(problem.lost);
    }
    let line = |(reason, lost): (String, BTreeSet<String>)| {
        let lost: Vec<String> = match lost.len() {
            // Which calls it is in particular is for those who see most of them.
            0..=3 => lost.into_iter().collect(),
            _ => {
                let what =
                    |lost: &String| lost.rsplit_once(" (").map_or(lost.as_str(), |(what, _)| what).to_owned();
                lost.iter().map(what).collect::<BTreeSet<_>>().into_iter().collect()
            }
        };
        format!("{}: {reason}", lost.join("; "))
    };
    reasons.into_iter().map(line).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn without(lost: &str, reason: &str) -> Unattached {
        Unattached { lost: lost.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn many_programs_that_are_missing_for_one_reason_are_one_line() {
        let calls = ["openat", "open", "creat", "openat2"];
        let opens = calls.iter().map(|call| without(&format!("opened files ({call})"), "refused"));
        assert_eq!(by_reason(opens), ["opened files: refused"]);
    }

    #[test]
    fn a_few_are_named_with_their_calls() {
        let few =
            [without("removed files (unlink)", "no such call"), without("listed (getdents64)", "refused")];
        assert_eq!(
            by_reason(few.into_iter()),
            ["removed files (unlink): no such call", "listed (getdents64): refused"]
        );
    }
}
