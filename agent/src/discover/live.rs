//! `/proc` of this machine.

use super::system::{MAX_TEXT, Output, Processes, Stat};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, str};

/// Names in one directory that are read.
const MAX_NAMES: usize = 65_536;
/// Mapped files of one process that are read.
const MAX_MAPPED: usize = 65_536;
/// Longer lines of `stat` do not exist.
const STAT_BYTES: usize = 4096;

/// `/proc` of this machine, with the rights of this process.
#[derive(Debug)]
pub struct LiveProcesses {
    proc: OwnedFd,
    root: PathBuf,
}

// === impl LiveProcesses ===

impl LiveProcesses {
    /// # Errors
    /// When `/proc` cannot be opened.
    pub fn open() -> io::Result<Self> {
        let root = PathBuf::from("/proc");
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        let proc = rustix::fs::open(&root, flags, Mode::empty())?;
        Ok(Self { proc, root })
    }

    fn file(&self, pid: u32, name: &str) -> io::Result<fs::File> {
        let flags = OFlags::CLOEXEC | OFlags::RDONLY;
        Ok(openat(&self.proc, format!("{pid}/{name}"), flags, Mode::empty())?.into())
    }

    fn bytes(&self, pid: u32, name: &str, limit: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(pid, name)?.take(limit as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn path(&self, pid: u32, name: &str) -> PathBuf {
        self.root.join(pid.to_string()).join(name)
    }

    /// Opens what a process calls `path`. Links lead nowhere outside its root.
    fn inside(&self, pid: u32, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let root = openat(&self.proc, format!("{pid}/root"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(openat2(root, path, flags, Mode::empty(), resolve)?)
    }
}

impl Processes for LiveProcesses {
    fn pids(&self) -> io::Result<Vec<u32>> {
        let names = fs::read_dir(&self.root)?.filter_map(Result::ok);
        Ok(names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
    }

    fn stat(&self, pid: u32) -> io::Result<Stat> {
        let mut path = [0; 32];
        let path = pid_path(&mut path, pid, "/stat");
        let file = openat(&self.proc, path, OFlags::CLOEXEC | OFlags::RDONLY, Mode::empty())?;
        let mut line = [0; STAT_BYTES];
        let length = rustix::io::read(&file, &mut line)?;
        let line = String::from_utf8_lossy(&line[..length]);
        Stat::parse(&line).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.bytes(pid, "cmdline", MAX_TEXT)
    }

    fn environment(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.bytes(pid, "environ", MAX_TEXT)
    }

    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>> {
        mapped(self.file(pid, "maps")?)
    }

    fn cgroup(&self, pid: u32) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&self.bytes(pid, "cgroup", MAX_TEXT)?).into_owned())
    }

    fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        fs::read_link(self.path(pid, "exe"))
    }

    fn directory(&self, pid: u32) -> io::Result<PathBuf> {
        fs::read_link(self.path(pid, "cwd"))
    }

    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>> {
        let status = self.bytes(pid, "status", MAX_TEXT)?;
        let status = String::from_utf8_lossy(&status);
        let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        Ok(line.unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect())
    }

    fn output(&self, pid: u32, fd: u32) -> Output {
        let path = self.path(pid, &format!("fd/{fd}"));
        let target = match fs::read_link(&path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Output::Nowhere,
            Err(error) => return Output::Unknown(error.kind()),
        };
        // Of the file behind the link, without opening it.
        match fs::metadata(&path) {
            Ok(data) if data.is_file() => {
                Output::File { path: target, device: data.dev(), inode: data.ino() }
            }
            Ok(_) if target == Path::new("/dev/null") => Output::Nowhere,
            Ok(_) => Output::Stream(target.to_string_lossy().into_owned()),
            Err(error) => Output::Unknown(error.kind()),
        }
    }

    fn list(&self, pid: u32, directory: &Path) -> io::Result<Vec<String>> {
        let directory = self.inside(pid, directory, OFlags::DIRECTORY | OFlags::RDONLY)?;
        let names = rustix::fs::Dir::read_from(&directory)?.filter_map(Result::ok);
        Ok(names.take(MAX_NAMES).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
    }

    fn read(&self, pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        let file = fs::File::from(self.inside(pid, path, OFlags::RDONLY)?);
        if !file.metadata()?.is_file() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        file.take(limit as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Paths in a memory map, each once.
fn mapped(map: impl Read) -> io::Result<Vec<String>> {
    let mut paths = BTreeSet::new();
    let mut lines = BufReader::with_capacity(64 << 10, map);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 && paths.len() < MAX_MAPPED {
        if let Some(at) = memchr::memchr(b'/', &line) {
            let path = String::from_utf8_lossy(line[at..].trim_ascii_end());
            if !paths.contains(path.as_ref()) {
                paths.insert(path.into_owned());
            }
        }
        line.clear();
    }
    Ok(paths.into_iter().collect())
}

/// `PID/name` without an allocation: this path is built for every process of the machine.
fn pid_path<'b>(buffer: &'b mut [u8; 32], pid: u32, name: &str) -> &'b str {
    use io::Write as _;
    let mut rest = buffer.as_mut_slice();
    let written = write!(rest, "{pid}{name}");
    let left = rest.len();
    let length = if written.is_ok() { buffer.len() - left } else { 0 };
    str::from_utf8(&buffer[..length]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn this_process_reads_itself() {
        let live = LiveProcesses::open().unwrap();
        let pid = std::process::id();
        assert!(live.pids().unwrap().contains(&pid));
        let stat = live.stat(pid).unwrap();
        assert!(stat.start > 0 && stat.arguments_at > 0 && !stat.is_over());
        assert!(!live.arguments(pid).unwrap().is_empty());
        assert_eq!(live.executable(pid).unwrap(), std::env::current_exe().unwrap());
        assert!(!live.mapped_files(pid).unwrap().is_empty());
        assert!(live.namespace_pids(pid).unwrap().contains(&pid));
        assert!(live.list(pid, Path::new("/")).unwrap().contains(&"proc".to_owned()));
        assert_eq!(live.stat(u32::MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_is_told_from_a_stream() {
        use std::os::fd::AsRawFd;
        let live = LiveProcesses::open().unwrap();
        let pid = std::process::id();
        let file = tempfile::NamedTempFile::new().unwrap();
        let fd = file.as_file().as_raw_fd().unsigned_abs();
        assert!(matches!(live.output(pid, fd), Output::File { path, .. } if path == file.path()));
        let (pipe, _end) = io::pipe().unwrap();
        assert!(matches!(live.output(pid, pipe.as_raw_fd().unsigned_abs()), Output::Stream(_)));
        assert_eq!(live.output(pid, 1_000_000), Output::Nowhere);
    }

    #[test]
    fn a_pipe_is_not_read_as_a_file() {
        let live = LiveProcesses::open().unwrap();
        let read = live.read(std::process::id(), Path::new("/dev/zero"), 16);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
