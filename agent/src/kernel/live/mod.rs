//! From records of the kernel programs to records of a worker, and on to its reader.
//!
//! Input: records of the ring in order, each with its position. Output: observations, and [`Notice`]s of what is no
//! call on a store. A batch is taken in by [`LiveKernel::event`], then [`LiveKernel::commit`] writes what it gave to the
//! journal and hands it to the readers; only then may the ring be released. So whatever kills the agent, a record is
//! either in the journal or still in the ring.
//!
//! Paths are made absolute as the process sees them and get the file system from its mounts. What cannot be resolved
//! is a counted loss, never a guess. Invariant: memory is bounded; a record of no interest allocates nothing.

pub mod clock;
mod connections;
mod descriptors;
pub mod journal;
pub mod lookup;
pub mod mountinfo;
pub mod notice;
pub mod path;
mod process;
mod restore;
mod roles;
mod translate;

pub use clock::{Clock, Now};
pub use journal::{Journal, JournalCounts};
pub use lookup::{Descriptor, FakeProcesses, OwnProc, ProcessLookup};
pub use notice::{ModelOpen, Notice, OutputPiece, ProcessEvent};
pub use restore::Restored;

use crate::kernel::live::connections::{Connections, Summed};
use crate::kernel::live::descriptors::{Descriptors, OpenFile};
use crate::kernel::live::journal::Remark;
use crate::kernel::live::process::{Process, Tables};
use crate::kernel::live::roles::Roles;
use crate::kernel::names::Names;
use crate::kernel::record::{Operation, Record};
use crate::kernel::{KernelCounts, KernelReader, LATE};
use crate::source::bounded::Bounded;
use crate::source::{Losses, Place, Sink, SourceContext};
use foldhash::fast::RandomState;
use kvprov_agent_common::Event;
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Loss, SourceKind};
use std::collections::HashMap;
use std::sync::Arc;

/// After a close that others outlive, an open file that nobody touches for this long is no longer used (a child that
/// was forked holds it, and never closes it), in nanoseconds.
const CLOSE_WAIT: u64 = 2_000_000_000;
/// Processes of all workers.
const PROCESSES: usize = 64 * 1024;
/// Threads with a listing that may explain what follows.
const LISTINGS: usize = 1024;

/// Files of models of which the last open is remembered.
const MODELS: usize = 4096;

/// Where the records come from.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    /// The node.
    pub node: NodeId,
    /// What makes positions unique: boot and ring buffer.
    pub ring: String,
}

/// Takes every record that a reader is given: [`Record::write_json`] makes it a line of a recording.
pub type Recorder<'n> = Box<dyn FnMut(&WorkerId, &Record) + Send + 'n>;

/// A record that waits for the commit.
#[derive(Debug, Clone)]
struct Pending {
    worker: u32,
    position: u64,
    /// CLOCK_MONOTONIC.
    time: u64,
    record: Record,
    remark: Remark,
    /// The segment of the journal tells the path of its file already.
    brief: bool,
}

struct Worker<'n> {
    id: WorkerId,
    reader: KernelReader<'n>,
}

/// Listings wait for the first look at a name below them: most are of directories of no store.
struct Listing {
    worker: u32,
    position: u64,
    time: u64,
    record: Record,
}

/// Follows all workers of a node.
pub struct LiveKernel<'n> {
    options: LiveOptions,
    names: &'n dyn Names,
    lookup: Box<dyn ProcessLookup + Send>,
    clock: Clock,
    roles: Roles<'n>,
    tables: Tables,
    processes: HashMap<u32, Process, RandomState>,
    workers: Vec<Option<Worker<'n>>>,
    descriptors: Descriptors,
    connections: Connections,
    listings: Bounded<u32, Listing>,
    pending: Vec<Pending>,
    /// The last open of each file of a model: whoever begins a journal anew tells of them, for they may not be read yet.
    models: Bounded<(u32, Arc<str>), Pending>,
    journal: Option<Journal>,
    recorder: Option<Recorder<'n>>,
    /// Segments of the journal that this agent began, and one more.
    segment: u64,
    /// Everything before this position of the ring is in the journal.
    resume: u64,
    /// The record that is taken in is in the journal already: it only brings back what is known.
    again: bool,
    losses: Losses,
    /// Room for a path, and for the second one of a rename.
    path: String,
    second: String,
}

// === impl LiveKernel ===

impl<'n> LiveKernel<'n> {
    /// A reader that follows no worker yet.
    pub fn new(
        options: LiveOptions,
        names: &'n dyn Names,
        lookup: Box<dyn ProcessLookup + Send>,
        now: Now,
    ) -> Self {
        let tables = Tables::new(options.node.as_str());
        Self {
            options,
            names,
            lookup,
            clock: Clock::new(now),
            roles: Roles::new(names),
            tables,
            processes: HashMap::default(),
            workers: Vec::new(),
            descriptors: Descriptors::new(),
            connections: Connections::new(),
            listings: Bounded::new(LISTINGS),
            pending: Vec::new(),
            models: Bounded::new(MODELS),
            journal: None,
            recorder: None,
            segment: 1,
            resume: 0,
            again: false,
            losses: Losses::default(),
            path: String::new(),
            second: String::new(),
        }
    }

