//! Processes that begin, change their program, and end.

use crate::caller::{Caller, member, task};
use crate::maps::{Counters, OWN, TOLD, UNFOLLOWED, WORKERS, has, layout_of};
use crate::records::{emit, header};
use crate::{blind, blind::WAYS};
use aya_ebpf::EbpfContext;
use aya_ebpf::helpers::generated::{bpf_get_current_cgroup_id, bpf_probe_read_kernel};
use aya_ebpf::programs::BtfTracePointContext;
use kvprov_agent_common::kernel::layout;
use kvprov_agent_common::{BlindSpot, Class, Kind, ProcessRecord};

/// End of the address space of the largest 32-bit program.
const COMPAT_END: u64 = 1 << 32;

/// `sched_process_exec`: of every process in scope.
#[inline(always)]
pub(crate) fn executed() -> Option<()> {
    let mut caller = Caller::foreign()?;
    let counters = Counters::fired(Kind::Exec)?;
    let task = task();
    emit(counters, &record(task.cast(), caller, Kind::Exec, 0));
    // SAFETY: a live pointer into the map.
    caller.flags = unsafe { *WORKERS.get_ptr(&caller.tgid)? };
    if !has(layout::MM_TASK_SIZE) {
        return None;
    }
    // SAFETY: members of the types that their names say, by the loader's offsets.
    let end: u64 = unsafe {
        let memory: *const u8 = member(task, layout_of(layout::TASK_MM));
        if memory.is_null() {
            return None;
        }
        member(memory, layout_of(layout::MM_TASK_SIZE))
    };
    if end <= COMPAT_END {
        blind::tell(caller, BlindSpot::Compat);
    }
    None
}

/// `sched_process_fork`: children of watched processes are watched before they run.
#[inline(always)]
pub(crate) fn forked(context: &BtfTracePointContext) -> Option<()> {
    let caller = Caller::watched()?;
    let child = argument(context, 1);
    // SAFETY: a member of the type that its name says, by the loader's offset.
    let tgid: u32 = unsafe { member(child, layout_of(layout::TASK_TGID)) };
    if tgid == caller.tgid {
        // A thread.
        return None;
    }
    let counters = Counters::fired(Kind::Fork)?;
    if OWN.get_ptr(&tgid).is_some() {
        counters.filtered();
        return None;
    }
    if WORKERS.insert(&tgid, &caller.flags, 0).is_err() {
        if let Some(count) = UNFOLLOWED.get_ptr_mut(0) {
            // SAFETY: a live pointer into the map.
            unsafe { *count += 1 };
        }
    }
    let parent = caller.tgid;
    let mut record = record(child, Caller { tgid, tid: tgid, flags: 0 }, Kind::Fork, 0);
    record.parent = parent;
    emit(counters, &record);
    None
}

/// `sched_process_exit`: of a watched process, once its last thread ends.
#[inline(always)]
pub(crate) fn exited() -> Option<()> {
    let caller = Caller::watched()?;
    let task = task().cast::<u8>();
    // SAFETY: members of the types that their names say, by the loader's offsets.
    let (live, code): (u32, u32) = unsafe {
        let signal: *const u8 = member(task, layout_of(layout::TASK_SIGNAL));
        if signal.is_null() {
            return None;
        }
        (member(signal, layout_of(layout::SIGNAL_LIVE)), member(task, layout_of(layout::TASK_EXIT_CODE)))
    };
    // Two last threads may both see none alive; only one of them removes the process.
    if live != 0 || WORKERS.remove(&caller.tgid).is_err() {
        return None;
    }
    for way in WAYS {
        let _ = TOLD.remove(&blind::key(caller.tgid, way));
    }
    let counters = Counters::fired(Kind::Exit)?;
    emit(counters, &record(task, caller, Kind::Exit, code));
    None
}

#[inline(always)]
fn argument(context: &BtfTracePointContext, n: usize) -> *const u8 {
    // SAFETY: `n` is below the number of the tracepoint's arguments; the verifier knows the type of each.
    unsafe { *context.as_ptr().cast::<*const u8>().add(n) }
}

#[inline(always)]
fn record(task: *const u8, caller: Caller, kind: Kind, flags: u32) -> ProcessRecord {
    let mut record = ProcessRecord {
        header: header(caller, kind, Class::None, 0, 0, flags),
        parent: 0,
        reserved: 0,
        started: 0,
        // SAFETY: a helper without arguments.
        cgroup: unsafe { bpf_get_current_cgroup_id() },
        name: [0; 16],
    };
    // SAFETY: members of the types that their names say, by the loader's offsets; the name has sixteen bytes.
    unsafe {
        let parent: *const u8 = member(task, layout_of(layout::TASK_REAL_PARENT));
        if !parent.is_null() {
            record.parent = member(parent, layout_of(layout::TASK_TGID));
        }
        record.started = member(task, layout_of(layout::TASK_STARTED));
        let name = task.add(layout_of(layout::TASK_NAME));
        bpf_probe_read_kernel((&raw mut record.name).cast(), 16, name.cast());
    }
    record
}
