//! Why the ledger could not do what was asked.

use std::io;
use std::path::{Path, PathBuf};

/// Each says what was being done, on what, what was wrong, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The ledger was written by a newer version.
    #[error(
        "the ledger in {} has schema version {found}, this kvprov reads up to {supported}; use the newer kvprov, \
         or give another directory with --data", .directory.display()
    )]
    Newer {
        /// Where.
        directory: PathBuf,
        /// Version found.
        found: u64,
        /// Newest version that is understood.
        supported: u64,
    },
    /// The ledger was written by an older version, in a layout that is no longer read.
    #[error(
        "the ledger in {} has schema version {found}, this kvprov reads {supported} only; move the directory away and \
         start with a new one, or give another directory with --data", .directory.display()
    )]
    Older {
        /// Where.
        directory: PathBuf,
        /// Version found.
        found: u64,
        /// The version that is understood.
        supported: u64,
    },
    /// The directory holds something else.
    #[error(
        "{} is no kvprov ledger: {reason}; give an empty or new directory with --data", .directory.display()
    )]
    Foreign {
        /// Where.
        directory: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Another process has it.
    #[error(
        "the ledger in {} is in use by another process; stop that kvprov, or give another directory with --data",
        .directory.display()
    )]
    Locked {
        /// Where.
        directory: PathBuf,
    },
    /// The permissions do not allow it.
    #[error(
        "no permission to {doing} the ledger in {}: {reason}; let the user that runs kvprov own this directory, or \
         give another one with --data", .directory.display()
    )]
    Permission {
        /// What was being done.
        doing: &'static str,
        /// Where.
        directory: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The disk is full. What was acknowledged is kept and can be read.
    #[error(
        "could not {doing} the ledger in {}: the disk is full; what was acknowledged is kept and can be read; free \
         space or lower the retention, the sender will deliver again", .directory.display()
    )]
    DiskFull {
        /// What was being done.
        doing: &'static str,
        /// Where.
        directory: PathBuf,
    },
    /// Something else went wrong in the storage.
    #[error("could not {doing} the ledger in {}: {reason}", .directory.display())]
    Storage {
        /// What was being done.
        doing: &'static str,
        /// Where.
        directory: PathBuf,
        /// What the storage said.
        reason: String,
    },
    /// An entry cannot be read back.
    #[error(
        "a stored {what} cannot be read: {reason}; the ledger is damaged, keep a copy of its directory and start with \
         a new one"
    )]
    Corrupt {
        /// What kind of entry.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
}

impl LedgerError {
    /// The error that stands for an I/O error.
    pub(super) fn from_io(doing: &'static str, directory: &Path, error: &io::Error) -> Self {
        let directory = directory.to_owned();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { doing, directory },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Permission { doing, directory, reason: error.to_string() }
            }
            io::ErrorKind::NotADirectory => {
                Self::Foreign { directory, reason: "a file stands in its place".to_owned() }
            }
            _ => Self::Storage { doing, directory, reason: error.to_string() },
        }
    }
}