    /// Follows a process of a worker from now on; a worker that is new gets a reader. `started` is CLOCK_BOOTTIME in
    /// nanoseconds, 0 where not known.
    pub fn add_process(&mut self, worker: &WorkerId, pid: u32, started: u64) {
        let index = self.worker_index(worker);
        if let Some(known) = self.processes.get(&pid) {
            if known.worker == index && known.is_same(started) {
                return;
            }
            self.end_process(pid);
        }
        let mut process = Process::new(index, started);
        // While it is there to be asked: it may be gone when its records are read.
        process.look(pid, &mut *self.lookup, &mut self.tables);
        self.insert_process(pid, process);
    }

    /// Hands every record that a reader is given to a recorder as well, in the same order, from now on; `None` ends
    /// that. A recording read in replay gives the same observations but for places and ids.
    pub fn record_to(&mut self, recorder: Option<Recorder<'n>>) {
        self.recorder = recorder;
    }

    /// Ends a worker: what its reader still holds is told.
    pub fn remove_worker(&mut self, worker: &WorkerId, sink: Sink<'_>) -> Option<KernelCounts> {
        let index = self.index_of(worker)?;
        let gone: Vec<u32> = self
            .processes
            .iter()
            .filter(|(_, process)| process.worker == index)
            .map(|(pid, _)| *pid)
            .collect();
        for pid in gone {
            self.end_process(pid);
        }
        self.write(None);
        self.feed(sink);
        let worker = self.workers.get_mut(index as usize)?.take()?;
        Some(worker.reader.finish(sink))
    }

    /// The worker of a process.
    pub fn worker_of(&self, pid: u32) -> Option<&WorkerId> {
        let process = self.processes.get(&pid)?;
        self.worker(process.worker)
    }

    /// What was not told although it might have been, since the last call.
    pub fn take_losses(&mut self) -> Losses {
        let lines = std::mem::take(&mut self.tables.unreadable);
        self.losses.add("mount not readable", lines);
        self.losses.add("too many connections", std::mem::take(&mut self.connections.evicted));
        std::mem::take(&mut self.losses)
    }

