//! What a path is, remembered: a path that is nothing costs one hash, and no memory of its own.
//!
//! Paths that matter keep their text, shared by all records on them. Of others only a 64-bit hash is kept, in a table
//! of fixed size, so that a million unrelated files displace nothing.

use crate::kernel::names::{FileRole, Names};
use crate::source::bounded::Bounded;
use foldhash::fast::RandomState;
use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Paths that matter and are remembered.
const KNOWN: usize = 32 * 1024;
/// Hashes of paths that do not; a power of two.
const OTHERS: usize = 64 * 1024;
/// Directories of stores.
const STORES: usize = 4096;

/// The memory.
pub(super) struct Roles<'n> {
    names: &'n dyn Names,
    hasher: RandomState,
    known: Bounded<Arc<str>, Arc<FileRole>>,
    others: Box<[u64]>,
    stores: HashSet<Arc<str>, RandomState>,
    other: Arc<FileRole>,
}

/// A path and what it is.
#[derive(Debug, Clone)]
pub(super) struct Named {
    pub path: Arc<str>,
    pub role: Arc<FileRole>,
}

// === impl Roles ===

impl<'n> Roles<'n> {
    pub(super) fn new(names: &'n dyn Names) -> Self {
        Self {
            names,
            hasher: RandomState::default(),
            known: Bounded::new(KNOWN),
            others: vec![0; OTHERS].into_boxed_slice(),
            stores: HashSet::default(),
            other: Arc::new(FileRole::Other),
        }
    }

    /// What a path is. `None`: nothing.
    pub(super) fn of(&mut self, path: &str) -> Option<Named> {
        let hash = self.hasher.hash_one(path) | 1;
        let slot = (hash >> 32) as usize % OTHERS;
        if self.others[slot] == hash {
            return None;
        }
        if let Some((path, role)) = self.known.get_key_value(path) {
            return Some(Named { path: Arc::clone(path), role: Arc::clone(role) });
        }
        match self.names.role(path) {
            FileRole::Other => {
                self.others[slot] = hash;
                None
            }
            role => {
                if let FileRole::Artifact(name) = &role
                    && self.stores.len() < STORES
                    && !self.stores.contains(name.store_dir.as_str())
                {
                    self.stores.insert(Arc::from(name.store_dir.as_str()));
                }
                let named = Named { path: Arc::from(path), role: Arc::new(role) };
                self.known.insert(Arc::clone(&named.path), Arc::clone(&named.role));
                Some(named)
            }
        }
    }

    /// What a path is, a file of no role in the directory of a store included.
    pub(super) fn of_store(&mut self, path: &str) -> Option<Named> {
        self.of(path).or_else(|| {
            let below = self.below_a_store(path);
            below.then(|| Named { path: Arc::from(path), role: Arc::clone(&self.other) })
        })
    }

    /// Whether a path is below the directory of a store that was seen.
    fn below_a_store(&self, path: &str) -> bool {
        !self.stores.is_empty()
            && memchr::memrchr_iter(b'/', path.as_bytes()).any(|slash| self.stores.contains(&path[..slash]))
    }
}
