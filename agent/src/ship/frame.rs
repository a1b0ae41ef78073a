//! The format of a queue segment: frames, one after the other.
//!
//! A frame is what one append committed, or a part of it: one resource, and records of it. The header has a checksum of
//! its own, so that the length can be trusted where the body is damaged, and the next frame is found where the header
//! is. All integers are little-endian.
//!
//! ```text
//! header   magic "kvq1" · body length u32 · records u32 · crc32 of these 12 bytes u32 · crc32 of the body u32
//! body     resource length u32, resource (OTLP Resource) · workers u16, each: length u16, name · records
//! record   length u32 · flags u8 · worker u16 (index, 0xffff: none) · wall time i64 (least: none) · OTLP LogRecord
//! ```
//!
//! Invariant: reading never fails; what cannot be read is a [`Step::Gap`] of known length, and reading goes on behind it.

use memchr::memmem;

/// Bytes of a header.
pub(super) const HEADER: usize = 20;
/// Longest encoded record, in bytes; as much as the ledger takes of one observation.
pub(super) const MAX_RECORD: usize = 1 << 20;
/// A frame is closed when its body has this many bytes.
pub(super) const FRAME_BYTES: usize = 256 << 10;
/// Longest body that is believed: a full frame, its longest record, and room for names.
pub(super) const MAX_BODY: usize = FRAME_BYTES + MAX_RECORD + (1 << 20);
/// Most workers that one frame names.
const MAX_WORKERS: usize = 1024;

/// It should outlive others when the queue is full.
pub(super) const ESSENTIAL: u8 = 1;
/// A loss that the queue itself reported; several fold into one.
pub(super) const OWN_LOSS: u8 = 2;
/// A sign of life; a later one says all that an earlier one says.
pub(super) const ALIVE: u8 = 4;

const MAGIC: &[u8; 4] = b"kvq1";
const NO_WORKER: u16 = u16::MAX;
const NO_WALL: i64 = i64::MIN;

/// A record in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// [`ESSENTIAL`], [`OWN_LOSS`], [`ALIVE`].
    pub(super) flags: u8,
    /// The worker that it speaks of.
    pub(super) worker: Option<&'a str>,
    /// The node's wall time.
    pub(super) wall: Option<i64>,
    /// An OTLP LogRecord.
    pub(super) payload: &'a [u8],
}

/// A frame that was read.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Bytes with the header.
    pub(super) length: usize,
    /// An OTLP Resource.
    pub(super) resource: &'a [u8],
    /// Its records.
    pub(super) records: Vec<Record<'a>>,
}

/// What stands at a place.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// A whole frame.
    Frame(Frame<'a>),
    /// Bytes that are no frame, and how many records are known to be among them.
    Gap {
        /// Bytes to skip.
        bytes: usize,
        /// Records that the header states.
        records: u64,
        /// The bytes end in the middle of a frame: it was being written.
        torn: bool,
    },
    /// More bytes are needed to tell.
    Short,
    /// Nothing.
    End,
}

/// Writes one frame.
#[derive(Debug)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    resource: Vec<u8>,
    workers: Vec<String>,
    records: Vec<u8>,
    count: u32,
}

/// A frame as bytes.
#[derive(Debug)]
pub(super) struct Written {
    /// Header and body.
    pub(super) bytes: Vec<u8>,
    /// Records in it.
    pub(super) records: u32,
}

// === impl Writer ===

impl Writer {
    /// A frame of a resource.
    pub(super) fn new(resource: Vec<u8>) -> Self {
        Self { bytes: Vec::new(), resource, workers: Vec::new(), records: Vec::new(), count: 0 }
    }

    /// The resource of the frame.
    pub(super) fn resource(&self) -> &[u8] {
        &self.resource
    }

    /// Nothing more should be added.
    pub(super) fn is_full(&self) -> bool {
        self.records.len() >= FRAME_BYTES || self.workers.len() >= MAX_WORKERS
    }

