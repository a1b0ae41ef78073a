//! The programs: one a system call, named as its tracepoint, and three on processes.

use crate::io::Buffers::{One, Placed, PlacedVector, Vector};
use crate::paths::{Call, Flags};
use crate::sockets::Moves;
use crate::{blind, io, paths, processes, sockets};
use aya_ebpf::macros::{btf_tracepoint, tracepoint};
use aya_ebpf::programs::{BtfTracePointContext, TracePointContext};
use kvprov_agent_common::{BlindSpot, Class, Kind};

macro_rules! calls {
    ($($(#[$attribute:meta])* $name:ident => |$context:ident| $body:expr;)*) => {$(
        $(#[$attribute])*
        #[tracepoint]
        pub fn $name($context: TracePointContext) -> u32 {
            let $context = &$context;
            let _: Option<()> = $body;
            0
        }
    )*};
}

/// A call with one path and no directory descriptor.
#[inline(always)]
const fn plain(kind: Kind, flags: Flags) -> Call {
    Call { kind, first: (None, 0), second: None, flags }
}

/// A call with one path below a directory descriptor.
#[inline(always)]
const fn below(kind: Kind, flags: Flags) -> Call {
    Call { kind, first: (Some(0), 1), second: None, flags }
}

/// A call with two paths below directory descriptors.
const RENAME_AT: Call =
    Call { kind: Kind::Rename, first: (Some(0), 1), second: Some((Some(2), 3)), flags: Flags::None };

calls! {
    sys_exit_openat => |c| paths::named(c, below(Kind::Open, Flags::Open(2)));
    sys_exit_openat2 => |c| paths::named(c, below(Kind::Open, Flags::How(2)));
    sys_exit_renameat => |c| paths::named(c, RENAME_AT);
    sys_exit_renameat2 => |c| paths::named(c, RENAME_AT);
    sys_exit_unlinkat => |c| paths::named(c, below(Kind::Unlink, Flags::At(2)));
    sys_exit_newfstatat => |c| paths::named(c, below(Kind::Stat, Flags::At(3)));
    sys_exit_statx => |c| paths::named(c, below(Kind::Stat, Flags::At(2)));
    sys_exit_faccessat => |c| paths::named(c, below(Kind::Stat, Flags::None));
    sys_exit_faccessat2 => |c| paths::named(c, below(Kind::Stat, Flags::At(3)));
    sys_exit_mkdirat => |c| paths::named(c, below(Kind::Mkdir, Flags::None));
    sys_exit_truncate => |c| paths::named(c, plain(Kind::Truncate, Flags::None));
    sys_exit_statfs => |c| paths::named(c, plain(Kind::Statfs, Flags::None));
    sys_exit_chdir => |c| paths::named(c, plain(Kind::Chdir, Flags::None));

    sys_exit_read => |c| io::moved(c, Kind::Read, One);
    sys_exit_pread64 => |c| io::moved(c, Kind::Read, Placed);
    sys_exit_readv => |c| io::moved(c, Kind::Read, Vector);
    sys_exit_preadv => |c| io::moved(c, Kind::Read, Vector);
    sys_exit_preadv2 => |c| io::moved(c, Kind::Read, Vector);
    sys_exit_write => |c| io::moved(c, Kind::Write, One);
    sys_exit_pwrite64 => |c| io::moved(c, Kind::Write, Placed);
    sys_exit_writev => |c| io::moved(c, Kind::Write, Vector);
    sys_exit_pwritev => |c| io::moved(c, Kind::Write, PlacedVector);
    sys_exit_pwritev2 => |c| io::moved(c, Kind::Write, PlacedVector);
    sys_enter_close => |c| io::closing(c);
    sys_enter_close_range => |c| io::closing_range(c);
    sys_exit_getdents64 => |c| io::on_file(c, Kind::Readdir, 0, Class::Directory);
    sys_exit_mmap => |c| io::on_file(c, Kind::Mmap, 4, Class::Regular);
    sys_exit_ftruncate => |c| io::on_file(c, Kind::Ftruncate, 0, Class::Regular);
    sys_exit_fchdir => |c| io::on_file(c, Kind::Fchdir, 0, Class::Directory);

    sys_exit_sendto => |c| sockets::moved(c, Kind::Send, Moves::Buffer);
    sys_exit_sendmsg => |c| sockets::moved(c, Kind::Send, Moves::Message);
    sys_exit_sendmmsg => |c| sockets::moved(c, Kind::Send, Moves::Messages);
    sys_exit_recvfrom => |c| sockets::moved(c, Kind::Recv, Moves::Buffer);
    sys_exit_recvmsg => |c| sockets::moved(c, Kind::Recv, Moves::Message);
    sys_exit_recvmmsg => |c| sockets::moved(c, Kind::Recv, Moves::Messages);
    sys_exit_connect => |c| sockets::connected(c);

    sys_exit_process_vm_readv => |c| io::on_process(c, Kind::ProcessVmReadv);
    sys_exit_process_vm_writev => |c| io::on_process(c, Kind::ProcessVmWritev);

    sys_exit_io_uring_setup => |c| blind::taken(c, BlindSpot::IoUring);
    sys_exit_sendfile64 => |c| blind::taken(c, BlindSpot::Sendfile);
    sys_exit_splice => |c| blind::taken(c, BlindSpot::Splice);
    sys_exit_tee => |c| blind::taken(c, BlindSpot::Splice);
    sys_exit_vmsplice => |c| blind::taken(c, BlindSpot::Splice);
    sys_exit_copy_file_range => |c| blind::taken(c, BlindSpot::CopyFileRange);
}

// Calls that newer architectures do not have.
#[cfg(bpf_target_arch = "x86_64")]
calls! {
    sys_exit_open => |c| paths::named(c, plain(Kind::Open, Flags::Open(1)));
    sys_exit_creat => |c| paths::named(c, plain(Kind::Open, Flags::Creat));
    sys_exit_rename => |c| paths::named(c, Call {
        kind: Kind::Rename, first: (None, 0), second: Some((None, 1)), flags: Flags::None,
    });
    sys_exit_unlink => |c| paths::named(c, plain(Kind::Unlink, Flags::None));
    sys_exit_rmdir => |c| paths::named(c, plain(Kind::Rmdir, Flags::None));
    sys_exit_newstat => |c| paths::named(c, plain(Kind::Stat, Flags::None));
    sys_exit_newlstat => |c| paths::named(c, plain(Kind::Stat, Flags::None));
    sys_exit_access => |c| paths::named(c, plain(Kind::Stat, Flags::None));
    sys_exit_mkdir => |c| paths::named(c, plain(Kind::Mkdir, Flags::None));
}

#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(_: BtfTracePointContext) -> i32 {
    let _: Option<()> = processes::executed();
    0
}

#[btf_tracepoint(function = "sched_process_fork")]
pub fn sched_process_fork(context: BtfTracePointContext) -> i32 {
    let _: Option<()> = processes::forked(&context);
    0
}

#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(_: BtfTracePointContext) -> i32 {
    let _: Option<()> = processes::exited();
    0
}
