//! From a descriptor to what it stands for.
//!
//! The descriptor table of the process is read at the moment of the call, so that dup, F_DUPFD, fork, exec, descriptors
//! sent over sockets and those that were open before need nothing of their own.

use crate::caller::member;
use crate::maps::{Room, has, layout_of};
use aya_ebpf::bindings::task_struct;
use aya_ebpf::helpers::generated::bpf_probe_read_kernel;
use kvprov_agent_common::kernel::layout;
use kvprov_agent_common::{Class, FileIdentity, FileState};

const S_IFMT: u16 = 0o170_000;
/// Set since Linux 6.16 for eventfd and its like, which since then pass as regular files. Unused before.
const S_ANON_INODE: u32 = 1 << 19;
/// The upper bits of nanoseconds are flags of the kernel's own since Linux 6.13.
const NANOS: u32 = (1 << 30) - 1;
/// Major number of /dev/null and its like.
const MEMORY_DEVICES: u32 = 1;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// An open file, as far as it was read.
#[derive(Clone, Copy)]
pub(crate) struct OpenFile {
    /// Address of `struct file`.
    pub(crate) address: u64,
    pub(crate) class: Class,
    room: *mut Room,
}

/// Address of the `struct file` behind a descriptor; 0: none.
#[inline(always)]
pub(crate) fn behind(task: *const task_struct, fd: i32) -> u64 {
    // SAFETY: members of the types that their names say, by the loader's offsets.
    unsafe {
        let files: *const u8 = member(task, layout_of(layout::TASK_FILES));
        if files.is_null() {
            return 0;
        }
        let table: *const u8 = member(files, layout_of(layout::FILES_TABLE));
        if table.is_null() {
            return 0;
        }
        let length: u32 = member(table, layout_of(layout::TABLE_LENGTH));
        if fd as u32 >= length {
            return 0;
        }
        let slots: u64 = member(table, layout_of(layout::TABLE_FILES));
        let mut file = 0u64;
        let slot = slots + u64::from(fd as u32) * 8;
        bpf_probe_read_kernel((&raw mut file).cast(), 8, slot as *const _);
        file
    }
}

impl OpenFile {
    /// Reads what `fd` stands for. `None` if it is not open.
    #[inline(always)]
    pub(crate) fn of(task: *const task_struct, fd: i32, room: *mut Room) -> Option<Self> {
        Self::read(behind(task, fd), room, layout::INODE_BYTES)
    }

    /// The same with size and times.
    #[inline(always)]
    pub(crate) fn with_state(task: *const task_struct, fd: i32, room: *mut Room) -> Option<Self> {
        Self::read(behind(task, fd), room, layout::INODE_LONG_BYTES)
    }

    #[inline(always)]
    fn read(address: u64, room: *mut Room, inode_bytes: usize) -> Option<Self> {
        if address == 0 {
            return None;
        }
        // SAFETY: the loader holds sizes to those of the room; a failed copy leaves zeros.
        unsafe {
            let file = (&raw mut (*room).file).cast::<u8>();
            copy(file, layout_of(layout::FILE_BYTES), address + layout_of(layout::FILE_FROM) as u64);
            let inode: u64 = at(file, layout::FILE_INODE);
            let copied = (&raw mut (*room).inode).cast::<u8>();
            copy(copied, layout_of(inode_bytes), inode + layout_of(layout::INODE_FROM) as u64);
            let mut open = Self { address, class: Class::Other, room };
            let mode: u16 = at(copied, layout::INODE_MODE);
            let flags: u32 = at(copied, layout::INODE_FLAGS);
            open.class = match mode & S_IFMT {
                0o100_000 if flags & S_ANON_INODE == 0 => Class::Regular,
                0o040_000 => Class::Directory,
                0o010_000 => Class::Pipe,
                0o020_000 => Class::Character,
                0o140_000 => open.socket(file),
                _ => Class::Other,
            };
            Some(open)
        }
    }

