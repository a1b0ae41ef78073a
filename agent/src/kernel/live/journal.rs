//! The records of workers on disk, so that an agent that was killed goes on where it was.
//!
//! A batch is written before the ring is released, and ends with a line that says up to which position of the ring
//! everything is told. What follows the last such line of a segment was not handed on and is still in the ring; it is
//! ignored. Records are the JSON lines of a recording with a few members more; calls on a file that the segment told of
//! are [`brief`].
//!
//! Invariants: never more than the limit on disk; a journal of another ring (another boot, another loader) is not read;
//! a disk that is full costs exactness after a kill, nothing else.

mod brief;

use self::brief::Brief;
use crate::kernel::record::Record;
use crate::kernel::state::Kept;
use crate::kernel::write::{number, text};
use kvprov_agent_common::{FileIdentity, FileState};
use serde::Deserialize;
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

/// Bytes on disk unless told otherwise.
pub const DEFAULT_LIMIT: u64 = 64 << 20;
/// A segment is this part of the limit; every start begins a new one. The first ones go when all are too large.
const PART: u64 = 4;
/// Segments of agents that were killed soon after their start.
const SEGMENTS: usize = 4096;
/// Longest line that is read; a record holds two paths of 8 KiB, each byte of which may become six.
const MAX_LINE: usize = 256 * 1024;
/// Batches that are not tried to be written after one failed.
const PAUSE: u32 = 64;
/// A segment may become so long, or twice as long as what it told at its begin: a restart reads one.
const SHORT: u64 = 1 << 20;
const VERSION: u32 = 3;

/// What a line is about, beside its record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Remark {
    /// Nothing more.
    None,
    /// An open, or what is open at the begin of a segment.
    Opened(FileIdentity, FileState),
    /// A use of an open file.
    Used(FileIdentity),
    /// The last close.
    Closed(FileIdentity),
    /// A close that nobody called, of a file that stays known.
    Concluded(FileIdentity),
    /// A close that others outlived: not for the reader.
    Closing(FileIdentity),
    /// A listing that waits: not for the reader.
    Held,
    /// A file that is open at the begin of a segment: not for the reader.
    Known(FileIdentity),
    /// A directory of a store was opened: not for the reader.
    Directory(FileIdentity),
}

/// A line that was read.
#[derive(Debug, PartialEq)]
pub(super) enum Line {
    /// A process of a worker, with its start time; `None`: it is gone.
    Process { worker: String, pid: u32, started: Option<u64> },
    /// A record.
    Record { worker: String, position: u64, time: u64, record: Record, remark: Remark },
    /// A call on a file that was told before, whose path and file system the record leaves out; `closes`: the last one.
    Brief { worker: String, position: u64, time: u64, record: Record, file: FileIdentity, closes: bool },
    /// What a reader knew when the first segment that is left began.
    Kept { worker: String, kept: Box<Kept> },
    /// Everything before is told.
    Upto(u64),
}

#[derive(Deserialize)]
struct Header {
    journal: u32,
    ring: String,
}

/// Members beside those of a record.
#[derive(Deserialize)]
struct Extra {
    #[serde(default)]
    upto: Option<u64>,
    #[serde(default)]
    process: Option<u32>,
    #[serde(default)]
    started: Option<u64>,
    #[serde(default)]
    worker: Option<String>,
    #[serde(default)]
    reader: Option<Box<Kept>>,
    #[serde(default)]
    pos: Option<u64>,
    #[serde(default)]
    time: Option<u64>,
    #[serde(default)]
    what: Option<String>,
    #[serde(default)]
    file: Option<(u32, u32, u64)>,
    #[serde(default)]
    state: Option<(u64, i64, i64)>,
}

