//! What a ledger is kept in: an ordered map from bytes to bytes with atomic commits.
//!
//! Everything that merges, indexes, expires and reads is written once against [`Storage`]; an implementation only
//! keeps bytes. [`Staged`] lays changes that are not committed yet over a storage.

mod directory;
mod disk;
mod memory;
mod staged;

pub(crate) use directory::is_ledger;
pub use disk::DiskStorage;
pub use memory::MemoryStorage;
pub(super) use staged::Staged;

use super::LedgerError;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// Keys below this one are first written in ascending order, over all commits. A storage may make use of it.
pub const APPENDED_END: &[u8] = b"c";

/// A short entry, held in place: the place of an observation.
pub type Short = ([u8; 17], [u8; 12]);

/// Puts and deletes that are committed together, each key once.
#[derive(Debug, Default)]
pub struct Changes {
    short: Vec<Short>,
    entries: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// From the least key on.
    Ascending,
    /// From the greatest key down.
    Descending,
}

/// Receives entries until it breaks.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> ControlFlow<()>;

impl Changes {
    /// A single put (`Some`) or delete (`None`).
    pub fn one(key: Vec<u8>, value: Option<Vec<u8>>) -> Self {
        Self { short: Vec::new(), entries: BTreeMap::from([(key, value)]) }
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.short.is_empty() && self.entries.is_empty()
    }

    /// Hands every put (`Some`) and delete (`None`) to `take`.
    pub fn each(&self, mut take: impl FnMut(&[u8], Option<&[u8]>)) {
        self.short.iter().for_each(|(key, value)| take(key, Some(value)));
        self.entries.iter().for_each(|(key, value)| take(key, value.as_deref()));
    }
}

/// An ordered map with atomic commits.
pub trait Storage: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError>;

    /// Hands the value of a key, where it has one, to `read`; without a copy where the storage can.
    fn get_with(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), LedgerError> {
        if let Some(value) = self.get(key)? {
            read(&value);
        }
        Ok(())
    }

    /// Hands every entry from `from` up to but without `until` (`None`: to the end) to `visit`.
    fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        order: Order,
        visit: Visit<'_>,
    ) -> Result<(), LedgerError>;

    /// Makes all changes or none, as durable as the storage is. After an error the old state can still be read.
    fn commit(&mut self, changes: Changes) -> Result<(), LedgerError>;

    /// After a failed commit: makes the storage take commits again, or says why it cannot yet. What failed may have
    /// become durable all the same, so that the caller reads its state anew.
    fn recover(&mut self) -> Result<(), LedgerError> {
        Ok(())
    }
}
