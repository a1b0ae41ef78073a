//! Log files for the follower: of this node, and below the root of a process as `/proc/PID/root/…`.

use super::or_ask;
use crate::access::{Access, AccessError, ProcessAccess};
use crate::logs::follow::{FileStat, Files, OwnFiles};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of this node.
#[derive(Debug)]
pub(crate) struct NodeFiles(pub(crate) Arc<Access>);

impl NodeFiles {
    /// The process below whose root a path lies, and the path as it sees it. A plain path is one of this process.
    fn place(path: &Path) -> (u32, &OsStr) {
        let bytes = path.as_os_str().as_bytes();
        let foreign = bytes.strip_prefix(b"/proc/").and_then(|rest| {
            let end = memchr::memchr(b'/', rest)?;
            let pid = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
            let inside = rest[end..].strip_prefix(b"/root")?;
            inside.starts_with(b"/").then(|| (pid, OsStr::from_bytes(inside)))
        });
        foreign.unwrap_or_else(|| (std::process::id(), path.as_os_str()))
    }

    fn opened(&self, path: &Path) -> Result<File, AccessError> {
        let (pid, path) = Self::place(path);
        Ok(self.0.open_file_of(self.0.identify(pid)?, path.as_bytes())?.0)
    }
}

impl Files for NodeFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        or_ask(OwnFiles.open(path), || self.opened(path))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<OsString>> {
        or_ask(OwnFiles.list(directory), || {
            let (pid, directory) = Self::place(directory);
            let listing = self.0.list_dir_of(self.0.identify(pid)?, directory.as_bytes())?;
            Ok(listing.entries.into_iter().map(|entry| OsString::from_vec(entry.name)).collect())
        })
    }

    fn stat(&self, path: &Path) -> io::Result<FileStat> {
        or_ask(OwnFiles.stat(path), || {
            let file = self.opened(path)?;
            FileStat::of(&file).map_err(|error| AccessError::Failed(error.to_string()))
        })
    }

    fn real(&self, path: &Path) -> PathBuf {
        OwnFiles.real(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_below_the_root_of_a_process_is_asked_of_it() {
        let (pid, path) = NodeFiles::place(Path::new("/proc/77/root/var/log/a.log"));
        assert_eq!((pid, path), (77, OsStr::new("/var/log/a.log")));
    }

    #[test]
    fn any_other_path_is_asked_of_this_process() {
        for path in ["/var/log/a.log", "/proc/77/rootless/a", "/proc/self/root/a", "/proc/77/fd/1"] {
            assert_eq!(NodeFiles::place(Path::new(path)), (std::process::id(), OsStr::new(path)));
        }
    }
}
