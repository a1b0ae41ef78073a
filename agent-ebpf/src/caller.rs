//! Who calls: the one question that every program asks first.

use crate::maps::{OWN, WORKERS, scope};
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::helpers::generated::{bpf_get_current_ancestor_cgroup_id, bpf_get_current_task_btf};

/// A thread of a watched process.
#[derive(Clone, Copy)]
pub(crate) struct Caller {
    pub(crate) tgid: u32,
    pub(crate) tid: u32,
    /// A set of `watch`.
    pub(crate) flags: u32,
}

impl Caller {
    /// The current thread, if its process is watched.
    #[inline(always)]
    pub(crate) fn watched() -> Option<Self> {
        let id = bpf_get_current_pid_tgid();
        let tgid = (id >> 32) as u32;
        // SAFETY: a live pointer into the map.
        let flags = unsafe { *WORKERS.get_ptr(&tgid)? };
        in_scope().then_some(Self { tgid, tid: id as u32, flags })
    }

    /// The current thread, whether watched or not, unless its process is one of kvprov or out of scope.
    #[inline(always)]
    pub(crate) fn foreign() -> Option<Self> {
        let id = bpf_get_current_pid_tgid();
        let tgid = (id >> 32) as u32;
        if OWN.get_ptr(&tgid).is_some() || !in_scope() {
            return None;
        }
        Some(Self { tgid, tid: id as u32, flags: 0 })
    }

    /// Whether one of `flags` is set.
    #[inline(always)]
    pub(crate) fn wants(self, flags: u32) -> bool {
        self.flags & flags != 0
    }
}

/// The current thread's task. The verifier knows its type.
#[inline(always)]
pub(crate) fn task() -> *const task_struct {
    // SAFETY: a helper without arguments.
    unsafe { bpf_get_current_task_btf() }
}

/// Reads a member of a structure whose type the verifier knows.
///
/// # Safety
/// `base` came from the kernel as a pointer to a known type, and `offset` is that of a member of type `T`.
#[inline(always)]
pub(crate) unsafe fn member<B, T: Copy>(base: *const B, offset: usize) -> T {
    // SAFETY: the caller's promise; the kernel turns a fault into 0.
    unsafe { core::ptr::read_volatile(base.cast::<u8>().add(offset).cast::<T>()) }
}

#[inline(always)]
fn in_scope() -> bool {
    let (id, level) = scope();
    // SAFETY: a helper without pointers.
    id == 0 || unsafe { bpf_get_current_ancestor_cgroup_id(level as i32) } == id
}
