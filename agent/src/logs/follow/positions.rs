//! What is on disk: how far every file was read.
//!
//! Invariant: the file is replaced as a whole, so that it holds either the old or the new state. No text of a log is
//! in it, only hashes, names of engines and versions. Losing it costs duplicates under equal ids, and nothing else but
//! what was truncated in the meantime.

use super::identity::{Inode, Print};
use super::reading::Taken;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Files that are remembered.
pub(super) const MAX_FILES: usize = 20_000;
const NAME: &str = "positions.json";

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) instance: String,
    pub(super) generation: u64,
    pub(super) head: Print,
    /// Of the bytes before the position.
    pub(super) before: Print,
    pub(super) taken: Taken,
    /// Ended at the position.
    pub(super) done: bool,
    /// Bytes it had when it was last looked at.
    pub(super) size: u64,
    /// When it was last written as it was first seen, in Unix nanoseconds; dates clocks without a year.
    pub(super) modified: i64,
    /// What it held before it was truncated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) past: Vec<Past>,
    /// Another file holds the same: this one is not read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_copy: bool,
}

/// What a file held before it was truncated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Past {
    pub(super) head: Print,
    pub(super) before: Print,
    pub(super) position: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct State {
    version: u32,
    files: Vec<Saved>,
}

/// The place on disk.
#[derive(Debug)]
pub(super) struct Positions {
    directory: PathBuf,
}

// === impl Positions ===

impl Positions {
    /// # Errors
    /// The directory cannot be made.
    pub(super) fn new(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// What was saved; nothing where it cannot be read.
    pub(super) fn load(&self) -> Vec<Saved> {
        let path = self.directory.join(NAME);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "positions of logs cannot be read; logs are read from their begin");
                return Vec::new();
            }
        };
        match serde_json::from_slice::<State>(&text) {
            Ok(state) if state.version == 1 => state.files,
            Ok(state) => {
                tracing::warn!(path = %path.display(), version = state.version, "positions of logs are of another version; logs are read from their begin");
                Vec::new()
            }
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "positions of logs are damaged; logs are read from their begin");
                Vec::new()
            }
        }
    }

    /// Replaces what was saved.
    ///
    /// # Errors
    /// Those of writing; what was saved before stands.
    pub(super) fn save(&self, files: Vec<Saved>) -> io::Result<()> {
        let state = State { version: 1, files };
        let text = serde_json::to_vec(&state).map_err(io::Error::other)?;
        let new = self.directory.join("positions.new");
        let mut file = File::create(&new)?;
        file.write_all(&text)?;
        file.sync_data()?;
        std::fs::rename(&new, self.directory.join(NAME))
    }
}
