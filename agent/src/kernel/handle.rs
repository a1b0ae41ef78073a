//! One open file, from open to close: what was read and written through it.
//!
//! Pure bookkeeping. Records name the path, not the descriptor, and a descriptor may be duplicated between open and
//! write (numpy's `tofile`), so that everything a process does with one path while it is open is one handle.

use crate::kernel::record::Record;
use crate::source::Place;
use kvprov_model::clock::WallTime;
use serde::{Deserialize, Serialize};

/// Where and when something happened last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// The record.
    pub place: Place,
    /// Its time.
    pub wall: Option<WallTime>,
}

/// How the use of a file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileUse {
    /// Its content came. `None`: it was mapped, and no call shows how much was touched.
    Read { bytes: Option<u64> },
    /// Less came than was asked for.
    Short { bytes: u64, wanted: u64 },
    /// A write did not succeed.
    Refused { bytes: u64, wanted: u64 },
    /// It was written. `None`: it was mapped.
    Written { bytes: Option<u64> },
}

/// An open file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handle {
    opens: u32,
    /// Offset of the record that began it.
    begun: u64,
    created: bool,
    reads: u32,
    bytes_read: u64,
    /// The furthest end that a read asked for, counted from the first read.
    read_end_wanted: u64,
    last_read_wanted: u64,
    /// The last read found the end of the file.
    last_read_was_empty: bool,
    writes: u32,
    bytes_written: u64,
    write_missing: u64,
    write_failed: bool,
    read_failed: bool,
    mapped: bool,
    pub last: Stamp,
}

/// Buffers of C and Python file objects; a read of this size at the end of a file asks for more than there is.
const BUFFERS: [u64; 2] = [4096, 8192];

/// Most bytes that a read asks for which only looks for the end.
const LARGEST_PROBE: u64 = 4096;

// === impl Handle ===

impl Handle {
    /// A file that was opened, or one whose open came before the records did.
    pub(crate) fn new(open: Option<&Record>, stamp: Stamp) -> Self {
        Self {
            opens: 1,
            begun: stamp.place.offset,
            created: open.is_some_and(|record| {
                record.opens_for_writing() && record.open_flags().creates_or_truncates()
            }),
            reads: 0,
            bytes_read: 0,
            read_end_wanted: 0,
            last_read_wanted: 0,
            last_read_was_empty: false,
            writes: 0,
            bytes_written: 0,
            write_missing: 0,
            write_failed: false,
            read_failed: false,
            mapped: false,
            last: stamp,
        }
    }

    /// The process opened it once more.
    pub(crate) fn reopen(&mut self, record: &Record, stamp: Stamp) {
        self.opens = self.opens.saturating_add(1);
        self.created |= record.opens_for_writing() && record.open_flags().truncates();
        self.last = stamp;
    }

    pub(crate) fn read(&mut self, record: &Record, stamp: Stamp) {
        self.last = stamp;
        if record.is_to_be_repeated() {
            return;
        }
        self.reads = self.reads.saturating_add(1);
        if !record.succeeded() {
            self.read_failed = true;
            return;
        }
        self.last_read_wanted = record.wanted();
        self.last_read_was_empty = record.moved() == 0;
        self.read_end_wanted =
            self.read_end_wanted.max(self.bytes_read.saturating_add(self.last_read_wanted));
        self.bytes_read = self.bytes_read.saturating_add(record.moved());
    }

    pub(crate) fn write(&mut self, record: &Record, stamp: Stamp) {
        self.last = stamp;
        if record.is_to_be_repeated() {
            return;
        }
        self.writes = self.writes.saturating_add(1);
        if record.succeeded() {
            self.bytes_written = self.bytes_written.saturating_add(record.moved());
            // What a short write left over is written by the next call, if at all.
            self.write_missing = record.wanted() - record.moved();
        } else {
            self.write_failed = true;
            self.write_missing = record.want.and_then(|want| u64::try_from(want).ok()).unwrap_or(0);
        }
    }

    pub(crate) fn map(&mut self, stamp: Stamp) {
        self.last = stamp;
        self.mapped = true;
    }

    /// Whether a close is of this handle: one that is dated before it began was of another one under the same name.
    pub(crate) fn is_closed_by(&self, place: Place) -> bool {
        place.offset >= self.begun
    }

    /// One descriptor was closed; true when it was the last that is known.
    pub(crate) fn close(&mut self, stamp: Stamp) -> bool {
        // Live, a close that nobody called is dated back to the last use of its descriptor; another descriptor of the
        // name may have been used since.
        if stamp.place.offset >= self.last.place.offset && stamp.wall >= self.last.wall {
            self.last = stamp;
        }
        self.opens = self.opens.saturating_sub(1);
        self.opens == 0
    }

    /// How the use ended.
    pub(crate) fn ended(&self) -> FileUse {
        let bytes = self.bytes_written;
        if self.write_failed || self.write_missing > 0 {
            return FileUse::Refused { bytes, wanted: bytes.saturating_add(self.write_missing) };
        }
        if self.writes > 0 || self.created {
            return FileUse::Written { bytes: (self.writes > 0 || !self.mapped).then_some(bytes) };
        }
        if self.read_failed {
            let wanted = self.read_end_wanted.max(self.bytes_read);
            return FileUse::Short { bytes: self.bytes_read, wanted };
        }
        if self.reads == 0 || (self.mapped && self.read_end_wanted == self.bytes_read) {
            return FileUse::Read { bytes: (!self.mapped && self.reads > 0).then_some(self.bytes_read) };
        }
        let missing = self.read_end_wanted.saturating_sub(self.bytes_read);
        if missing == 0 || self.looked_for_the_end(missing) {
            return FileUse::Read { bytes: Some(self.bytes_read) };
        }
        FileUse::Short { bytes: self.bytes_read, wanted: self.read_end_wanted }
    }

    /// Whether the last read only found the end of the file: one byte more than the file holds (`read()` without a
    /// size), the fill of a buffer behind data, or a small read behind data that gave nothing (libraries that read to the
    /// end probe it with some tens of bytes before they enlarge their buffer).
    fn looked_for_the_end(&self, missing: u64) -> bool {
        let is_probe = BUFFERS.contains(&self.last_read_wanted)
            || (self.last_read_was_empty && self.last_read_wanted <= LARGEST_PROBE);
        missing == 1 || (self.reads > 1 && is_probe && self.bytes_read > self.last_read_wanted)
    }
}
