//! The control group that bounds what is watched.

use super::error::Error;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Deepest group that the kernel compares with.
const LEVEL_MAX: u64 = 64;

/// Id and level of a group below the root of control groups version 2. `path` begins at that root or at the root of
/// the file system.
pub(crate) fn find(path: &Path) -> Result<[u64; 2], Error> {
    let fail = |reason: String| Error::Scope { path: path.to_owned(), reason };
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| fail(format!("reading /proc/self/mountinfo: {error}")))?;
    let root = root(&mounts)
        .ok_or_else(|| fail("no file system of control groups version 2 is mounted; mount one".to_owned()))?;
    let inside = inside(path, &root);
    let full = root.join(inside);
    let metadata = std::fs::metadata(&full).map_err(|error| fail(format!("{}: {error}", full.display())))?;
    let level = inside.components().count() as u64;
    if level == 0 {
        return Err(fail("this is the root, which holds every process; leave the scope out".to_owned()));
    }
    if !metadata.is_dir() || level > LEVEL_MAX {
        return Err(fail(format!("{} is no control group", full.display())));
    }
    Ok([metadata.ino(), level])
}

/// A group as `/proc/PID/cgroup` names it. `path` begins at the root of control groups version 2 or at the root of the
/// file system.
pub fn name(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let root = root(&mounts).unwrap_or_else(|| PathBuf::from("/sys/fs/cgroup"));
    format!("/{}", inside(path, &root).display()).trim_end_matches('/').to_owned()
}

fn inside<'p>(path: &'p Path, root: &Path) -> &'p Path {
    path.strip_prefix(root).or_else(|_| path.strip_prefix("/")).unwrap_or(path)
}

/// Where control groups version 2 are mounted.
fn root(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        (kind.split(' ').next() == Some("cgroup2")).then(|| fields.split(' ').nth(4).map(PathBuf::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_version_is_found_wherever_it_is_mounted() {
        let mounts = "30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      31 20 0:27 / /sys/fs/cgroup/unified rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(root(mounts), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(root("30 20 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\nnonsense\n"), None);
    }

    #[test]
    fn a_group_is_the_same_one_whichever_root_its_path_begins_at() {
        let root = Path::new("/sys/fs/cgroup/unified");
        for path in ["/sys/fs/cgroup/unified/engines/a", "/engines/a", "engines/a"] {
            assert_eq!(inside(Path::new(path), root), Path::new("engines/a"), "{path}");
        }
    }

    #[test]
    fn the_root_is_no_scope() {
        assert!(find(Path::new("/")).is_err());
    }
}
