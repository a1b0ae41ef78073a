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

/// Pieces of one write: of a buffer, or one of each of the first entries of a vector.
const PIECES: u64 = (OUTPUT_WRITE_MAX / OUTPUT_MAX) as u64;

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
    let vector = arguments.get(1);
    let mut done = 0u64;
    for n in 0..PIECES {
        if done >= total {
            break;
        }
        let [from, left] = match buffers {
            Buffers::One | Buffers::Placed | Buffers::PlacedVector => [vector + done, total - done],
            Buffers::Vector => {
                let mut iovec = [0u64; 2];
                // SAFETY: sixteen bytes on the stack.
                unsafe { bpf_probe_read_user((&raw mut iovec).cast(), 16, (vector + 16 * n) as *const _) };
                [iovec[0], if iovec[1] < total - done { iovec[1] } else { total - done }]
            }
        };
        let length = if left < OUTPUT_MAX as u64 { left } else { OUTPUT_MAX as u64 };
        let after = done + length;
        if length > 0
            && !piece(record, &mut begin, from, length, done, if after < total { 0 } else { written - total })
        {
            break;
        }
        done = after;
        // The rest of a long entry of a vector is left out, and what follows it too: pieces are of one stretch.
        if buffers == Buffers::Vector && length < left {
            break;
        }
    }
    if done < total {
        piece(record, &mut begin, 0, 0, done, written - done);
    }
    None
}

/// Sends one piece. False if its bytes could not be read.
#[inline(always)]
fn piece(
    record: *mut u8,
    begin: &mut OutputRecord,
    from: u64,
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
        if length > 0 && bpf_probe_read_user(record.add(head).cast(), length as u32, from as *const _) != 0 {
            return false;
        }
        length
    };
    if let Some(counters) = Counters::fired(Kind::Output) {
        emit_bytes(counters, record, (head as u64 + length + 7) & !7);
    }
    true
}
