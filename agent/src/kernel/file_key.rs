//! Who has a file open, and under which path: the key of the tables, looked up without making one.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The key.
#[derive(Debug, Clone)]
pub(crate) struct FileKey {
    pub pid: i64,
    pub path: Arc<str>,
}

/// What a key is compared by; [`Wanted`] has it without a share in the path.
pub(crate) trait ByProcess {
    /// Process and path.
    fn parts(&self) -> (i64, &str);
}

/// A key that is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'p> {
    pub pid: i64,
    pub path: &'p str,
}

// === impl FileKey ===

impl ByProcess for FileKey {
    fn parts(&self) -> (i64, &str) {
        (self.pid, &self.path)
    }
}

impl<'k> Borrow<dyn ByProcess + 'k> for FileKey {
    fn borrow(&self) -> &(dyn ByProcess + 'k) {
        self
    }
}

impl Hash for FileKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for FileKey {
    fn eq(&self, other: &Self) -> bool {
        same(self.parts(), other.parts())
    }
}

impl Eq for FileKey {}

// === impl ByProcess ===

impl ByProcess for Wanted<'_> {
    fn parts(&self) -> (i64, &str) {
        (self.pid, self.path)
    }
}

impl Hash for dyn ByProcess + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts().hash(state);
    }
}

impl PartialEq for dyn ByProcess + '_ {
    fn eq(&self, other: &Self) -> bool {
        same(self.parts(), other.parts())
    }
}

impl Eq for dyn ByProcess + '_ {}

/// Records of one open file share its path, which then need not be compared.
fn same(a: (i64, &str), b: (i64, &str)) -> bool {
    a.0 == b.0 && (std::ptr::eq(a.1, b.1) || a.1 == b.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn a_key_is_found_by_its_parts() {
        let mut map = HashMap::new();
        map.insert(FileKey { pid: 7, path: Arc::from("/kv/a") }, 1);
        let find = |pid, path| {
            let wanted: &dyn ByProcess = &Wanted { pid, path };
            map.get(wanted).copied()
        };
        assert_eq!(find(7, "/kv/a"), Some(1));
        assert_eq!(find(8, "/kv/a"), None);
        assert_eq!(find(7, "/kv/b"), None);
    }
}
