//! The mounts of a process, and what each file system is called.
//!
//! Input: `/proc/PID/mountinfo` (`proc_pid_mountinfo(5)`). A path is on the mount that a walk from the root reaches:
//! from mount to mount by their parents, so that a mount that another one hides is not found. The identity of a
//! network file system is its export, without the node, so that one store is known by it everywhere; that of any
//! other is the node and the device.

use crate::kernel::record::{FileSystem, below};
use std::collections::HashMap;
use std::sync::Arc;

/// Mounts of one process that are read; a node with thousands of containers fits.
const LIMIT: usize = 32 * 1024;

/// One line.
#[derive(Debug, Clone)]
pub struct Mount {
    /// Its id.
    pub id: u32,
    parent: u32,
    /// `s_dev` as records have it: major << 20 | minor.
    pub device: u32,
    point: Arc<str>,
    /// What records on it say.
    pub file_system: Arc<FileSystem>,
    /// Neither disk nor export: another file system may have the device number once this one is unmounted. How often
    /// that was seen before.
    anonymous: Option<u32>,
}

/// The mounts of one process.
#[derive(Debug, Clone, Default)]
pub struct Mounts {
    mounts: Vec<Mount>,
    children: HashMap<u32, Vec<usize>, foldhash::fast::RandomState>,
    root: Option<usize>,
    /// Lines that were not read.
    pub unreadable: u64,
}

/// Identity of a file system and the part of it that the source names.
struct Named {
    name: String,
    root: String,
    /// The source tells the part that is mounted, and the root field repeats it.
    source_has_root: bool,
    anonymous: bool,
}

// === impl Mounts ===

impl Mounts {
    /// Reads the file. `reused` counts how often a device number without a disk was seen to go away.
    pub fn parse(text: &[u8], node: &str, reused: &dyn Fn(u32) -> u32) -> Self {
        let mut all = Self::default();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match parse_line(line, node, reused) {
                Some(mount) if all.mounts.len() < LIMIT => all.mounts.push(mount),
                _ => all.unreadable += 1,
            }
        }
        let ids: std::collections::HashSet<u32> = all.mounts.iter().map(|mount| mount.id).collect();
        for (index, mount) in all.mounts.iter().enumerate() {
            if mount.parent == mount.id || !ids.contains(&mount.parent) {
                if &*mount.point == "/" {
                    all.root = Some(index);
                }
            } else {
                all.children.entry(mount.parent).or_default().push(index);
            }
        }
        all
    }

    /// The mount that an absolute path leads to, links left aside.
    pub fn of_path(&self, path: &str) -> Option<&Mount> {
        let Some(mut at) = self.root else {
            // A process in a chroot may not see its root mount: the longest mount point, the last one of equals.
            let on = self.mounts.iter().filter(|mount| below(path, &mount.point).is_some());
            return on.max_by_key(|mount| mount.point.len());
        };
        // Every step goes down one level; a level more than there are mounts is a circle of a broken file.
        for _ in 0..self.mounts.len() {
            let mount = &self.mounts[at];
            let next = self
                .children
                .get(&mount.id)
                .into_iter()
                .flatten()
                .copied()
                .filter(|child| below(path, &self.mounts[*child].point).is_some())
                .reduce(|best, child| {
                    let (a, b) = (self.mounts[best].point.len(), self.mounts[child].point.len());
                    if b <= a { child } else { best }
                });
            match next {
                Some(child) => at = child,
                None => return Some(mount),
            }
        }
        None
    }

    /// The mount of an id.
    pub fn of_id(&self, id: u32) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.id == id)
    }

    /// A mount of a device.
    pub fn of_device(&self, device: u32) -> Option<&Mount> {
        self.mounts.iter().find(|mount| mount.device == device)
    }

    /// Devices without a disk or an export that are mounted here, and how often each was seen to go away before.
    pub fn anonymous(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.mounts.iter().filter_map(|mount| Some((mount.device, mount.anonymous?)))
    }
}

