//! What paths are, remembered, because records of one file follow each other.

use crate::kernel::names::{FileRole, Names};
use crate::source::bounded::Bounded;
use std::sync::Arc;

/// Paths that are remembered.
const ROLES: usize = 4096;

/// The memory.
#[derive(Debug)]
pub(crate) struct LastRoles {
    roles: Bounded<Arc<str>, Arc<FileRole>>,
    /// The last one that was asked for: records of one file share its path.
    last: Option<(Arc<str>, Arc<FileRole>)>,
}

// === impl LastRoles ===

impl LastRoles {
    /// What a path is.
    pub(crate) fn of(&mut self, path: &Arc<str>, names: &dyn Names) -> &Arc<FileRole> {
        let last = self.last.take().filter(|(last, _)| Arc::ptr_eq(last, path));
        let (_, role) = self.last.insert(match last {
            Some(last) => last,
            None => (Arc::clone(path), find(&mut self.roles, path, names)),
        });
        role
    }
}

impl Default for LastRoles {
    fn default() -> Self {
        Self { roles: Bounded::new(ROLES), last: None }
    }
}

fn find(roles: &mut Bounded<Arc<str>, Arc<FileRole>>, path: &Arc<str>, names: &dyn Names) -> Arc<FileRole> {
    if let Some(role) = roles.get(&**path) {
        return Arc::clone(role);
    }
    let role = Arc::new(names.role(path));
    roles.insert(Arc::clone(path), Arc::clone(&role));
    role
}
