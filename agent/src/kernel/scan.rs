//! Tells the emptying of a store from an eviction.
//!
//! A clear lists the directory, then looks at and removes file after file, whoever wrote it. An evictor removes
//! because it wants to write: a lookup that misses, a write or a rename stands between its listing (at start, if
//! ever) and the removal. So a removal counts as clearing only while a listing by the same thread is the last thing
//! of another sort that it did, and not long ago.

use crate::kernel::state::Kept;
use crate::source::bounded::Bounded;
use kvprov_model::clock::{SECOND, WallTime};

/// A listing explains what follows it for this long after the last step.
const STEP: i64 = 10 * SECOND;
const THREADS: usize = 1024;

#[derive(Debug)]
struct Listing {
    directory: String,
    last: Option<WallTime>,
}

/// Listings in progress, by thread.
#[derive(Debug)]
pub(crate) struct Scans(Bounded<i64, Listing>);

// === impl Scans ===

impl Scans {
    pub(crate) fn new() -> Self {
        Self(Bounded::new(THREADS))
    }

    /// What is known, to be put back by [`Scans::restore`].
    pub(crate) fn keep(&self, take: &mut dyn FnMut(Kept)) {
        for (thread, Listing { directory, last }) in self.0.in_order() {
            take(Kept::Listing { thread: *thread, directory: directory.clone(), last: *last });
        }
    }

    /// Puts one thing back.
    pub(crate) fn restore(&mut self, thread: i64, directory: String, last: Option<WallTime>) {
        self.0.insert(thread, Listing { directory, last });
    }

    /// A thread lists a directory.
    pub(crate) fn list(&mut self, thread: i64, directory: &str, wall: Option<WallTime>) {
        self.0.insert(thread, Listing { directory: directory.trim_end_matches('/').to_owned(), last: wall });
    }

    /// Whether the thread looks at or removes a path as part of going through a listing.
    pub(crate) fn covers(&mut self, thread: i64, path: &str, wall: Option<WallTime>) -> bool {
        let Some(listing) = self.0.get_mut(&thread) else { return false };
        let in_time = match (listing.last, wall) {
            (Some(last), Some(now)) => now.since(last) <= STEP,
            _ => true,
        };
        let below = path.strip_prefix(&listing.directory).is_some_and(|rest| rest.starts_with('/'));
        if in_time && below {
            listing.last = wall.or(listing.last);
        } else if !in_time {
            self.0.remove(&thread);
        }
        in_time && below
    }

    /// The thread does something else.
    pub(crate) fn end(&mut self, thread: i64) {
        self.0.remove(&thread);
    }
}
