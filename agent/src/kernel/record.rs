//! One kernel record: a system call of a worker's process, as a JSON line of a recording or from the kernel program.
//!
//! The form is that of DESIGN.md §8. Fields that are not known here are ignored; a line that is no record is an error
//! with a reason to count.

use crate::kernel::flags::OpenFlags;
use serde::Deserialize;
use std::sync::Arc;

/// No such file or directory.
pub const ENOENT: i64 = -2;
/// The file that an NFS client had open is gone on the server.
pub const ESTALE: i64 = -116;

/// System calls that are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// `open`, `openat`, `creat`.
    Open,
    /// `read`, `pread`, `readv`; with `peer` set on a socket.
    Read,
    /// `write`, `pwrite`, `writev`; with `peer` set on a socket.
    Write,
    /// `rename`, `renameat2`: `path` to `path2`.
    Rename,
    /// `unlink`, `unlinkat`.
    Unlink,
    /// `stat`, `fstat`, `access`, `statx`.
    Stat,
    /// `close` of a descriptor whose path is known.
    Close,
    /// `getdents`.
    Readdir,
    /// `statfs`.
    Statfs,
    /// `mkdir`.
    Mkdir,
    /// `rmdir`.
    Rmdir,
    /// `truncate`, `ftruncate`.
    Truncate,
    /// `mmap` of a file.
    Mmap,
    /// `connect`.
    Connect,
    /// `send`, `sendto`, `sendmsg`.
    Send,
    /// `recv`, `recvfrom`, `recvmsg`.
    Recv,
    /// Reads memory of another process.
    ProcessVmReadv,
    /// Writes memory of another process.
    ProcessVmWritev,
    /// A call of a newer recorder.
    #[serde(other)]
    Other,
}

/// Where the file of a record is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FileSystem {
    /// Identity of the file system: its export, or its node and device.
    pub name: Arc<str>,
    /// Directory at which the process sees it. `None`: not known, paths are taken as the process sees them.
    pub mount: Option<Arc<str>>,
    /// The part of it that is seen there; `/` but for bind mounts and subvolumes.
    pub root: Arc<str>,
}

/// One system call.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// Unix seconds on the node's clock.
    pub ts: Option<f64>,
    /// The process.
    pub pid: i64,
    /// The thread.
    pub tid: Option<i64>,
    /// The call.
    pub op: Operation,
    /// The file.
    pub path: Option<Arc<str>>,
    /// The new name of a rename.
    pub path2: Option<Arc<str>>,
    /// Flags of an open.
    pub flags: Option<OpenFlags>,
    /// What the call returned; the negative errno on failure.
    pub ret: Option<i64>,
    /// Bytes that moved.
    pub bytes: Option<i64>,
    /// Bytes that were asked for, where not equal to `bytes`.
    pub want: Option<i64>,
    /// The file system behind the path.
    pub fs: Option<Arc<FileSystem>>,
    /// Own `host:port`.
    pub local: Option<Arc<str>>,
    /// The peer's `host:port`.
    pub peer: Option<Arc<str>>,
    /// The other process of a `process_vm_*` call.
    pub peer_pid: Option<i64>,
}

/// The form of a line.
#[derive(Deserialize)]
struct Line {
    #[serde(default)]
    ts: Option<f64>,
    pid: i64,
    #[serde(default)]
    tid: Option<i64>,
    op: Operation,
    #[serde(default, deserialize_with = "text")]
    path: Option<Arc<str>>,
    #[serde(default, deserialize_with = "text")]
    path2: Option<Arc<str>>,
    #[serde(default)]
    flags: Option<OpenFlags>,
    #[serde(default)]
    ret: Option<i64>,
    #[serde(default)]
    bytes: Option<i64>,
    #[serde(default)]
    want: Option<i64>,
    #[serde(default, deserialize_with = "text")]
    fs: Option<Arc<str>>,
    #[serde(default, deserialize_with = "text")]
    mount: Option<Arc<str>>,
    #[serde(default, deserialize_with = "text")]
    root: Option<Arc<str>>,
    #[serde(default, deserialize_with = "text")]
    local: Option<Arc<str>>,
    #[serde(default, deserialize_with = "text")]
    peer: Option<Arc<str>>,
    #[serde(default)]
    peer_pid: Option<i64>,
}

fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(|text| text.map(Arc::from))
}

impl<'de> Deserialize<'de> for Record {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let line = Line::deserialize(deserializer)?;
        let fs = line.fs.map(|name| {
            Arc::new(FileSystem {
                name,
                mount: line.mount,
                root: line.root.unwrap_or_else(|| Arc::from("/")),
            })
        });
        Ok(Self {
            ts: line.ts,
            pid: line.pid,
            tid: line.tid,
            op: line.op,
            path: line.path,
            path2: line.path2,
            flags: line.flags,
            ret: line.ret,
            bytes: line.bytes,
            want: line.want,
            fs,
            local: line.local,
            peer: line.peer,
            peer_pid: line.peer_pid,
        })
    }
}

// === impl FileSystem ===

impl FileSystem {
    /// A file system of which only the identity is known.
    pub fn named(name: &str) -> Self {
        Self { name: Arc::from(name), mount: None, root: Arc::from("/") }
    }

    /// A directory as the file system itself names it. `None` where it is not known where the file system is seen,
    /// or where the directory is not below that.
    pub fn inside(&self, directory: &str) -> Option<String> {
        let rest = below(directory, self.mount.as_deref()?)?;
        let root = self.root.trim_end_matches('/');
        Some(if root.is_empty() && rest.is_empty() { "/".to_owned() } else { format!("{root}{rest}") })
    }
}

/// What follows a directory in a path: empty, or with a slash at its begin.
pub(crate) fn below<'p>(path: &'p str, directory: &str) -> Option<&'p str> {
    let rest = path.strip_prefix(directory.trim_end_matches('/'))?;
    (rest.is_empty() || rest.starts_with('/')).then_some(rest)
}

// === impl Record ===

impl Record {
    /// Reads a line. The error is a reason to count.
    pub fn parse(line: &[u8]) -> Result<Self, &'static str> {
        serde_json::from_slice(line).map_err(|error| match error.classify() {
            serde_json::error::Category::Data => "no kernel record",
            _ => "no JSON",
        })
    }

    /// Whether the call worked. A record without a result is taken as one that did.
    pub fn succeeded(&self) -> bool {
        self.ret.unwrap_or(0) >= 0
    }

    /// Bytes that moved; never negative.
    pub fn moved(&self) -> u64 {
        let bytes = self.bytes.or(self.ret).unwrap_or(0);
        u64::try_from(bytes).unwrap_or(0)
    }

    /// Bytes that were asked for: at least those that moved.
    pub fn wanted(&self) -> u64 {
        self.want.and_then(|want| u64::try_from(want).ok()).unwrap_or(0).max(self.moved())
    }

    /// Flags of an open; none where the recorder did not tell them.
    pub fn open_flags(&self) -> OpenFlags {
        self.flags.unwrap_or_default()
    }

    /// Whether an open may write.
    pub fn opens_for_writing(&self) -> bool {
        self.open_flags().may_write()
    }

    /// The thread, or the process where the recorder did not name it.
    pub fn thread(&self) -> i64 {
        self.tid.unwrap_or(self.pid)
    }

    /// Whether the call did nothing and is repeated (EINTR, EAGAIN).
    pub fn is_to_be_repeated(&self) -> bool {
        matches!(self.ret, Some(-4 | -11))
    }

    /// Whether a failed call says that the store had no room or no permission.
    pub fn was_refused(&self) -> bool {
        // EACCES, EFBIG, ENOSPC, EROFS, EDQUOT, EPERM
        matches!(self.ret, Some(-13 | -27 | -28 | -30 | -122 | -1))
    }
}

// === impl Operation ===

impl Operation {
    /// Its word in recordings. A call that is not known has none that reads back as itself.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Stat => "stat",
            Self::Close => "close",
            Self::Readdir => "readdir",
            Self::Statfs => "statfs",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Truncate => "truncate",
            Self::Mmap => "mmap",
            Self::Connect => "connect",
            Self::Send => "send",
            Self::Recv => "recv",
            Self::ProcessVmReadv => "process_vm_readv",
            Self::ProcessVmWritev => "process_vm_writev",
            Self::Other => "other",
        }
    }
}
