//! What the ring tells that is no system call on a store: processes, output, files of models, blind spots.

use crate::kernel::names::ModelFile;
use kvprov_agent_common::{FileIdentity, FileState};
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use std::sync::Arc;

/// A process as a record of it tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessEvent {
    /// The process, as the initial pid namespace numbers it.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When it started: CLOCK_BOOTTIME in nanoseconds.
    pub started: u64,
    /// Its control group (version 2).
    pub cgroup: u64,
    /// Its thread name, padded with NUL.
    pub name: [u8; 16],
}

/// A file of a model that a process opened.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelOpen {
    /// The process.
    pub pid: u32,
    /// Path as the process sees it.
    pub path: Arc<str>,
    /// What the path says of it.
    pub file: ModelFile,
    /// Which file it was.
    pub identity: FileIdentity,
    /// What it was like at the end of the open.
    pub state: FileState,
    /// When.
    pub wall: WallTime,
    /// Position in the ring, for ids.
    pub position: u64,
}

/// A piece of standard output or error.
#[derive(Debug, Clone, Copy)]
pub struct OutputPiece<'b> {
    /// The process.
    pub pid: u32,
    /// 1 or 2.
    pub fd: i32,
    /// The pipe or terminal.
    pub file: FileIdentity,
    /// When the write ended.
    pub wall: WallTime,
    /// Position in the ring, for ids.
    pub position: u64,
    /// Where in the write this piece begins.
    pub offset: u32,
    /// Its bytes.
    pub bytes: &'b [u8],
    /// Bytes of the write after this piece that no record holds.
    pub skipped: u64,
}

/// One notice.
#[derive(Debug, Clone)]
pub enum Notice<'b> {
    /// A process replaced its program; of any process in scope. With its worker where it has one.
    Exec(ProcessEvent, Option<&'b WorkerId>),
    /// A worker's process made another, which is of that worker too.
    Fork(ProcessEvent, &'b WorkerId),
    /// A worker's process ended, with its exit code as `wait(2)` encodes it.
    Exit(ProcessEvent, u32, &'b WorkerId),
    /// A worker's process wrote to its standard output or error.
    Output(OutputPiece<'b>, &'b WorkerId),
    /// A worker's process opened a file of a model.
    Model(ModelOpen, &'b WorkerId),
    /// A worker's process moves data on a way that is not followed; the number is a
    /// [`kvprov_agent_common::BlindSpot`].
    BlindSpot {
        /// The process.
        pid: u32,
        /// The way.
        way: u32,
        /// Its worker.
        worker: &'b WorkerId,
    },
}
