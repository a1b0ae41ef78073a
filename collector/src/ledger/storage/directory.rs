//! The directory of a ledger: whose it is, which schema it has, and that one process alone uses it.
//!
//! Invariant: a directory that holds anything else is left exactly as it was. The file `kvprov-ledger` states the
//! schema version and is written last and whole, so that a process killed while creating leaves a directory that
//! still counts as empty.

use crate::ledger::LedgerError;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The schema version that is understood and written.
const SCHEMA: u64 = 3;
const MARKER: &str = "kvprov-ledger";
const MARKER_NEW: &str = "kvprov-ledger.new";

/// Whether a directory is marked as a ledger.
pub(crate) fn is_ledger(directory: &Path) -> bool {
    directory.join(MARKER).is_file()
}
const LOCK: &str = "lock";
const WORDS: &str = "kvprov ledger schema ";
/// A probe of this size decides whether a full disk has room again.
const PROBE_BYTES: usize = 256 << 10;

/// A claimed directory; the claim ends when it is dropped.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Creates or checks a directory and takes its lock.
    pub(super) fn claim(path: &Path) -> Result<Self, LedgerError> {
        let io = |doing| move |error: io::Error| LedgerError::from_io(doing, path, &error);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists {
                foreign(path, "a file stands in its place")
            } else {
                io("create")(error)
            }
        })?;
        read_schema(path)?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path.join(LOCK))
            .map_err(io("lock"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LedgerError::Locked { directory: path.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(io("lock")(error)),
        }
        if !read_schema(path)? {
            write_schema(path).map_err(io("create"))?;
        }
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the storage engine keeps its files.
    pub(super) fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// Whether something can be written at all; the error says why not.
    pub(super) fn probe(&self) -> Result<(), LedgerError> {
        let probe = self.path.join(MARKER_NEW);
        let written = File::create(&probe).and_then(|mut file| {
            file.write_all(&vec![0x5a; PROBE_BYTES])?;
            file.sync_data()
        });
        let removed = fs::remove_file(&probe);
        written.and(removed).map_err(|error| LedgerError::from_io("write to", &self.path, &error))
    }
}

fn foreign(path: &Path, reason: impl Into<String>) -> LedgerError {
    LedgerError::Foreign { directory: path.to_owned(), reason: reason.into() }
}

/// Whether a schema is stated and understood; `false` for a directory that is still to be made a ledger.
fn read_schema(path: &Path) -> Result<bool, LedgerError> {
    let io = |error: io::Error| LedgerError::from_io("open", path, &error);
    let mut text = String::new();
    match File::open(path.join(MARKER)) {
        Ok(file) => {
            // A marker is short; whatever is longer is none.
            if file.take(64).read_to_string(&mut text).is_err() {
                return Err(foreign(path, format!("its file {MARKER} is not one of kvprov's")));
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for entry in fs::read_dir(path).map_err(io)? {
                let name = entry.map_err(io)?.file_name();
                if name != LOCK && name != MARKER_NEW {
                    return Err(foreign(
                        path,
                        format!("it holds {:?} and no file {MARKER}", name.to_string_lossy()),
                    ));
                }
            }
            return Ok(false);
        }
        Err(error) => return Err(io(error)),
    }
    let found: Option<u64> = text.strip_prefix(WORDS).and_then(|version| version.trim_end().parse().ok());
    match found {
        Some(SCHEMA) => Ok(true),
        Some(found) if found > SCHEMA => {
            Err(LedgerError::Newer { directory: path.to_owned(), found, supported: SCHEMA })
        }
        Some(found) if found > 0 => {
            Err(LedgerError::Older { directory: path.to_owned(), found, supported: SCHEMA })
        }
        _ => Err(foreign(path, format!("its file {MARKER} states no schema version that ever was"))),
    }
}

fn write_schema(path: &Path) -> io::Result<()> {
    let new = path.join(MARKER_NEW);
    let mut file = File::create(&new)?;
    writeln!(file, "{WORDS}{SCHEMA}")?;
    file.sync_all()?;
    fs::rename(&new, path.join(MARKER))?;
    File::open(path)?.sync_all()
}
