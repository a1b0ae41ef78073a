//! Records that the kernel programs write, shared by them and by the agent.
//!
//! A record is one system call of a worker's process that passed the filters, or one event of a process. It begins
//! with a [`Header`]; its kind tells what follows. Numbers are of the machine's byte order: records never leave it.
//! Invariants: every record is a multiple of eight bytes long; a path is at most [`PATH_MAX`] bytes, without its
//! closing NUL; whatever a program could not read is 0 and has a flag.

#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod kernel;
#[cfg(feature = "ring")]
pub mod ring;
#[cfg(feature = "ring")]
pub mod verity;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Longest path that a system call takes, in bytes.
pub const PATH_MAX: usize = 4096;
/// Longest piece of output in one record, in bytes. A longer write gives several records.
pub const OUTPUT_MAX: usize = 8192;
/// Most bytes of one write that are kept as output; the rest is counted in [`OutputRecord::skipped`].
pub const OUTPUT_WRITE_MAX: usize = 65_536;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// `open`, `openat`, `openat2`, `creat` ended: [`PathRecord`].
    Open = 1,
    /// `rename`, `renameat`, `renameat2` ended: [`PathRecord`] with two paths.
    Rename = 2,
    /// `unlink`, `unlinkat` without AT_REMOVEDIR ended: [`PathRecord`].
    Unlink = 3,
    /// `stat`, `lstat`, `newfstatat`, `statx`, `access`, `faccessat`, `faccessat2` ended: [`PathRecord`].
    Stat = 4,
    /// `mkdir`, `mkdirat` ended: [`PathRecord`].
    Mkdir = 5,
    /// `rmdir`, `unlinkat` with AT_REMOVEDIR ended: [`PathRecord`].
    Rmdir = 6,
    /// `truncate` ended: [`PathRecord`].
    Truncate = 7,
    /// `statfs` ended: [`PathRecord`].
    Statfs = 8,
    /// `chdir` ended: [`PathRecord`].
    Chdir = 9,
    /// `read`, `pread64`, `readv`, `preadv`, `preadv2` ended: [`FileRecord`] or [`SocketRecord`] by class.
    Read = 16,
    /// `write`, `pwrite64`, `writev`, `pwritev`, `pwritev2` ended: as for `Read`.
    Write = 17,
    /// `close`, `close_range` begins, one record a descriptor: [`FileRecord`] or [`SocketRecord`]. Of a range of more
    /// than 16,384 descriptors the rest is one [`FileRecord`] of [`Class::None`], from `fd` to `wanted`.
    Close = 18,
    /// `getdents64` ended: [`FileRecord`].
    Readdir = 19,
    /// `mmap` of a file ended: [`FileRecord`], `wanted` its length.
    Mmap = 20,
    /// `ftruncate` ended: [`FileRecord`].
    Ftruncate = 21,
    /// `fchdir` ended: [`FileRecord`].
    Fchdir = 22,
    /// `sendto`, `sendmsg`, `sendmmsg` ended: [`SocketRecord`].
    Send = 32,
    /// `recvfrom`, `recvmsg`, `recvmmsg` ended: [`SocketRecord`].
    Recv = 33,
    /// `connect` ended: [`SocketRecord`] with the address asked for.
    Connect = 34,
    /// `process_vm_readv` ended: [`FileRecord`] with the other process in `fd`.
    ProcessVmReadv = 48,
    /// `process_vm_writev` ended: as for `ProcessVmReadv`.
    ProcessVmWritev = 49,
    /// A process replaced its program: [`ProcessRecord`]. Of every process in scope, worker or not.
    Exec = 64,
    /// A worker's process made a child process: [`ProcessRecord`] of the child.
    Fork = 65,
    /// A worker's process ended: [`ProcessRecord`].
    Exit = 66,
    /// Bytes written to standard output or error that is a pipe, a terminal or a Unix socket: [`OutputRecord`].
    Output = 80,
    /// A way past the programs was taken: [`FileRecord`] whose `flags` is the [`BlindSpot`]. At most one a process
    /// and way.
    BlindSpot = 96,
}

