//! Where container runtimes listen, and whether this process may ask there.
//!
//! Source: the defaults of containerd, CRI-O, K3s and RKE2, and cri-dockerd. `/var/run` is another name of `/run`.

use rustix::fs::{Access, AtFlags, CWD, FileType};
use rustix::io::Errno;
use std::path::{Path, PathBuf};

/// The sockets that are looked for, with the runtime behind each.
pub const KNOWN: [(&str, &str); 4] = [
    ("containerd", "/run/containerd/containerd.sock"),
    ("CRI-O", "/run/crio/crio.sock"),
    ("containerd of K3s", "/run/k3s/containerd/containerd.sock"),
    ("cri-dockerd", "/run/cri-dockerd.sock"),
];

/// Where a runtime listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    /// Who listens there, in words.
    pub(super) name: String,
    /// The place.
    pub(super) path: PathBuf,
}

// === impl Socket ===

impl Socket {
    /// The defaults.
    pub(super) fn known() -> Vec<Self> {
        let of = |(name, path): &(&str, &str)| Self { name: (*name).to_owned(), path: PathBuf::from(path) };
        KNOWN.iter().map(of).collect()
    }
}

/// Whether a socket is there and this process may connect to it. Nothing is sent.
///
/// # Errors
/// `NotFound` where it is not there, `PermissionDenied` where the rights do not suffice, `InvalidInput` where it is no socket.
pub fn may_ask(path: &Path) -> std::io::Result<()> {
    let stat = rustix::fs::stat(path)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::Socket {
        return Err(Errno::INVAL.into());
    }
    Ok(rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS)?)
}
