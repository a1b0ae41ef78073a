//! Making room: the oldest segment goes, except for what is essential.
//!
//! What is kept takes the segment's place: records that are being sent, then a `loss` observation for what was dropped,
//! then workers, factors and the losses of others, then the last sign of life. So nothing overtakes anything, and a
//! sign of life never vouches for what was dropped without the loss having been told before.
//!
//! Invariant: what is kept of all segments that went is one segment of at most `QueueConfig::remains` bytes (and what
//! was being sent); the next one that goes is folded into it.

use super::encode::{Encoded, encode};
use super::frame::{ALIVE, ESSENTIAL, OWN_LOSS, Record, Writer};
use super::loss::{Lost, Reason, Tally};
use super::queue::{Inner, Queue};
use super::segment::{Cursor, Segment, Store, each_frame};
use std::time::SystemTime;

/// A record that is kept, with its resource.
type Kept<'a> = (&'a [u8], Record<'a>);

/// What becomes of the records of segments that go.
#[derive(Default)]
struct Sorted<'a> {
    in_flight: Vec<Kept<'a>>,
    essential: Vec<Kept<'a>>,
    alive: Option<Kept<'a>>,
    /// Lost now.
    fresh: Tally,
    /// Lost earlier, and not yet told.
    earlier: Vec<Kept<'a>>,
    /// Signs of life that later ones replace.
    superseded: u64,
}

/// Makes room on disk or in memory; false where nothing can go.
pub(super) fn evict(queue: &Queue, inner: &mut Inner, disk: bool) -> bool {
    let goes = |segment: &Segment| segment.is_on_disk() == disk && !segment.remains;
    let Some(index) = inner.segments.iter().position(goes) else { return false };
    let folds = index.checked_sub(1).filter(|before| {
        inner.segments.get(*before).is_some_and(|before| before.remains && (disk || !before.is_on_disk()))
    });
    let first = folds.unwrap_or(index);
    if index + 1 == inner.segments.len() {
        inner.writer = None;
    }
    let gone: Vec<Segment> = inner.segments.drain(first..=index).collect();
    let (done, in_flight) = if first == 0 { (inner.cursor.done, inner.in_flight) } else { (0, 0) };
    let reason = if disk { Reason::QueueFull } else { Reason::DiskFull };

    let mut unread = Tally::default();
    let read: Vec<Vec<u8>> = gone
        .iter()
        .map(|segment| {
            segment.read(&queue.directory).unwrap_or_else(|error| {
                tracing::warn!(%error, number = segment.number, "a segment of the queue cannot be read back");
                unread.add(
                    None,
                    Reason::Damaged,
                    Lost { records: segment.records, bytes: segment.bytes, window: None },
                );
                Vec::new()
            })
        })
        .collect();
    let mut sorted = sort(&read, done, in_flight, reason);
    let records_before = gone.iter().map(|segment| segment.records).sum::<u64>().saturating_sub(done);
    sorted.cut(queue.config.remains(), reason);

    inner.count_lost(&sorted.fresh);
    inner.count_lost(&unread);
    let mut told = sorted.fresh;
    for ((resource, record), _) in sorted.earlier.iter().zip(0..) {
        told.fold(resource, record.payload);
    }
    let (number, unique) = (gone.last().map_or(0, |segment| segment.number), inner.unique());
    let mut losses = told.observations(&queue.speaker, number, unique);
    losses.extend(unread.observations(&queue.speaker, number, unique + 1));

    let mut frames = Encoded::default();
    write(&mut frames, &sorted.in_flight);
    let told = encode(&losses, &queue.sender);
    frames.records += told.records;
    frames.bytes += told.bytes;
    frames.frames.extend(told.frames);
    write(&mut frames, &sorted.essential);
    write(&mut frames, sorted.alive.as_slice());

    let bytes: Vec<u8> = frames.frames.into_iter().flat_map(|frame| frame.bytes).collect();
    let kept = sorted.in_flight.len() + sorted.essential.len() + usize::from(sorted.alive.is_some());
    inner.gave_up(records_before.saturating_sub(kept as u64));
    inner.came(frames.records.saturating_sub(kept as u64));
    let since = gone.first().map_or_else(SystemTime::now, |segment| segment.since);
    let length = bytes.len() as u64;
    // Where the disk refuses, memory holds it: it is small.
    let on_disk = disk && queue.directory.replace(number, &bytes).is_ok();
    for segment in
        gone.iter().filter(|segment| segment.is_on_disk() && !(on_disk && segment.number == number))
    {
        queue.directory.remove(segment.number);
    }
    let store = if on_disk { Store::Disk } else { Store::Memory(bytes) };
    let segment = Segment { number, store, bytes: length, records: frames.records, since, remains: true };
    inner.segments.insert(first, segment);
    if first == 0 {
        inner.cursor = Cursor::default();
        inner.epoch += 1;
    }
    true
}

fn sort(segments: &[Vec<u8>], done: u64, in_flight: u64, reason: Reason) -> Sorted<'_> {
    let mut sorted = Sorted::default();
    let mut number = 0;
    for bytes in segments {
        let scan = each_frame(bytes, |frame| {
            for record in frame.records {
                let kept = (frame.resource, record);
                if number >= done {
                    if number < done + in_flight {
                        sorted.in_flight.push(kept);
                    } else if record.flags & OWN_LOSS != 0 {
                        sorted.earlier.push(kept);
                    } else if record.flags & ESSENTIAL != 0 {
                        sorted.essential.push(kept);
                    } else if record.flags & ALIVE != 0 {
                        sorted.superseded += u64::from(sorted.alive.replace(kept).is_some());
                    } else {
                        sorted.fresh.record(reason, &record);
                    }
                }
                number += 1;
            }
        });
        if scan.damaged > 0 {
            let lost = Lost { records: scan.damaged_records, bytes: scan.damaged, window: None };
            sorted.fresh.add(None, Reason::Damaged, lost);
        }
    }
    sorted
}

/// Frames of records, in order.
fn write(frames: &mut Encoded, records: &[Kept<'_>]) {
    let mut writer: Option<Writer> = None;
    for (resource, record) in records {
        if let Some(full) = writer.take_if(|writer| writer.is_full() || writer.resource() != *resource) {
            frames.take(full);
        }
        writer.get_or_insert_with(|| Writer::new(resource.to_vec())).add(record);
    }
    if let Some(writer) = writer {
        frames.take(writer);
    }
}

// === impl Sorted ===

impl Sorted<'_> {
    /// Drops the oldest essential records beyond a number of bytes.
    fn cut(&mut self, bytes: u64, reason: Reason) {
        let mut left = bytes;
        let fits = self.essential.iter().rev().take_while(|(_, record)| {
            // 15: what a record takes beside its payload.
            let size = record.payload.len() as u64 + 15;
            let fits = size <= left;
            left = left.saturating_sub(size);
            fits
        });
        let from = self.essential.len() - fits.count();
        for (_, record) in self.essential.drain(..from) {
            self.fresh.record(reason, &record);
        }
    }
}
