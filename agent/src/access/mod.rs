//! Looking at other processes: `/proc`, their files and descriptors.
//!
//! All of the agent looks through [`ProcessAccess`]. [`Access`] is the real one: it tries with the agent's own rights,
//! asks the loader where these do not suffice, and says what is missing where there is no loader. [`fake::Fake`] is a
//! machine in memory for tests.
//!
//! A process is named by pid and start time, so that a pid which was given to another process is never taken for the
//! one before: the answer is then [`AccessError::Gone`].

pub mod fake;
mod listening;
mod node;

use kvprov_loader::containers::{ContainerId, ContainerNames};
pub use kvprov_loader::inspect::Listing;
pub use kvprov_loader::process::{Descriptor, DirEntry, FileKind, FileStat, Link, Page, ProcFile, ProcessId};
pub use listening::Listener;
pub use node::{Access, READ_MAX};

use std::fs::File;
use std::sync::Arc;

/// Why something about a process is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The process ended, or its pid belongs to another one now.
    #[error("the process is gone")]
    Gone,
    /// No such file, descriptor or directory.
    #[error("it does not exist")]
    NotFound,
    /// Not a regular file of a real file system; nothing else is opened.
    #[error("it is no regular file")]
    NotRegular,
    /// The rights of agent and loader do not suffice.
    #[error("not permitted to {what}; it needs {needs}")]
    Refused {
        /// What was tried, as a verb: `read its environment`.
        what: &'static str,
        /// What would help.
        needs: &'static str,
    },
    /// Perhaps another time: too much at once, a file server that does not answer, a loader that is gone.
    #[error("not now: {0}")]
    NotNow(String),
    /// Any other error, in words.
    #[error("{0}")]
    Failed(String),
}

/// What can be known of processes. Paths are bytes, as the process sees them, absolute. Texts of `/proc` are at most
/// [`READ_MAX`] long; what is beyond is cut.
pub trait ProcessAccess: Send + Sync {
    /// All processes that can be seen, by pid. Threads are no processes.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    fn pids(&self) -> Result<Vec<ProcessId>, AccessError>;

    /// The process that has a pid now.
    ///
    /// # Errors
    /// [`AccessError::Gone`] when none has it.
    fn identify(&self, pid: u32) -> Result<ProcessId, AccessError>;

    /// The text of a file of `/proc/PID`.
    ///
    /// # Errors
    /// [`AccessError::Refused`] for most files of a process of another user.
    fn read(&self, process: ProcessId, file: ProcFile) -> Result<Vec<u8>, AccessError>;

