//! The directory of a queue: whose it is, and its segment files.
//!
//! Invariant: one process alone uses it, as long as it lives; what is no segment is left alone. A segment that takes
//! the place of another is written beside it and renamed, so that a killed process leaves the one or the other.

use super::QueueError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

const SUFFIX: &str = "kvq";
const SUFFIX_NEW: &str = "kvq-new";

/// A claimed directory; the claim ends when it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates a directory and takes its lock.
    pub(super) fn claim(path: &Path) -> Result<Self, QueueError> {
        let failed = |doing| {
            move |error: io::Error| QueueError::Io { doing, path: path.to_owned(), reason: error.to_string() }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("create"))?;
        // The directory itself is locked: that works on a full disk too.
        let lock = File::open(path).map_err(failed("open"))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(QueueError::Locked { path: path.to_owned() }),
            Err(TryLockError::Error(error)) => Err(failed("lock")(error)),
        }
    }

    /// Numbers of the segments, in order. What a killed process left half-written is removed.
    pub(super) fn numbers(&self) -> Result<Vec<u64>, QueueError> {
        let failed = |error: io::Error| QueueError::Io {
            doing: "list",
            path: self.path.clone(),
            reason: error.to_string(),
        };
        let mut numbers = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let (stem, suffix) = (path.file_stem(), path.extension());
            let number = stem.and_then(|stem| u64::from_str_radix(stem.to_str()?, 16).ok());
            match (number, suffix.and_then(|suffix| suffix.to_str())) {
                (Some(number), Some(SUFFIX)) => numbers.push(number),
                (Some(_), Some(SUFFIX_NEW)) => fs::remove_file(&path).map_err(failed)?,
                _ => {}
            }
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A new segment to append to.
    pub(super) fn create(&self, number: u64) -> io::Result<File> {
        OpenOptions::new().append(true).create_new(true).mode(0o600).open(self.segment(number, SUFFIX))
    }

    /// A segment to read from.
    pub(super) fn open(&self, number: u64) -> io::Result<File> {
        File::open(self.segment(number, SUFFIX))
    }

    /// Puts a whole segment in the place of what is there.
    pub(super) fn replace(&self, number: u64, bytes: &[u8]) -> io::Result<()> {
        let new = self.segment(number, SUFFIX_NEW);
        let written = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&new, self.segment(number, SUFFIX)));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written
    }

    /// Removes a segment; one that is not there is removed already.
    pub(super) fn remove(&self, number: u64) {
        if let Err(error) = fs::remove_file(self.segment(number, SUFFIX))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, number, queue = %self.path.display(), "a sent segment cannot be removed; it will be sent again after a restart");
        }
    }

    /// When a segment was written to last.
    pub(super) fn modified(&self, number: u64) -> Option<std::time::SystemTime> {
        fs::metadata(self.segment(number, SUFFIX)).and_then(|data| data.modified()).ok()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn segment(&self, number: u64, suffix: &str) -> PathBuf {
        self.path.join(format!("{number:016x}.{suffix}"))
    }
}

/// Reads up to `length` bytes at an offset.
pub(super) fn read_at(file: &mut File, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length.min(4 << 20));
    file.seek(SeekFrom::Start(offset))?;
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}
