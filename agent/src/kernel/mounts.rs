//! Makes the directories of one file system on several nodes comparable.
//!
//! A store is a file system and a directory on it. Records name the file system but not where it is mounted, so that
//! one directory may have another path on each node. Where every node uses one directory of a file system, it is the
//! same one. Where a node uses several, their paths are taken as they are.

use crate::kernel::names::{FileRole, Names};
use crate::kernel::record::Record;
use std::collections::{BTreeMap, BTreeSet};

/// File systems and directories that are compared; a store beyond them keeps its own path.
const LIMIT: usize = 4096;

/// Directories by file system and node, then the common name of each.
#[derive(Debug, Clone, Default)]
pub struct Mounts {
    seen: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
    known: usize,
}

// === impl Mounts ===

impl Mounts {
    /// Notes the store that a record of a node touches.
    pub fn note(&mut self, node: &str, record: &Record, names: &dyn Names) {
        let (Some(file_system), Some(path)) = (record.fs.as_ref(), record.path.as_deref()) else { return };
        // Where the mount point is known, the directory is compared by its place in the file system.
        if file_system.mount.is_some() {
            return;
        }
        let file_system = &*file_system.name;
        let directories = self.seen.get(file_system).and_then(|nodes| nodes.get(node));
        // A path below a known directory is of that store; almost every record ends here.
        let below = |directory: &String| {
            path.strip_prefix(directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        if directories.is_some_and(|directories| directories.iter().any(below)) || self.known >= LIMIT {
            return;
        }
        if let FileRole::Artifact(name) = names.role(path) {
            self.known += 1;
            let nodes = self.seen.entry(file_system.to_owned()).or_default();
            nodes.entry(node.to_owned()).or_default().insert(name.store_dir);
        }
    }

    /// The name under which a directory of a file system is known on all nodes.
    pub fn directory<'a>(&'a self, file_system: &str, own: &'a str) -> &'a str {
        let Some(nodes) = self.seen.get(file_system) else { return own };
        if nodes.values().any(|directories| directories.len() != 1) {
            return own;
        }
        nodes.values().flatten().min().map_or(own, String::as_str)
    }
}
