//! What a reader knows, taken out and put back: so that a journal may drop its begin.
//!
//! Invariant: a reader that got back what another one knew goes on as that one would have, but for the names that were
//! too many to keep: the oldest of them are not known again.

use crate::kernel::handle::{FileUse, Handle, Stamp};
use crate::kernel::known::Known;
use crate::kernel::record::FileSystem;
use kvprov_model::clock::WallTime;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names of which what is known is kept; the newest.
pub(crate) const NAMES: usize = 32 * 1024;

/// One thing that a reader knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kept {
    /// An open file.
    Open { pid: i64, path: String, fs: Option<KeptFileSystem>, handle: Handle },
    /// A file that was written and may get a name.
    Temporary { pid: i64, path: String, last: FileUse },
    /// What is known of a name.
    Known { path: String, known: Known },
    /// A listing in progress.
    Listing { thread: i64, directory: String, last: Option<WallTime> },
    /// A burst on a connection.
    Burst {
        pid: i64,
        local: String,
        peer: String,
        first: Option<WallTime>,
        last: Stamp,
        sent: u64,
        received: u64,
        broke: bool,
    },
    /// A load of a model.
    Load {
        pid: i64,
        factor: String,
        adapter: String,
        last: Stamp,
        digests: BTreeSet<String>,
        without_digest: BTreeSet<String>,
        evidence: BTreeSet<String>,
    },
}

impl Kept {
    /// The file that it is about.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::Open { path, .. } | Self::Temporary { path, .. } | Self::Known { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// A file system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptFileSystem {
    name: String,
    mount: Option<String>,
    root: String,
}

impl From<&FileSystem> for KeptFileSystem {
    fn from(fs: &FileSystem) -> Self {
        Self {
            name: fs.name.to_string(),
            mount: fs.mount.as_deref().map(str::to_owned),
            root: fs.root.to_string(),
        }
    }
}

impl From<KeptFileSystem> for FileSystem {
    fn from(kept: KeptFileSystem) -> Self {
        Self { name: kept.name.into(), mount: kept.mount.map(Arc::from), root: kept.root.into() }
    }
}
