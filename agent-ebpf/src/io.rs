//! Calls on descriptors: reads, writes, closes and what else names a file by its descriptor.

use crate::arguments::{Arguments, entering, result};
use crate::caller::{Caller, member, task};
use crate::files::OpenFile;
use crate::maps::{Counters, layout_of, room};
use crate::records::{emit, header};
use crate::results::is_retry;
use crate::{output, sockets};
use aya_ebpf::helpers::generated::bpf_loop;
use aya_ebpf::programs::TracePointContext;
use core::ffi::c_void;
use kvprov_agent_common::kernel::{layout, watch};
use kvprov_agent_common::{Class, FileIdentity, FileRecord, Kind};

/// How a call names its buffers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// Argument 1, of the size in argument 2.
    One,
    /// An array of `struct iovec` in argument 1, their number in argument 2.
    Vector,
    /// As `One`, at a place in the file: what is no file cannot take it.
    Placed,
    /// As `Vector`, at a place in the file.
    PlacedVector,
}

impl Buffers {
    /// Whether there is one buffer.
    #[inline(always)]
    fn is_one(self) -> bool {
        matches!(self, Self::One | Self::Placed)
    }
}

const MAP_ANONYMOUS: u64 = 0x20;
const CLOSE_RANGE_CLOEXEC: u64 = 4;
/// Descriptors that one `close_range` tells one by one.
const CLOSE_RANGE_MAX: u32 = 16_384;

/// The end of a read or write.
#[inline(always)]
pub(crate) fn moved(context: &TracePointContext, kind: Kind, buffers: Buffers) -> Option<()> {
    let result = result(context);
    // Who polls does so a million times a second: asking whose thread it is would cost as much as the call.
    if is_retry(result) {
        return None;
    }
    let caller = Caller::watched()?;
    let counters = Counters::fired(kind)?;
    let task = task();
    let arguments = Arguments::of(task);
    let fd = arguments.descriptor(0);
    let Some(open) = OpenFile::of(task, fd, room()?) else {
        counters.filtered();
        return None;
    };
    let wanted = if buffers.is_one() { arguments.get(2) } else { 0 };
    match open.class {
        Class::Regular if caller.wants(watch::FILES) => {
            let header = header(caller, kind, Class::Regular, result, fd, 0);
            emit(counters, &FileRecord { header, file: open.identity(), wanted, references: 0 });
        }
        Class::Inet if caller.wants(watch::SOCKETS) && result != 0 => {
            let header = header(caller, kind, Class::Inet, result, fd, 0);
            emit(counters, &sockets::record(&open, header, wanted, 0));
        }
        Class::Pipe | Class::Character | Class::OtherSocket => {
            counters.filtered();
            let prints =
                kind as u16 == Kind::Write as u16 && matches!(buffers, Buffers::One | Buffers::Vector);
            if prints && caller.wants(watch::OUTPUT) && result > 0 {
                output::capture(caller, task, arguments, &open, buffers, result as u64);
            }
        }
        _ => counters.filtered(),
    }
    None
}

/// The begin of a close.
#[inline(always)]
pub(crate) fn closing(context: &TracePointContext) -> Option<()> {
    let caller = Caller::watched()?;
    close(caller, entering(context, 0) as i32)
}

#[inline(always)]
fn close(caller: Caller, fd: i32) -> Option<()> {
    let counters = Counters::fired(Kind::Close)?;
    let Some(open) = OpenFile::of(task(), fd, room()?) else {
        counters.filtered();
        return None;
    };
    match open.class {
        Class::Regular | Class::Directory if caller.wants(watch::FILES) => {
            let header = header(caller, Kind::Close, open.class, 0, fd, 0);
            let record =
                FileRecord { header, file: open.identity(), wanted: 0, references: open.references() };
            emit(counters, &record);
        }
        Class::Inet if caller.wants(watch::SOCKETS) => {
            let header = header(caller, Kind::Close, Class::Inet, 0, fd, 0);
            emit(counters, &sockets::record(&open, header, 0, open.references()));
        }
        _ => counters.filtered(),
    }
    None
}

