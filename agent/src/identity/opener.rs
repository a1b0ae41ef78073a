//! Opening files of models: never waiting for one, and nothing but regular files.
//!
//! What a path of a worker names is its own affair: a pipe would hold whoever opens it, and a device may act on being opened.

use rustix::fs::{CWD, FileType, Mode, OFlags};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;

/// Opens files of other processes for reading.
pub trait FileOpener: Send {
    /// Opens a regular file as a process sees it (below `/proc/PID/root`). It does not wait, whatever the path names;
    /// [`ErrorKind::InvalidInput`] where that is no regular file.
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<File>;
}

/// Opens what this process itself may see; for tests and for an agent with the rights to.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

impl FileOpener for OwnFiles {
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<File> {
        let mut inside = format!("/proc/{pid}/root").into_bytes();
        inside.extend_from_slice(path);
        // The place alone is looked at first: that opens nothing.
        let place = rustix::fs::openat(
            CWD,
            OsStr::from_bytes(&inside),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        if FileType::from_raw_mode(rustix::fs::fstat(&place)?.st_mode) != FileType::RegularFile {
            return Err(Error::new(ErrorKind::InvalidInput, "no regular file"));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        let again = format!("/proc/self/fd/{}", place.as_raw_fd());
        Ok(rustix::fs::openat(CWD, again, flags, Mode::empty())?.into())
    }
}

/// Why a file could not be opened, in words.
pub(super) fn reason(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::NotFound => "it was gone when it was to be read",
        ErrorKind::PermissionDenied => "it may not be read",
        ErrorKind::InvalidInput => "it is no regular file",
        _ => "it could not be opened to be read",
    }
}
