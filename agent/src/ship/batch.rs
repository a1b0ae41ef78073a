//! What is sent at once: the next records of the oldest segment, as the bytes of one export request.

use super::directory::{Directory, read_at};
use super::frame::{self, ALIVE, HEADER, MAX_BODY, OWN_LOSS, Step};
use super::loss::{Lost, Reason, Tally};
use super::segment::{Cursor, Segment, Store};
use super::wire::{self, Group};
use prost::bytes::Bytes;
use std::fs::File;
use std::io;

/// How much one batch may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// Records; at least 1.
    pub(super) records: usize,
    /// Bytes; one record alone may be larger.
    pub(super) bytes: usize,
}

/// Records on their way.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// An ExportLogsServiceRequest.
    pub(super) request: Bytes,
    /// Records in it.
    pub(super) records: u64,
    /// What is lost if it is given up: everything but signs of life and what the queue itself reported.
    pub(super) stake: Vec<(Option<String>, Lost)>,
    /// The place behind it.
    pub(super) end: Cursor,
    /// The rewriting of the segment that the place belongs to.
    pub(super) epoch: u64,
}

/// Bytes from a cursor on, or where to get them.
#[derive(Debug)]
pub(super) struct Window {
    source: Source,
    /// Committed bytes from the cursor on.
    rest: u64,
    /// Records of the segment.
    records: u64,
}

#[derive(Debug)]
enum Source {
    Bytes(Vec<u8>),
    File(io::Result<File>),
}

// === impl Batch ===

impl Batch {
    /// What to read, taken while the queue is locked; a file that is open stays what it is when its name goes.
    pub(super) fn window(segment: &Segment, cursor: Cursor, limit: Limit, directory: &Directory) -> Window {
        let rest = segment.bytes.saturating_sub(cursor.offset);
        let source = match &segment.store {
            Store::Memory(bytes) => {
                let from = (cursor.offset as usize).min(bytes.len());
                let until = from.saturating_add(reach(limit)).min(bytes.len());
                Source::Bytes(bytes[from..until].to_vec())
            }
            Store::Disk => Source::File(directory.open(segment.number)),
        };
        Window { source, rest, records: segment.records }
    }

    /// Reads a batch; what is damaged on the way is passed over and tallied.
    pub(super) fn read(window: Window, cursor: Cursor, limit: Limit, epoch: u64) -> (Self, Tally) {
        let mut damage = Tally::default();
        let length = (reach(limit) as u64).min(window.rest) as usize;
        let bytes = match window.source {
            Source::Bytes(bytes) => Ok(bytes),
            Source::File(file) => file.and_then(|mut file| read_at(&mut file, cursor.offset, length)),
        };
        let all =
            Cursor { offset: cursor.offset + window.rest, before: window.records, done: window.records };
        let bytes = match bytes {
            Ok(bytes) if !bytes.is_empty() => bytes,
            unread => {
                tracing::warn!(error = ?unread.err(), "a segment of the queue cannot be read back");
                let records = window.records.saturating_sub(cursor.done);
                damage.add(None, Reason::Damaged, Lost { records, bytes: window.rest, window: None });
                return (Self { end: all, epoch, ..Self::default() }, damage);
            }
        };
        let complete = bytes.len() as u64 >= window.rest;
        let mut reading = Reading { groups: Vec::new(), stake: Vec::new(), records: 0, bytes: 0, limit };
        let (mut at, mut end) = (0, cursor);
        loop {
            match frame::step(&bytes[at..], complete) {
                Step::Frame(frame) => {
                    let before = end.before;
                    let count = frame.records.len() as u64;
                    let skip = end.done.saturating_sub(before) as usize;
                    let taken = reading.take(frame.resource, frame.records.get(skip..).unwrap_or_default());
                    end.done = before + (skip + taken) as u64;
                    if end.done < before + count {
                        break;
                    }
                    at += frame.length;
                    end = Cursor { offset: cursor.offset + at as u64, before: end.done, done: end.done };
                }
                Step::Gap { bytes, records, .. } => {
                    damage.add(None, Reason::Damaged, Lost { records, bytes: bytes as u64, window: None });
                    at += bytes;
                    end.offset = cursor.offset + at as u64;
                }
                Step::Short | Step::End => break,
            }
        }
        if reading.records == 0 && end.offset == cursor.offset {
            // A frame that is no frame, or one that no limit allows: neither is ever written.
            end = all;
        }
        let request = Bytes::from(wire::request(&reading.groups));
        (Self { request, records: reading.records as u64, stake: reading.stake, end, epoch }, damage)
    }

    /// The losses if the whole batch is given up.
    pub(super) fn given_up(&self, reason: Reason) -> Tally {
        let mut tally = Tally::default();
        for (worker, lost) in &self.stake {
            tally.add(worker.as_deref(), reason, *lost);
        }
        tally
    }
}

/// Bytes to look at, so that the limit or one whole frame is among them.
fn reach(limit: Limit) -> usize {
    limit.bytes.saturating_add(HEADER + MAX_BODY)
}

struct Reading<'a> {
    groups: Vec<Group<'a>>,
    stake: Vec<(Option<String>, Lost)>,
    records: usize,
    bytes: usize,
    limit: Limit,
}

impl<'a> Reading<'a> {
    /// Takes records of a frame up to the limit; how many.
    fn take(&mut self, resource: &'a [u8], records: &[frame::Record<'a>]) -> usize {
        let mut taken = 0;
        for record in records {
            let size = record.payload.len();
            let full = self.records >= self.limit.records.max(1) || self.bytes + size > self.limit.bytes;
            if full && self.records > 0 {
                break;
            }
            if self.groups.last().is_none_or(|group| group.resource != resource) {
                self.groups.push(Group { resource, records: Vec::new() });
            }
            if let Some(group) = self.groups.last_mut() {
                group.records.push(record.payload);
            }
            if record.flags & (ALIVE | OWN_LOSS) == 0 {
                self.at_stake(record);
            }
            self.records += 1;
            self.bytes += size;
            taken += 1;
        }
        taken
    }

    fn at_stake(&mut self, record: &frame::Record<'_>) {
        let known = self.stake.iter().rposition(|(worker, _)| worker.as_deref() == record.worker);
        let index = known.unwrap_or_else(|| {
            self.stake.push((record.worker.map(str::to_owned), Lost::default()));
            self.stake.len() - 1
        });
        let Some((_, lost)) = self.stake.get_mut(index) else { return };
        lost.records += 1;
        lost.bytes += record.payload.len() as u64;
        if let Some(wall) = record.wall {
            let (since, until) = lost.window.unwrap_or((wall, wall));
            lost.window = Some((since.min(wall), until.max(wall)));
        }
    }
}
