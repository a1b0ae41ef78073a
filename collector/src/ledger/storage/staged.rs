//! Changes that are not committed yet, laid over a storage.
//!
//! Invariant: reads see the storage as it will be after the commit.

use super::{Changes, Order, Short, Storage, Visit};
use crate::ledger::LedgerError;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// A storage with changes on top.
pub(in crate::ledger) struct Staged<'a, S> {
    storage: &'a S,
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    /// Short entries under keys that nothing has read; most of the changes. Reads do not see them.
    unread: Vec<Short>,
}

impl<'a, S: Storage> Staged<'a, S> {
    pub(in crate::ledger) fn new(storage: &'a S) -> Self {
        Self { storage, changes: BTreeMap::new(), unread: Vec::new() }
    }

    pub(in crate::ledger) fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError> {
        match self.changes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.storage.get(key),
        }
    }

    /// [`Staged::get`] without a copy.
    pub(in crate::ledger) fn get_with(
        &self,
        key: &[u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<(), LedgerError> {
        match self.changes.get(key) {
            Some(value) => {
                value.as_deref().map(read);
                Ok(())
            }
            None => self.storage.get_with(key, read),
        }
    }

    /// Puts an entry that nothing will read before the commit; a later put or delete of its key still counts.
    pub(in crate::ledger) fn put_unread(&mut self, entry: Short) {
        self.unread.push(entry);
    }

    pub(in crate::ledger) fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.changes.insert(key, Some(value));
    }

    pub(in crate::ledger) fn delete(&mut self, key: Vec<u8>) {
        self.changes.insert(key, None);
    }

    /// The changes, to be committed.
    pub(in crate::ledger) fn into_changes(mut self) -> Changes {
        let changes = &self.changes;
        self.unread.retain(|(key, _)| !changes.contains_key(key.as_slice()));
        Changes { short: self.unread, entries: self.changes }
    }

    /// Scans upwards; staged entries hide or join stored ones.
    pub(in crate::ledger) fn scan(
        &self,
        from: &[u8],
        until: Option<&[u8]>,
        visit: Visit<'_>,
    ) -> Result<(), LedgerError> {
        if until.is_some_and(|until| until <= from) {
            return Ok(());
        }
        let end = until.map_or(Bound::Unbounded, Bound::Excluded);
        let mut staged = self.changes.range::<[u8], _>((Bound::Included(from), end)).peekable();
        let mut stopped = false;
        self.storage.scan(from, until, Order::Ascending, &mut |key, value| {
            while let Some((staged_key, staged_value)) = staged.next_if(|(staged, _)| staged.as_slice() < key)
            {
                if let Some(value) = staged_value
                    && visit(staged_key, value).is_break()
                {
                    stopped = true;
                    return ControlFlow::Break(());
                }
            }
            let hidden = staged.next_if(|(staged, _)| staged.as_slice() == key);
            let flow = match hidden {
                Some((_, Some(value))) => visit(key, value),
                Some((_, None)) => ControlFlow::Continue(()),
                None => visit(key, value),
            };
            stopped |= flow.is_break();
            flow
        })?;
        if !stopped {
            for (key, value) in staged {
                if let Some(value) = value
                    && visit(key, value).is_break()
                {
                    break;
                }
            }
        }
        Ok(())
    }
}
