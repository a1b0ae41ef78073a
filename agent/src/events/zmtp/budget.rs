//! Memory that all connections share for messages that are not small.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are left. Clones share them.
#[derive(Debug, Clone)]
pub struct Budget(Arc<AtomicUsize>);

// === impl Budget ===

impl Budget {
    /// So many bytes for all together.
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(AtomicUsize::new(bytes)))
    }

    /// Takes bytes; false when there are not so many left.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// Gives bytes back.
    pub(super) fn give(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Bytes that nobody holds.
    pub fn left(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}
