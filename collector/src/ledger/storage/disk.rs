//! A storage on disk: one directory, one process, the log-structured engine fjall below.
//!
//! A commit is one record in a checksummed journal that is synced before it is acknowledged: after `kill -9` it is
//! there as a whole or not at all. When a write fails (a full disk), the engine takes no further ones, but reads go
//! on; [`Storage::recover`] opens it anew once something can be written again. `docs/ledger.md` has the measured
//! comparison with the alternative.

use super::directory::Directory;
use super::{APPENDED_END, Changes, Order, Storage, Visit};
use crate::ledger::LedgerError;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::ops::ControlFlow;
use std::path::Path;

/// Block cache in bytes.
const CACHE_BYTES: u64 = 32 << 20;
/// Changes of either kind held in memory before they become a table, in bytes.
const MEMTABLE_BYTES: u64 = 16 << 20;
/// Journals on disk that wait for their tables, in bytes.
const JOURNAL_BYTES: u64 = 128 << 20;

/// An ordered map in a directory.
pub struct DiskStorage {
    // Dropped before the directory's lock is given up.
    engine: Option<Engine>,
    directory: Directory,
}

struct Engine {
    database: Database,
    /// Keys below [`APPENDED_END`]. Tables of ascending keys do not overlap: the engine moves them from level to level
    /// instead of rewriting what is most of the bytes.
    appended: Keyspace,
    /// All other keys.
    entries: Keyspace,
}

// === impl DiskStorage ===

impl DiskStorage {
    /// Opens or creates the storage in a directory.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let directory = Directory::claim(path)?;
        let engine = Some(Engine::open(&directory)?);
        Ok(Self { engine, directory })
    }

    fn scan_in(
        &self,
        keyspace: &Keyspace,
        from: &[u8],
        until: Option<&[u8]>,
        order: Order,
        visit: Visit<'_>,
    ) -> Result<ControlFlow<()>, LedgerError> {
        let mut range = match until {
            Some(until) => keyspace.range(from..until),
            None => keyspace.range(from..),
        };
        loop {
            let guard = match order {
                Order::Ascending => range.next(),
                Order::Descending => range.next_back(),
            };
            let Some(guard) = guard else { return Ok(ControlFlow::Continue(())) };
            let (key, value) = guard.into_inner().map_err(explain("read", &self.directory))?;
            if visit(&key, &value).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn engine(&self) -> Result<&Engine, LedgerError> {
        self.engine.as_ref().ok_or_else(|| LedgerError::Storage {
            doing: "read",
            directory: self.directory.path().to_owned(),
            reason: "a write failed and it could not be opened again yet".to_owned(),
        })
    }
}

impl Storage for DiskStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError> {
        let value = self.engine()?.holding(key).get(key).map_err(explain("read", &self.directory))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn get_with(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), LedgerError> {
        let value = self.engine()?.holding(key).get(key).map_err(explain("read", &self.directory))?;
        if let Some(value) = value {
            read(&value);
        }
        Ok(())
    }

    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        order: Order,
        visit: Visit<'_>,
    ) -> Result<(), LedgerError> {
        if until.is_some_and(|until| until <= from) {
            return Ok(());
        }
        let engine = self.engine()?;
        let mut halves = [
            (&engine.appended, from, Some(until.map_or(APPENDED_END, |until| until.min(APPENDED_END)))),
            (&engine.entries, from.max(APPENDED_END), until),
        ];
        if order == Order::Descending {
            halves.reverse();
        }
        for (keyspace, from, until) in halves {
            if until.is_none_or(|until| from < until)
                && self.scan_in(keyspace, from, until, order, visit)?.is_break()
            {
                break;
            }
        }
        Ok(())
    }

    fn commit(&mut self, changes: Changes) -> Result<(), LedgerError> {
        let engine = self.engine()?;
        let mut batch = engine.database.batch().durability(Some(PersistMode::SyncData));
        changes.each(|key, value| match value {
            Some(value) => batch.insert(engine.holding(key), key, value),
            None => batch.remove(engine.holding(key), key),
        });
        batch.commit().map_err(explain("write to", &self.directory))
    }

    fn recover(&mut self) -> Result<(), LedgerError> {
        // Only a storage that can be written to can be opened: until then the old one serves readers.
        self.directory.probe()?;
        self.engine = None;
        self.engine = Some(Engine::open(&self.directory)?);
        Ok(())
    }
}

// === impl Engine ===

impl Engine {
    /// Where a key belongs.
    fn holding(&self, key: &[u8]) -> &Keyspace {
        if key < APPENDED_END { &self.appended } else { &self.entries }
    }

    fn open(directory: &Directory) -> Result<Self, LedgerError> {
        let open = || {
            let database = Database::builder(directory.data())
                .cache_size(CACHE_BYTES)
                .max_journaling_size(JOURNAL_BYTES)
                .worker_threads(1)
                .open()?;
            let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE_BYTES);
            let appended = database.keyspace("appended", options)?;
            let entries = database.keyspace("entries", options)?;
            Ok(Self { database, appended, entries })
        };
        open().map_err(explain("open", directory))
    }
}

fn explain(doing: &'static str, directory: &Directory) -> impl Fn(fjall::Error) -> LedgerError {
    move |error| {
        let path = directory.path();
        match &error {
            fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
                LedgerError::from_io(doing, path, io)
            }
            fjall::Error::Locked => LedgerError::Locked { directory: path.to_owned() },
            // An earlier write failed; the likeliest reason is found by trying again.
            fjall::Error::Poisoned => directory.probe().err().unwrap_or_else(|| LedgerError::Storage {
                doing,
                directory: path.to_owned(),
                reason: "an earlier write failed; the next one opens it anew".to_owned(),
            }),
            other => LedgerError::Storage { doing, directory: path.to_owned(), reason: other.to_string() },
        }
    }
}