/// The begin of a close of many. What is beyond [`CLOSE_RANGE_MAX`] gives one record of no class, with the first
/// descriptor that is not told by itself in `fd` and the last one in `wanted`.
#[inline(always)]
pub(crate) fn closing_range(context: &TracePointContext) -> Option<()> {
    let caller = Caller::watched()?;
    let (first, last) = (entering(context, 0) as u32, entering(context, 1) as u32);
    if entering(context, 2) & CLOSE_RANGE_CLOEXEC != 0 || first > last {
        Counters::fired(Kind::Close)?.filtered();
        return None;
    }
    let task = task();
    // SAFETY: members of the types that their names say, by the loader's offsets.
    let length: u32 = unsafe {
        let files: *const u8 = member(task, layout_of(layout::TASK_FILES));
        if files.is_null() {
            return None;
        }
        let table: *const u8 = member(files, layout_of(layout::FILES_TABLE));
        if table.is_null() {
            return None;
        }
        member(table, layout_of(layout::TABLE_LENGTH))
    };
    let end = if last < length { last + 1 } else { length };
    if first >= end {
        Counters::fired(Kind::Close)?.filtered();
        return None;
    }
    let mut range = Range { caller, first };
    let count = if end - first < CLOSE_RANGE_MAX { end - first } else { CLOSE_RANGE_MAX };
    // SAFETY: the callback is a function of the form that the helper wants, and gets a pointer to `range`.
    unsafe { bpf_loop(count, close_one as *const () as *mut c_void, (&raw mut range).cast(), 0) };
    let beyond = first + count;
    if beyond < end {
        let counters = Counters::fired(Kind::Close)?;
        let header = header(caller, Kind::Close, Class::None, 0, beyond as i32, 0);
        let file = FileIdentity { device: 0, open_file: 0, inode: 0 };
        emit(counters, &FileRecord { header, file, wanted: u64::from(end - 1), references: 0 });
    }
    None
}

/// Descriptors that are closed one after the other.
struct Range {
    caller: Caller,
    first: u32,
}

/// Closes the `n`th of them. 0: go on.
extern "C" fn close_one(n: u32, range: *mut Range) -> i64 {
    // SAFETY: `bpf_loop` passes on what it got.
    let (caller, fd) = unsafe { ((*range).caller, (*range).first.wrapping_add(n) as i32) };
    if crate::files::behind(task(), fd) != 0 {
        let _: Option<()> = close(caller, fd);
    }
    0
}

/// The end of a call whose argument `fd` has to be a file of a class.
#[inline(always)]
pub(crate) fn on_file(context: &TracePointContext, kind: Kind, fd: usize, class: Class) -> Option<()> {
    let caller = Caller::watched()?;
    let counters = Counters::fired(kind)?;
    let result = result(context);
    let task = task();
    let arguments = Arguments::of(task);
    let mapping = kind as u16 == Kind::Mmap as u16;
    let unwanted = mapping && (result < 0 && result > -4096 || arguments.get(3) & MAP_ANONYMOUS != 0);
    if !caller.wants(watch::FILES) || is_retry(result) || unwanted {
        counters.filtered();
        return None;
    }
    let fd = arguments.descriptor(fd);
    let open = OpenFile::of(task, fd, room()?).filter(|open| open.class as u16 == class as u16);
    let Some(open) = open else {
        counters.filtered();
        return None;
    };
    let wanted = match kind {
        Kind::Mmap | Kind::Ftruncate => arguments.get(1),
        Kind::Readdir => arguments.get(2),
        _ => 0,
    };
    let header = header(caller, kind, class, if mapping { 0 } else { result }, fd, 0);
    emit(counters, &FileRecord { header, file: open.identity(), wanted, references: 0 });
    None
}

/// The end of a call on another process's memory.
#[inline(always)]
pub(crate) fn on_process(context: &TracePointContext, kind: Kind) -> Option<()> {
    let caller = Caller::watched()?;
    let counters = Counters::fired(kind)?;
    let result = result(context);
    if !caller.wants(watch::FILES | watch::SOCKETS) || is_retry(result) {
        counters.filtered();
        return None;
    }
    let other = Arguments::of(task()).descriptor(0);
    let header = header(caller, kind, Class::None, result, other, 0);
    let file = FileIdentity { device: 0, open_file: 0, inode: 0 };
    emit(counters, &FileRecord { header, file, wanted: 0, references: 0 });
    None
}