    /// Adds a record; its payload is at most [`MAX_RECORD`] long.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        let worker = record.worker.map_or(NO_WORKER, |name| self.index_of(name));
        self.records.extend_from_slice(&(record.payload.len() as u32).to_le_bytes());
        self.records.push(record.flags);
        self.records.extend_from_slice(&worker.to_le_bytes());
        self.records.extend_from_slice(&record.wall.unwrap_or(NO_WALL).to_le_bytes());
        self.records.extend_from_slice(record.payload);
        self.count += 1;
    }

    fn index_of(&mut self, name: &str) -> u16 {
        // Names beyond what a length field holds are nobody's; the record itself has the whole name.
        if name.len() > usize::from(u16::MAX) {
            return NO_WORKER;
        }
        let found = self.workers.iter().rposition(|known| known == name);
        let index = found.unwrap_or_else(|| {
            self.workers.push(name.to_owned());
            self.workers.len() - 1
        });
        u16::try_from(index).unwrap_or(NO_WORKER)
    }

    /// The frame, where it has records.
    pub(super) fn finish(mut self) -> Option<Written> {
        if self.count == 0 {
            return None;
        }
        let out = &mut self.bytes;
        out.resize(HEADER, 0);
        out.extend_from_slice(&(self.resource.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.resource);
        out.extend_from_slice(&(self.workers.len() as u16).to_le_bytes());
        for name in &self.workers {
            out.extend_from_slice(&(name.len() as u16).to_le_bytes());
            out.extend_from_slice(name.as_bytes());
        }
        out.extend_from_slice(&self.records);
        let (length, body_crc) = ((out.len() - HEADER) as u32, crc32fast::hash(&out[HEADER..]));
        out[..4].copy_from_slice(MAGIC);
        out[4..8].copy_from_slice(&length.to_le_bytes());
        out[8..12].copy_from_slice(&self.count.to_le_bytes());
        let head_crc = crc32fast::hash(&out[..12]);
        out[12..16].copy_from_slice(&head_crc.to_le_bytes());
        out[16..20].copy_from_slice(&body_crc.to_le_bytes());
        Some(Written { bytes: self.bytes, records: self.count })
    }
}

/// Reads what stands at the begin of `bytes`. `complete`: nothing follows behind them.
pub(super) fn step(bytes: &[u8], complete: bool) -> Step<'_> {
    if bytes.is_empty() {
        return if complete { Step::End } else { Step::Short };
    }
    let Some((length, records)) = header(bytes) else {
        if bytes.len() < HEADER && !complete {
            return Step::Short;
        }
        return resynchronise(bytes, complete);
    };
    let whole = HEADER + length;
    if bytes.len() < whole {
        return if complete {
            Step::Gap { bytes: bytes.len(), records: u64::from(records), torn: true }
        } else {
            Step::Short
        };
    }
    let body = &bytes[HEADER..whole];
    let intact = read_u32(bytes, 16).is_some_and(|crc| crc == crc32fast::hash(body));
    match intact.then(|| read_body(body, records)).flatten() {
        Some((resource, records)) => Step::Frame(Frame { length: whole, resource, records }),
        None => Step::Gap { bytes: whole, records: u64::from(records), torn: false },
    }
}

/// Length of the body and number of records, where a valid header stands at the begin.
fn header(bytes: &[u8]) -> Option<(usize, u32)> {
    if bytes.get(..4)? != MAGIC || bytes.len() < HEADER {
        return None;
    }
    let length = read_u32(bytes, 4)? as usize;
    let valid = read_u32(bytes, 12)? == crc32fast::hash(&bytes[..12]) && length <= MAX_BODY;
    Some((length, read_u32(bytes, 8)?)).filter(|_| valid)
}

/// Skips to the next valid header.
fn resynchronise(bytes: &[u8], complete: bool) -> Step<'_> {
    let mut from = 1;
    while let Some(found) = bytes.get(from..).and_then(|rest| memmem::find(rest, MAGIC)) {
        let at = from + found;
        if bytes.len() - at < HEADER {
            // It may be one: with more bytes it will be seen.
            let torn = complete;
            return Step::Gap { bytes: if complete { bytes.len() } else { at }, records: 0, torn };
        }
        if header(&bytes[at..]).is_some() {
            return Step::Gap { bytes: at, records: 0, torn: false };
        }
        from = at + 1;
    }
    // A magic may stand over the end.
    let skip = if complete { bytes.len() } else { bytes.len().saturating_sub(MAGIC.len() - 1).max(1) };
    Step::Gap { bytes: skip, records: 0, torn: complete && bytes.len() < HEADER }
}

