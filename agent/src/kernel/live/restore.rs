//! Writes what the readers are given to the journal, and brings it back after a restart.
//!
//! What is told after a restart has the ids it had before, so that telling it twice adds nothing.

use super::descriptors::{At, OpenFile};
use super::journal::{Journal, Line, Remark};
use super::notice::{ModelOpen, Notice};
use super::process::Process;
use super::{Listing, LiveKernel, Pending, take, worker_at};
use crate::kernel::names::FileRole;
use crate::kernel::record::{Operation, Record};
use crate::source::{Place, Sink};
use kvprov_agent_common::FileIdentity;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use std::sync::Arc;

/// What a restart brought back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Restored {
    /// Records that were read.
    pub records: u64,
    /// Records of the ring before this position are in the journal.
    pub upto: u64,
}

impl LiveKernel<'_> {
    /// Keeps a journal from now on, after reading what it holds. To be called before the first record, and after the
    /// processes that discovery knows were added. Observations and files of models are told again.
    pub fn with_journal(
        &mut self,
        journal: Journal,
        notices: &mut dyn FnMut(Notice<'_>),
        sink: Sink<'_>,
    ) -> std::io::Result<Restored> {
        let mut restored = Restored::default();
        journal.read(&mut |line| match line {
            Line::Upto(upto) => restored.upto = restored.upto.max(upto),
            Line::Kept { worker, kept } => {
                let index = self.worker_index(&WorkerId(worker));
                if let Some(path) = kept.path() {
                    // Fills what is known of stores.
                    self.roles.of(path);
                }
                if let Some(Some(worker)) = self.workers.get_mut(index as usize) {
                    worker.reader.restore(*kept);
                }
            }
            Line::Process { worker, pid, started: Some(started) } => {
                let index = self.worker_index(&WorkerId(worker));
                let is_known = self.processes.get(&pid).is_some_and(|process| !process.is_same(started));
                // What discovery found is of now.
                if !is_known {
                    self.processes.insert(pid, Process::new(index, started));
                }
            }
            Line::Process { pid, worker, started: None } => {
                let is_it = self.worker_of(pid).is_some_and(|known| known.as_str() == worker);
                if is_it {
                    self.processes.remove(&pid);
                }
            }
            Line::Record { worker, position, time, record, remark } => {
                restored.records += 1;
                let worker = self.worker_index(&WorkerId(worker));
                self.bring_back(worker, position, time, record, remark, notices, sink);
            }
            Line::Brief { worker, position, time, mut record, file, closes } => {
                restored.records += 1;
                let Some(open) = self.descriptors.get_mut(&file) else {
                    self.losses.one("open file of the journal not known");
                    return;
                };
                record.path = Some(Arc::clone(&open.path));
                record.fs.clone_from(&open.file_system);
                let worker = self.worker_index(&WorkerId(worker));
                let remark = if closes { Remark::Closed(file) } else { Remark::Used(file) };
                self.bring_back(worker, position, time, record, remark, notices, sink);
            }
        })?;
        self.resume = restored.upto;
        self.journal = Some(journal);
        Ok(restored)
    }

    /// What the journal did so far.
    pub fn journal_counts(&self) -> Option<super::JournalCounts> {
        self.journal.as_ref().map(Journal::counts)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one line, used once")]
    fn bring_back(
        &mut self,
        worker: u32,
        position: u64,
        time: u64,
        record: Record,
        remark: Remark,
        notices: &mut dyn FnMut(Notice<'_>),
        sink: Sink<'_>,
    ) {
        let pid = u32::try_from(record.pid).unwrap_or(0);
        let tid = record.tid.and_then(|tid| u32::try_from(tid).ok()).unwrap_or(pid);
        let at = At { position, time, tgid: pid, tid };
        let path = record.path.clone().unwrap_or_else(|| Arc::from(""));
        // Fills what is known of stores.
        let role = self.roles.of_store(&path).map(|named| named.role);
        match remark {
            Remark::Opened(file, state) => match role.as_deref() {
                Some(FileRole::Model(model)) => {
                    let open = ModelOpen {
                        pid,
                        path,
                        file: model.clone(),
                        identity: file,
                        state,
                        wall: record.ts.and_then(WallTime::from_unix_seconds).unwrap_or(WallTime(0)),
                        position,
                    };
                    if let Some(id) = worker_at(&self.workers, worker) {
                        let key = (worker, Arc::clone(&open.path));
                        let again =
                            Pending { worker, position, time, record: record.clone(), remark, brief: false };
                        self.models.insert(key, again);
                        notices(Notice::Model(open, id));
                    }
                }
                _ => self.bring_back_open(file, &record, path, at),
            },
            Remark::Known(file) => {
                self.bring_back_open(file, &record, path, at);
                return;
            }
            Remark::Used(file) => match self.descriptors.get_mut(&file) {
                Some(open) => open.last = at,
                // It was found by looking it up.
                None => self.bring_back_open(file, &record, path, at),
            },
            Remark::Closed(file) => {
                self.descriptors.remove(&file);
            }
            Remark::Concluded(file) => {
                if let Some(open) = self.descriptors.get_mut(&file) {
                    open.closing = None;
                }
            }
            Remark::Directory(file) => {
                // Not by its number, which may stand for something else by now.
                self.descriptors.know_directory(file, path);
                return;
            }
            Remark::Closing(file) => {
                self.descriptors.closing(file, at);
                return;
            }
            Remark::Held => {
                self.listings.insert(tid, Listing { worker, position, time, record });
                return;
            }
            Remark::None => {
                if record.op == Operation::Readdir {
                    self.listings.remove(&tid);
                }
            }
        }
        let place = Place { position, offset: position };
        if let Some(Some(worker)) = self.workers.get_mut(worker as usize)
            && (record.op != Operation::Close || worker.reader.has_use(place, &record))
        {
            worker.reader.record(place, &record, sink);
        }
    }

    fn bring_back_open(&mut self, file: FileIdentity, record: &Record, path: Arc<str>, at: At) {
        if let Some(process) = self.processes.get_mut(&at.tgid) {
            process.has_files = true;
        }
        let file_system = record.fs.clone();
        self.descriptors
            .insert(file, OpenFile { path, file_system, owner: at.tgid, last: at, closing: None, told: 0 });
    }

    /// Writes what waits to the journal. `upto`: everything before that position was taken in.
    pub(super) fn write(&mut self, upto: Option<u64>) {
        self.connections.flush(&mut take(&self.clock, &mut self.pending));
        let resume = self.resume.max(upto.unwrap_or(0));
        let Some(journal) = &mut self.journal else { return };
        let begins = journal.begins_segment() && !(self.pending.is_empty() && journal.is_empty());
        if begins {
            // Whoever reads from here on has to know what the segments before told.
            for (pid, process) in &self.processes {
                if let Some(worker) = worker_at(&self.workers, process.worker) {
                    journal.process(worker.as_str(), *pid, Some(process.started));
                }
            }
            for worker in self.workers.iter().flatten() {
                worker.reader.keep(&mut |kept| journal.kept(worker.id.as_str(), &kept));
            }
            for (_, model) in self.models.iter() {
                if let Some(worker) = worker_at(&self.workers, model.worker) {
                    let (position, time) = (model.position, model.time);
                    journal.record(worker.as_str(), position, time, &model.record, model.remark);
                }
            }
            let first = self.workers.iter().flatten().map(|worker| worker.id.as_str()).next();
            for (file, path) in self.descriptors.directories() {
                if let Some(worker) = first.filter(|_| self.roles.is_of_a_store(path)) {
                    let mut record = super::connections::record(0, 0, Operation::Open);
                    record.path = Some(Arc::clone(path));
                    journal.record(worker, 0, 0, &record, Remark::Directory(*file));
                }
            }
            for (_, Listing { worker, position, time, record }) in self.listings.iter() {
                if let Some(worker) = worker_at(&self.workers, *worker) {
                    journal.record(worker.as_str(), *position, *time, record, Remark::Held);
                }
            }
            for (file, open) in self.descriptors.files() {
                let worker = self.processes.get(&open.owner).map(|process| process.worker);
                if let Some(worker) = worker.and_then(|index| worker_at(&self.workers, index)) {
                    let mut record = super::connections::record(open.owner, open.last.tid, Operation::Open);
                    record.path = Some(Arc::clone(&open.path));
                    record.fs.clone_from(&open.file_system);
                    let At { position, time, .. } = open.last;
                    journal.record(worker.as_str(), position, time, &record, Remark::Known(*file));
                    if let Some(closing) = open.closing {
                        let remark = Remark::Closing(*file);
                        journal.record(worker.as_str(), closing.position, closing.time, &record, remark);
                    }
                }
            }
        }
        for pending in &self.pending {
            if let (Remark::Opened(..), Some(path)) = (pending.remark, &pending.record.path)
                && let Some(named) = self.roles.of_store(path)
                && matches!(*named.role, FileRole::Model(_))
            {
                self.models.insert((pending.worker, Arc::clone(path)), pending.clone());
            }
            if let Some(worker) = worker_at(&self.workers, pending.worker) {
                let (worker, position, time) = (worker.as_str(), pending.position, pending.time);
                let (record, remark) = (&pending.record, pending.remark);
                // What a segment begins with may have been closed within the batch: its head does not tell of it.
                let is_brief =
                    pending.brief && !begins && journal.brief(worker, position, time, record, remark);
                if !is_brief {
                    journal.record(worker, position, time, record, remark);
                }
            }
        }
        if begins {
            // Every file is told of anew before it is told of briefly.
            self.segment += 1;
        }
        if !journal.commit(resume) {
            self.losses.one("batch not written to the journal");
        } else if begins {
            // The batches before were handed over before this one came, and what they leave known stands in this segment.
            journal.drop_before();
        }
        self.resume = resume;
    }
}