/// A way to move data that the programs do not follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum BlindSpot {
    /// `io_uring_setup`.
    IoUring = 1,
    /// `sendfile`.
    Sendfile = 2,
    /// `splice`, `tee`, `vmsplice`.
    Splice = 3,
    /// `copy_file_range`.
    CopyFileRange = 4,
    /// A system call of a 32-bit program.
    Compat = 5,
}

/// What a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Class {
    /// Not looked at, or none.
    None = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A socket of IPv4 or IPv6.
    Inet = 3,
    /// A pipe.
    Pipe = 4,
    /// A terminal or another character device.
    Character = 5,
    /// A socket of another family.
    OtherSocket = 6,
    /// Anything else.
    Other = 7,
}

/// Flags of [`Header::notes`].
pub mod notes {
    /// The first path was longer than [`crate::PATH_MAX`], or could not be read: it is empty.
    pub const PATH_UNREADABLE: u16 = 1;
    /// The same of the second path.
    pub const SECOND_PATH_UNREADABLE: u16 = 2;
    /// The file behind a descriptor could not be read: its identity is 0.
    pub const FILE_UNREADABLE: u16 = 4;
    /// Bytes of an output were left out; [`crate::OutputRecord::skipped`] says how many.
    pub const OUTPUT_CUT: u16 = 8;
    /// The call came through the 32-bit table.
    pub const COMPAT: u16 = 16;
}

/// The begin of every record.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Header {
    /// A [`Kind`].
    pub kind: u16,
    /// A [`Class`].
    pub class: u16,
    /// A set of [`notes`].
    pub notes: u16,
    /// 0.
    pub reserved: u16,
    /// CLOCK_MONOTONIC when the call ended, in nanoseconds.
    pub time: u64,
    /// The process as the initial pid namespace numbers it.
    pub tgid: u32,
    /// The thread as the initial pid namespace numbers it.
    pub tid: u32,
    /// What the call returned; the negative errno on failure.
    pub result: i64,
    /// The descriptor, or the directory descriptor of the first path (AT_FDCWD is -100).
    pub fd: i32,
    /// Flags of an open, as `open(2)` takes them; of an exit, the exit code as `wait(2)` encodes it.
    pub flags: u32,
}

/// Which file, as the kernel knows it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileIdentity {
    /// `s_dev` of its file system: major << 20 | minor.
    pub device: u32,
    /// Tells open files apart: part of the address of `struct file`. Equal for duplicates of one descriptor; may be
    /// reused once the file is closed. 0: not open, or not read.
    pub open_file: u32,
    /// The inode.
    pub inode: u64,
}

/// What a file was like at the end of an open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileState {
    /// Bytes.
    pub size: u64,
    /// Unix nanoseconds of the last change of content.
    pub modified: i64,
    /// Unix nanoseconds of the last change of the inode.
    pub changed: i64,
}

/// A call that names a file. The paths follow it: the first, then the second, without NULs, padded to eight bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PathRecord {
    /// The begin.
    pub header: Header,
    /// The file that an open gave; else zeros.
    pub file: FileIdentity,
    /// Its state; else zeros.
    pub state: FileState,
    /// Directory descriptor of the second path.
    pub second_fd: i32,
    /// Bytes of the first path.
    pub first_length: u16,
    /// Bytes of the second path.
    pub second_length: u16,
}

/// A call on an open file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct FileRecord {
    /// The begin. For reads and writes `result` is the number of bytes.
    pub header: Header,
    /// The file.
    pub file: FileIdentity,
    /// Bytes asked for; 0 where the call names several buffers.
    pub wanted: u64,
    /// References to the open file before a close: 1 when it is the last; 0 where the kernel's layout is not known.
    /// A call of another thread on the same descriptor counts as one. A `close_range` tells all before it closes any.
    pub references: u64,
}