    /// Copies the socket and tells its class.
    #[inline(always)]
    unsafe fn socket(&self, file: *mut u8) -> Class {
        // SAFETY: as in `read`.
        unsafe {
            let address: u64 = at(file, layout::FILE_PRIVATE);
            let socket = (&raw mut (*self.room).socket).cast::<u8>();
            copy(socket, layout_of(layout::SOCKET_BYTES), address + layout_of(layout::SOCKET_FROM) as u64);
            let sock_address: u64 = at(socket, layout::SOCKET_SOCK);
            let sock = (&raw mut (*self.room).sock).cast::<u8>();
            copy(sock, layout_of(layout::SOCK_BYTES), sock_address + layout_of(layout::SOCK_FROM) as u64);
            match at::<u16>(sock, layout::SOCK_FAMILY) {
                AF_INET | AF_INET6 => Class::Inet,
                _ => Class::OtherSocket,
            }
        }
    }

    /// Which file.
    #[inline(always)]
    pub(crate) fn identity(&self) -> FileIdentity {
        // Open files lie at least 64 bytes apart; 0 means none.
        let open_file = match (self.address >> 6) as u32 {
            0 => 1,
            other => other,
        };
        // SAFETY: as in `read`.
        unsafe {
            let inode = (&raw const (*self.room).inode).cast::<u8>();
            let mut device = 0u32;
            let holder: u64 = at(inode, layout::INODE_SUPER);
            let from = holder + layout_of(layout::SUPER_DEVICE) as u64;
            bpf_probe_read_kernel((&raw mut device).cast(), 4, from as *const _);
            FileIdentity { device, open_file, inode: at(inode, layout::INODE_NUMBER) }
        }
    }

    /// What it was like; only after [`Self::with_state`].
    #[inline(always)]
    pub(crate) fn state(&self) -> FileState {
        // SAFETY: as in `read`.
        unsafe {
            let inode = (&raw const (*self.room).inode).cast::<u8>();
            let time = |seconds: usize, nanos: usize| {
                let nanos = at::<u32>(inode, nanos) & NANOS;
                at::<i64>(inode, seconds).wrapping_mul(1_000_000_000).wrapping_add(i64::from(nanos))
            };
            FileState {
                size: at(inode, layout::INODE_SIZE),
                modified: time(layout::INODE_MODIFIED, layout::INODE_MODIFIED_NANOS),
                changed: time(layout::INODE_CHANGED, layout::INODE_CHANGED_NANOS),
            }
        }
    }

    /// References to it; 0 where the kernel does not tell.
    #[inline(always)]
    pub(crate) fn references(&self) -> u64 {
        if !has(layout::FILE_REFERENCES) {
            return 0;
        }
        // SAFETY: as in `read`.
        unsafe {
            let file = (&raw const (*self.room).file).cast::<u8>();
            at::<u64>(file, layout::FILE_REFERENCES)
                .wrapping_add(layout_of(layout::FILE_REFERENCES_BIAS) as u64)
        }
    }

    /// Whether it is /dev/null or a like device.
    #[inline(always)]
    pub(crate) fn is_sink(&self) -> bool {
        // SAFETY: as in `read`.
        let device: u32 = unsafe { at((&raw const (*self.room).inode).cast(), layout::INODE_DEVICE) };
        matches!(self.class, Class::Character) && device >> 20 == MEMORY_DEVICES
    }

    /// The copies of `struct socket` and `struct sock`; only of sockets.
    #[inline(always)]
    pub(crate) fn socket_parts(&self) -> (*const u8, *const u8) {
        // SAFETY: places in the room.
        unsafe { ((&raw const (*self.room).socket).cast(), (&raw const (*self.room).sock).cast()) }
    }
}

/// Copies kernel memory; zeros where it cannot be read.
///
/// # Safety
/// `to` has room for `bytes`.
#[inline(always)]
unsafe fn copy(to: *mut u8, bytes: usize, from: u64) {
    // SAFETY: the caller's promise.
    unsafe { bpf_probe_read_kernel(to.cast(), bytes as u32, from as *const _) };
}

/// A member of a copied structure.
///
/// # Safety
/// The offset of `what`, with a `T` there, is inside the copy.
#[inline(always)]
pub(crate) unsafe fn at<T: Copy>(copied: *const u8, what: usize) -> T {
    // SAFETY: the caller's promise. Volatile, so that no read moves before the copy.
    unsafe { core::ptr::read_volatile(copied.add(layout_of(what)).cast::<T>()) }
}
