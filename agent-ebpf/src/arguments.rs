//! Arguments and result of a system call.

use aya_ebpf::EbpfContext;
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_task_pt_regs;
use aya_ebpf::programs::TracePointContext;

/// Registers with which the current system call began; read where it ends.
#[derive(Clone, Copy)]
pub(crate) struct Arguments(*const u8);

impl Arguments {
    /// Those of the current thread.
    #[inline(always)]
    pub(crate) fn of(task: *const task_struct) -> Self {
        // SAFETY: `task` came from the kernel as the current task.
        Self(unsafe { bpf_task_pt_regs(task.cast_mut()) } as *const u8)
    }

    /// Argument `n`, from 0 to 5.
    #[inline(always)]
    pub(crate) fn get(self, n: usize) -> u64 {
        // SAFETY: an offset inside `struct pt_regs`, whose type the verifier knows.
        unsafe { core::ptr::read_volatile(self.0.add(offset(n)).cast::<u64>()) }
    }

    /// Argument `n` as a descriptor.
    #[inline(always)]
    pub(crate) fn descriptor(self, n: usize) -> i32 {
        self.get(n) as i32
    }
}

/// r10, r8, r9, rdi, rsi, rdx in `struct pt_regs`. The call's result replaces only rax.
#[cfg(bpf_target_arch = "x86_64")]
#[inline(always)]
const fn offset(n: usize) -> usize {
    match n {
        0 => 112,
        1 => 104,
        2 => 96,
        3 => 56,
        4 => 72,
        _ => 64,
    }
}

/// `regs[n]` in `struct pt_regs`; the result replaces `regs[0]`, whose old value is in `orig_x0`.
#[cfg(bpf_target_arch = "aarch64")]
#[inline(always)]
const fn offset(n: usize) -> usize {
    if n == 0 { 272 } else { 8 * n }
}

/// What a call returned, at its end.
#[inline(always)]
pub(crate) fn result(context: &TracePointContext) -> i64 {
    // SAFETY: `ret` of the format of every sys_exit tracepoint.
    unsafe { *context.as_ptr().cast::<u8>().add(16).cast::<i64>() }
}

/// Argument `n` of a call, at its begin.
#[inline(always)]
pub(crate) fn entering(context: &TracePointContext, n: usize) -> u64 {
    // SAFETY: `n` is below the number of the call's arguments; their format is one of eight bytes each.
    unsafe { *context.as_ptr().cast::<u8>().add(16 + 8 * n).cast::<u64>() }
}
