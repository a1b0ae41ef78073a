//! A segment of the queue, on disk or in memory, and a place in one.

use super::directory::{Directory, read_at};
use super::frame::{self, Frame, Step};
use std::io;
use std::time::SystemTime;

/// One segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// Its number; segments are sent in their order.
    pub(super) number: u64,
    /// Where its bytes are.
    pub(super) store: Store,
    /// Bytes that are committed.
    pub(super) bytes: u64,
    /// Records that are committed.
    pub(super) records: u64,
    /// When its first record came.
    pub(super) since: SystemTime,
    /// It holds what was kept of segments that had to go.
    pub(super) remains: bool,
}

/// Where the bytes of a segment are.
#[derive(Debug)]
pub(super) enum Store {
    /// In the file of its number.
    Disk,
    /// Here: the disk was full.
    Memory(Vec<u8>),
}

/// A place in a segment: which records are done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    /// Offset of a frame.
    pub(super) offset: u64,
    /// Records before that frame.
    pub(super) before: u64,
    /// Records that are done; at least `before`.
    pub(super) done: u64,
}

/// What a scan of a segment found.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Records in whole frames.
    pub(super) records: u64,
    /// Bytes up to the end of the last whole frame.
    pub(super) bytes: u64,
    /// Bytes behind it: they were being written.
    pub(super) torn: u64,
    /// Bytes that are damaged.
    pub(super) damaged: u64,
    /// Records that are known to be among them.
    pub(super) damaged_records: u64,
}

// === impl Segment ===

impl Segment {
    pub(super) fn is_on_disk(&self) -> bool {
        matches!(self.store, Store::Disk)
    }

    /// Nothing of it is left to send.
    pub(super) fn is_done(&self, cursor: Cursor) -> bool {
        cursor.offset >= self.bytes || cursor.done >= self.records
    }

    /// All committed bytes.
    pub(super) fn read(&self, directory: &Directory) -> io::Result<Vec<u8>> {
        match &self.store {
            Store::Memory(bytes) => Ok(bytes.clone()),
            Store::Disk => read_at(&mut directory.open(self.number)?, 0, self.bytes as usize),
        }
    }
}

/// Visits the frames of a whole segment.
pub(super) fn each_frame<'a>(bytes: &'a [u8], mut visit: impl FnMut(Frame<'a>)) -> Scan {
    let mut scan = Scan::default();
    let mut at = 0;
    loop {
        match frame::step(&bytes[at..], true) {
            Step::Frame(frame) => {
                at += frame.length;
                scan.records += frame.records.len() as u64;
                scan.bytes = at as u64;
                visit(frame);
            }
            Step::Gap { bytes, torn: true, .. } => {
                at += bytes;
                scan.torn += bytes as u64;
            }
            Step::Gap { bytes, records, torn: false } => {
                at += bytes;
                scan.damaged += bytes as u64;
                scan.damaged_records += records;
                scan.bytes = at as u64;
            }
            Step::Short | Step::End => return scan,
        }
    }
}
