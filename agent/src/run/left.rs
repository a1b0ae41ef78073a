//! Workers on disk: those that ended while no agent ran are told to be gone by the next one.
//!
//! What such a worker said last is still read, from its logs and from what the ring holds of its output. Of another
//! boot nothing is taken up.

use crate::logs::LogOptions;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A worker as the next agent needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    pub(crate) worker: WorkerId,
    /// Its leader.
    pub(crate) pid: u32,
    engine: String,
    version: Option<String>,
    pub(crate) not_before: Option<WallTime>,
    /// Logs that were followed.
    pub(crate) logs: Vec<PathBuf>,
    /// Its output was read as the kernel saw it.
    pub(crate) reads_stream: bool,
}

/// The file.
#[derive(Debug)]
pub(crate) struct Roll {
    path: PathBuf,
    boot: String,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    boot: String,
    workers: Vec<Left>,
}

// === impl Left ===

impl Left {
    /// Nothing is read of it yet.
    pub(crate) fn new(
        worker: WorkerId,
        pid: u32,
        options: &LogOptions,
        not_before: Option<WallTime>,
    ) -> Self {
        let (engine, version) = (options.engine.clone().unwrap_or_default(), options.version.clone());
        Self { worker, pid, engine, version, not_before, logs: Vec::new(), reads_stream: false }
    }

    pub(crate) fn options(&self) -> LogOptions {
        LogOptions {
            engine: Some(self.engine.clone()),
            version: self.version.clone(),
            ..LogOptions::default()
        }
    }
}

// === impl Roll ===

impl Roll {
    pub(crate) fn new(path: PathBuf, boot: String) -> Self {
        Self { path, boot }
    }

    /// The workers that the agent before this one knew; none where they cannot be read.
    pub(crate) fn load(&self) -> Vec<Left> {
        let Ok(bytes) = std::fs::read(&self.path) else { return Vec::new() };
        match serde_json::from_slice::<Saved>(&bytes) {
            Ok(saved) if saved.boot == self.boot => saved.workers,
            Ok(_) => Vec::new(),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the list of workers is damaged");
                Vec::new()
            }
        }
    }

    /// Replaces what was saved. A loss of power is another boot, so nothing is forced to the disk.
    pub(crate) fn save<'l>(&self, workers: impl Iterator<Item = &'l Left>) {
        let saved = Saved { boot: self.boot.clone(), workers: workers.cloned().collect() };
        let new = self.path.with_extension("new");
        let written = serde_json::to_vec(&saved)
            .map_err(std::io::Error::other)
            .and_then(|bytes| std::fs::write(&new, bytes))
            .and_then(|()| std::fs::rename(&new, &self.path));
        if let Err(error) = written {
            tracing::warn!(%error, "workers are not saved; one that ends while no agent runs is not told to be gone");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_another_boot_are_not_taken_up() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("workers.json");
        let left = Left::new(WorkerId::from("w"), 7, &LogOptions::default(), None);
        Roll::new(path.clone(), "one".to_owned()).save([&left].into_iter());
        assert_eq!(Roll::new(path.clone(), "one".to_owned()).load(), [left]);
        assert!(Roll::new(path, "two".to_owned()).load().is_empty());
    }
}
