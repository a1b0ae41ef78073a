//! Makes the directories of one file system on several nodes comparable.
//!
//! A store is a file system and a directory on it. Records name the file system but not where it is mounted, so that
//! one directory may have another path on each node. Where every node uses one directory of a file system, it is the
//! same one. Where a node uses several, their paths are taken as they are.

use crate::kernel::names::{FileRole, Names};
use crate::kernel::record::Record;
use std::borrow::Cow;
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

    /// The name under which a directory of a file system is known on all nodes. One below a store (an archive of it) is
    /// another place, and bears that name with its own behind it.
    pub fn directory<'a>(&'a self, file_system: &str, own: &'a str) -> Cow<'a, str> {
        let Some(nodes) = self.seen.get(file_system) else { return Cow::Borrowed(own) };
        if nodes.values().any(|directories| directories.len() != 1) {
            return Cow::Borrowed(own);
        }
        let stores = || nodes.values().flatten();
        let below = stores().find_map(|store| {
            own.strip_prefix(store.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        match (below, stores().min()) {
            (Some(""), Some(common)) => Cow::Borrowed(common),
            (Some(rest), Some(common)) => Cow::Owned([common, rest].concat()),
            _ => Cow::Borrowed(own),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_packs::Packs;

    const PAGE: &str = "8d03337f1b7e15c8a0b892d31a205c3cf950685b4b19fd316318f1e0b4d1031f_m_0_1.bin";

    /// Two nodes that see one file system, each a page in a directory of it.
    fn seen(here: &str, there: &str) -> Mounts {
        let mut mounts = Mounts::default();
        for (node, directory) in [("a", here), ("b", there)] {
            let line =
                format!(r#"{{"pid":1,"op":"stat","path":"{directory}/{PAGE}","fs":"nfs:/x","ret":0}}"#);
            mounts.note(node, &Record::parse(line.as_bytes()).expect("a record"), Packs::builtin());
        }
        mounts
    }

    #[test]
    fn a_directory_has_one_name_on_all_nodes() {
        let mounts = seen("/mnt/x", "/data/x");
        assert_eq!(mounts.directory("nfs:/x", "/mnt/x"), "/data/x");
        assert_eq!(mounts.directory("nfs:/x", "/data/x"), "/data/x");
    }

    #[test]
    fn an_archive_below_a_store_is_another_place_on_all_nodes() {
        let mounts = seen("/mnt/x", "/data/x");
        assert_eq!(mounts.directory("nfs:/x", "/mnt/x/old"), "/data/x/old");
        assert_eq!(mounts.directory("nfs:/x", "/data/x/old"), "/data/x/old");
        assert_eq!(mounts.directory("nfs:/x", "/mnt/xy"), "/mnt/xy");
    }
}