/// What the journal did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JournalCounts {
    /// Batches that could not be written.
    pub batches_not_written: u64,
    /// Segments that had to make room.
    pub segments_dropped: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// The journal of one ring.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    ring: String,
    limit: u64,
    file: Option<File>,
    /// Numbers and sizes of the segments on disk, the one that is written included.
    segments: VecDeque<(u64, u64)>,
    next: u64,
    /// Of the one that is written.
    size: u64,
    /// Bytes of its first batch, which tells what is known.
    told: u64,
    buffer: Vec<u8>,
    /// Of the batch that is written.
    brief: Brief,
    pause: u32,
    counts: JournalCounts,
}

// === impl Journal ===

impl Journal {
    /// Opens the journal in a directory, which is made where it is not there. Segments of another ring are removed.
    /// `limit` is in bytes.
    pub fn open(directory: &Path, ring: &str, limit: u64) -> std::io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        let mut journal = Self {
            directory: directory.to_owned(),
            ring: ring.to_owned(),
            limit: limit.max(16 * 1024),
            file: None,
            segments: VecDeque::new(),
            next: 0,
            size: 0,
            told: 0,
            buffer: Vec::new(),
            brief: Brief::default(),
            pause: 0,
            counts: JournalCounts::default(),
        };
        let mut numbers = Vec::new();
        for entry in std::fs::read_dir(directory)? {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_prefix("kernel-")?.strip_suffix(".jsonl"));
            if let Some(number) = number.and_then(|number| number.parse::<u64>().ok()) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        journal.next = numbers.last().map_or(0, |last| last + 1);
        numbers.retain(|number| {
            let ours = journal.is_ours(*number);
            if !ours {
                // What cannot be removed is in the way of nothing.
                let _ = std::fs::remove_file(journal.path(*number));
            }
            ours
        });
        for number in numbers {
            let size = std::fs::metadata(journal.path(number)).map_or(0, |meta| meta.len());
            journal.segments.push_back((number, size));
        }
        Ok(journal)
    }

    /// What it did so far.
    pub fn counts(&self) -> JournalCounts {
        self.counts
    }

    /// Reads what an agent before this one wrote, up to the last line that says that everything is told. Lines of no
    /// use end a segment.
    pub(super) fn read(&self, take: &mut dyn FnMut(Line)) -> std::io::Result<()> {
        // The first one tells what was known when it began; after it, its records do.
        let mut is_first = true;
        for (number, _) in &self.segments {
            let number = *number;
            let Ok(end) = self.committed(number) else { continue };
            let mut brief = Brief::default();
            self.lines(number, end, &mut |line| match parse(line, &mut brief) {
                Some(Line::Kept { .. }) if !is_first => {}
                Some(line) => take(line),
                None => {}
            })?;
            is_first &= end == 0;
        }
        Ok(())
    }

    /// Whether the next batch begins a segment, which then has to tell what is known.
    pub(super) fn begins_segment(&self) -> bool {
        self.file.is_none() || self.size >= (self.limit / PART).min(self.told.saturating_mul(2).max(SHORT))
    }

    /// Whether nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Adds a process of a worker; without a start time: its end.
    pub(super) fn process(&mut self, worker: &str, pid: u32, started: Option<u64>) {
        let out = &mut self.buffer;
        out.extend_from_slice(b"{\"process\":");
        number(out, i64::from(pid));
        if let Some(started) = started {
            out.extend_from_slice(b",\"started\":");
            number(out, i64::try_from(started).unwrap_or(0));
        }
        text(out, ",\"worker\":", Some(worker));
        out.extend_from_slice(b"}\n");
    }

    /// Adds what a reader knows.
    pub(super) fn kept(&mut self, worker: &str, kept: &Kept) {
        let before = self.buffer.len();
        self.buffer.extend_from_slice(b"{\"reader\":");
        // Writing to memory does not fail.
        let _ = serde_json::to_writer(&mut self.buffer, kept);
        text(&mut self.buffer, ",\"worker\":", Some(worker));
        self.buffer.extend_from_slice(b"}\n");
        if self.buffer.len() - before > MAX_LINE {
            self.buffer.truncate(before);
        }
    }

    /// Adds a call on a file that this segment told of. False: it does not fit the brief form, nothing was added.
    pub(super) fn brief(
        &mut self,
        worker: &str,
        position: u64,
        time: u64,
        record: &Record,
        remark: Remark,
    ) -> bool {
        let (Remark::Used(file) | Remark::Closed(file)) = remark else { return false };
        self.brief.write(&mut self.buffer, worker, position, time, record, file)
    }

    /// Adds a record.
    pub(super) fn record(&mut self, worker: &str, position: u64, time: u64, record: &Record, remark: Remark) {
        let out = &mut self.buffer;
        out.push(b'{');
        record.write_members(out);
        out.extend_from_slice(b",\"pos\":");
        number(out, i64::try_from(position).unwrap_or(i64::MAX));
        out.extend_from_slice(b",\"time\":");
        number(out, i64::try_from(time).unwrap_or(i64::MAX));
        text(out, ",\"worker\":", Some(worker));
        let (what, file, state) = match remark {
            Remark::None => (None, None, None),
            Remark::Opened(file, state) => (Some("opened"), Some(file), Some(state)),
            Remark::Used(file) => (Some("used"), Some(file), None),
            Remark::Closed(file) => (Some("closed"), Some(file), None),
            Remark::Concluded(file) => (Some("concluded"), Some(file), None),
            Remark::Closing(file) => (Some("closing"), Some(file), None),
            Remark::Held => (Some("held"), None, None),
            Remark::Known(file) => (Some("known"), Some(file), None),
            Remark::Directory(file) => (Some("directory"), Some(file), None),
        };
        if let Some(what) = what {
            text(out, ",\"what\":", Some(what));
        }
        if let Some(file) = file {
            // Writing to memory does not fail.
            out.extend_from_slice(b",\"file\":[");
            number(out, i64::from(file.device));
            out.push(b',');
            number(out, i64::from(file.open_file));
            out.push(b',');
            let _ = serde_json::to_writer(&mut *out, &file.inode);
            out.push(b']');
        }
        if let Some(state) = state {
            out.extend_from_slice(b",\"state\":[");
            let _ = serde_json::to_writer(&mut *out, &state.size);
            out.push(b',');
            number(out, state.modified);
            out.push(b',');
            number(out, state.changed);
            out.push(b']');
        }
        out.extend_from_slice(b"}\n");
    }

    /// Writes the batch: everything before `upto` is told. False when it could not be written, or was not tried.
    pub(super) fn commit(&mut self, upto: u64) -> bool {
        if self.buffer.is_empty() {
            return true;
        }
        let _ = writeln!(self.buffer, "{{\"upto\":{upto}}}");
        let written = self.pause == 0 && self.write().is_ok();
        if !written {
            self.counts.batches_not_written += 1;
            // What was written of the batch has no end and is ignored; the next one begins a segment.
            self.file = None;
            self.pause = if self.pause == 0 { PAUSE } else { self.pause - 1 };
        }
        self.buffer.clear();
        self.brief = Brief::default();
        self.buffer.shrink_to(1 << 20);
        written
    }

    fn write(&mut self) -> std::io::Result<()> {
        if self.begins_segment() {
            self.file = None;
            self.make_room();
            let path = self.path(self.next);
            let mut file = OpenOptions::new().create_new(true).append(true).open(&path)?;
            self.segments.push_back((self.next, 0));
            self.next += 1;
            let header = serde_json::json!({"journal": VERSION, "ring": self.ring});
            writeln!(file, "{header}")?;
            self.size = 0;
            self.told = self.buffer.len() as u64;
            self.file = Some(file);
        }
        if let Some(file) = &mut self.file {
            file.write_all(&self.buffer)?;
        }
        self.size += self.buffer.len() as u64;
        if let Some((_, size)) = self.segments.back_mut() {
            *size = self.size;
        }
        self.counts.bytes += self.buffer.len() as u64;
        Ok(())
    }

    /// Drops the first segments until another whole one has room.
    fn make_room(&mut self) {
        let room = self.limit - self.limit / PART;
        while self.segments.len() >= SEGMENTS
            || self.segments.iter().map(|(_, size)| size).sum::<u64>() > room
        {
            let Some((number, _)) = self.segments.pop_front() else { return };
            // What cannot be removed is not read any more either.
            let _ = std::fs::remove_file(self.path(number));
            self.counts.segments_dropped += 1;
        }
    }

    /// Drops all segments but the one that is written: it tells what is known, so that a restart reads little.
    pub(super) fn drop_before(&mut self) {
        while self.segments.len() > 1 {
            let Some((number, _)) = self.segments.pop_front() else { return };
            let _ = std::fs::remove_file(self.path(number));
        }
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("kernel-{number:010}.jsonl"))
    }

    fn is_ours(&self, number: u64) -> bool {
        let mut line = Vec::new();
        let read = File::open(self.path(number)).and_then(|file| {
            std::io::Read::take(BufReader::new(file), MAX_LINE as u64).read_until(b'\n', &mut line)
        });
        let header = read.ok().and_then(|_| serde_json::from_slice::<Header>(&line).ok());
        header.is_some_and(|header| header.journal == VERSION && header.ring == self.ring)
    }

    /// Bytes of a segment up to the end of its last whole batch.
    fn committed(&self, number: u64) -> std::io::Result<u64> {
        let mut end = 0;
        let mut at = 0;
        self.lines(number, u64::MAX, &mut |line| {
            at += line.len() as u64 + 1;
            if line.starts_with(b"{\"upto\":") && line.ends_with(b"}") {
                end = at;
            }
        })?;
        Ok(end)
    }

    fn lines(&self, number: u64, end: u64, take: &mut dyn FnMut(&[u8])) -> std::io::Result<()> {
        let mut reader =
            std::io::Read::take(BufReader::with_capacity(1 << 18, File::open(self.path(number))?), end);
        let mut line = Vec::new();
        loop {
            line.clear();
            let room = MAX_LINE as u64;
            if std::io::Read::take(&mut reader, room).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            if line.pop() != Some(b'\n') {
                return Ok(()); // torn, or longer than any that is written
            }
            take(&line);
        }
    }
}