/// A call on a socket of IPv4 or IPv6.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SocketRecord {
    /// As for a file.
    pub call: FileRecord,
    /// Own address; IPv4 as `::ffff:a.b.c.d`.
    pub local: [u8; 16],
    /// The peer's address.
    pub peer: [u8; 16],
    /// Own port.
    pub local_port: u16,
    /// The peer's port; 0: not connected.
    pub peer_port: u16,
    /// SOCK_STREAM 1, SOCK_DGRAM 2.
    pub socket_type: u16,
    /// 0.
    pub reserved: u16,
}

/// An event of a process.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ProcessRecord {
    /// The begin: `tgid` is the process concerned, for a fork the child.
    pub header: Header,
    /// Its parent.
    pub parent: u32,
    /// 0.
    pub reserved: u32,
    /// When it started: CLOCK_BOOTTIME in nanoseconds.
    pub started: u64,
    /// Its control group (version 2) id.
    pub cgroup: u64,
    /// Its thread name, padded with NUL.
    pub name: [u8; 16],
}

/// A piece of standard output or error. The bytes follow it, padded to eight. A write of several buffers (`writev`) is
/// one piece, of at most [`OUTPUT_MAX`] bytes.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OutputRecord {
    /// The begin: `fd` is 1 or 2, whichever the file is, even where it was written through a duplicate; `result` is
    /// what the whole write gave.
    pub header: Header,
    /// The pipe, terminal or socket.
    pub file: FileIdentity,
    /// Where in the write this piece begins.
    pub offset: u32,
    /// Bytes of this piece.
    pub length: u32,
    /// Bytes of the write after this piece that no record holds.
    pub skipped: u64,
}

/// A record taken apart.
#[derive(Debug, Clone, Copy)]
pub enum Event<'b> {
    /// A call that names a file; the paths are bytes as the process gave them.
    Path {
        /// The fixed part.
        record: &'b PathRecord,
        /// The first path.
        first: &'b [u8],
        /// The second path.
        second: &'b [u8],
    },
    /// A call on an open file.
    File(&'b FileRecord),
    /// A call on a socket.
    Socket(&'b SocketRecord),
    /// An event of a process.
    Process(&'b ProcessRecord),
    /// A piece of output.
    Output {
        /// The fixed part.
        record: &'b OutputRecord,
        /// The bytes.
        bytes: &'b [u8],
    },
}

// === impl Kind ===

impl Kind {
    /// How many kinds a table by [`Kind::index`] has to hold.
    pub const SLOTS: usize = 128;

    /// The kind of a number.
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::Open,
            2 => Self::Rename,
            3 => Self::Unlink,
            4 => Self::Stat,
            5 => Self::Mkdir,
            6 => Self::Rmdir,
            7 => Self::Truncate,
            8 => Self::Statfs,
            9 => Self::Chdir,
            16 => Self::Read,
            17 => Self::Write,
            18 => Self::Close,
            19 => Self::Readdir,
            20 => Self::Mmap,
            21 => Self::Ftruncate,
            22 => Self::Fchdir,
            32 => Self::Send,
            33 => Self::Recv,
            34 => Self::Connect,
            48 => Self::ProcessVmReadv,
            49 => Self::ProcessVmWritev,
            64 => Self::Exec,
            65 => Self::Fork,
            66 => Self::Exit,
            80 => Self::Output,
            96 => Self::BlindSpot,
            _ => return None,
        })
    }

    /// Its place in tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

// === impl Event ===

