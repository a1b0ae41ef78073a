//! Follows the files and sockets of one worker through kernel records.
//!
//! Input: JSON lines of a recording (DESIGN.md §8) or records of the kernel program, in order within one source. Output:
//! one observation per artifact and use (`artifact`), per burst on a connection (`transfer`), per load of model files
//! (`factor`); never one per system call. Invariant: memory is bounded whatever the input, and what a bound drops is
//! counted with a reason. Who else wrote or removed a file is concluded by the collector, from all workers together.

mod emit;
mod file_key;
mod files;
pub mod flags;
mod handle;
mod known;
mod last_roles;
pub mod live;
mod model_files;
pub mod mounts;
pub mod names;
pub mod record;
mod scan;
mod sockets;
mod state;
pub mod write;

pub use flags::OpenFlags;
pub use mounts::Mounts;
pub use names::{ArtifactName, FileRole, ModelFile, Names};
pub use record::{FileSystem, Operation, Record};

use crate::source::{Losses, Place, Sink, SourceContext};
use emit::Emitter;
use files::{Files, Step};
use handle::Stamp;
use kvprov_model::clock::{SECOND, WallTime};
use last_roles::LastRoles;
use model_files::ModelFiles;
use sockets::Sockets;
use state::Kept;
use std::sync::Arc;

/// Longest path that is looked at, in bytes; Linux allows 4096.
const MAX_PATH: usize = 8192;

/// Longest time between a record and its reading that [`KernelReader::idle`] allows for, in nanoseconds.
pub const LATE: i64 = SECOND;

/// What a reader read and what it skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Records read.
    pub records: u64,
    /// Records and lines that gave nothing although they might have, by reason.
    pub losses: Losses,
    /// Bursts on connections that were too small to hold KV.
    pub control_bursts: u64,
}

/// Follows one worker.
pub struct KernelReader<'n> {
    source: SourceContext,
    names: &'n dyn Names,
    mounts: Mounts,
    roles: LastRoles,
    files: Files,
    sockets: Sockets,
    model_files: ModelFiles,
    records: u64,
    losses: Losses,
    quiet: Losses,
}

// === impl KernelReader ===

impl<'n> KernelReader<'n> {
    /// A reader at the begin of a source.
    pub fn new(source: SourceContext, names: &'n dyn Names) -> Self {
        Self {
            source,
            names,
            mounts: Mounts::default(),
            roles: LastRoles::default(),
            files: Files::new(),
            sockets: Sockets::default(),
            model_files: ModelFiles::default(),
            records: 0,
            losses: Losses::default(),
            quiet: Losses::default(),
        }
    }

    /// Names stores of file systems as `mounts` knows them.
    #[must_use]
    pub fn with_mounts(mut self, mounts: Mounts) -> Self {
        self.mounts = mounts;
        self
    }

    /// Takes the next line of a recording.
    pub fn line(&mut self, place: Place, line: &[u8], sink: Sink<'_>) {
        if line.iter().all(u8::is_ascii_whitespace) {
            return;
        }
        match Record::parse(line) {
            Ok(record) => self.record(place, &record, sink),
            Err(reason) => self.losses.one(reason),
        }
    }

    /// Takes the next record.
    pub fn record(&mut self, place: Place, record: &Record, sink: Sink<'_>) {
        self.records += 1;
        let stamp = Stamp { place, wall: record.ts.and_then(WallTime::from_unix_seconds) };
        if stamp.wall.is_none() {
            self.losses.one("no usable time");
        }
        if record.op == Operation::Other {
            self.losses.one("unknown operation");
            return;
        }
        let path = record.path.as_ref().filter(|path| !path.is_empty() && path.len() <= MAX_PATH);
        let target = match (record.op, record.path2.as_ref()) {
            (Operation::Rename, Some(path2)) if path2.len() <= MAX_PATH => {
                Some(Arc::clone(self.roles.of(path2, self.names)))
            }
            _ => None,
        };
        let role = path.map(|path| self.roles.of(path, self.names));
        let mut emitter = Emitter::new(&self.source, &self.mounts, sink);
        let (Some(path), Some(role)) = (path, role) else {
            self.sockets.step(record, stamp, &mut self.quiet, &mut emitter);
            return;
        };
        if let (FileRole::Model(file), Operation::Open, true) = (&**role, record.op, record.succeeded()) {
            self.model_files.opened(record.pid, path, file, stamp, &mut self.losses, &mut emitter);
            return;
        }
        let step = Step { record, path, role, stamp };
        self.files.step(step, target.as_deref(), &mut self.losses, &mut emitter);
    }

    /// Live, no end of the source comes: tells what no later record can change any more, `now` on the node's wall
    /// clock. What is told and its ids are those that the next record, or the end, would have brought about: calling
    /// it often or never changes when something is told, not what. A record may reach the reader [`LATE`] after its
    /// time.
    pub fn idle(&mut self, now: WallTime, sink: Sink<'_>) {
        let mut emitter = Emitter::new(&self.source, &self.mounts, sink);
        self.model_files.idle(now, LATE, &mut emitter);
        self.sockets.idle(now, LATE, &mut self.quiet, &mut emitter);
    }

    /// The source ends: what is still open or in progress is told.
    pub fn finish(mut self, sink: Sink<'_>) -> KernelCounts {
        let mut emitter = Emitter::new(&self.source, &self.mounts, sink);
        self.files.finish(&mut emitter);
        self.model_files.finish(&mut emitter);
        self.sockets.finish(&mut self.quiet, &mut emitter);
        self.losses.add("too many connections", self.quiet.of("too many connections"));
        KernelCounts {
            records: self.records,
            losses: self.losses,
            control_bursts: self.quiet.of("control traffic"),
        }
    }

    /// What it knows, to be put back by [`KernelReader::restore`].
    pub(crate) fn keep(&self, take: &mut dyn FnMut(Kept)) {
        self.files.keep(take);
        self.model_files.keep(take);
        self.sockets.keep(take);
    }

    /// Puts one thing back.
    pub(crate) fn restore(&mut self, kept: Kept) {
        match kept {
            Kept::Burst { .. } => self.sockets.restore(kept),
            Kept::Load { .. } => self.model_files.restore(kept),
            _ => {
                let names = self.names;
                self.files.restore(kept, &mut |path| Arc::new(names.role(path)));
            }
        }
    }

    /// Whether a close that nobody called, dated back to the last use of its descriptor, is of a use that is known.
    pub(crate) fn has_use(&self, place: Place, record: &Record) -> bool {
        record.path.as_ref().is_some_and(|path| self.files.has_use(record.pid, path, place))
    }

    /// What was read and skipped so far.
    pub fn counts(&self) -> KernelCounts {
        KernelCounts {
            records: self.records,
            losses: self.losses.clone(),
            control_bursts: self.quiet.of("control traffic"),
        }
    }
}
