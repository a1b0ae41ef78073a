//! The names in a directory whose descriptor is at hand.

use crate::process::DirEntry;
use rustix::fd::OwnedFd;
use rustix::fs::Dir;
use rustix::io::Errno;

/// Entries of a directory that are read.
pub const ENTRIES_MAX: usize = 100_000;

/// A directory's names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The entries, without `.` and `..`, in no order.
    pub entries: Vec<DirEntry>,
    /// Whether these are all.
    pub complete: bool,
}

/// Reads the names of an open directory, at most [`ENTRIES_MAX`]. Needs no right but the descriptor.
///
/// # Errors
/// What `getdents64(2)` says.
pub fn list(directory: OwnedFd) -> Result<Listing, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if entries.len() >= ENTRIES_MAX {
            return Ok(Listing { entries, complete: false });
        }
        entries.push(DirEntry { name: name.to_vec(), inode: entry.ino(), kind: entry.file_type().into() });
    }
    Ok(Listing { entries, complete: true })
}
