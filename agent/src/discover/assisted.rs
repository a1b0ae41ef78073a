//! `/proc` with own rights, and with the loader's where those do not suffice.
//!
//! What everybody may read of every process is read directly: it is what a look over the whole machine consists of.

use super::live::{LiveProcesses, mapped};
use super::system::{MAX_TEXT, Output, Processes, Stat};
use crate::access::{AccessError, FileKind, Link, ProcFile, ProcessAccess, ProcessId};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Looks by itself first and asks when it is not permitted to.
#[derive(Debug)]
pub struct AssistedProcesses<A> {
    own: LiveProcesses,
    access: A,
}

// === impl AssistedProcesses ===

impl<A: ProcessAccess> AssistedProcesses<A> {
    /// # Errors
    /// When `/proc` cannot be opened.
    pub fn open(access: A) -> io::Result<Self> {
        Ok(Self { own: LiveProcesses::open()?, access })
    }

    fn asked<T>(
        &self,
        pid: u32,
        own: io::Result<T>,
        ask: impl FnOnce(&A, ProcessId) -> Result<T, AccessError>,
    ) -> io::Result<T> {
        match own {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let process = self.access.identify(pid).map_err(|error| io::Error::from(kind_of(&error)))?;
                ask(&self.access, process).map_err(|error| kind_of(&error).into())
            }
            told => told,
        }
    }

    fn text(&self, pid: u32, own: io::Result<Vec<u8>>, file: ProcFile) -> io::Result<Vec<u8>> {
        self.asked(pid, own, |access, process| {
            let mut text = access.read(process, file)?;
            text.truncate(MAX_TEXT);
            Ok(text)
        })
    }

    fn link(&self, pid: u32, own: io::Result<PathBuf>, link: Link) -> io::Result<PathBuf> {
        self.asked(pid, own, |access, process| access.link(process, link).map(path_from))
    }
}

impl<A: ProcessAccess> Processes for AssistedProcesses<A> {
    fn pids(&self) -> io::Result<Vec<u32>> {
        let own = self.own.pids();
        // Where `/proc` hides the processes of others, hardly any is left.
        if self.own.is_hidden() {
            let all = self.access.pids().map_err(|error| io::Error::from(kind_of(&error)))?;
            return Ok(all.into_iter().map(|process| process.pid).collect());
        }
        own
    }

    fn stat(&self, pid: u32) -> io::Result<Stat> {
        let own = self.own.stat(pid);
        let own = match own {
            Err(error) if self.own.is_hidden() && error.kind() == io::ErrorKind::NotFound => {
                Err(io::ErrorKind::PermissionDenied.into())
            }
            told => told,
        };
        self.asked(pid, own, |access, process| {
            let line = access.stat(process)?;
            Stat::parse(&String::from_utf8_lossy(&line))
                .ok_or_else(|| AccessError::Failed("no line of numbers".to_owned()))
        })
    }

    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.text(pid, self.own.arguments(pid), ProcFile::Cmdline)
    }

    fn environment(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.text(pid, self.own.environment(pid), ProcFile::Environ)
    }

    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>> {
        self.asked(pid, self.own.mapped_files(pid), |access, process| {
            mapped(access.maps(process)?.as_slice()).map_err(|error| AccessError::Failed(error.to_string()))
        })
    }

    fn cgroup(&self, pid: u32) -> io::Result<String> {
        self.asked(pid, self.own.cgroup(pid), |access, process| {
            access.cgroup(process).map(|text| String::from_utf8_lossy(&text).into_owned())
        })
    }

    fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        self.link(pid, self.own.executable(pid), Link::Exe)
    }

    fn directory(&self, pid: u32) -> io::Result<PathBuf> {
        self.link(pid, self.own.directory(pid), Link::Cwd)
    }

    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.own.namespace_pids(pid)
    }

    fn output(&self, pid: u32, fd: u32) -> Output {
        match self.own.output(pid, fd) {
            Output::Unknown(io::ErrorKind::PermissionDenied) => {
                let denied = || Err(io::ErrorKind::PermissionDenied.into());
                match self.asked(pid, denied(), |access, process| access.descriptor(process, fd)) {
                    Ok(found) if found.kind == FileKind::Regular => Output::File {
                        path: path_from(found.target),
                        device: u64::from(found.device),
                        inode: found.inode,
                    },
                    Ok(found) if found.target == b"/dev/null" => Output::Nowhere,
                    Ok(found) => Output::Stream(String::from_utf8_lossy(&found.target).into_owned()),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Output::Nowhere,
                    Err(error) => Output::Unknown(error.kind()),
                }
            }
            told => told,
        }
    }

    fn list(&self, pid: u32, directory: &Path) -> io::Result<Vec<String>> {
        self.asked(pid, self.own.list(pid, directory), |access, process| {
            let listing = access.list_dir_of(process, directory.as_os_str().as_bytes())?;
            let names = listing.entries.into_iter();
            Ok(names.map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect())
        })
    }

    fn read(&self, pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.asked(pid, self.own.read(pid, path, limit), |access, process| {
            let (file, _) = access.open_file_of(process, path.as_os_str().as_bytes())?;
            let mut bytes = Vec::new();
            match file.take(limit as u64).read_to_end(&mut bytes) {
                Ok(_) => Ok(bytes),
                Err(error) => Err(AccessError::Failed(error.to_string())),
            }
        })
    }
}

fn path_from(bytes: Vec<u8>) -> PathBuf {
    OsString::from_vec(bytes).into()
}

fn kind_of(error: &AccessError) -> io::ErrorKind {
    match error {
        AccessError::Gone | AccessError::NotFound => io::ErrorKind::NotFound,
        AccessError::NotRegular => io::ErrorKind::InvalidInput,
        AccessError::Refused { .. } => io::ErrorKind::PermissionDenied,
        AccessError::NotNow(_) => io::ErrorKind::WouldBlock,
        AccessError::Failed(_) => io::ErrorKind::Other,
    }
}