impl<'b> Event<'b> {
    /// Takes a record apart. `None` when it is shorter than its kind demands or of no known kind. The bytes have to
    /// be aligned to eight, as they are in the ring.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let (header, _) = Header::ref_from_prefix(bytes).ok()?;
        let kind = Kind::from_number(header.kind)?;
        Some(match kind {
            Kind::Open
            | Kind::Rename
            | Kind::Unlink
            | Kind::Stat
            | Kind::Mkdir
            | Kind::Rmdir
            | Kind::Truncate
            | Kind::Statfs
            | Kind::Chdir => {
                let (record, tail) = PathRecord::ref_from_prefix(bytes).ok()?;
                let first = tail.get(..usize::from(record.first_length))?;
                let rest = tail.get(usize::from(record.first_length)..)?;
                let second = rest.get(..usize::from(record.second_length))?;
                Self::Path { record, first, second }
            }
            Kind::Send | Kind::Recv | Kind::Connect => {
                Self::Socket(SocketRecord::ref_from_prefix(bytes).ok()?.0)
            }
            Kind::Exec | Kind::Fork | Kind::Exit => {
                Self::Process(ProcessRecord::ref_from_prefix(bytes).ok()?.0)
            }
            Kind::Output => {
                let (record, tail) = OutputRecord::ref_from_prefix(bytes).ok()?;
                Self::Output { record, bytes: tail.get(..record.length as usize)? }
            }
            _ if header.class == Class::Inet as u16 => {
                Self::Socket(SocketRecord::ref_from_prefix(bytes).ok()?.0)
            }
            _ => Self::File(FileRecord::ref_from_prefix(bytes).ok()?.0),
        })
    }

    /// The begin of the record.
    pub fn header(&self) -> &'b Header {
        match self {
            Self::Path { record, .. } => &record.header,
            Self::File(record) => &record.header,
            Self::Socket(record) => &record.call.header,
            Self::Process(record) => &record.header,
            Self::Output { record, .. } => &record.header,
        }
    }
}

#[cfg(test)]
#[allow(clippy::panic, reason = "a test says so and fails")]
mod tests {
    use super::*;

    fn header(kind: u16, class: Class) -> Header {
        Header {
            kind,
            class: class as u16,
            notes: 0,
            reserved: 0,
            time: 1,
            tgid: 2,
            tid: 3,
            result: 0,
            fd: -100,
            flags: 0,
        }
    }

    /// Bytes at an address that is a multiple of eight.
    fn aligned(bytes: &[u8]) -> Vec<u64> {
        bytes
            .chunks(8)
            .map(|chunk| chunk.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)))
            .collect()
    }

    fn path_record() -> PathRecord {
        PathRecord {
            header: header(Kind::Rename as u16, Class::None),
            file: FileIdentity::default(),
            state: FileState::default(),
            second_fd: 5,
            first_length: 4,
            second_length: 3,
        }
    }

    #[test]
    fn two_paths_follow_each_other() {
        let bytes = aligned(&[path_record().as_bytes(), b"/a/b/c\n\0"].concat());
        let Some(Event::Path { record, first, second }) = Event::parse(bytes.as_bytes()) else {
            panic!("no record of a path")
        };
        assert_eq!((first, second, record.second_fd), (&b"/a/b"[..], &b"/c\n"[..], 5));
    }

    #[test]
    fn a_record_that_is_cut_anywhere_is_none() {
        let bytes = aligned(&[path_record().as_bytes(), b"/a/b/c\n\0"].concat());
        let bytes = bytes.as_bytes();
        for end in 0..size_of::<PathRecord>() + 7 {
            assert!(Event::parse(&bytes[..end]).is_none(), "{end} bytes");
        }
    }

    #[test]
    fn a_kind_that_nobody_knows_is_none() {
        for number in 0..u16::MAX {
            let bytes = aligned(&[header(number, Class::None).as_bytes(), &[0; 128]].concat());
            assert_eq!(
                Event::parse(bytes.as_bytes()).is_some(),
                Kind::from_number(number).is_some(),
                "{number}"
            );
        }
    }

    #[test]
    fn every_record_is_a_multiple_of_eight() {
        let sizes = [
            size_of::<PathRecord>(),
            size_of::<FileRecord>(),
            size_of::<SocketRecord>(),
            size_of::<ProcessRecord>(),
            size_of::<OutputRecord>(),
        ];
        assert!(sizes.iter().all(|size| size % 8 == 0), "{sizes:?}");
    }
}
