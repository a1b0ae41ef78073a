//! Where all sources meet: every observation goes to the queue, to the recording, and is counted.

use crate::kernel::Record;
use crate::record::{RecordError, Recorder};
use crate::ship::Outbox;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The meeting place.
#[derive(Debug)]
pub(crate) struct Hub {
    outbox: Outbox,
    recorder: Mutex<Option<Recorder>>,
    kinds: Mutex<BTreeMap<String, u64>>,
}

// === impl Hub ===

impl Hub {
    pub(crate) fn new(outbox: Outbox, recording: Option<&Path>) -> Result<Self, RecordError> {
        let recorder = recording.map(Recorder::create).transpose()?;
        Ok(Self { outbox, recorder: Mutex::new(recorder), kinds: Mutex::default() })
    }

    /// Takes observations. True once they survive the end of this process; false when they have to be offered again.
    pub(crate) fn take(&self, observations: &[Observation]) -> bool {
        if observations.is_empty() {
            return true;
        }
        if let Err(error) = self.outbox.append(observations) {
            tracing::warn!(%error, "observations wait for the queue");
            return false;
        }
        {
            let mut kinds = lock(&self.kinds);
            for observation in observations {
                let kind = observation.body.kind();
                match kinds.get_mut(kind) {
                    Some(count) => *count += 1,
                    None => drop(kinds.insert(kind.to_owned(), 1)),
                }
            }
        }
        if let Some(recorder) = &mut *lock(&self.recorder) {
            for observation in observations {
                recorder.observe(observation);
            }
        }
        true
    }

    /// Observations so far, by kind.
    pub(crate) fn kinds(&self) -> BTreeMap<String, u64> {
        lock(&self.kinds).clone()
    }

    /// Whether somebody wants records and redacted lines.
    pub(crate) fn is_recording(&self) -> bool {
        lock(&self.recorder).is_some()
    }

    /// Takes a kernel record for the recording.
    pub(crate) fn record(&self, worker: &WorkerId, record: &Record) {
        self.recording(|recorder| recorder.kernel(worker, record));
    }

    /// Takes a redacted line for the recording.
    pub(crate) fn log_line(&self, worker: &WorkerId, stream: &str, line: &[u8]) {
        self.recording(|recorder| recorder.log(worker, stream, line));
    }

    /// Makes the recording replayable up to here.
    pub(crate) fn flush_recording(&self) {
        self.recording(Recorder::flush);
    }

    /// A recording that fails ends; the agent goes on.
    fn recording(&self, work: impl FnOnce(&mut Recorder) -> Result<(), RecordError>) {
        let mut recorder = lock(&self.recorder);
        let Some(active) = &mut *recorder else { return };
        if let Err(error) = work(active) {
            tracing::error!(%error, "the recording ends");
            *recorder = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
