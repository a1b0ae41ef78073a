//! The queue: what was observed and not yet delivered, on disk, in order, within bounds.
//!
//! Input: observations of any thread. An append is one write per frame; when it returns, the observations survive
//! `kill -9` ([`Committed::durable`]). Segments are sent in order and removed when they were delivered whole.
//!
//! Bounds: `capacity_bytes` on disk. When that is reached, the oldest segment goes: what is essential of it is kept in
//! its place together with a `loss` observation for the rest, so that it arrives before any sign of life that came
//! later. On a full disk the queue goes on in memory, within `memory_bytes`, and moves to the disk when there is room.
//!
//! Invariant: every record is delivered, or waits, or is in the sum of [`QueueStats::lost`]. The order of records is the
//! order of appends.

use super::batch::{Batch, Limit};
use super::config::QueueConfig;
use super::directory::{Directory, read_at};
use super::encode::{Encoded, encode};
use super::evict::evict;
use super::frame::Written;
use super::loss::{Lost, Reason, Speaker, Tally};
use super::segment::{Cursor, Segment, Store, each_frame};
use super::stats::{Kinds, QueueStats};
use super::{QueueError, resource};
use kvprov_model::observation::Observation;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How long a full disk is left alone before it is tried again.
const DISK_PAUSE: Duration = Duration::from_secs(1);
/// What is read of a segment that an earlier run left; none is longer.
const MAX_SEGMENT: usize = 64 << 20;
/// A segment that was delivered whole and has this many bytes is closed and removed, although it is not full.
const CLOSE_BYTES: u64 = 256 << 10;

/// What an append did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Observations that are in the queue now.
    pub records: u64,
    /// Observations that were too large for it; they are counted and reported as lost.
    pub oversized: u64,
    /// They are on disk, and everything before them too: a position behind them may be saved. False while the disk is
    /// full; [`super::Outbox::is_durable`] tells when that changes.
    pub durable: bool,
}

/// The queue. Shared by producers and the shipper.
#[derive(Debug)]
pub struct Queue {
    pub(super) inner: Mutex<Inner>,
    pub(super) directory: Directory,
    pub(super) config: QueueConfig,
    pub(super) sender: Vec<KeyValue>,
    pub(super) speaker: Speaker,
    pub(super) kinds: Kinds,
    /// Tells the shipper that something came.
    pub(super) wake: tokio::sync::Notify,
    /// Tells who flushes that something was delivered.
    delivered: Condvar,
}

/// What the lock holds.
#[derive(Debug, Default)]
pub(super) struct Inner {
    /// Oldest first.
    pub(super) segments: VecDeque<Segment>,
    /// The newest segment's file, while it is appended to.
    pub(super) writer: Option<File>,
    /// Number of the next segment.
    pub(super) next_number: u64,
    /// What is done of the oldest segment.
    pub(super) cursor: Cursor,
    /// Records behind `cursor.done` that are being sent.
    pub(super) in_flight: u64,
    /// Counts how often the oldest segment was rewritten.
    pub(super) epoch: u64,
    /// When a full disk is tried again.
    disk_retry: Option<Instant>,
    /// Records that were appended, ever.
    appended: u64,
    /// Records that left: delivered, refused or given up.
    left: u64,
    /// Records that the receiver took.
    delivered: u64,
    pub(super) lost: BTreeMap<Reason, u64>,
    torn_bytes: u64,
    disk_failures: u64,
    last_offset: u64,
    /// The shipper need not wait for more.
    pub(super) flushing: bool,
    closed: bool,
}

// === impl Queue ===

