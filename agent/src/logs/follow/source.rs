//! What is followed, and what is known about it.

use crate::logs::LogOptions;
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId, hex};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// A source by its number, for as long as the follower lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(pub(super) u64);

/// A log to follow.
#[derive(Debug, Clone)]
pub struct Source {
    /// The live file; where a part of the path holds `*`, `?` or `[`, every file that fits. Absolute.
    pub path: PathBuf,
    /// The node it is on.
    pub node: NodeId,
    /// The worker that writes it; `None`: one of its own, called after the file and its node.
    pub worker: Option<WorkerId>,
    /// What is known about the log. Of `mtime` that of the file is taken.
    pub options: LogOptions,
    /// What is dated before is another's: a file may have been written by an earlier worker.
    pub not_before: Option<WallTime>,
}

/// How a source fares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceReport {
    /// The source.
    pub id: SourceId,
    /// The live file.
    pub path: PathBuf,
    /// Its worker.
    pub worker: Option<WorkerId>,
    /// The live file is open and read.
    pub is_followed: bool,
    /// Why not, or what is missing beside it.
    pub trouble: Option<String>,
    /// Bytes of all its files that are not read yet.
    pub behind: u64,
}

// === impl Source ===

impl Source {
    /// Who speaks in a file of this source.
    pub(super) fn speaker(&self) -> WorkerId {
        self.worker.clone().unwrap_or_else(|| {
            // Files of one name in several folders are several workers.
            let name = self.path.file_stem().unwrap_or_default().to_string_lossy();
            let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
            WorkerId::from(format!("{}/{name}-{}", self.node, hex(&digest[..4])).as_str())
        })
    }

    pub(super) fn is_pattern(&self) -> bool {
        self.path.to_string_lossy().contains(['*', '?', '['])
    }
}
