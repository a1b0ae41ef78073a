//! Looks at another process through `/proc`, without changing it or anything else.
//!
//! A process is held by its directory in `/proc`: once it is gone, everything below that directory is gone, also when
//! its pid was given to another process meanwhile. So there is no moment at which a wrong process could be looked at.
//! Invariant: nothing but regular files and directories is ever opened, and these for reading only; what a path names
//! is looked at before it is opened, because opening a device or a pipe has effects.

mod descriptors;
mod directory;
mod files;
mod identity;

pub use directory::{ENTRIES_MAX, Listing, list};
pub use files::{can_resolve, read_at_most};
pub use identity::{identify, processes, start_of_stat};

use crate::process::{Failure, Link, PATH_MAX, ProcFile, ProcessId};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// A process that is looked at.
#[derive(Debug)]
pub struct OpenProcess {
    id: ProcessId,
    directory: OwnedFd,
}

// === impl OpenProcess ===

impl OpenProcess {
    /// Takes hold of a process.
    ///
    /// # Errors
    /// [`Failure::Gone`] when it ended or the pid belongs to another process. With `hidepid` on `/proc`, processes of
    /// other users look the same.
    pub fn open(id: ProcessId) -> Result<Self, Failure> {
        let process = Self { id, directory: identity::directory(id.pid)? };
        process.check()?;
        Ok(process)
    }

    /// Which process it is.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// Opens a file of `/proc/PID` for reading.
    ///
    /// # Errors
    /// [`Failure::Denied`] for a process of another user without CAP_SYS_PTRACE.
    pub fn file(&self, file: ProcFile) -> Result<OwnedFd, Failure> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        rustix::fs::openat(&self.directory, file.name(), flags, Mode::empty())
            .map_err(|error| self.failure(error))
    }

    /// Reads a link of `/proc/PID`.
    ///
    /// # Errors
    /// As for [`OpenProcess::file`].
    pub fn link(&self, link: Link) -> Result<Vec<u8>, Failure> {
        let target = rustix::fs::readlinkat(&self.directory, link.name(), Vec::with_capacity(256))
            .map_err(|error| self.failure(error))?
            .into_bytes();
        if target.len() > PATH_MAX { Err(Failure::Os(Errno::NAMETOOLONG.raw_os_error())) } else { Ok(target) }
    }

    /// The process is still the one that was asked for, and no corpse.
    fn check(&self) -> Result<(), Failure> {
        let stat = identity::stat_of(&self.directory)?;
        let (state, started) = identity::state_and_start(&stat).ok_or(Failure::Gone)?;
        if started == self.id.started && !matches!(state, b'Z' | b'X' | b'x') {
            Ok(())
        } else {
            Err(Failure::Gone)
        }
    }

    /// What an error of the kernel means; one that a dying process gives becomes [`Failure::Gone`].
    fn failure(&self, error: Errno) -> Failure {
        match failure(error) {
            Failure::Gone => Failure::Gone,
            other if self.check().is_ok() => other,
            _ => Failure::Gone,
        }
    }
}

/// What an error of the kernel means.
fn failure(error: Errno) -> Failure {
    match error {
        Errno::SRCH => Failure::Gone,
        Errno::NOENT | Errno::NOTDIR => Failure::NotFound,
        Errno::ACCESS | Errno::PERM => Failure::Denied,
        Errno::LOOP | Errno::XDEV => Failure::NotRegular,
        Errno::NOSYS => Failure::Unsupported,
        Errno::MFILE | Errno::NFILE | Errno::AGAIN => Failure::Busy,
        other => Failure::Os(other.raw_os_error()),
    }
}

/// Flags that open a place without opening what is there.
const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Opens an own path as a place.
fn place(path: &str) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, path, PLACE, Mode::empty())
}

#[cfg(test)]
mod tests;
