//! How followed files are reached. The agent may not open every log by itself; whoever may opens it and passes the
//! descriptor.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Names of one directory that are looked at; more are left out.
pub const MAX_NAMES: usize = 100_000;

/// What a file is, links followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileStat {
    /// File system.
    pub device: u64,
    /// Inode.
    pub inode: u64,
    /// When the inode was made, in Unix nanoseconds, where the file system tells.
    pub born: Option<i64>,
    /// Bytes.
    pub size: u64,
    /// Last change of content in Unix nanoseconds.
    pub modified: i64,
    /// A regular file.
    pub is_regular: bool,
}

/// Opens files and looks at directories.
pub trait Files: Send {
    /// Opens a file to read it. Must not wait for a writer of a pipe.
    ///
    /// # Errors
    /// Whatever keeps it from being opened.
    fn open(&self, path: &Path) -> io::Result<File>;
    /// Names in a directory, at most [`MAX_NAMES`], in any order.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>>;
    /// What a path leads to.
    ///
    /// # Errors
    /// Whatever keeps it from being looked at.
    fn stat(&self, path: &Path) -> io::Result<FileStat>;
    /// The path behind links; the path itself where that cannot be told.
    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }
}

/// The file system as this process sees it.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

// === impl FileStat ===

impl FileStat {
    /// That of an open file.
    ///
    /// # Errors
    /// Those of `fstat`.
    pub fn of(file: &File) -> io::Result<Self> {
        file.metadata().map(|metadata| Self::from(&metadata))
    }
}

impl From<&std::fs::Metadata> for FileStat {
    fn from(metadata: &std::fs::Metadata) -> Self {
        let born = metadata
            .created()
            .ok()
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|since| i64::try_from(since.as_nanos()).ok())
            .filter(|born| *born != 0);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            born,
            size: metadata.size(),
            modified: metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec()),
            is_regular: metadata.is_file(),
        }
    }
}

// === impl OwnFiles ===

impl Files for OwnFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        let no_wait = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
        let flags = i32::try_from(no_wait.bits()).unwrap_or_default();
        std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        std::fs::read_dir(directory)?.take(MAX_NAMES).map(|entry| Ok(entry?.file_name())).collect()
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        std::fs::metadata(path).map(|metadata| FileStat::from(&metadata))
    }

    fn real(&self, path: &Path) -> PathBuf {
        std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
    }
}
