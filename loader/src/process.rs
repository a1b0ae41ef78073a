//! What can be asked about a process, and what is told.
//!
//! A pid alone names nobody: the kernel gives it to another process later. Every question therefore names the pid and
//! the time at which its process started.

use rustix::fs::FileType;

/// Longest path in a question or an answer, in bytes.
pub const PATH_MAX: usize = 4096;
/// Longest name of a directory entry, in bytes.
pub const NAME_MAX: usize = 255;

/// A process, told apart from earlier and later holders of its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId {
    /// The pid in the pid namespace of `/proc`.
    pub pid: u32,
    /// Field 22 of `/proc/PID/stat`: clock ticks after boot.
    pub started: u64,
}

/// A file of `/proc/PID` that may be read. The list is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProcFile {
    /// The environment at the start of the program.
    Environ = 1,
    /// The arguments, or what the process overwrote them with.
    Cmdline = 2,
    /// The memory map.
    Maps = 3,
    /// The mounts as the process sees them.
    Mountinfo = 4,
    /// The control groups.
    Cgroup = 5,
    /// Ids, capabilities and sizes in words.
    Status = 6,
    /// Times and sizes in numbers.
    Stat = 7,
    /// The name of the main thread.
    Comm = 8,
    /// IPv4 TCP sockets of its network namespace.
    Tcp = 9,
    /// IPv6 TCP sockets of its network namespace.
    Tcp6 = 10,
    /// Routes of its network namespace, of which the local ones are its IPv4 addresses.
    FibTrie = 11,
    /// IPv6 addresses of its network namespace.
    IfInet6 = 12,
}

/// A link of `/proc/PID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Link {
    /// The program file.
    Exe = 1,
    /// The working directory.
    Cwd = 2,
    /// The root directory.
    Root = 3,
    /// The pid namespace, as `pid:[inode]`.
    PidNamespace = 4,
    /// The mount namespace, as `mnt:[inode]`.
    MountNamespace = 5,
    /// The network namespace, as `net:[inode]`.
    NetworkNamespace = 6,
    /// The user namespace, as `user:[inode]`.
    UserNamespace = 7,
}

/// What a name or a descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Not told.
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A socket.
    Socket = 4,
    /// A pipe.
    Pipe = 5,
    /// A character device.
    Character = 6,
    /// A block device.
    Block = 7,
}

/// What a file is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileStat {
    /// Device as `stat(2)` tells it: major << 20 | minor. Some file systems tell another one than the kernel programs
    /// see; `mount` then leads to theirs.
    pub device: u32,
    /// The inode.
    pub inode: u64,
    /// Which kind of file.
    pub kind: FileKind,
    /// Permission bits.
    pub permissions: u16,
    /// Bytes.
    pub size: u64,
    /// Unix nanoseconds of the last change of content.
    pub modified: i64,
    /// Unix nanoseconds of the last change of the inode.
    pub changed: i64,
    /// Id of the mount, as the first field of `mountinfo`; 0 where the kernel does not tell.
    pub mount: u64,
}

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub fd: u32,
    /// Where it leads, as `/proc/PID/fd/N` says; bytes as they are, with ` (deleted)` where the file is gone.
    pub target: Vec<u8>,
    /// Device, as in [`FileStat::device`]; 0 where it could not be read.
    pub device: u32,
    /// Inode; 0 where it could not be read.
    pub inode: u64,
    /// Which kind of file.
    pub kind: FileKind,
    /// Flags as `open(2)` takes them; 0 for what has no position (sockets, event counters).
    pub flags: u32,
    /// Position in the file, in bytes; 0 as for `flags`.
    pub position: u64,
    /// Id of the mount; 0 as for `flags`.
    pub mount: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name, without the directory.
    pub name: Vec<u8>,
    /// The inode.
    pub inode: u64,
    /// Which kind of file, as far as the directory tells.
    pub kind: FileKind,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// What fitted.
    pub items: Vec<T>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<u64>,
}

/// Why a question has no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The process ended, or its pid belongs to another one now.
    #[error("the process is gone")]
    Gone,
    /// No such file, descriptor or directory.
    #[error("it does not exist")]
    NotFound,
    /// The kernel refused (EACCES, EPERM).
    #[error("permission denied")]
    Denied,
    /// What is there is not opened for anybody: a device, a pipe, a socket, a file that the kernel makes up, or a link
    /// that leads out of the process's root.
    #[error("only regular files below the root of the process are opened")]
    NotRegular,
    /// The kernel has no such call.
    #[error("the kernel is too old (openat2 came with 5.6)")]
    Unsupported,
    /// Too much is asked at once, or descriptors ran out.
    #[error("busy; ask again later")]
    Busy,
    /// The question itself made no sense.
    #[error("malformed request")]
    Malformed,
    /// Kernel programs are not loaded.
    #[error("no kernel programs are loaded")]
    NoKernel,
    /// Another error, by its number.
    #[error("{}", std::io::Error::from_raw_os_error(*.0))]
    Os(i32),
}

// === impl ProcFile ===

impl ProcFile {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::Environ,
        Self::Cmdline,
        Self::Maps,
        Self::Mountinfo,
        Self::Cgroup,
        Self::Status,
        Self::Stat,
        Self::Comm,
        Self::Tcp,
        Self::Tcp6,
        Self::FibTrie,
        Self::IfInet6,
    ];

    /// Its name below `/proc/PID`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Environ => "environ",
            Self::Cmdline => "cmdline",
            Self::Maps => "maps",
            Self::Mountinfo => "mountinfo",
            Self::Cgroup => "cgroup",
            Self::Status => "status",
            Self::Stat => "stat",
            Self::Comm => "comm",
            Self::Tcp => "net/tcp",
            Self::Tcp6 => "net/tcp6",
            Self::FibTrie => "net/fib_trie",
            Self::IfInet6 => "net/if_inet6",
        }
    }

    /// The file of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|file| *file as u8 == number)
    }
}

// === impl Link ===

impl Link {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Exe,
        Self::Cwd,
        Self::Root,
        Self::PidNamespace,
        Self::MountNamespace,
        Self::NetworkNamespace,
        Self::UserNamespace,
    ];

    /// Its name below `/proc/PID`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Exe => "exe",
            Self::Cwd => "cwd",
            Self::Root => "root",
            Self::PidNamespace => "ns/pid",
            Self::MountNamespace => "ns/mnt",
            Self::NetworkNamespace => "ns/net",
            Self::UserNamespace => "ns/user",
        }
    }

    /// The link of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|link| *link as u8 == number)
    }
}

// === impl FileKind ===

impl FileKind {
    /// The kind of a number; what is not known is [`FileKind::Unknown`].
    pub const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::Symlink,
            4 => Self::Socket,
            5 => Self::Pipe,
            6 => Self::Character,
            7 => Self::Block,
            _ => Self::Unknown,
        }
    }
}

impl From<FileType> for FileKind {
    fn from(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Socket => Self::Socket,
            FileType::Fifo => Self::Pipe,
            FileType::CharacterDevice => Self::Character,
            FileType::BlockDevice => Self::Block,
            FileType::Unknown => Self::Unknown,
        }
    }
}
