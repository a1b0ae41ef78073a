//! Which file it is, whatever its name.
//!
//! Device and inode say it while the file lives; the time at which the inode was made and a hash of the file's begin
//! tell a file from another that got its inode later, and from what was written into it after a truncation.

use super::files::FileStat;
use kvprov_model::id::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Bytes of a file's begin that are hashed.
pub(super) const HEAD: usize = 1024;
/// Bytes before a position that are compared.
pub(super) const BEFORE: usize = 64;

/// An inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Inode {
    pub(super) device: u64,
    pub(super) inode: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) born: Option<i64>,
}

/// A hash over so many bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Print {
    pub(super) length: usize,
    pub(super) hash: String,
}

// === impl Inode ===

impl Inode {
    pub(super) fn of(stat: &FileStat) -> Self {
        Self { device: stat.device, inode: stat.inode, born: stat.born }
    }

    /// The same inode, also where a reboot renumbered the devices.
    pub(super) fn may_be(&self, other: &Self) -> bool {
        self == other || (self.inode == other.inode && self.born == other.born && self.born.is_some())
    }
}

// === impl Print ===

impl Print {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), hash: hex(&Sha256::digest(bytes)[..16]) }
    }

    /// Whether bytes begin as those that were hashed; false when they are fewer.
    pub(super) fn begins(&self, bytes: &[u8]) -> bool {
        self.length == 0 || bytes.get(..self.length).is_some_and(|head| Self::of(head) == *self)
    }
}

/// The name of a file in ids: its inode and its first line, so that it is found again if all else is forgotten.
pub(super) fn instance(node: &str, inode: &Inode, head: &[u8]) -> String {
    let line = head.iter().position(|byte| *byte == b'\n').map_or(head, |end| &head[..end]);
    let Inode { device, inode, born } = inode;
    let born = born.unwrap_or_default();
    format!("{node}/log/{device:x}:{inode:x}:{born:x}/{}", hex(&Sha256::digest(line)[..8]))
}
