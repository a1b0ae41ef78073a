//! Records of sockets.

use crate::arguments::{Arguments, result};
use crate::caller::{Caller, task};
use crate::files::{OpenFile, at};
use crate::maps::{Counters, room};
use crate::records::{emit, header};
use crate::results::{is_in_progress, is_retry};
use aya_ebpf::helpers::generated::bpf_probe_read_user;
use aya_ebpf::programs::TracePointContext;
use kvprov_agent_common::kernel::{layout, watch};
use kvprov_agent_common::{Class, FileRecord, Header, Kind, SocketRecord};

/// Messages of one call whose bytes are added up.
const MESSAGES_MAX: i64 = 64;
/// `sizeof(struct mmsghdr)` and the offset of `msg_len` in it.
const MESSAGE_BYTES: u64 = 64;
const MESSAGE_LENGTH: u64 = 56;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// How a call tells what it moved.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moves {
    /// One buffer, whose size is argument 2.
    Buffer,
    /// A `struct msghdr`.
    Message,
    /// An array of `struct mmsghdr` in argument 1; the result counts messages.
    Messages,
}

/// The end of a call that sends or receives.
#[inline(always)]
pub(crate) fn moved(context: &TracePointContext, kind: Kind, moves: Moves) -> Option<()> {
    let mut result = result(context);
    // Who polls does so a million times a second.
    if is_retry(result) {
        return None;
    }
    let caller = Caller::watched()?;
    let counters = Counters::fired(kind)?;
    if !caller.wants(watch::SOCKETS) || result == 0 {
        counters.filtered();
        return None;
    }
    let task = task();
    let arguments = Arguments::of(task);
    let fd = arguments.descriptor(0);
    let Some(open) = OpenFile::of(task, fd, room()?).filter(|open| matches!(open.class, Class::Inet)) else {
        counters.filtered();
        return None;
    };
    if moves == Moves::Messages {
        result = bytes_of_messages(arguments.get(1), result);
    }
    let wanted = if moves == Moves::Buffer { arguments.get(2) } else { 0 };
    let mut record = record(&open, header(caller, kind, Class::Inet, result, fd, 0), wanted, 0);
    if moves == Moves::Buffer && kind as u16 == Kind::Send as u16 && record.peer_port == 0 {
        peer_from_user(&mut record, arguments.get(4));
    }
    emit(counters, &record);
    None
}

/// The end of a connect.
#[inline(always)]
pub(crate) fn connected(context: &TracePointContext) -> Option<()> {
    let caller = Caller::watched()?;
    let counters = Counters::fired(Kind::Connect)?;
    let result = result(context);
    if !caller.wants(watch::SOCKETS) || (is_retry(result) && !is_in_progress(result)) {
        counters.filtered();
        return None;
    }
    let task = task();
    let arguments = Arguments::of(task);
    let fd = arguments.descriptor(0);
    let Some(open) = OpenFile::of(task, fd, room()?).filter(|open| matches!(open.class, Class::Inet)) else {
        counters.filtered();
        return None;
    };
    let mut record = record(&open, header(caller, Kind::Connect, Class::Inet, result, fd, 0), 0, 0);
    peer_from_user(&mut record, arguments.get(1));
    emit(counters, &record);
    None
}

/// A record of an open socket.
#[inline(always)]
pub(crate) fn record(open: &OpenFile, header: Header, wanted: u64, references: u64) -> SocketRecord {
    let (socket, sock) = open.socket_parts();
    // SAFETY: offsets of the loader inside the copies.
    unsafe {
        let (local, peer) =
            if at::<u16>(sock, layout::SOCK_FAMILY) == AF_INET6 && crate::maps::has(layout::SOCK_V6) {
                (at::<[u64; 2]>(sock, layout::SOCK_V6), at::<[u64; 2]>(sock, layout::SOCK_PEER_V6))
            } else {
                (mapped(at(sock, layout::SOCK_V4)), mapped(at(sock, layout::SOCK_PEER_V4)))
            };
        SocketRecord {
            call: FileRecord { header, file: open.identity(), wanted, references },
            local: bytes(local),
            peer: bytes(peer),
            local_port: at(sock, layout::SOCK_PORT),
            peer_port: u16::from_be(at(sock, layout::SOCK_PEER_PORT)),
            socket_type: at(socket, layout::SOCKET_TYPE),
            reserved: 0,
        }
    }
}

/// `::ffff:a.b.c.d` of an address in network order.
#[inline(always)]
fn mapped(v4: u32) -> [u64; 2] {
    [0, (u64::from(v4) << 32) | 0xffff_0000]
}

#[inline(always)]
fn bytes(words: [u64; 2]) -> [u8; 16] {
    // SAFETY: sixteen bytes either way; little endian, as the target is.
    unsafe { core::mem::transmute(words) }
}

/// Takes the peer from the `struct sockaddr` that the process gave.
#[inline(always)]
fn peer_from_user(record: &mut SocketRecord, address: u64) {
    if address == 0 {
        return;
    }
    let mut begin = [0u16; 4];
    // SAFETY: eight bytes on the stack.
    let failed = unsafe { bpf_probe_read_user((&raw mut begin).cast(), 8, address as *const _) } != 0;
    if failed {
        return;
    }
    if begin[0] == AF_INET {
        record.peer = bytes(mapped(u32::from(begin[2]) | (u32::from(begin[3]) << 16)));
        record.peer_port = u16::from_be(begin[1]);
    } else if begin[0] == AF_INET6 {
        let mut peer = [0u64; 2];
        // SAFETY: sixteen bytes on the stack; `sin6_addr` is at 8.
        unsafe { bpf_probe_read_user((&raw mut peer).cast(), 16, (address + 8) as *const _) };
        record.peer = bytes(peer);
        record.peer_port = u16::from_be(begin[1]);
    }
}

/// Bytes of the messages that a call moved; of more than [`MESSAGES_MAX`] those of the first.
#[inline(always)]
fn bytes_of_messages(array: u64, count: i64) -> i64 {
    if count <= 0 {
        return count;
    }
    let mut sum = 0i64;
    for n in 0..MESSAGES_MAX {
        if n >= count {
            break;
        }
        let mut length = 0u32;
        let from = array + n as u64 * MESSAGE_BYTES + MESSAGE_LENGTH;
        // SAFETY: four bytes on the stack.
        unsafe { bpf_probe_read_user((&raw mut length).cast(), 4, from as *const _) };
        sum += i64::from(length);
    }
    sum
}
