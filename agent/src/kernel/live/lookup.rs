//! What the live reader asks about a process beside its records.
//!
//! The agent has no right to read `/proc` of others: the one who may answers. Every answer is of now, while the
//! question is of a record some milliseconds old; the one who asks checks that both speak of one thing.

use std::collections::BTreeMap;

/// An open descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Target of `/proc/PID/fd/FD`.
    pub path: Vec<u8>,
    /// `mnt_id` of `/proc/PID/fdinfo/FD`.
    pub mount: Option<u32>,
    /// `ino` of `/proc/PID/fdinfo/FD` (Linux 5.14 and later).
    pub inode: Option<u64>,
}

/// Answers about processes. `None` where the process is gone or may not be read.
pub trait ProcessLookup {
    /// Target of `/proc/PID/cwd`.
    fn cwd(&mut self, pid: u32) -> Option<Vec<u8>>;
    /// A descriptor.
    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Descriptor>;
    /// Content of `/proc/PID/mountinfo`.
    fn mountinfo(&mut self, pid: u32) -> Option<Vec<u8>>;
    /// Id of the mount on which a directory of the process is, symbolic links followed (`statx` below
    /// `/proc/PID/root`). `None` also where that cannot be asked.
    fn mount_of(&mut self, _pid: u32, _directory: &[u8]) -> Option<u32> {
        None
    }
}

/// Asks `/proc` itself: for tests, and for a reader with the rights to.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnProc;

/// Answers from memory.
#[derive(Debug, Clone, Default)]
pub struct FakeProcesses {
    /// Working directories.
    pub cwd: BTreeMap<u32, Vec<u8>>,
    /// Descriptors.
    pub descriptors: BTreeMap<(u32, i32), Descriptor>,
    /// Mounts.
    pub mountinfo: BTreeMap<u32, Vec<u8>>,
    /// Questions so far.
    pub asked: u64,
}

/// Reads the lines `mnt_id:` and `ino:` of a `fdinfo` file.
pub fn fdinfo(text: &[u8]) -> (Option<u32>, Option<u64>) {
    let field = |name: &[u8]| {
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        std::str::from_utf8(line).ok().map(str::trim)
    };
    let mount = field(b"mnt_id:").and_then(|text| text.parse().ok());
    let inode = field(b"ino:").and_then(|text| text.parse().ok());
    (mount, inode)
}

impl ProcessLookup for OwnProc {
    fn cwd(&mut self, pid: u32) -> Option<Vec<u8>> {
        link(&format!("/proc/{pid}/cwd"))
    }

    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Descriptor> {
        let path = link(&format!("/proc/{pid}/fd/{fd}"))?;
        let (mount, inode) = fdinfo(&std::fs::read(format!("/proc/{pid}/fdinfo/{fd}")).ok()?);
        Some(Descriptor { path, mount, inode })
    }

    fn mountinfo(&mut self, pid: u32) -> Option<Vec<u8>> {
        std::fs::read(format!("/proc/{pid}/mountinfo")).ok()
    }
}

fn link(path: &str) -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::fs::read_link(path).ok()?.into_os_string().into_vec())
}

impl ProcessLookup for FakeProcesses {
    fn cwd(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.asked += 1;
        self.cwd.get(&pid).cloned()
    }

    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Descriptor> {
        self.asked += 1;
        self.descriptors.get(&(pid, fd)).cloned()
    }

    fn mountinfo(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.asked += 1;
        self.mountinfo.get(&pid).cloned()
    }
}

/// Shares answers between a reader and the test that changes them.
impl<L: ProcessLookup> ProcessLookup for std::sync::Arc<std::sync::Mutex<L>> {
    fn cwd(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.lock().ok()?.cwd(pid)
    }

    fn descriptor(&mut self, pid: u32, fd: i32) -> Option<Descriptor> {
        self.lock().ok()?.descriptor(pid, fd)
    }

    fn mountinfo(&mut self, pid: u32) -> Option<Vec<u8>> {
        self.lock().ok()?.mountinfo(pid)
    }

    fn mount_of(&mut self, pid: u32, directory: &[u8]) -> Option<u32> {
        self.lock().ok()?.mount_of(pid, directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_this_process_is_found_with_its_inode() {
        use std::os::fd::AsRawFd;
        use std::os::unix::fs::MetadataExt;
        let file = tempfile::NamedTempFile::new().unwrap_or_else(|error| unreachable!("{error}"));
        let found = OwnProc.descriptor(std::process::id(), file.as_raw_fd());
        let inode = file.as_file().metadata().map(|meta| meta.ino()).ok();
        assert_eq!(found.and_then(|found| found.inode), inode);
        assert_eq!(OwnProc.descriptor(std::process::id(), 99_999), None);
    }

    #[test]
    fn fdinfo_of_an_older_kernel_has_no_inode() {
        assert_eq!(fdinfo(b"pos:\t0\nflags:\t0100000\nmnt_id:\t29\n"), (Some(29), None));
        assert_eq!(fdinfo(b"pos:\t0\nmnt_id:\t29\nino:\t77\n"), (Some(29), Some(77)));
        assert_eq!(fdinfo(b"\xff\nmnt_id:\tx"), (None, None));
    }
}
