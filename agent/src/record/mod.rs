//! Keeps what the agent sees as a bundle, so that `replay` gives the findings again.
//!
//! Input: the observations that describe workers, the KV events with content hashes in place of token ids, the kernel
//! records, the redacted log lines and the trimmed pages of counters of their sources.
//! Output: `incident.toml` and one file a source in a directory of its own. The names of workers are the agent's worker
//! ids, so that findings get the same ids. Invariants: no raw log line and no token id is written; nothing already
//! written is touched again but `incident.toml`, which is replaced as a whole.

mod files;
mod manifest;

use crate::events::json;
use crate::kernel::Record;
use crate::metrics::recorded;
use files::{Files, Kind};
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, SourceKind};
use manifest::Manifest;
use std::path::{Path, PathBuf};

/// Directories of one recording: an agent that fails as often has another trouble.
const PARTS: u32 = 64;

/// Why a recording cannot be made, or not go on.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The directory holds something already.
    #[error("{directory} is not empty; a recording needs a directory of its own", directory = .0.display())]
    NotEmpty(PathBuf),
    /// A file cannot be written.
    #[error("writing {path}: {error}; the recording ends here, what it holds can be replayed", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
}

/// A recording in progress.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    manifest: Manifest,
    files: Files,
    buffer: Vec<u8>,
}

// === impl Recorder ===

impl Recorder {
    /// Begins a recording in a new or empty directory.
    ///
    /// # Errors
    /// When the directory holds something or cannot be made.
    pub fn create(directory: &Path) -> Result<Self, RecordError> {
        let failed = |error| RecordError::Write { path: directory.to_owned(), error };
        std::fs::create_dir_all(directory).map_err(failed)?;
        if std::fs::read_dir(directory).map_err(failed)?.next().is_some() {
            return Err(RecordError::NotEmpty(directory.to_owned()));
        }
        Ok(Self {
            directory: directory.to_owned(),
            manifest: Manifest::default(),
            files: Files::new(directory.to_owned()),
            buffer: Vec::new(),
        })
    }

    /// Begins a recording; where an agent before this one recorded, beside that one's, in a directory with a number behind
    /// its name. All of them are replayed together.
    ///
    /// # Errors
    /// When no directory can be made, or there are [`PARTS`] already.
    pub fn go_on(directory: &Path) -> Result<Self, RecordError> {
        let mut name = directory.as_os_str().to_owned();
        for part in 2..=PARTS {
            match Self::create(Path::new(&name)) {
                Err(RecordError::NotEmpty(_)) => {
                    directory.as_os_str().clone_into(&mut name);
                    name.push(format!(".{part}"));
                }
                other => return other,
            }
        }
        Self::create(Path::new(&name))
    }

    /// Takes what describes workers, and KV events. What logs and records say is not taken: the recording holds them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn observe(&mut self, observation: &Observation) -> Result<(), RecordError> {
        let envelope = &observation.envelope;
        let Some(worker) = &envelope.worker else { return Ok(()) };
        match &observation.body {
            Body::Worker(body) if envelope.source == SourceKind::Config => {
                self.manifest.worker(worker, &envelope.node, body);
            }
            Body::Factor(factor) if envelope.source != SourceKind::Log => {
                self.manifest.factor(worker, envelope.wall, factor);
            }
            Body::WorkerGone(gone) => self.manifest.gone(worker, envelope.wall, gone),
            Body::Block(block) if envelope.source == SourceKind::Events => {
                let line = json::write_event(block, envelope.wall);
                return self.line(worker, Kind::Events, &envelope.stream, &line);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes note of a batch of KV events that says nothing, so that its number does not seem to be missing.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn empty_batch(
        &mut self,
        worker: &WorkerId,
        stream: &str,
        seq: u64,
        wall: Option<WallTime>,
    ) -> Result<(), RecordError> {
        self.line(worker, Kind::Events, stream, &json::write_empty_batch(seq, wall))
    }

    /// Takes a kernel record of a worker.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kernel(&mut self, worker: &WorkerId, record: &Record) -> Result<(), RecordError> {
        let mut line = std::mem::take(&mut self.buffer);
        line.clear();
        record.write_json(&mut line);
        let result = self.line(worker, Kind::Kernel, "kernel", &line);
        self.buffer = line;
        result
    }

    /// Takes lines of a log, redacted before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn log(&mut self, worker: &WorkerId, stream: &str, redacted: &[u8]) -> Result<(), RecordError> {
        self.line(worker, Kind::Log, stream, redacted)
    }

    /// Takes a page of counters of a worker's endpoint, trimmed before.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn page(
        &mut self,
        worker: &WorkerId,
        endpoint: &str,
        at: WallTime,
        trimmed: &str,
    ) -> Result<(), RecordError> {
        let mut page = std::mem::take(&mut self.buffer);
        page.clear();
        recorded::write(endpoint, at, trimmed, &mut page);
        let name = self.files.append(worker, Kind::Metrics, endpoint, &page);
        self.buffer = page;
        if let Some(name) = name? {
            self.manifest.source(worker, Kind::Metrics.as_str(), name, Some(at));
        }
        Ok(())
    }

    fn line(&mut self, worker: &WorkerId, kind: Kind, stream: &str, line: &[u8]) -> Result<(), RecordError> {
        let name = self.files.append(worker, kind, stream, line)?;
        if let Some(name) = name {
            self.manifest.source(worker, kind.as_str(), name, None);
        }
        Ok(())
    }

    /// Makes everything so far replayable.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.files.flush()?;
        let path = self.directory.join("incident.toml");
        let temporary = self.directory.join(".incident.toml.part");
        let failed = |error| RecordError::Write { path: path.clone(), error };
        std::fs::write(&temporary, self.manifest.to_toml()).map_err(failed)?;
        std::fs::rename(&temporary, &path).map_err(failed)
    }
}

#[cfg(test)]
mod tests;
