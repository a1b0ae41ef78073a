//! What was read of every endpoint, on disk.
//!
//! Kept is where the reader was before the last page, and that page: whoever reads it again gives the same observations
//! under the same ids. So a page is saved first and told then. Invariant: a file is replaced as a whole. One that is of
//! other packs is not taken up: what they newly know would look like a jump.

use crate::metrics::ReaderState;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// Largest file that is taken up, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// Files that are taken up.
const MAX_FILES: usize = 4096;

/// What is kept of one endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Names the packs by which the page was trimmed.
    pub packs: String,
    /// The worker.
    pub worker: WorkerId,
    /// The endpoint, by its id in the packs.
    pub endpoint: String,
    /// Version of the engine by which the page was read.
    pub version: Option<String>,
    /// The reader before the page.
    pub before: ReaderState,
    /// The last page.
    pub page: SavedPage,
}

/// A trimmed page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPage {
    /// When it came.
    pub at: WallTime,
    /// Which one of the endpoint it is, from 1.
    pub number: u64,
    /// Where it came from, for people.
    pub stream: String,
    /// Its text.
    pub text: String,
}

/// The directory.
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
}

// === impl Kept ===

impl Kept {
    /// # Errors
    /// The directory cannot be made.
    pub fn new(directory: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// All that was saved with these packs; what is damaged or of others is removed.
    pub fn load(&self, packs: &str) -> Vec<Saved> {
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten().filter_map(Result::ok);
        let mut all = Vec::new();
        for path in entries.map(|entry| entry.path()).take(MAX_FILES) {
            match read(&path) {
                Ok(saved) if saved.packs == packs => all.push(saved),
                Ok(saved) => {
                    tracing::info!(worker = %saved.worker, "counters begin anew: they were read by other packs");
                    let _ = std::fs::remove_file(&path);
                }
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "what was read of counters is lost; they begin anew");
                    let _ = std::fs::remove_file(&path);
                }
            }
        }
        all
    }

    /// Replaces what was saved of an endpoint. A loss of power is another boot, so nothing is forced to the disk.
    ///
    /// # Errors
    /// Those of writing; what was saved before stands.
    pub fn save(&self, saved: &Saved) -> io::Result<()> {
        let path = self.path(&saved.worker, &saved.endpoint);
        let new = path.with_extension("new");
        std::fs::write(&new, serde_json::to_vec(saved).map_err(io::Error::other)?)?;
        std::fs::rename(new, path)
    }

    /// Nothing more is read of an endpoint.
    pub fn forget(&self, worker: &WorkerId, endpoint: &str) {
        let _ = std::fs::remove_file(self.path(worker, endpoint));
    }

    fn path(&self, worker: &WorkerId, endpoint: &str) -> PathBuf {
        let digest = Sha256::digest(format!("{worker}\0{endpoint}").as_bytes());
        let name: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        self.directory.join(format!("{name}.json"))
    }
}

fn read(path: &Path) -> io::Result<Saved> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(io::Error::other("the file is too large"));
    }
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn saved(worker: &str, packs: &str) -> Saved {
        Saved {
            packs: packs.to_owned(),
            worker: worker.into(),
            endpoint: "e-metrics".to_owned(),
            version: None,
            before: ReaderState::default(),
            page: SavedPage { at: WallTime(7), number: 1, stream: String::new(), text: "a 1\n".to_owned() },
        }
    }

    #[test]
    fn what_was_saved_last_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path()).unwrap();
        kept.save(&saved("w", "p")).unwrap();
        let mut later = saved("w", "p");
        later.page.number = 2;
        kept.save(&later).unwrap();
        assert_eq!(kept.load("p"), [later]);
        kept.forget(&"w".into(), "e-metrics");
        assert!(kept.load("p").is_empty());
    }

    #[test]
    fn what_is_of_other_packs_or_damaged_is_not_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::new(folder.path()).unwrap();
        kept.save(&saved("w", "old")).unwrap();
        std::fs::write(folder.path().join("x.json"), "{").unwrap();
        assert!(kept.load("new").is_empty());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
