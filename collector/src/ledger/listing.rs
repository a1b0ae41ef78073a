//! The index keys of one batch: which there are, what stands under each, and which workers each joins.
//!
//! Every key is hashed and allocated once a batch, however many observations name it.

use super::LedgerError;
use super::Subject;
use super::codec::{Reader, put_text};
use super::index::{IndexKind, MAX_KEYS_PER_OBSERVATION, each_key};
use super::key::{self, NameHash, StoredKey};
use super::merge::Merge;
use super::posting::{ListWriter, Posting};
use super::storage::{Staged, Storage};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use std::borrow::Cow;
use std::collections::HashMap;

/// The keys of a batch in the making.
pub(super) struct Listing<'o> {
    keys: Vec<Listed<'o>>,
    /// Name to number in `keys`, for each kind by its tag.
    numbers: [HashMap<Cow<'o, str>, usize>; 8],
    observations: u64,
}

struct Listed<'o> {
    kind: IndexKind,
    stored: StoredKey,
    name: Cow<'o, str>,
    list: ListWriter,
    workers: Vec<&'o WorkerId>,
    /// The observation that named it last, so that one that names it twice is listed once.
    last: u64,
}

// === impl Listing ===

impl<'o> Listing<'o> {
    pub(super) fn new() -> Self {
        Self { keys: Vec::with_capacity(256), numbers: Default::default(), observations: 0 }
    }

    /// Lists an observation under its keys; how many keys were left out because it names too many.
    pub(super) fn add(&mut self, observation: &'o Observation, node: NameHash, index: u32) -> u64 {
        self.observations += 1;
        let this = self.observations;
        let envelope = &observation.envelope;
        let posting = Posting { node, wall: envelope.wall.map(|wall| wall.0), index };
        let (mut named, mut cut) = (0, 0);
        each_key(observation, &mut |kind, name| {
            let numbers = &mut self.numbers[usize::from(kind.tag()) % 8];
            let number = numbers.get(&name).copied();
            if number.is_some_and(|number| self.keys[number].last == this) {
                return;
            }
            if named == MAX_KEYS_PER_OBSERVATION {
                cut += 1;
                return;
            }
            named += 1;
            let number = number.unwrap_or_else(|| {
                numbers.insert(name.clone(), self.keys.len());
                self.keys.push(Listed {
                    kind,
                    stored: StoredKey::of(kind, &name),
                    name,
                    list: ListWriter::new(),
                    workers: Vec::new(),
                    last: 0,
                });
                self.keys.len() - 1
            });
            let listed = &mut self.keys[number];
            listed.last = this;
            listed.list.push(posting);
            if let Some(worker) = &envelope.worker
                && listed.stored.joins_workers()
                && !listed.workers.contains(&worker)
            {
                listed.workers.push(worker);
            }
        });
        cut
    }

    /// Writes the lists and marks every subject that a key stands for or joins.
    pub(super) fn write<S: Storage>(self, merge: &mut Merge<'_, S>) -> Result<(), LedgerError> {
        let mut stored = Vec::with_capacity(self.keys.len() * StoredKey::BYTES);
        for listed in self.keys {
            stored.extend_from_slice(listed.stored.as_bytes());
            merge.mark(listed.kind, &listed.name);
            if listed.stored.joins_workers() {
                join(merge, &listed)?;
            }
            merge.staged.put(listed.stored.list(merge.batch), listed.list.finish(&listed.name));
        }
        merge.staged.put(key::batch(merge.batch), stored);
        Ok(())
    }
}

/// Marks every worker known under a key, and makes those of this batch known.
fn join<S: Storage>(merge: &mut Merge<'_, S>, listed: &Listed<'_>) -> Result<(), LedgerError> {
    let mut known = merge.staged.get(&listed.stored.joined())?.unwrap_or_default();
    let mut reader = Reader { rest: &known };
    let mut fresh = listed.workers.clone();
    while !reader.rest.is_empty() {
        let worker = reader
            .str()
            .map_err(|reason| LedgerError::Corrupt { what: "list of workers", reason: reason.to_owned() })?;
        fresh.retain(|other| other.as_str() != worker);
        merge.merged.dirty.insert(Subject::Worker(WorkerId::from(worker)));
    }
    for worker in &fresh {
        put_text(worker.as_str(), &mut known);
        merge.merged.dirty.insert(Subject::Worker(WorkerId::clone(worker)));
    }
    if !fresh.is_empty() {
        merge.staged.put(listed.stored.joined(), known);
    }
    Ok(())
}

/// The keys of a stored batch.
pub(super) fn keys_of<S: Storage>(staged: &Staged<'_, S>, batch: u64) -> Result<Vec<StoredKey>, LedgerError> {
    let stored = staged.get(&key::batch(batch))?.unwrap_or_default();
    Ok(stored.chunks_exact(StoredKey::BYTES).filter_map(StoredKey::read).collect())
}
