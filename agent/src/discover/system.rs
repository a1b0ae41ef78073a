//! What discovery asks of the system.

use std::io;
use std::path::{Path, PathBuf};

/// A process as the kernel tells processes apart: its number is used again, its start never at the same tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessKey {
    /// Process id in the name space of the agent.
    pub pid: u32,
    /// Start in clock ticks since boot.
    pub start: u64,
}

/// One line of `/proc/PID/stat`, as far as it matters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stat {
    /// Name of the main thread, at most 15 bytes.
    pub thread_name: String,
    /// `R`, `S`, `D`, `Z`, …
    pub state: char,
    /// The parent.
    pub parent: u32,
    /// The session.
    pub session: u32,
    /// Start in clock ticks since boot.
    pub start: u64,
    /// Where the arguments lie in memory: another number after every exec. 0 without the right to see it.
    pub arguments_at: u64,
}

/// What a descriptor of a process is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Output {
    /// A regular file: can be followed.
    File {
        /// Its path as the process's mount name space shows it.
        path: PathBuf,
        /// Device number.
        device: u64,
        /// Inode number.
        inode: u64,
    },
    /// A pipe, a socket or a terminal: only the kernel sees what passes. The text tells which one.
    Stream(String),
    /// Thrown away, or closed.
    Nowhere,
    /// Could not be read.
    Unknown(io::ErrorKind),
}

/// Read access to processes, as far as discovery needs it. No call may block on the process it looks at.
///
/// # Errors
/// Each call fails with `NotFound` when the process is gone and with `PermissionDenied` when it may not be looked at.
pub trait Processes {
    /// Every process.
    fn pids(&self) -> io::Result<Vec<u32>>;
    /// `/proc/PID/stat`.
    fn stat(&self, pid: u32) -> io::Result<Stat>;
    /// `/proc/PID/cmdline`: arguments, each ended by a zero byte; at most [`MAX_TEXT`] bytes.
    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>>;
    /// `/proc/PID/environ`, as [`Self::arguments`].
    fn environment(&self, pid: u32) -> io::Result<Vec<u8>>;
    /// Paths of mapped files, each once.
    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>>;
    /// `/proc/PID/cgroup`.
    fn cgroup(&self, pid: u32) -> io::Result<String>;
    /// The executable.
    fn executable(&self, pid: u32) -> io::Result<PathBuf>;
    /// The working directory.
    fn directory(&self, pid: u32) -> io::Result<PathBuf>;
    /// Its numbers in its process name spaces, outermost first (`NSpid` of `/proc/PID/status`).
    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>>;
    /// What a descriptor is.
    fn output(&self, pid: u32, fd: u32) -> Output;
    /// Names in a directory below the process's root.
    fn list(&self, pid: u32, directory: &Path) -> io::Result<Vec<String>>;
    /// A regular file below the process's root, at most `limit` bytes of it.
    fn read(&self, pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>>;
}

/// Longest arguments or environment that are read, in bytes.
pub const MAX_TEXT: usize = 1 << 20;

// === impl Stat ===

impl Stat {
    /// Reads the line. `None` when it is none.
    pub fn parse(line: &str) -> Option<Self> {
        let (head, tail) = (line.find('(')?, line.rfind(')')?);
        let thread_name = line.get(head + 1..tail)?.to_owned();
        let mut fields = line.get(tail + 1..)?.split_ascii_whitespace();
        // Counted from 0 at the state, which is field 3 of proc(5).
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        let start = fields.nth(15)?.parse().ok()?;
        let arguments_at = fields.nth(25).and_then(|field| field.parse().ok()).unwrap_or(0);
        Some(Self { thread_name, state, parent, session, start, arguments_at })
    }

    /// Whether it ended and only its parent does not know yet.
    pub fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Texts of arguments or environment, each ended by a zero byte. What is no UTF-8 is replaced.
pub(crate) fn texts(bytes: &[u8]) -> Vec<String> {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    if end == 0 {
        return Vec::new();
    }
    bytes[..end].split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn a_thread_name_may_hold_brackets_and_blanks() {
        let rest = (0..33).map(|field| (100 + field).to_string()).collect::<Vec<_>>().join(" ");
        let line = format!("7 (a) b (c) S 1 7 6 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 4242 {rest}");
        let stat = Stat::parse(&line).unwrap();
        assert_eq!((stat.thread_name.as_str(), stat.state, stat.parent), ("a) b (c", 'S', 1));
        assert_eq!((stat.session, stat.start), (6, 4242));
        assert!(stat.arguments_at > 100);
        assert_eq!(Stat::parse("7 (a"), None);
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn an_overwritten_title_leaves_zeros() {
        assert_eq!(texts(b"a\0b\0"), ["a", "b"]);
        assert_eq!(texts(b"X::y\0\0\0\0\0"), ["X::y"]);
        assert_eq!(texts(b"a\0\0b\0"), ["a", "", "b"]);
        assert!(texts(b"").is_empty() && texts(b"\0\0").is_empty());
    }
}
