//! Calls that name files by path. The path is read where the call ends: the kernel has just read it too, so that its
//! page is in memory.

use crate::arguments::{Arguments, result};
use crate::caller::{Caller, task};
use crate::files::OpenFile;
use crate::maps::{Counters, Room, room};
use crate::records::{emit_bytes, header};
use crate::results::is_retry;
use aya_ebpf::helpers::generated::{bpf_probe_read_user, bpf_probe_read_user_str};
use aya_ebpf::programs::TracePointContext;
use kvprov_agent_common::kernel::{counter, watch};
use kvprov_agent_common::{Class, FileIdentity, FileState, Kind, PATH_MAX, PathRecord, notes};

const AT_FDCWD: i32 = -100;
const AT_REMOVEDIR: u64 = 0x200;
const AT_EMPTY_PATH: u64 = 0x1000;
/// O_CREAT, O_WRONLY, O_TRUNC.
const CREAT: u32 = 0o1101;

/// Where a call has its flags.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flags {
    /// It has none.
    None,
    /// Of an open, in an argument.
    Open(usize),
    /// Of an open, in the `struct open_how` that an argument points to.
    How(usize),
    /// Of `creat`, which means them.
    #[cfg_attr(
        not(bpf_target_arch = "x86_64"),
        expect(dead_code, reason = "newer architectures have no creat")
    )]
    Creat,
    /// AT_REMOVEDIR and its like, in an argument.
    At(usize),
}

/// Where a call has what: numbers of arguments.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    /// Directory descriptor, if any, and path.
    pub(crate) first: (Option<usize>, usize),
    /// The same of the second path.
    pub(crate) second: Option<(Option<usize>, usize)>,
    pub(crate) flags: Flags,
}

/// The end of a call that names a file.
#[inline(always)]
pub(crate) fn named(context: &TracePointContext, call: Call) -> Option<()> {
    let caller = Caller::watched()?;
    let task = task();
    let arguments = Arguments::of(task);
    let mut flags = 0u32;
    let mut kind = call.kind;
    let mut may_be_empty = false;
    match call.flags {
        Flags::None => {}
        Flags::Open(n) => flags = arguments.get(n) as u32,
        Flags::Creat => flags = CREAT,
        Flags::How(n) => {
            let mut how = 0u64;
            // SAFETY: eight bytes on the stack.
            unsafe { bpf_probe_read_user((&raw mut how).cast(), 8, arguments.get(n) as *const _) };
            flags = how as u32;
        }
        Flags::At(n) => {
            let at = arguments.get(n);
            may_be_empty = at & AT_EMPTY_PATH != 0;
            if matches!(kind, Kind::Unlink) && at & AT_REMOVEDIR != 0 {
                kind = Kind::Rmdir;
            }
        }
    }
    let counters = Counters::fired(kind)?;
    let result = result(context);
    if !caller.wants(watch::FILES) || is_retry(result) {
        counters.filtered();
        return None;
    }
    let room = room()?;
    let mut class = Class::None;
    let mut file = FileIdentity { device: 0, open_file: 0, inode: 0 };
    let mut state = FileState { size: 0, modified: 0, changed: 0 };
    let mut remarks = 0u16;
    if matches!(call.kind, Kind::Open) && result >= 0 {
        match OpenFile::with_state(task, result as i32, room) {
            Some(open) if matches!(open.class, Class::Regular | Class::Directory) => {
                class = open.class;
                file = open.identity();
                state = open.state();
            }
            Some(_) => {
                counters.filtered();
                return None;
            }
            // Another thread closed it already.
            None => remarks |= notes::FILE_UNREADABLE,
        }
    }

    let record = room.cast::<u8>();
    let head = size_of::<PathRecord>();
    let first = path(room, 0, arguments.get(call.first.1));
    let length = match first {
        // A question about an open file. The empty path may lie in a page that the kernel never looked at.
        None | Some(0) if may_be_empty => {
            counters.filtered();
            return None;
        }
        Some(length) => length,
        None => {
            remarks |= notes::PATH_UNREADABLE;
            0
        }
    };
    let (mut second_fd, mut second_length) = (AT_FDCWD, 0);
    if let Some((at, name)) = call.second {
        second_fd = at.map_or(AT_FDCWD, |at| arguments.descriptor(at));
        second_length = path(room, length, arguments.get(name)).unwrap_or_else(|| {
            remarks |= notes::SECOND_PATH_UNREADABLE;
            0
        });
    }
    if remarks != 0 {
        counters.add(counter::UNREADABLE);
    }
    let fd = call.first.0.map_or(AT_FDCWD, |at| arguments.descriptor(at));
    let mut header = header(caller, kind, class, result, fd, flags);
    header.notes = remarks;
    // SAFETY: the begin of the room.
    unsafe {
        record.cast::<PathRecord>().write(PathRecord {
            header,
            file,
            state,
            second_fd,
            first_length: length as u16,
            second_length: second_length as u16,
        });
    }
    emit_bytes(counters, record, (head as u64 + length + second_length + 7) & !7);
    None
}

/// Copies a path into the record, `offset` bytes after its fixed part. Its length without the closing NUL; `None` if it
/// cannot be read or is too long.
#[inline(always)]
fn path(room: *mut Room, offset: u64, from: u64) -> Option<u64> {
    // SAFETY: 88 + 8191 + 4097 bytes fit into the room; the mask below bounds what comes as `offset`.
    let read = unsafe {
        let to = room.cast::<u8>().add(size_of::<PathRecord>()).add(offset as usize);
        bpf_probe_read_user_str(to.cast(), PATH_MAX as u32 + 1, from as *const _)
    };
    if read <= 0 || read > PATH_MAX as i64 {
        return None;
    }
    Some((read as u64 - 1) & (2 * PATH_MAX as u64 - 1))
}