    /// What the readers of all workers read and skipped so far.
    pub fn counts(&self) -> impl Iterator<Item = (&WorkerId, KernelCounts)> + '_ {
        self.workers.iter().flatten().map(|worker| (&worker.id, worker.reader.counts()))
    }

    /// The kernel programs had no room for `records`, of `total` since the ring was made: nothing that is only
    /// remembered is trusted any more. Whose they were is not known, so every worker is told to have lost them.
    pub fn records_lost(&mut self, records: u64, total: u64, now: Now, sink: Sink<'_>) {
        self.descriptors.distrust();
        self.losses.add("the ring was full", records);
        let records = i64::try_from(records).ok();
        for worker in self.workers.iter().flatten() {
            let mut source = self.source(&worker.id);
            source.instance.push_str("\u{0}dropped");
            let place = Place { position: 0, offset: total };
            let body = Body::Loss(Loss {
                stage: Some("read".to_owned()),
                reason: Some("the ring was full".to_owned()),
                records,
                bytes: None,
            });
            sink(source.observe(SourceKind::Kernel, place, 0, Some(WallTime(now.wall)), None, body));
        }
    }

    /// Takes one record of the ring. `bytes` is aligned to eight.
    pub fn event(&mut self, position: u64, bytes: &[u8], notices: &mut dyn FnMut(Notice<'_>)) {
        self.again = position < self.resume;
        let event = Event::parse(bytes);
        if let Some(time) = event.as_ref().map(|event| event.header().time)
            && time > self.descriptors.next_deadline
        {
            // Whether a tick came before this record or not.
            self.conclude(time);
        }
        match event {
            Some(Event::File(record)) => self.on_file(position, record, notices),
            Some(Event::Socket(record)) => self.on_socket(position, record),
            Some(Event::Path { record, first, second }) => {
                self.on_path(position, record, first, second, notices);
            }
            Some(Event::Process(record)) => self.on_process(record, notices),
            Some(Event::Output { record, bytes }) => self.on_output(position, record, bytes, notices),
            None => self.losses.one("record of the ring not readable"),
        }
    }

    /// Everything before `upto` was taken in: hands it to the readers. Afterwards the ring may be released up to there.
    pub fn commit(&mut self, upto: u64, sink: Sink<'_>) {
        self.write(Some(upto));
        self.feed(sink);
    }

    /// Time passes: follows the wall clock, ends what waited long enough. To be called about once a second, between
    /// a commit and the next record.
    pub fn tick(&mut self, now: Now, sink: Sink<'_>) {
        if self.clock.sample(now) {
            tracing::info!("the wall clock was stepped");
        }
        self.again = false;
        self.conclude(now.monotonic.saturating_sub(LATE as u64));
        self.write(None);
        self.feed(sink);
        for worker in self.workers.iter_mut().flatten() {
            worker.reader.idle(WallTime(now.wall), sink);
        }
    }

    /// The end: everything is told. For tests and for a stop in good order.
    pub fn finish(mut self, sink: Sink<'_>) -> Vec<(WorkerId, KernelCounts)> {
        self.write(None);
        self.feed(sink);
        let workers = self.workers.into_iter().flatten();
        workers.map(|worker| (worker.id, worker.reader.finish(sink))).collect()
    }

    fn feed(&mut self, sink: Sink<'_>) {
        for pending in &self.pending {
            if matches!(pending.remark, Remark::Closing(_) | Remark::Held | Remark::Directory(_)) {
                continue;
            }
            let place = Place { position: pending.position, offset: pending.position };
            if let Some(Some(worker)) = self.workers.get_mut(pending.worker as usize) {
                if pending.record.op == Operation::Close && !worker.reader.has_use(place, &pending.record) {
                    continue;
                }
                if let Some(recorder) = &mut self.recorder {
                    recorder(&worker.id, &pending.record);
                }
                worker.reader.record(place, &pending.record, sink);
            }
        }
        self.pending.clear();
    }

    fn worker(&self, index: u32) -> Option<&WorkerId> {
        worker_at(&self.workers, index)
    }

    fn index_of(&self, worker: &WorkerId) -> Option<u32> {
        let is = |known: &Option<Worker<'n>>| known.as_ref().is_some_and(|known| known.id == *worker);
        self.workers.iter().position(is).and_then(|index| u32::try_from(index).ok())
    }

    fn worker_index(&mut self, worker: &WorkerId) -> u32 {
        if let Some(index) = self.index_of(worker) {
            return index;
        }
        let reader = KernelReader::new(self.source(worker), self.names);
        let worker = Some(Worker { id: worker.clone(), reader });
        // A place is not given again: records of the worker before may wait.
        self.workers.push(worker);
        (self.workers.len() - 1) as u32
    }

    fn source(&self, worker: &WorkerId) -> SourceContext {
        SourceContext {
            node: self.options.node.clone(),
            worker: Some(worker.clone()),
            stream: "kernel".to_owned(),
            instance: format!("{worker}\u{0}kernel\u{0}{}", self.options.ring),
            generation: 0,
        }
    }

    fn insert_process(&mut self, pid: u32, process: Process) {
        if self.processes.len() >= PROCESSES && !self.processes.contains_key(&pid) {
            self.losses.one("too many processes");
            return;
        }
        if let (Some(journal), Some(worker)) = (&mut self.journal, worker_at(&self.workers, process.worker)) {
            journal.process(worker.as_str(), pid, Some(process.started));
        }
        self.processes.insert(pid, process);
    }

    /// A process is gone: what it had open is not used any more. The places are those of the last records, as at the
    /// end of a recording.
    fn end_process(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        if let (Some(journal), Some(worker)) = (&mut self.journal, worker_at(&self.workers, process.worker)) {
            journal.process(worker.as_str(), pid, None);
        }
        if process.has_files {
            for (file, open) in self.descriptors.take(|open| open.owner == pid) {
                self.push_close_of(process.worker, open, Remark::Closed(file));
            }
        }
    }

    /// Ends the uses that nobody touched for long enough before a moment.
    fn conclude(&mut self, moment: u64) {
        while let Some((file, open)) = self.descriptors.unused_at(moment) {
            self.push_close(open, Remark::Concluded(file));
        }
    }

    fn push_close(&mut self, open: OpenFile, remark: Remark) {
        if let Some(process) = self.processes.get(&open.owner) {
            self.push_close_of(process.worker, open, remark);
        }
    }

    fn push_close_of(&mut self, worker: u32, open: OpenFile, remark: Remark) {
        let at = open.last;
        let mut record = connections::record(open.owner, at.tid, Operation::Close);
        record.path = Some(open.path);
        record.fs = open.file_system;
        record.ret = Some(0);
        self.push(worker, at.position, at.time, record, remark);
    }

    fn push(&mut self, worker: u32, position: u64, time: u64, record: Record, remark: Remark) {
        self.push_call(worker, position, time, record, remark, false);
    }

    /// `brief`: the segment of the journal tells of the file.
    fn push_call(
        &mut self,
        worker: u32,
        position: u64,
        time: u64,
        mut record: Record,
        remark: Remark,
        brief: bool,
    ) {
        if self.again {
            return;
        }
        record.ts = Some(self.clock.seconds(time));
        self.pending.push(Pending { worker, position, time, record, remark, brief });
    }
}

fn worker_at<'w>(workers: &'w [Option<Worker<'_>>], index: u32) -> Option<&'w WorkerId> {
    workers.get(index as usize)?.as_ref().map(|worker| &worker.id)
}

/// Takes summed records of connections among those that wait.
fn take<'p>(clock: &'p Clock, pending: &'p mut Vec<Pending>) -> impl FnMut(Summed) + 'p {
    |summed| {
        let mut record = summed.record;
        record.ts = Some(clock.seconds(summed.time));
        let Summed { worker, position, time, .. } = summed;
        pending.push(Pending { worker, position, time, record, remark: Remark::None, brief: false });
    }
}