    /// As [`ProcessAccess::read`], at most `piece` bytes at a time, until `take` has enough. For texts that the kernel makes
    /// line by line as they are read, where what is not read costs nothing.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn read_until(
        &self,
        process: ProcessId,
        file: ProcFile,
        _piece: usize,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), AccessError> {
        take(&self.read(process, file)?);
        Ok(())
    }

    /// The TCP sockets of the own network namespace that listen on a port; `None` where only the tables of a process
    /// tell.
    fn own_listeners(&self, _port: u16) -> Option<Vec<Listener>> {
        None
    }

    /// What the container runtime says of a container. Only a loader may ask it.
    ///
    /// # Errors
    /// [`AccessError::NotNow`] where asking again may help; else with the reason.
    fn container(&self, _id: &ContainerId) -> Result<ContainerNames, AccessError> {
        Err(AccessError::Refused { what: "ask the container runtime", needs: "a loader" })
    }

    /// Where a link of `/proc/PID` leads.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn link(&self, process: ProcessId, link: Link) -> Result<Vec<u8>, AccessError>;

    /// Descriptors from number `from` on, by number; at most `most`, or as many as fit for 0.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn descriptors(&self, process: ProcessId, from: u32, most: u32) -> Result<Page<Descriptor>, AccessError>;

    /// Opens a regular file for reading, with what it was like when it was opened. Links are followed below the root of
    /// the process.
    ///
    /// # Errors
    /// [`AccessError::NotRegular`] for anything else.
    fn open_file_of(&self, process: ProcessId, path: &[u8]) -> Result<(File, FileStat), AccessError>;

    /// Opens the regular file behind a descriptor again, for reading, with a position of its own. Works for files that
    /// were deleted.
    ///
    /// # Errors
    /// [`AccessError::NotRegular`] for anything else.
    fn open_fd_of(&self, process: ProcessId, fd: u32) -> Result<(File, FileStat), AccessError>;

    /// The names in a directory.
    ///
    /// # Errors
    /// [`AccessError::NotFound`] when it is none.
    fn list_dir_of(&self, process: ProcessId, directory: &[u8]) -> Result<Listing, AccessError>;

    /// What a path names; with `follow` where a link leads, else the link.
    ///
    /// # Errors
    /// [`AccessError::NotFound`] when it names nothing.
    fn stat_path_of(&self, process: ProcessId, path: &[u8], follow: bool) -> Result<FileStat, AccessError>;

    /// The environment at the start of the program, entries ended by NUL.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn environ(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Environ)
    }

    /// The arguments ended by NUL each, or what the process overwrote them with. Empty for kernel threads.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn cmdline(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Cmdline)
    }

    /// The memory map.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn maps(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Maps)
    }

    /// Times and sizes in numbers.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn stat(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Stat)
    }

    /// Ids, capabilities and sizes in words.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn status(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Status)
    }

    /// The control groups.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn cgroup(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Cgroup)
    }

    /// The mounts as the process sees them.
    ///
    /// # Errors
    /// As for [`ProcessAccess::read`].
    fn mountinfo(&self, process: ProcessId) -> Result<Vec<u8>, AccessError> {
        self.read(process, ProcFile::Mountinfo)
    }

    /// One descriptor.
    ///
    /// # Errors
    /// [`AccessError::NotFound`] when the process has none of this number.
    fn descriptor(&self, process: ProcessId, fd: u32) -> Result<Descriptor, AccessError> {
        let page = self.descriptors(process, fd, 1)?;
        page.items.into_iter().next().filter(|found| found.fd == fd).ok_or(AccessError::NotFound)
    }
}

impl<A: ProcessAccess + ?Sized> ProcessAccess for Arc<A> {
    fn pids(&self) -> Result<Vec<ProcessId>, AccessError> {
        (**self).pids()
    }

    fn identify(&self, pid: u32) -> Result<ProcessId, AccessError> {
        (**self).identify(pid)
    }

    fn read(&self, process: ProcessId, file: ProcFile) -> Result<Vec<u8>, AccessError> {
        (**self).read(process, file)
    }

    fn read_until(
        &self,
        process: ProcessId,
        file: ProcFile,
        piece: usize,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), AccessError> {
        (**self).read_until(process, file, piece, take)
    }

    fn own_listeners(&self, port: u16) -> Option<Vec<Listener>> {
        (**self).own_listeners(port)
    }

    fn container(&self, id: &ContainerId) -> Result<ContainerNames, AccessError> {
        (**self).container(id)
    }

    fn link(&self, process: ProcessId, link: Link) -> Result<Vec<u8>, AccessError> {
        (**self).link(process, link)
    }

    fn descriptors(&self, process: ProcessId, from: u32, most: u32) -> Result<Page<Descriptor>, AccessError> {
        (**self).descriptors(process, from, most)
    }

    fn open_file_of(&self, process: ProcessId, path: &[u8]) -> Result<(File, FileStat), AccessError> {
        (**self).open_file_of(process, path)
    }

    fn open_fd_of(&self, process: ProcessId, fd: u32) -> Result<(File, FileStat), AccessError> {
        (**self).open_fd_of(process, fd)
    }

    fn list_dir_of(&self, process: ProcessId, directory: &[u8]) -> Result<Listing, AccessError> {
        (**self).list_dir_of(process, directory)
    }

    fn stat_path_of(&self, process: ProcessId, path: &[u8], follow: bool) -> Result<FileStat, AccessError> {
        (**self).stat_path_of(process, path, follow)
    }
}

#[cfg(test)]
mod tests;
