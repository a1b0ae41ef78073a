//! The index keys of one batch: which there are, what stands under each, and which workers each joins.
//!
//! Every key is hashed and allocated once a batch, however many observations name it.

use super::codec::{Reader, put_text};
use super::index::{IndexKind, MAX_KEYS_PER_OBSERVATION, each_key};
use super::key::{self, StoredKey};
use super::merge::Merge;
use super::posting::{ListWriter, Posting};
use super::storage::{Staged, Storage};
use super::{LedgerError, Subject};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// The keys of a batch in the making.
pub(super) struct Listing<'o> {
    keys: Vec<Listed<'o>>,
    /// Name to number in `keys`, for each kind by its tag.
    numbers: [HashMap<Cow<'o, str>, u32>; 8],
    /// One for each observation.
    postings: Vec<Posting>,
    /// Which posting stands under which key, both by number.
    pairs: Vec<(u32, u32)>,
}

struct Listed<'o> {
    kind: IndexKind,
    stored: StoredKey,
    workers: Vec<&'o WorkerId>,
    /// The observation that named it last, so that one that names it twice is listed once.
    last: u32,
}

// === impl Listing ===

impl<'o> Listing<'o> {
    pub(super) fn with_capacity(observations: usize) -> Self {
        Self {
            keys: Vec::with_capacity(observations / 2),
            numbers: Default::default(),
            postings: Vec::with_capacity(observations),
            pairs: Vec::with_capacity(observations * 4),
        }
    }

    /// Lists an observation under its keys; how many keys were left out because it names too many.
    pub(super) fn add(&mut self, observation: &'o Observation, posting: Posting) -> u64 {
        let this = self.postings.len() as u32;
        self.postings.push(posting);
        let (mut named, mut cut) = (0, 0);
        each_key(observation, &mut |kind, name| {
            let numbers = &mut self.numbers[usize::from(kind.tag()) % 8];
            let number = numbers.get(&name).copied();
            if number.is_some_and(|number| self.keys[number as usize].last == this) {
                return;
            }
            if named == MAX_KEYS_PER_OBSERVATION {
                cut += 1;
                return;
            }
            named += 1;
            let number = number.unwrap_or_else(|| {
                let number = self.keys.len() as u32;
                let stored = StoredKey::of(kind, &name);
                self.keys.push(Listed { kind, stored, workers: Vec::new(), last: this });
                numbers.insert(name, number);
                number
            });
            let listed = &mut self.keys[number as usize];
            listed.last = this;
            self.pairs.push((number, this));
            if let Some(worker) = &observation.envelope.worker
                && listed.stored.joins_workers()
                && !listed.workers.contains(&worker)
            {
                listed.workers.push(worker);
            }
        });
        cut
    }

    /// Writes the lists and marks every subject that a key stands for or joins.
    pub(super) fn write<S: Storage>(mut self, merge: &mut Merge<'_, S>) -> Result<(), LedgerError> {
        self.pairs.sort_unstable();
        let mut stored = Vec::with_capacity(self.keys.len() * StoredKey::BYTES);
        self.keys.iter().for_each(|listed| stored.extend_from_slice(listed.stored.as_bytes()));
        merge.staged.put(key::batch_keys(merge.batch), stored);

        let mut names = vec![Cow::Borrowed(""); self.keys.len()];
        for (name, number) in self.numbers.into_iter().flatten() {
            names[number as usize] = name;
        }
        let mut joined = HashSet::new();
        for pairs in self.pairs.chunk_by(|a, b| a.0 == b.0) {
            let Some(number) = pairs.first().map(|(number, _)| *number as usize) else { continue };
            let (listed, name) = (&self.keys[number], &names[number]);
            merge.mark(listed.kind, name);
            if listed.stored.joins_workers() {
                join(merge, listed, &mut joined)?;
            }
            let mut list = ListWriter::named(name);
            for (_, posting) in pairs {
                list.push(self.postings[*posting as usize]);
            }
            merge.staged.put(listed.stored.list(merge.batch), list.finish());
        }
        merge.merged.dirty.extend(joined.into_iter().map(|worker| Subject::Worker(WorkerId(worker))));
        Ok(())
    }
}

/// Collects every worker known under a key, and makes those of this batch known.
fn join<S: Storage>(
    merge: &mut Merge<'_, S>,
    listed: &Listed<'_>,
    joined: &mut HashSet<String>,
) -> Result<(), LedgerError> {
    let mut collect = |worker: &str| {
        if !joined.contains(worker) {
            joined.insert(worker.to_owned());
        }
    };
    let mut known = merge.staged.get(&listed.stored.joined())?.unwrap_or_default();
    let mut reader = Reader { rest: &known };
    let mut fresh = listed.workers.clone();
    while !reader.rest.is_empty() {
        let worker = reader
            .str()
            .map_err(|reason| LedgerError::Corrupt { what: "list of workers", reason: reason.to_owned() })?;
        fresh.retain(|other| other.as_str() != worker);
        collect(worker);
    }
    for worker in &fresh {
        put_text(worker.as_str(), &mut known);
        collect(worker.as_str());
    }
    if !fresh.is_empty() {
        merge.staged.put(listed.stored.joined(), known);
    }
    Ok(())
}

/// The keys of a stored batch.
pub(super) fn keys_of<S: Storage>(staged: &Staged<'_, S>, batch: u64) -> Result<Vec<StoredKey>, LedgerError> {
    let stored = staged.get(&key::batch_keys(batch))?.unwrap_or_default();
    Ok(stored.chunks_exact(StoredKey::BYTES).filter_map(StoredKey::read).collect())
}
