//! One kernel record: a system call of a worker's process, as a JSON line of a recording or from the kernel program.
//!
//! The form is that of DESIGN.md §8. Fields that are not known here are ignored; a line that is no record is an error
//! with a reason to count.

use serde::Deserialize;

/// No such file or directory.
pub const ENOENT: i64 = -2;
/// The file that an NFS client had open is gone on the server.
pub const ESTALE: i64 = -116;

/// System calls that are followed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
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

/// One system call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Record {
    /// Unix seconds on the node's clock.
    #[serde(default)]
    pub ts: Option<f64>,
    /// The process.
    pub pid: i64,
    /// The thread.
    #[serde(default)]
    pub tid: Option<i64>,
    /// The call.
    pub op: Operation,
    /// The file.
    #[serde(default)]
    pub path: Option<String>,
    /// The new name of a rename.
    #[serde(default)]
    pub path2: Option<String>,
    /// Flags of an open, joined by `|`.
    #[serde(default)]
    pub flags: Option<String>,
    /// What the call returned; the negative errno on failure.
    #[serde(default)]
    pub ret: Option<i64>,
    /// Bytes that moved.
    #[serde(default)]
    pub bytes: Option<i64>,
    /// Bytes that were asked for, where not equal to `bytes`.
    #[serde(default)]
    pub want: Option<i64>,
    /// Identity of the file system behind the path.
    #[serde(default)]
    pub fs: Option<String>,
    /// Own `host:port`.
    #[serde(default)]
    pub local: Option<String>,
    /// The peer's `host:port`.
    #[serde(default)]
    pub peer: Option<String>,
    /// The other process of a `process_vm_*` call.
    #[serde(default)]
    pub peer_pid: Option<i64>,
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

    /// Whether an open has a flag.
    pub fn has_flag(&self, flag: &str) -> bool {
        self.flags.as_deref().is_some_and(|flags| flags.split('|').any(|one| one.trim() == flag))
    }

    /// Whether an open may write.
    pub fn opens_for_writing(&self) -> bool {
        self.has_flag("O_WRONLY") || self.has_flag("O_RDWR")
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