fn read_body(body: &[u8], count: u32) -> Option<(&[u8], Vec<Record<'_>>)> {
    let mut rest = body;
    let resource_length = read_u32(take(&mut rest, 4)?, 0)? as usize;
    let resource = take(&mut rest, resource_length)?;
    let workers = read_u16(take(&mut rest, 2)?)?;
    let mut names = Vec::with_capacity(usize::from(workers).min(MAX_WORKERS));
    for _ in 0..workers {
        let length = read_u16(take(&mut rest, 2)?)?;
        names.push(std::str::from_utf8(take(&mut rest, usize::from(length))?).ok()?);
    }
    let mut records = Vec::with_capacity((count as usize).min(rest.len() / 15 + 1));
    while !rest.is_empty() {
        let length = read_u32(take(&mut rest, 4)?, 0)? as usize;
        let flags = *take(&mut rest, 1)?.first()?;
        let worker = read_u16(take(&mut rest, 2)?)?;
        let wall = i64::from_le_bytes(take(&mut rest, 8)?.try_into().ok()?);
        let worker = names.get(usize::from(worker)).copied();
        let wall = (wall != NO_WALL).then_some(wall);
        records.push(Record { flags, worker, wall, payload: take(&mut rest, length)? });
    }
    (records.len() == count as usize).then_some((resource, records))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn read_u16(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(payloads: &[&[u8]]) -> Vec<u8> {
        let mut writer = Writer::new(b"resource".to_vec());
        for payload in payloads {
            writer.add(&Record { flags: ESSENTIAL, worker: Some("w0"), wall: Some(7), payload });
        }
        writer.finish().unwrap().bytes
    }

    /// Payloads that are found, records and bytes in gaps.
    fn read(bytes: &[u8]) -> (Vec<Vec<u8>>, u64, usize) {
        let (mut found, mut lost, mut skipped, mut at) = (Vec::new(), 0, 0, 0);
        loop {
            match step(&bytes[at..], true) {
                Step::Frame(frame) => {
                    found.extend(frame.records.iter().map(|record| record.payload.to_vec()));
                    at += frame.length;
                }
                Step::Gap { bytes, records, .. } => {
                    assert!(bytes > 0);
                    lost += records;
                    skipped += bytes;
                    at += bytes;
                }
                Step::Short => panic!("short at the end"),
                Step::End => return (found, lost, skipped),
            }
        }
    }

    #[test]
    fn a_frame_gives_back_what_was_added() {
        let bytes = frame(&[b"one", b""]);
        let Step::Frame(read) = step(&bytes, true) else { panic!("no frame") };
        assert_eq!((read.length, read.resource), (bytes.len(), &b"resource"[..]));
        let expected = Record { flags: ESSENTIAL, worker: Some("w0"), wall: Some(7), payload: b"one" };
        assert_eq!(read.records, vec![expected, Record { payload: b"", ..expected }]);
    }

    #[test]
    fn a_damaged_body_loses_its_own_records_only() {
        let mut bytes = [frame(&[b"one", b"two"]), frame(&[b"three"])].concat();
        bytes[HEADER + 3] ^= 0x40;
        assert_eq!(read(&bytes).0, vec![b"three".to_vec()]);
        assert_eq!(read(&bytes).1, 2);
    }

    #[test]
    fn a_damaged_header_is_skipped_to_the_next_one() {
        let mut bytes = [frame(&[b"one"]), frame(&[b"three"])].concat();
        bytes[5] ^= 0x40;
        assert_eq!(read(&bytes).0, vec![b"three".to_vec()]);
    }

    #[test]
    fn a_magic_inside_of_a_payload_is_no_frame() {
        let mut bytes = [frame(&[b"kvq1kvq1kvq1kvq1kvq1kvq1kvq1"]), frame(&[b"three"])].concat();
        bytes[0] = 0;
        assert_eq!(read(&bytes).0, vec![b"three".to_vec()]);
    }

    #[test]
    fn a_torn_frame_is_told_from_a_damaged_one() {
        let bytes = frame(&[b"one"]);
        for cut in 1..bytes.len() {
            assert!(matches!(step(&bytes[..cut], true), Step::Gap { torn: true, .. }), "{cut}");
            assert!(matches!(step(&bytes[..cut], false), Step::Short), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_to_their_end(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..400) {
            let good = frame(&[b"good"]);
            let at = at.min(bytes.len());
            bytes.splice(at..at, good);
            let (found, _, _) = read(&bytes);
            prop_assert!(found.contains(&b"good".to_vec()));
        }

        #[test]
        fn one_flipped_byte_loses_at_most_one_frame(at in 0usize..1000, bit in 0u8..8) {
            let payloads: Vec<Vec<u8>> = (0..8u8).map(|number| vec![number; 20]).collect();
            let mut bytes: Vec<u8> = payloads.iter().flat_map(|payload| frame(&[payload])).collect();
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            let (found, _, _) = read(&bytes);
            prop_assert!(found.len() >= 7, "{}", found.len());
            prop_assert!(found.iter().all(|payload| payloads.contains(payload)));
        }
    }
}
