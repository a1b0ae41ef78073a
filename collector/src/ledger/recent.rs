//! Views that were read before, so that the next look reads only what came since.
//!
//! Invariant: under a key is remembered what the storage has under it in the batches before `next`, but for what went
//! below the floors since; whoever hands it out takes that away. Where a record was replaced all is forgotten. A view that
//! is cut is not remembered.
//! Bounded: never more than [`HELD`] views and observations together. Views of single requests are small, many, and read
//! once: they are not remembered. The view that nobody looked at for longest makes room.

use super::{IndexKey, IndexKind};
use kvprov_model::clock::WallTime;
use kvprov_model::id::ObservationId;
use kvprov_model::observation::Observation;
use std::collections::HashMap;
use std::sync::Arc;

/// Views and observations that are remembered, over all keys.
const HELD: usize = 50_000;
/// Observations of one key that are worth remembering, so that none takes the place of all others.
const HELD_OF_ONE: usize = HELD / 2;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Recent {
    views: HashMap<IndexKey, Remembered>,
    held: usize,
    clock: u64,
}

/// One view.
#[derive(Debug)]
pub(super) struct Remembered {
    /// The observations, in the order of a view.
    pub(super) observations: Arc<Vec<Observation>>,
    /// The first batch of which nothing is in it.
    pub(super) next: u64,
    /// How often the floors had moved.
    pub(super) floors: u64,
    used: u64,
}

/// The order of a view: by time, then by place in the stream. Clocks that print whole seconds make ties; within a stream
/// its order is the order of events.
pub(super) fn order(observation: &Observation) -> (Option<WallTime>, &str, i64, ObservationId) {
    let envelope = &observation.envelope;
    (envelope.wall, &envelope.stream, envelope.position, envelope.id)
}

/// An empty view takes room as well.
fn weight(observations: &[Observation]) -> usize {
    1 + observations.len()
}

// === impl Recent ===

impl Recent {
    /// Takes out what is remembered of a key.
    pub(super) fn take(&mut self, key: &IndexKey) -> Option<Remembered> {
        let taken = self.views.remove(key)?;
        self.held -= weight(&taken.observations);
        Some(taken)
    }

    /// Remembers a view that is not cut.
    pub(super) fn put(
        &mut self,
        key: &IndexKey,
        observations: &Arc<Vec<Observation>>,
        next: u64,
        floors: u64,
    ) {
        self.take(key);
        let is_of_one = matches!(key.kind(), IndexKind::Request | IndexKind::Transfer | IndexKind::Engine);
        if is_of_one || observations.len() > HELD_OF_ONE {
            return;
        }
        self.clock += 1;
        self.held += weight(observations);
        let view = Remembered { observations: Arc::clone(observations), next, floors, used: self.clock };
        self.views.insert(key.clone(), view);
        while self.held > HELD {
            let Some(oldest) =
                self.views.iter().min_by_key(|(_, view)| view.used).map(|(key, _)| key.clone())
            else {
                return;
            };
            self.take(&oldest);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.views.clear();
        self.held = 0;
    }
}