fn parse(line: &[u8], brief: &mut Brief) -> Option<Line> {
    if line.first() != Some(&b'{') {
        return brief.read(line);
    }
    let extra: Extra = serde_json::from_slice(line).ok()?;
    if let Some(upto) = extra.upto {
        *brief = Brief::default();
        return Some(Line::Upto(upto));
    }
    let worker = extra.worker?;
    if let Some(kept) = extra.reader {
        return Some(Line::Kept { worker, kept });
    }
    if let Some(pid) = extra.process {
        return Some(Line::Process { worker, pid, started: extra.started });
    }
    let file = extra.file.map(|(device, open_file, inode)| FileIdentity { device, open_file, inode });
    let state = extra.state.map(|(size, modified, changed)| FileState { size, modified, changed });
    let remark = match (extra.what.as_deref(), file, state) {
        (Some("opened"), Some(file), Some(state)) => Remark::Opened(file, state),
        (Some("used"), Some(file), _) => Remark::Used(file),
        (Some("closed"), Some(file), _) => Remark::Closed(file),
        (Some("concluded"), Some(file), _) => Remark::Concluded(file),
        (Some("closing"), Some(file), _) => Remark::Closing(file),
        (Some("known"), Some(file), _) => Remark::Known(file),
        (Some("directory"), Some(file), _) => Remark::Directory(file),
        (Some("held"), _, _) => Remark::Held,
        (None, None, None) => Remark::None,
        _ => return None,
    };
    let record = Record::parse(line).ok()?;
    Some(Line::Record { worker, position: extra.pos?, time: extra.time?, record, remark })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn record(path: &str) -> Record {
        Record::parse(
            format!("{{\"ts\":1.5,\"pid\":7,\"op\":\"stat\",\"path\":\"{path}\",\"ret\":-2}}").as_bytes(),
        )
        .unwrap()
    }

    fn lines(journal: &Journal) -> Vec<Line> {
        let mut found = Vec::new();
        journal.read(&mut |line| found.push(line)).unwrap();
        found
    }

    fn paths(journal: &Journal) -> Vec<String> {
        let path = |line| match line {
            Line::Record { record, .. } => record.path.map(|path| path.to_string()),
            _ => None,
        };
        lines(journal).into_iter().filter_map(path).collect()
    }

    fn batch(journal: &mut Journal, position: u64, path: &str) -> bool {
        journal.record("w", position, 5, &record(path), Remark::None);
        journal.commit(position + 1)
    }

    #[test]
    fn what_was_written_is_read_by_the_next_agent() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), "r", DEFAULT_LIMIT).unwrap();
        let identity = FileIdentity { device: 1, open_file: 2, inode: 3 };
        let state = FileState { size: 4, modified: -5, changed: 6 };
        journal.process("w", 7, Some(9));
        journal.record("w", 10, 11, &record("/kv/a\\n"), Remark::Opened(identity, state));
        assert!(journal.commit(20));
        let again = Journal::open(folder.path(), "r", DEFAULT_LIMIT).unwrap();
        let worker = "w".to_owned();
        assert_eq!(
            lines(&again),
            [
                Line::Process { worker: worker.clone(), pid: 7, started: Some(9) },
                Line::Record {
                    worker,
                    position: 10,
                    time: 11,
                    record: record("/kv/a\\n"),
                    remark: Remark::Opened(identity, state)
                },
                Line::Upto(20),
            ]
        );
    }

    #[test]
    fn a_torn_batch_is_ignored_whole_and_later_segments_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), "r", DEFAULT_LIMIT).unwrap();
        batch(&mut journal, 1, "/a");
        batch(&mut journal, 2, "/b");
        batch(&mut journal, 3, "/c");
        let path = journal.path(0);
        let bytes = std::fs::read(&path).unwrap();
        for cut in [1, 2, 13, 60] {
            std::fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let mut next = Journal::open(folder.path(), "r", DEFAULT_LIMIT).unwrap();
            assert_eq!(paths(&next), ["/a", "/b"], "{cut}");
            batch(&mut next, 3, "/d");
            assert_eq!(paths(&Journal::open(folder.path(), "r", 1).unwrap()), ["/a", "/b", "/d"]);
            std::fs::remove_file(next.path(next.next - 1)).unwrap();
        }
    }

    #[test]
    fn a_journal_of_another_ring_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        batch(&mut Journal::open(folder.path(), "boot 1", DEFAULT_LIMIT).unwrap(), 1, "/a");
        std::fs::write(folder.path().join("kernel-0000000007.jsonl"), b"\xff\n").unwrap();
        let other = Journal::open(folder.path(), "boot 2", DEFAULT_LIMIT).unwrap();
        assert!(lines(&other).is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn it_stays_below_its_limit_and_the_newest_remain() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::open(folder.path(), "r", 40_000).unwrap();
        for position in 0..2000 {
            assert!(batch(&mut journal, position, &format!("/{position}")));
        }
        let size: u64 =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().metadata().unwrap().len()).sum();
        assert!(size <= 41_000, "{size}");
        assert!(journal.counts().segments_dropped > 0);
        assert_eq!(paths(&journal).last().map(String::as_str), Some("/1999"));
    }

    #[test]
    fn a_disk_that_takes_nothing_is_counted_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("j");
        let mut journal = Journal::open(&inner, "r", DEFAULT_LIMIT).unwrap();
        std::fs::remove_dir(&inner).unwrap();
        assert!(!batch(&mut journal, 1, "/a"));
        std::fs::create_dir(&inner).unwrap();
        let tries = (0..200).position(|position| batch(&mut journal, 10 + position, "/b")).unwrap();
        assert_eq!(journal.counts().batches_not_written, tries as u64 + 1);
        assert_eq!(paths(&Journal::open(&inner, "r", DEFAULT_LIMIT).unwrap())[0], "/b");
    }
}