fn parse_line(line: &[u8], node: &str, reused: &dyn Fn(u32) -> u32) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut next = || fields.next();
    let id = ascii(next()?)?.parse().ok()?;
    let parent = ascii(next()?)?.parse().ok()?;
    let (major, minor) = ascii(next()?)?.split_once(':')?;
    let (major, minor): (u32, u32) = (major.parse().ok()?, minor.parse().ok()?);
    let root = unescape(next()?)?;
    let point = unescape(next()?)?;
    let _options = next()?;
    // Optional fields, any number of them, up to a single hyphen.
    while next()? != b"-" {}
    let kind = unescape(next()?)?;
    let source = next().and_then(unescape).unwrap_or_default();
    if !point.starts_with('/') {
        return None;
    }
    let device = major << 20 | minor;
    let named = name_of(&kind, &source, node, (major, minor), reused(device));
    let root = match (named.source_has_root, named.root.trim_end_matches('/')) {
        (true, "") => "/".to_owned(),
        (true, root) => root.to_owned(),
        (false, own) => match root.trim_end_matches('/') {
            "" if own.is_empty() => "/".to_owned(),
            part => format!("{own}{part}"),
        },
    };
    let point: Arc<str> = match point.trim_end_matches('/') {
        "" => Arc::from("/"),
        point => Arc::from(point),
    };
    let file_system =
        FileSystem { name: named.name.into(), mount: Some(Arc::clone(&point)), root: root.into() };
    Some(Mount {
        id,
        parent,
        device,
        point,
        file_system: Arc::new(file_system),
        anonymous: named.anonymous.then(|| reused(device)),
    })
}

/// What a file system is called, by its type and source.
fn name_of(kind: &str, source: &str, node: &str, device: (u32, u32), reused: u32) -> Named {
    let export = |name: String, root: &str, source_has_root| Named {
        name,
        root: root.to_owned(),
        source_has_root,
        anonymous: false,
    };
    match kind {
        // The client writes the mounted part into the source, `server:/export/part`, whatever the root field holds.
        "nfs" | "nfs4" => {
            if let Some((server, path)) = source.split_once(":/") {
                return export(format!("nfs:{server}"), &format!("/{path}"), true);
            }
        }
        // Monitors in any order, or `user@cluster.name=/path`.
        "ceph" => {
            if let Some((monitors, path)) = source.rsplit_once(":/").or_else(|| source.rsplit_once("=/")) {
                let monitors = monitors.split_once('@').map_or(monitors, |(_, cluster)| cluster);
                let mut each: Vec<&str> = monitors.split(',').collect();
                each.sort_unstable();
                return export(format!("ceph:{}", each.join(",")), &format!("/{path}"), false);
            }
        }
        "lustre" if source.contains(":/") => return export(format!("lustre:{source}"), "", false),
        "cifs" | "smb3" | "smbfs" if source.starts_with("//") => {
            return export(format!("smb:{source}"), "", false);
        }
        "gpfs" | "wekafs" | "afs" | "orangefs" | "pvfs2" | "glusterfs" if !source.is_empty() => {
            return export(format!("{kind}:{source}"), "", false);
        }
        // A file system in user space is one store everywhere if its source names one.
        _ if kind.starts_with("fuse.") => {
            let program = &kind[5..];
            let telling = !["", "none", "fuse", "/dev/fuse", program].contains(&source)
                && !source.starts_with('/')
                && !LOCAL_FUSE.contains(&program);
            if telling {
                return export(format!("{kind}:{source}"), "", false);
            }
        }
        _ => {}
    }
    let (major, minor) = device;
    let again = if reused > 0 { format!("#{reused}") } else { String::new() };
    Named {
        name: format!("{kind}:{node}:{major}:{minor}{again}"),
        root: String::new(),
        source_has_root: false,
        anonymous: major == 0,
    }
}

/// Programs of user space file systems whose source is a thing of the node.
const LOCAL_FUSE: [&str; 5] = ["fuse-overlayfs", "lxcfs", "portal", "gvfsd-fuse", "mergerfs"];