impl Queue {
    /// Opens a queue, or makes one. What a killed process left in it will be sent; the end of a write that was cut off
    /// is counted and dropped: its append never returned.
    pub fn open(config: QueueConfig) -> Result<Self, QueueError> {
        let directory = Directory::claim(&config.directory)?;
        let speaker = Speaker { node: config.node.clone(), boot_id: config.boot_id.clone() };
        let sender = resource::attributes(&config.resource);
        let mut inner = Inner::default();
        let mut damage = Tally::default();
        for number in directory.numbers()? {
            inner.next_number = number.saturating_add(1);
            let failed = |error: std::io::Error| QueueError::Io {
                doing: "read",
                path: directory.path().to_owned(),
                reason: error.to_string(),
            };
            let bytes = directory
                .open(number)
                .and_then(|mut file| read_at(&mut file, 0, MAX_SEGMENT))
                .map_err(failed)?;
            let scan = each_frame(&bytes, |_| {});
            inner.torn_bytes += scan.torn;
            // Of one that has whole frames the damage is told when it is sent.
            if scan.damaged > 0 && scan.records == 0 {
                let lost = Lost { records: scan.damaged_records, bytes: scan.damaged, window: None };
                damage.add(None, Reason::Damaged, lost);
            }
            if scan.records == 0 {
                directory.remove(number);
                continue;
            }
            let since = directory.modified(number).unwrap_or_else(SystemTime::now);
            let (bytes, records) = (scan.bytes, scan.records);
            inner.segments.push_back(Segment {
                number,
                store: Store::Disk,
                bytes,
                records,
                since,
                remains: false,
            });
            inner.appended += records;
        }
        let queue = Self {
            inner: Mutex::new(inner),
            directory,
            config,
            sender,
            speaker,
            kinds: Kinds::default(),
            wake: tokio::sync::Notify::new(),
            delivered: Condvar::new(),
        };
        queue.report(&damage);
        Ok(queue)
    }

    /// Appends observations; never waits for the receiver.
    pub fn append(&self, observations: &[Observation]) -> Result<Committed, QueueError> {
        let encoded = encode(observations, &self.sender);
        self.kinds.count(observations);
        let mut oversized = Tally::default();
        if encoded.oversized > 0 {
            let lost = Lost { records: encoded.oversized, bytes: encoded.oversized_bytes, window: None };
            oversized.add(None, Reason::Oversized, lost);
        }
        let mut inner = self.lock();
        if inner.closed {
            return Err(QueueError::Closed);
        }
        self.write(&mut inner, &encoded);
        self.report_to(&mut inner, &oversized);
        let durable = inner.is_durable();
        drop(inner);
        self.wake.notify_one();
        Ok(Committed { records: encoded.records, oversized: encoded.oversized, durable })
    }

    /// Everything that was appended is on disk.
    pub fn is_durable(&self) -> bool {
        self.lock().is_durable()
    }

    /// Forces what was written to the disk, so that it survives a loss of power too.
    pub fn sync(&self) -> Result<(), QueueError> {
        let file = self.lock().writer.as_ref().map(File::try_clone);
        let synced = file.map_or(Ok(()), |file| file.and_then(|file| file.sync_data()));
        synced.map_err(|error| QueueError::Io {
            doing: "write to",
            path: self.directory.path().to_owned(),
            reason: error.to_string(),
        })
    }

