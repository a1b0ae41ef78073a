//! Processes for discovery.

use super::{io_error, or_ask};
use crate::access::{Access, AccessError, FileKind, Link, ProcessAccess, ProcessId};
use crate::discover::{LiveProcesses, Output, Processes, Stat};
use std::collections::BTreeSet;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The processes of this node.
#[derive(Debug)]
pub(crate) struct NodeProcesses {
    own: LiveProcesses,
    access: Arc<Access>,
    /// `/proc` shows this process only its own kind.
    is_hidden: bool,
}

// === impl NodeProcesses ===

impl NodeProcesses {
    pub(crate) fn new(access: Arc<Access>) -> io::Result<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_hidden = kvprov_loader::abilities::hides_processes(&mounts);
        Ok(Self { own: LiveProcesses::open()?, access, is_hidden })
    }

    fn of(&self, pid: u32) -> Result<ProcessId, AccessError> {
        self.access.identify(pid)
    }

    fn link(&self, pid: u32, link: Link) -> Result<PathBuf, AccessError> {
        let target = self.access.link(self.of(pid)?, link)?;
        Ok(PathBuf::from(std::ffi::OsString::from_vec(target)))
    }
}

impl Processes for NodeProcesses {
    fn pids(&self) -> io::Result<Vec<u32>> {
        if !self.is_hidden {
            return self.own.pids();
        }
        let all = self.access.pids().map_err(io_error)?;
        Ok(all.into_iter().map(|process| process.pid).collect())
    }

    fn stat(&self, pid: u32) -> io::Result<Stat> {
        let own = self.own.stat(pid);
        if !self.is_hidden || own.is_ok() {
            return own;
        }
        let line = self.of(pid).and_then(|process| self.access.stat(process)).map_err(io_error)?;
        Stat::parse(&String::from_utf8_lossy(&line)).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        or_ask(self.own.arguments(pid), || self.access.cmdline(self.of(pid)?))
    }

    fn environment(&self, pid: u32) -> io::Result<Vec<u8>> {
        or_ask(self.own.environment(pid), || self.access.environ(self.of(pid)?))
    }

    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>> {
        or_ask(self.own.mapped_files(pid), || {
            let maps = self.access.maps(self.of(pid)?)?;
            let paths: BTreeSet<String> = maps
                .split(|byte| *byte == b'\n')
                .filter_map(|line| line.get(memchr::memchr(b'/', line)?..))
                .map(|path| String::from_utf8_lossy(path.trim_ascii_end()).into_owned())
                .collect();
            Ok(paths.into_iter().collect())
        })
    }

    fn cgroup(&self, pid: u32) -> io::Result<String> {
        or_ask(self.own.cgroup(pid), || {
            Ok(String::from_utf8_lossy(&self.access.cgroup(self.of(pid)?)?).into_owned())
        })
    }

    fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        or_ask(self.own.executable(pid), || self.link(pid, Link::Exe))
    }

    fn directory(&self, pid: u32) -> io::Result<PathBuf> {
        or_ask(self.own.directory(pid), || self.link(pid, Link::Cwd))
    }

    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.own.namespace_pids(pid)
    }

    fn output(&self, pid: u32, fd: u32) -> Output {
        let own = self.own.output(pid, fd);
        if own != Output::Unknown(io::ErrorKind::PermissionDenied) {
            return own;
        }
        let descriptor = self.of(pid).and_then(|process| self.access.descriptor(process, fd));
        let descriptor = match descriptor {
            Ok(descriptor) => descriptor,
            Err(AccessError::NotFound) => return Output::Nowhere,
            Err(error) => return Output::Unknown(io_error(error).kind()),
        };
        let path = PathBuf::from(std::ffi::OsString::from_vec(descriptor.target));
        match descriptor.kind {
            FileKind::Regular => {
                let device = rustix::fs::makedev(descriptor.device >> 20, descriptor.device & 0xf_ffff);
                Output::File { path, device, inode: descriptor.inode }
            }
            _ if path == Path::new("/dev/null") => Output::Nowhere,
            _ => Output::Stream(path.to_string_lossy().into_owned()),
        }
    }

    fn list(&self, pid: u32, directory: &Path) -> io::Result<Vec<String>> {
        or_ask(self.own.list(pid, directory), || {
            let listing = self.access.list_dir_of(self.of(pid)?, directory.as_os_str().as_bytes())?;
            let name = |entry: &crate::access::DirEntry| String::from_utf8_lossy(&entry.name).into_owned();
            Ok(listing.entries.iter().map(name).collect())
        })
    }

    fn read(&self, pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        or_ask(self.own.read(pid, path, limit), || {
            let (file, _) = self.access.open_file_of(self.of(pid)?, path.as_os_str().as_bytes())?;
            let mut bytes = Vec::new();
            file.take(limit as u64)
                .read_to_end(&mut bytes)
                .map_err(|error| AccessError::Failed(error.to_string()))?;
            Ok(bytes)
        })
    }
}
