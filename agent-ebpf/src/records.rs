//! Writing a record to the ring.

use crate::caller::Caller;
use crate::maps::{Counters, EVENTS};
use aya_ebpf::helpers::generated::{bpf_ktime_get_ns, bpf_ringbuf_output};
use aya_ebpf::maps::RingBuf;
use kvprov_agent_common::kernel::counter;
use kvprov_agent_common::{Class, Header, Kind};

/// Waiting bytes at whose multiples the reader is woken. It also looks by itself, many times a second.
const WAKE_UP: u64 = 64 << 10;

const BPF_RB_AVAIL_DATA: u64 = 0;
const BPF_RB_NO_WAKEUP: u64 = 1;
const BPF_RB_FORCE_WAKEUP: u64 = 2;

/// The begin of a record of `caller`.
#[inline(always)]
pub(crate) fn header(caller: Caller, kind: Kind, class: Class, result: i64, fd: i32, flags: u32) -> Header {
    Header {
        kind: kind as u16,
        class: class as u16,
        notes: 0,
        reserved: 0,
        // SAFETY: a helper without arguments.
        time: unsafe { bpf_ktime_get_ns() },
        tgid: caller.tgid,
        tid: caller.tid,
        result,
        fd,
        flags,
    }
}

/// Copies a record to the ring and counts what became of it.
#[inline(always)]
pub(crate) fn emit<T>(counters: Counters, record: &T) {
    emit_bytes(counters, core::ptr::from_ref(record).cast(), size_of::<T>() as u64);
}

/// Copies `size` bytes, a multiple of eight, to the ring and counts what became of them.
#[inline(always)]
pub(crate) fn emit_bytes(counters: Counters, record: *const u8, size: u64) {
    let waiting = EVENTS.query(BPF_RB_AVAIL_DATA);
    // Waking costs more than the record: only where another portion has become full.
    let full = (waiting + size + 8) / WAKE_UP != waiting / WAKE_UP;
    let flags = if full { BPF_RB_FORCE_WAKEUP } else { BPF_RB_NO_WAKEUP };
    let ring = (&raw const EVENTS).cast::<RingBuf>().cast_mut();
    // SAFETY: the verifier holds `size` to what `record` points to.
    let failed = unsafe { bpf_ringbuf_output(ring.cast(), record.cast_mut().cast(), size, flags) } != 0;
    counters.add(if failed { counter::DROPPED } else { counter::DELIVERED });
}