    /// Waits until everything appended so far has left, or for at most `patience`; true when it has.
    pub fn flush(&self, patience: Duration) -> bool {
        let mut inner = self.lock();
        let wanted = inner.appended;
        inner.flushing = true;
        self.wake.notify_one();
        let behind = |inner: &mut Inner| inner.left < wanted;
        let waited = self.delivered.wait_timeout_while(inner, patience, behind);
        let (mut inner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        inner.flushing = false;
        inner.left >= wanted
    }

    /// Takes no more appends. What waits stays for the next start.
    pub fn close(&self) {
        let mut inner = self.lock();
        self.settle(&mut inner, true);
        inner.closed = true;
        while inner.segments.front().is_some_and(|oldest| oldest.is_done(inner.cursor)) {
            self.remove_oldest(&mut inner);
        }
        self.wake.notify_one();
    }

    /// No more appends are taken.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// What the queue holds and what became of the rest.
    pub fn stats(&self) -> QueueStats {
        let inner = self.lock();
        let oldest = inner.segments.iter().find(|segment| !segment.is_done(inner.cursor_of(segment)));
        QueueStats {
            capacity_bytes: self.config.capacity(),
            disk_bytes: inner.bytes(true),
            memory_bytes: inner.bytes(false),
            segments: inner.segments.len() as u64,
            waiting: inner.waiting(),
            oldest: oldest.map(|segment| segment.since.elapsed().unwrap_or_default()),
            appended: inner.appended,
            delivered: inner.delivered,
            lost: inner.lost.clone(),
            torn_bytes: inner.torn_bytes,
            disk_failures: inner.disk_failures,
            durable: inner.is_durable(),
            kinds: self.kinds.read(),
        }
    }

    /// Tries a full disk again when it is time; the shipper calls it now and then.
    pub(super) fn tick(&self) {
        let mut inner = self.lock();
        self.settle(&mut inner, false);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that left without having been delivered.
    pub(super) fn report(&self, tally: &Tally) {
        self.report_to(&mut self.lock(), tally);
    }

    fn report_to(&self, inner: &mut Inner, tally: &Tally) {
        inner.count_lost(tally);
        let observations = tally.observations(&self.speaker, inner.next_number, inner.unique());
        if !observations.is_empty() && !inner.closed {
            let encoded = encode(&observations, &self.sender);
            self.write(inner, &encoded);
        }
    }

    fn write(&self, inner: &mut Inner, encoded: &Encoded) {
        for frame in &encoded.frames {
            if !(self.settle(inner, false) && self.write_to_disk(inner, frame)) {
                self.write_to_memory(inner, frame);
            }
            inner.appended += u64::from(frame.records);
        }
    }

    fn write_to_disk(&self, inner: &mut Inner, frame: &Written) -> bool {
        let length = frame.bytes.len() as u64;
        while inner.bytes(true) + length > self.config.capacity() && evict(self, inner, true) {}
        let full = |last: &Segment| last.bytes + length > self.config.segment() && last.records > 0;
        if inner.segments.back().is_some_and(full) {
            inner.writer = None;
        }
        if inner.writer.is_none() {
            let number = inner.next_number;
            match self.directory.create(number) {
                Ok(file) => inner.writer = Some(file),
                Err(error) => return self.disk_failed(inner, &error),
            }
            inner.next_number += 1;
            inner.segments.push_back(Segment::empty(number, Store::Disk));
        }
        let Inner { writer: Some(file), segments, .. } = &mut *inner else { return false };
        let Some(segment) = segments.back_mut() else { return false };
        if let Err(error) = file.write_all(&frame.bytes) {
            // What was written of the frame must not stand before the next one.
            if let Err(error) = file.set_len(segment.bytes) {
                tracing::debug!(%error, "a torn write stays behind the segment; it is skipped when it is read");
            }
            if segment.records == 0 {
                self.directory.remove(segment.number);
                segments.pop_back();
            }
            return self.disk_failed(inner, &error);
        }
        segment.bytes += length;
        segment.records += u64::from(frame.records);
        true
    }

    fn write_to_memory(&self, inner: &mut Inner, frame: &Written) {
        let length = frame.bytes.len() as u64;
        while inner.bytes(false) + length > self.config.memory() && evict(self, inner, false) {}
        let room = self.config.memory_segment();
        let open = |last: &Segment| !last.is_on_disk() && !last.remains && last.bytes + length <= room;
        if !inner.segments.back().is_some_and(open) {
            let number = inner.next_number;
            inner.next_number += 1;
            inner.segments.push_back(Segment::empty(number, Store::Memory(Vec::new())));
        }
        if let Some(segment) = inner.segments.back_mut()
            && let Store::Memory(bytes) = &mut segment.store
        {
            bytes.extend_from_slice(&frame.bytes);
            segment.bytes += length;
            segment.records += u64::from(frame.records);
        }
    }

    /// Moves what is in memory to the disk, as far as it is time and there is room; true when all of it is there.
    fn settle(&self, inner: &mut Inner, now: bool) -> bool {
        if inner.is_durable() && inner.disk_retry.is_none() {
            return true;
        }
        if !now && inner.disk_retry.is_some_and(|retry| Instant::now() < retry) {
            return false;
        }
        for index in 0..inner.segments.len() {
            let Some(segment) = inner.segments.get(index) else { break };
            let Store::Memory(bytes) = &segment.store else { continue };
            if let Err(error) = self.directory.replace(segment.number, bytes) {
                return self.disk_failed(inner, &error);
            }
            if let Some(segment) = inner.segments.get_mut(index) {
                segment.store = Store::Disk;
            }
        }
        if inner.disk_retry.take().is_some() {
            tracing::info!(queue = %self.directory.path().display(), "the queue is on disk again");
        }
        true
    }

    fn disk_failed(&self, inner: &mut Inner, error: &std::io::Error) -> bool {
        if inner.disk_retry.is_none() {
            tracing::warn!(
                %error,
                queue = %self.directory.path().display(),
                memory_bytes = self.config.memory(),
                "the queue cannot write to its disk and goes on in memory; free space there"
            );
        }
        inner.disk_failures += 1;
        inner.writer = None;
        inner.disk_retry = Some(Instant::now() + DISK_PAUSE);
        false
    }

    // --- the shipper's side ---

    /// The next records to send; the same again until [`Queue::done`].
    pub(super) fn next(&self, limit: Limit) -> Option<Batch> {
        loop {
            let mut inner = self.lock();
            self.drop_done(&mut inner);
            let cursor = inner.cursor;
            let oldest = inner.segments.front().filter(|oldest| !oldest.is_done(cursor))?;
            let window = Batch::window(oldest, cursor, limit, &self.directory);
            let epoch = inner.epoch;
            // Until it is known how many they are: none that may be among them goes.
            inner.in_flight = limit.records as u64;
            drop(inner);
            let (batch, damage) = Batch::read(window, cursor, limit, epoch);
            let mut inner = self.lock();
            inner.in_flight = batch.records;
            if !damage.is_empty() {
                // Nothing more goes into a segment that is damaged, the report least of all.
                inner.writer = None;
                self.report_to(&mut inner, &damage);
            }
            if batch.records > 0 {
                return Some(batch);
            }
            inner.pass(&batch);
        }
    }

    /// A batch has left: delivered, or given up for a reason. What was given up is reported.
    pub(super) fn done(&self, batch: &Batch, lost: &Tally) {
        let mut inner = self.lock();
        inner.pass(batch);
        inner.left += batch.records;
        let sum: u64 = lost.by_reason().values().sum();
        inner.delivered += batch.records.saturating_sub(sum);
        self.report_to(&mut inner, lost);
        self.drop_done(&mut inner);
        drop(inner);
        self.delivered.notify_all();
    }

    /// Records that wait, and whether the shipper should send them at once.
    pub(super) fn waiting(&self) -> (u64, bool) {
        let inner = self.lock();
        (inner.waiting(), inner.flushing || inner.closed)
    }

    fn drop_done(&self, inner: &mut Inner) {
        loop {
            let Some(oldest) = inner.segments.front() else { return };
            let last = inner.segments.len() == 1;
            if !oldest.is_done(inner.cursor) || (last && oldest.bytes < CLOSE_BYTES) {
                return;
            }
            self.remove_oldest(inner);
        }
    }

    fn remove_oldest(&self, inner: &mut Inner) {
        if inner.segments.len() == 1 {
            inner.writer = None;
        }
        if let Some(oldest) = inner.segments.pop_front() {
            // What could not be read was passed over.
            inner.left += oldest.records.saturating_sub(inner.cursor.done);
            if oldest.is_on_disk() {
                self.directory.remove(oldest.number);
            }
        }
        inner.cursor = Cursor::default();
        inner.epoch += 1;
    }
}

// === impl Inner ===

impl Inner {
    fn is_durable(&self) -> bool {
        self.segments.iter().all(Segment::is_on_disk)
    }

    /// Bytes on disk, or in memory.
    pub(super) fn bytes(&self, disk: bool) -> u64 {
        self.segments.iter().filter(|segment| segment.is_on_disk() == disk).map(|segment| segment.bytes).sum()
    }

    /// Records that are not done.
    fn waiting(&self) -> u64 {
        let records: u64 = self.segments.iter().map(|segment| segment.records).sum();
        records.saturating_sub(self.cursor.done)
    }

    fn cursor_of(&self, segment: &Segment) -> Cursor {
        let oldest = self.segments.front().is_some_and(|oldest| oldest.number == segment.number);
        if oldest { self.cursor } else { Cursor::default() }
    }

    /// A number that comes once: the time, moved on where the clock did not.
    pub(super) fn unique(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.last_offset = (self.last_offset + 1).max(now.as_nanos() as u64);
        self.last_offset
    }

    /// Counts records that will never be delivered.
    pub(super) fn count_lost(&mut self, tally: &Tally) {
        for (reason, records) in tally.by_reason() {
            *self.lost.entry(reason).or_default() += records;
        }
    }

    /// Records left the queue without having been sent.
    pub(super) fn gave_up(&mut self, records: u64) {
        self.left += records;
    }

    /// Records came into the queue beside an append.
    pub(super) fn came(&mut self, records: u64) {
        self.appended += records;
    }

    /// Moves the cursor behind a batch.
    fn pass(&mut self, batch: &Batch) {
        self.in_flight = 0;
        if self.epoch == batch.epoch {
            self.cursor = batch.end;
        } else {
            // The segment was rewritten in the meantime; the records of the batch are its first.
            self.cursor.done += batch.records;
        }
    }
}

// === impl Segment ===

impl Segment {
    fn empty(number: u64, store: Store) -> Self {
        Self { number, store, bytes: 0, records: 0, since: SystemTime::now(), remains: false }
    }
}
