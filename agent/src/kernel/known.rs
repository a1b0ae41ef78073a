//! What a worker knows of one name in a store: by this an absence is a miss or a loss by another's hand.

use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::ArtifactAction;
use std::sync::Arc;

/// Equal lookups of one name within this time are one.
const ONE_LOOKUP: i64 = SECOND;

/// What this worker knows of a name.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// It was written, read or seen here since it was last found absent.
    pub present: bool,
    /// This worker removed it itself.
    pub removed_here: bool,
    last_lookup: Option<(ArtifactAction, Option<WallTime>)>,
    /// The file system, where known.
    file_system: Option<Arc<str>>,
}

// === impl Known ===

impl Known {
    /// It was just written, read or listed, or found absent.
    pub(crate) fn is_seen(&mut self, present: bool) {
        *self = Self { present, file_system: self.file_system.take(), ..Self::default() };
    }

    /// This worker just removed it.
    pub(crate) fn is_removed(&mut self) {
        *self = Self { removed_here: true, file_system: self.file_system.take(), ..Self::default() };
    }

    /// The name is on this file system; what is known of it on another one is forgotten.
    pub(crate) fn is_of(&mut self, file_system: Option<&Arc<str>>) {
        let Some(file_system) = file_system else { return };
        match &self.file_system {
            Some(own) if **own == **file_system => return,
            Some(_) => *self = Self::default(),
            None => {}
        }
        self.file_system = Some(Arc::clone(file_system));
    }

    /// Whether the last lookup was this one, not long ago.
    pub(crate) fn just(&self, action: &ArtifactAction, wall: Option<WallTime>) -> bool {
        self.last_lookup.as_ref().is_some_and(|(last, at)| {
            let soon = match (at, wall) {
                (Some(at), Some(now)) => now.since(*at) <= ONE_LOOKUP,
                _ => true,
            };
            last == action && soon
        })
    }

    /// Notes a lookup; false when it only repeats the last one.
    pub(crate) fn looks_up(&mut self, action: &ArtifactAction, wall: Option<WallTime>) -> bool {
        if self.just(action, wall) {
            return false;
        }
        self.last_lookup = Some((action.clone(), wall));
        true
    }
}
