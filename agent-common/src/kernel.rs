//! What the loader and the kernel programs agree on besides records: what to watch, counters, and the layout of the
//! running kernel's structures.

/// Flags of a watched process, the value in the map `WORKERS`.
pub mod watch {
    /// Calls that name files, and calls on regular files and directories.
    pub const FILES: u32 = 1;
    /// Calls on sockets of IPv4 and IPv6.
    pub const SOCKETS: u32 = 2;
    /// Bytes written to what standard output and error stand for, unless that is a regular file.
    pub const OUTPUT: u32 = 4;
    /// All of them.
    pub const ALL: u32 = FILES | SOCKETS | OUTPUT;
}

/// Places in the counters of a kind: a per-CPU array, indexed by [`crate::Kind::index`], of [`counter::COUNT`] numbers.
/// Always: fired = filtered + delivered + dropped.
pub mod counter {
    /// Events of watched processes that reached a program.
    pub const FIRED: usize = 0;
    /// Left out on purpose: class, result or flags say that nobody wants them.
    pub const FILTERED: usize = 1;
    /// Written to the ring.
    pub const DELIVERED: usize = 2;
    /// Lost: the ring was full.
    pub const DROPPED: usize = 3;
    /// Delivered or filtered while something of them could not be read; the record's notes say what.
    pub const UNREADABLE: usize = 4;
    /// How many there are.
    pub const COUNT: usize = 5;
}

/// Places in the array `LAYOUT`, which tells the programs where the running kernel keeps things.
///
/// A structure is copied in one piece from `_FROM`, `_BYTES` long; the offsets of its members count from `_FROM`. A
/// member that the kernel does not have is [`layout::MISSING`].
pub mod layout {
    /// The kernel has no such member.
    pub const MISSING: u32 = u32::MAX;

    /// `task_struct.files`.
    pub const TASK_FILES: usize = 0;
    /// `task_struct.tgid`.
    pub const TASK_TGID: usize = 1;
    /// `task_struct.real_parent`.
    pub const TASK_REAL_PARENT: usize = 2;
    /// `task_struct.start_boottime` (before Linux 5.5 `real_start_time`).
    pub const TASK_STARTED: usize = 3;
    /// `task_struct.comm`.
    pub const TASK_NAME: usize = 4;
    /// `task_struct.signal`.
    pub const TASK_SIGNAL: usize = 5;
    /// `task_struct.exit_code`.
    pub const TASK_EXIT_CODE: usize = 6;
    /// `task_struct.mm`.
    pub const TASK_MM: usize = 7;
    /// `signal_struct.live`: threads that are not ending.
    pub const SIGNAL_LIVE: usize = 8;
    /// `mm_struct.task_size`: end of the address space; at most 4 GiB for a 32-bit program.
    pub const MM_TASK_SIZE: usize = 9;
    /// `files_struct.fdt`.
    pub const FILES_TABLE: usize = 10;
    /// `fdtable.max_fds`.
    pub const TABLE_LENGTH: usize = 11;
    /// `fdtable.fd`.
    pub const TABLE_FILES: usize = 12;
    /// Begin of what is copied of a `file`.
    pub const FILE_FROM: usize = 13;
    /// Bytes that are copied of a `file`, at most [`FILE_MAX`].
    pub const FILE_BYTES: usize = 14;
    /// `file.f_inode`.
    pub const FILE_INODE: usize = 15;
    /// `file.private_data`.
    pub const FILE_PRIVATE: usize = 16;
    /// `file.f_ref` or `file.f_count`.
    pub const FILE_REFERENCES: usize = 17;
    /// What to add to the number there: `f_ref` counts from 0.
    pub const FILE_REFERENCES_BIAS: usize = 18;
    /// Begin of what is copied of an `inode`.
    pub const INODE_FROM: usize = 19;
    /// Bytes that are copied of an `inode` for its identity, at most [`INODE_MAX`].
    pub const INODE_BYTES: usize = 20;
    /// The same for its identity, size and times.
    pub const INODE_LONG_BYTES: usize = 21;
    /// `inode.i_mode`.
    pub const INODE_MODE: usize = 22;
    /// `inode.i_flags`.
    pub const INODE_FLAGS: usize = 23;
    /// `inode.i_sb`.
    pub const INODE_SUPER: usize = 24;
    /// `inode.i_ino`.
    pub const INODE_NUMBER: usize = 25;
    /// `inode.i_rdev`.
    pub const INODE_DEVICE: usize = 26;
    /// `inode.i_size`.
    pub const INODE_SIZE: usize = 27;
    /// Seconds of the last change of content.
    pub const INODE_MODIFIED: usize = 28;
    /// Nanoseconds within that second.
    pub const INODE_MODIFIED_NANOS: usize = 29;
    /// Seconds of the last change of the inode.
    pub const INODE_CHANGED: usize = 30;
    /// Nanoseconds within that second.
    pub const INODE_CHANGED_NANOS: usize = 31;
    /// `super_block.s_dev`.
    pub const SUPER_DEVICE: usize = 32;
    /// Begin of what is copied of a `socket`.
    pub const SOCKET_FROM: usize = 33;
    /// Bytes that are copied of a `socket`, at most [`SOCKET_MAX`].
    pub const SOCKET_BYTES: usize = 34;
    /// `socket.type`.
    pub const SOCKET_TYPE: usize = 35;
    /// `socket.sk`.
    pub const SOCKET_SOCK: usize = 36;
    /// Begin of what is copied of a `sock`.
    pub const SOCK_FROM: usize = 37;
    /// Bytes that are copied of a `sock`, at most [`SOCK_MAX`].
    pub const SOCK_BYTES: usize = 38;
    /// `sock_common.skc_family`.
    pub const SOCK_FAMILY: usize = 39;
    /// `sock_common.skc_num`: own port.
    pub const SOCK_PORT: usize = 40;
    /// `sock_common.skc_dport`: the peer's port, big endian.
    pub const SOCK_PEER_PORT: usize = 41;
    /// `sock_common.skc_rcv_saddr`: own IPv4 address.
    pub const SOCK_V4: usize = 42;
    /// `sock_common.skc_daddr`.
    pub const SOCK_PEER_V4: usize = 43;
    /// `sock_common.skc_v6_rcv_saddr`.
    pub const SOCK_V6: usize = 44;
    /// `sock_common.skc_v6_daddr`.
    pub const SOCK_PEER_V6: usize = 45;
    /// How many there are.
    pub const COUNT: usize = 46;

    /// Most bytes that are copied of a `file`.
    pub const FILE_MAX: usize = 512;
    /// Most bytes that are copied of an `inode`.
    pub const INODE_MAX: usize = 1024;
    /// Most bytes that are copied of a `socket`.
    pub const SOCKET_MAX: usize = 256;
    /// Most bytes that are copied of a `sock`.
    pub const SOCK_MAX: usize = 256;
}