fn ascii(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// A field with its escapes (`\040` for a blank) taken back, in the form paths of records have.
fn unescape(field: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = (*first == b'\\').then(|| after.get(..3)).flatten();
        let value = digits
            .filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)))
            .and_then(|digits| u8::from_str_radix(ascii(digits)?, 8).ok());
        match value {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    if bytes.first() == Some(&b'/') && !bytes.starts_with(b"//") {
        let mut text = String::new();
        super::path::absolute("/", &bytes, &mut text).ok()?;
        return Some(text);
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mounts(text: &str) -> Mounts {
        Mounts::parse(text.as_bytes(), "n1", &|_| 0)
    }

    fn store(mounts: &Mounts, path: &str) -> String {
        let Some(mount) = mounts.of_path(path) else { return "none".to_owned() };
        let inside = mount.file_system.inside(path).unwrap_or_else(|| "?".to_owned());
        format!("{} {inside}", mount.file_system.name)
    }

    const USUAL: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
22 21 0:20 / /proc rw shared:5 - proc proc rw
40 21 0:50 / /mnt/kv rw,relatime shared:9 master:3 - nfs4 10.0.0.9:/export/kv rw,vers=4.2,addr=10.0.0.9
41 21 8:1 /data/kv\\040one /kv rw - ext4 /dev/sda1 rw
";

    #[test]
    fn a_path_is_on_the_mount_it_is_below() {
        let mounts = mounts(USUAL);
        assert_eq!(store(&mounts, "/mnt/kv/a"), "nfs:10.0.0.9 /export/kv/a");
        assert_eq!(store(&mounts, "/mnt/kv"), "nfs:10.0.0.9 /export/kv");
        assert_eq!(store(&mounts, "/mnt/kvx"), "ext4:n1:8:1 /mnt/kvx");
        assert_eq!(store(&mounts, "/"), "ext4:n1:8:1 /");
    }

    #[test]
    fn a_bind_mount_is_the_directory_it_shows() {
        let mounts = mounts(USUAL);
        assert_eq!(store(&mounts, "/kv/a"), "ext4:n1:8:1 /data/kv one/a");
        assert_eq!(store(&mounts, "/data/kv one/a"), "ext4:n1:8:1 /data/kv one/a");
    }

    #[test]
    fn one_export_is_one_store_whatever_part_of_it_is_mounted_where() {
        let a = mounts("1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:50 / /mnt rw - nfs4 nas:/export rw\n");
        let b = mounts("1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:61 /kv /kv rw - nfs nas:/export/kv rw\n");
        assert_eq!(store(&a, "/mnt/kv/x"), store(&b, "/kv/x"));
    }

    #[test]
    fn what_lies_under_a_mount_is_not_seen() {
        let text = "\
1 0 8:1 / / rw - ext4 /dev/a rw
2 1 0:50 / /a/b rw - tmpfs tmpfs rw
3 1 0:51 / /a rw - tmpfs tmpfs rw
4 3 0:52 / /a rw - tmpfs tmpfs rw
";
        let mounts = mounts(text);
        assert_eq!(store(&mounts, "/a/b/x"), "tmpfs:n1:0:52 /b/x");
    }

    #[test]
    fn the_source_of_a_user_space_file_system_is_a_store_only_if_it_names_one() {
        for (line, expected) in [
            ("9 1 0:60 / /j rw - fuse.juicefs JuiceFS:kv rw", "fuse.juicefs:JuiceFS:kv /x"),
            ("9 1 0:60 / /j rw - fuse.rclone none rw", "fuse.rclone:n1:0:60 /x"),
            ("9 1 0:60 / /j rw - fuse.lxcfs lxcfs rw", "fuse.lxcfs:n1:0:60 /x"),
            ("9 1 8:9 / /j rw - fuseblk /dev/sdb9 rw", "fuseblk:n1:8:9 /x"),
            ("9 1 0:60 / /j rw - lustre 10.0.0.1@tcp:/kv rw", "lustre:10.0.0.1@tcp:/kv /x"),
            ("9 1 0:60 / /j rw - ceph m2:6789,m1:6789:/pool rw", "ceph:m1:6789,m2:6789 /pool/x"),
            ("9 1 0:60 / /j rw - ceph admin@1f2e.kv=/pool rw", "ceph:1f2e.kv /pool/x"),
            ("9 1 0:60 / /j rw - cifs //nas/kv rw", "smb://nas/kv /x"),
            ("9 1 0:60 / /j rw - tmpfs", "tmpfs:n1:0:60 /x"),
        ] {
            let text = format!("1 0 8:1 / / rw - ext4 /dev/a rw\n{line}\n");
            assert_eq!(store(&mounts(&text), "/j/x"), expected);
        }
    }

    #[test]
    fn a_device_number_that_was_given_back_is_another_file_system() {
        let text = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:50 / /kv rw - tmpfs tmpfs rw\n";
        let again = Mounts::parse(text.as_bytes(), "n1", &|device| u32::from(device == 50));
        assert_eq!(store(&again, "/kv/x"), "tmpfs:n1:0:50#1 /x");
        assert_eq!(store(&again, "/x"), "ext4:n1:8:1 /x");
    }

    #[test]
    fn lines_that_are_none_are_counted_and_a_circle_ends() {
        let text = "garbage\n1 0 8:1 / / rw - ext4 /dev/a rw\n2 3 0:5 / /a rw - t t rw\n3 2 0:5 / /a rw - t t rw\n";
        let mounts = mounts(text);
        assert_eq!(mounts.unreadable, 1);
        assert_eq!(store(&mounts, "/a/x"), "ext4:n1:8:1 /a/x");
    }

    #[test]
    fn the_mounts_of_this_process_are_read() {
        let text = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let mounts = Mounts::parse(&text, "n1", &|_| 0);
        assert_eq!(mounts.unreadable, 0);
        assert!(mounts.of_path("/proc/self").is_some_and(|mount| mount.file_system.name.starts_with("proc:")));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mounts = Mounts::parse(&text, "n1", &|_| 0);
            let _ = mounts.of_path("/a/b");
        }
    }
}
