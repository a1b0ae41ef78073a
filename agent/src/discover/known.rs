//! The processes of the machine as they were seen last.
//!
//! Invariant: the arguments of a process are read once for every exec or new name, not at every look; of one that is no
//! engine's only numbers and a short name are kept.

use super::container::{is_within, path_of};
use super::look::Closely;
use super::system::{ProcessKey, Processes, Stat, texts};
use kvprov_packs::{Packs, ProcessSignature};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;

/// Processes that are kept at most; a kernel's largest process number is 2^22.
const MAX_PROCESSES: usize = 1 << 18;
/// Looks at a process whose name fits an entry and whose environment or libraries do not yet.
const PATIENCE: u8 = 20;
/// Looks after which a process that is no engine's rests.
const RESTING: u8 = 3;
/// A resting process is looked at every so many looks. Until then only an exec event tells that it became something else.
const REST: u64 = 4;
/// Parents that are looked up for a new process.
const MAX_PARENTS: usize = 64;

/// A process as it was seen last.
#[derive(Debug)]
pub(super) struct Known<'p> {
    pub key: ProcessKey,
    pub thread_name: String,
    pub parent: u32,
    pub session: u32,
    /// Hash of its arguments: equal in a child that has not called exec.
    pub print: u64,
    /// The entry that it fits.
    pub signature: Option<&'p ProcessSignature>,
    /// The worker, by its leader, that it belonged to at the last look.
    pub worker: Option<ProcessKey>,
    /// Where its arguments lie in memory.
    arguments_at: u64,
    /// Looks that are left before what is not yet decided is no engine.
    patience: u8,
    /// Looks at it, up to [`RESTING`].
    looks: u8,
    seen: u64,
}

/// What a look over all processes met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ScanReport {
    /// Processes that were there.
    pub processes: u64,
    /// Of them, those whose arguments were read.
    pub read: u64,
    /// Of them, those that were not looked at since nothing becomes of them for long.
    pub rested: u64,
    /// Processes that may not be looked at.
    pub denied: u64,
    /// Processes beyond the bound, which were not looked at.
    pub beyond: u64,
}

/// All processes by number.
#[derive(Debug)]
pub(super) struct Table<'p> {
    packs: &'p Packs,
    scope: Option<String>,
    pub all: HashMap<u32, Known<'p>>,
    round: u64,
}

// === impl Table ===

impl<'p> Table<'p> {
    pub(super) fn new(packs: &'p Packs, scope: Option<String>) -> Self {
        Self { packs, scope, all: HashMap::new(), round: 0 }
    }

    /// Looks at every process; what is gone is dropped.
    pub(super) fn scan(&mut self, system: &dyn Processes) -> io::Result<ScanReport> {
        let mut report = ScanReport::default();
        self.round += 1;
        for pid in system.pids()? {
            report.processes += 1;
            if self.all.len() >= MAX_PROCESSES && !self.all.contains_key(&pid) {
                report.beyond += 1;
                continue;
            }
            if self.rests(pid) {
                report.rested += 1;
                continue;
            }
            match self.update(system, pid, false) {
                Ok(was_read) => report.read += u64::from(was_read),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => report.denied += 1,
                // It ended meanwhile.
                Err(_) => {}
            }
        }
        let round = self.round;
        self.all.retain(|_, known| known.seen == round);
        Ok(report)
    }

    /// Whether a process is left alone this time: most of a machine never become an engine, and reading about them is
    /// what costs.
    fn rests(&mut self, pid: u32) -> bool {
        let round = self.round;
        let Some(known) = self.all.get_mut(&pid) else { return false };
        let is_stranger = known.signature.is_none() && known.worker.is_none() && known.patience == 0;
        let rests = is_stranger && known.looks >= RESTING && !(u64::from(pid) + round).is_multiple_of(REST);
        if rests {
            known.seen = round;
        }
        rests
    }

    /// Looks at one process and at those parents that are not known yet. `false` when it is not there.
    pub(super) fn one(&mut self, system: &dyn Processes, pid: u32) -> bool {
        if self.update(system, pid, true).is_err() {
            return false;
        }
        let mut at = pid;
        for _ in 0..MAX_PARENTS {
            let Some(known) = self.all.get(&at) else { break };
            at = known.parent;
            if at == 0 || self.all.contains_key(&at) || self.update(system, at, false).is_err() {
                break;
            }
        }
        self.all.contains_key(&pid)
    }

    /// Whether arguments were read.
    fn update(&mut self, system: &dyn Processes, pid: u32, anew: bool) -> io::Result<bool> {
        let stat = system.stat(pid)?;
        if stat.is_over() {
            self.all.remove(&pid);
            return Ok(false);
        }
        let key = ProcessKey { pid, start: stat.start };
        let before = self.all.get_mut(&pid).filter(|known| known.key == key);
        let worker = before.as_ref().and_then(|known| known.worker);
        let mut patience = PATIENCE;
        if let Some(known) = before {
            let is_same =
                known.arguments_at == stat.arguments_at && known.thread_name == stat.thread_name && !anew;
            if is_same && known.patience == 0 {
                known.parent = stat.parent;
                known.session = stat.session;
                known.looks = known.looks.saturating_add(1).min(RESTING);
                known.seen = self.round;
                return Ok(false);
            }
            if is_same {
                patience = known.patience - 1;
            }
        }
        self.read(system, key, stat, worker, patience);
        Ok(true)
    }

    fn read(
        &mut self,
        system: &dyn Processes,
        key: ProcessKey,
        stat: Stat,
        worker: Option<ProcessKey>,
        patience: u8,
    ) {
        let bytes = system.arguments(key.pid).unwrap_or_default();
        let arguments = texts(&bytes);
        let mut print = DefaultHasher::new();
        bytes.hash(&mut print);
        let mut closely = Closely::new(system, key.pid);
        let recognised = self.packs.processes().recognise(&arguments, &stat.thread_name, &mut closely);
        let signature = recognised.filter(|_| self.is_in_scope(system, key.pid));
        // Not decided is also who is outside the scope: a process may be moved into it, before it calls exec or after.
        let is_open = signature.is_none() && (closely.was_asked || recognised.is_some());
        let known = Known {
            key,
            thread_name: stat.thread_name,
            parent: stat.parent,
            session: stat.session,
            print: print.finish(),
            signature,
            worker,
            arguments_at: stat.arguments_at,
            patience: if is_open { patience } else { 0 },
            looks: 0,
            seen: self.round,
        };
        self.all.insert(key.pid, known);
    }

    pub(super) fn is_in_scope(&self, system: &dyn Processes, pid: u32) -> bool {
        let Some(scope) = &self.scope else { return true };
        system.cgroup(pid).is_ok_and(|cgroup| is_within(path_of(&cgroup), scope))
    }

    /// The process, unless its number was used again.
    pub(super) fn get(&self, key: ProcessKey) -> Option<&Known<'p>> {
        self.all.get(&key.pid).filter(|known| known.key == key)
    }
}
