//! A storage in memory, for replay and tests.

use super::{Changes, Order, Storage, Visit};
use crate::ledger::LedgerError;
use std::collections::BTreeMap;
use std::ops::Bound;

/// An ordered map that ends with the process.
#[derive(Debug, Default)]
pub struct MemoryStorage {
    entries: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Storage for MemoryStorage {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LedgerError> {
        Ok(self.entries.get(key).cloned())
    }

    fn get_with(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<(), LedgerError> {
        if let Some(value) = self.entries.get(key) {
            read(value);
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
        let until = until.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = self.entries.range::<[u8], _>((Bound::Included(from), until));
        loop {
            let entry = match order {
                Order::Ascending => range.next(),
                Order::Descending => range.next_back(),
            };
            match entry {
                Some((key, value)) if visit(key, value).is_continue() => {}
                _ => return Ok(()),
            }
        }
    }

    fn commit(&mut self, changes: Changes) -> Result<(), LedgerError> {
        for (key, value) in changes.short {
            self.entries.insert(key.to_vec(), value.to_vec());
        }
        for (key, value) in changes.entries {
            match value {
                Some(value) => drop(self.entries.insert(key, value)),
                None => drop(self.entries.remove(&key)),
            }
        }
        Ok(())
    }
}
