//! What a process prints, where its standard output or error is no regular file.

use crate::arguments::Arguments;
use crate::caller::Caller;
use crate::files::{OpenFile, behind};
use crate::io::Buffers;
use crate::maps::{Counters, room};
use crate::records::{emit_bytes, header};
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use kvprov_agent_common::{Kind, OUTPUT_MAX, OUTPUT_WRITE_MAX, OutputRecord, notes};

/// Pieces of one buffer.
const PIECES: u64 = (OUTPUT_WRITE_MAX / OUTPUT_MAX) as u64;
/// Entries of a vector, which together give one piece.
const ENTRIES: u64 = 16;

/// Sends the bytes of a write, if its file is the one behind descriptor 1 or 2.
#[inline(always)]
pub(crate) fn capture(
    caller: Caller,
    task: *const task_struct,
    arguments: Arguments,
    open: &OpenFile,
    buffers: Buffers,
    written: u64,
) -> Option<()> {
    if open.is_sink() {
        return None;
    }
    let fd = if behind(task, 1) == open.address {
        1
    } else if behind(task, 2) == open.address {
        2
    } else {
        return None;
    };
    let total = if written < OUTPUT_WRITE_MAX as u64 { written } else { OUTPUT_WRITE_MAX as u64 };
    let mut begin = OutputRecord {
        header: header(caller, Kind::Output, open.class, written as i64, fd, 0),
        file: open.identity(),
        offset: 0,
        length: 0,
        skipped: 0,
    };
    let record = room()?.cast::<u8>();
    let buffer = arguments.get(1);
    if buffers == Buffers::Vector {
        let done = gather(record, buffer, if total < OUTPUT_MAX as u64 { total } else { OUTPUT_MAX as u64 });
        piece(record, &mut begin, None, done, 0, written - done);
        return None;
    }
    let mut done = 0u64;
    for _ in 0..PIECES {
        if done >= total {
            break;
        }
        let left = total - done;
        let length = if left < OUTPUT_MAX as u64 { left } else { OUTPUT_MAX as u64 };
        let skipped = if done + length < total { 0 } else { written - total };
        if !piece(record, &mut begin, Some(buffer + done), length, done, skipped) {
            break;
        }
        done += length;
    }
    if done < total {
        piece(record, &mut begin, None, 0, done, written - done);
    }
    None
}

/// Copies the first `limit` bytes of a vector's buffers behind each other into the room. Returns how many it got.
///
/// What changes from entry to entry is kept in the room, of which the verifier remembers nothing: every turn looks the
/// same to it.
#[inline(always)]
fn gather(record: *mut u8, vector: u64, limit: u64) -> u64 {
    let start = record.cast::<OutputRecord>();
    // SAFETY: up to 8,191 bytes done and 8,192 more, behind a record of 72, in a room of 20 KiB.
    unsafe {
        let (done, next) = (&raw mut (*start).length, &raw mut (*start).offset);
        done.write_volatile(0);
        for n in 0..ENTRIES {
            let before = u64::from(done.read_volatile());
            if before >= limit || before >= OUTPUT_MAX as u64 {
                break;
            }
            let mut iovec = [0u64; 2];
            bpf_probe_read_user((&raw mut iovec).cast(), 16, (vector + 16 * n) as *const _);
            let left = limit - before;
            next.write_volatile(if iovec[1] < left { iovec[1] } else { left } as u32);
            let length = next.read_volatile();
            if length > OUTPUT_MAX as u32 {
                break;
            }
            let to = record.add(size_of::<OutputRecord>()).add(before as usize);
            if length > 0 && bpf_probe_read_user(to.cast(), length, iovec[0] as *const _) != 0 {
                break;
            }
            done.write_volatile(before as u32 + length);
        }
        u64::from(done.read_volatile())
    }
}

/// Sends one piece, of bytes `from` the process, or of those that are in the room already. False if they could not be
/// read.
#[inline(always)]
fn piece(
    record: *mut u8,
    begin: &mut OutputRecord,
    from: Option<u64>,
    length: u64,
    offset: u64,
    skipped: u64,
) -> bool {
    let head = size_of::<OutputRecord>();
    begin.offset = offset as u32;
    begin.length = length as u32;
    begin.skipped = skipped;
    begin.header.notes = if skipped > 0 { notes::OUTPUT_CUT } else { 0 };
    // SAFETY: a record of 72 and 8,192 bytes at most, in a room of 20 KiB.
    let length = unsafe {
        let start = record.cast::<OutputRecord>();
        start.write(*begin);
        // Read back, so that the verifier sees the bound on the very number that is used.
        let length = u64::from(core::ptr::read_volatile(&raw const (*start).length));
        if length > OUTPUT_MAX as u64 {
            return false;
        }
        if let Some(from) = from
            && length > 0
            && bpf_probe_read_user(record.add(head).cast(), length as u32, from as *const _) != 0
        {
            return false;
        }
        length
    };
    if let Some(counters) = Counters::fired(Kind::Output) {
        emit_bytes(counters, record, (head as u64 + length + 7) & !7);
    }
    true
}
