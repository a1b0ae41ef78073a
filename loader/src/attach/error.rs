//! Why the kernel cannot be watched: what, where, and what to do about it.

use super::btf::Damaged;
use super::layout::Unknown;
use std::io;
use std::path::PathBuf;

/// Nothing of the kernel can be watched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no type information.
    #[error(
        "reading the kernel's type information {path}: {source}; the kernel has to be built with CONFIG_DEBUG_INFO_BTF"
    )]
    NoTypes {
        /// Where it should be.
        path: PathBuf,
        /// What was wrong.
        source: io::Error,
    },
    /// Its type information is damaged.
    #[error(transparent)]
    DamagedTypes(#[from] Damaged),
    /// Its type information lacks something.
    #[error(transparent)]
    UnknownLayout(#[from] Unknown),
    /// The kernel refuses programs or maps.
    #[error(
        "the kernel refuses BPF ({what}): this process needs CAP_BPF and CAP_PERFMON (before Linux 5.8 CAP_SYS_ADMIN)"
    )]
    Refused {
        /// What it refused.
        what: String,
    },
    /// The kernel is too old.
    #[error("Linux {release} is too old: kvprov needs {needed} or newer")]
    TooOld {
        /// What runs.
        release: String,
        /// What would do.
        needed: &'static str,
    },
    /// The size of the ring cannot be.
    #[error("a ring of {bytes} bytes cannot be; it takes a power of two from {least} to 1 GiB")]
    RingSize {
        /// What was asked for.
        bytes: u32,
        /// A page.
        least: usize,
    },
    /// The control group that bounds what is watched is none.
    #[error("control group {path}: {reason}")]
    Scope {
        /// As it was given.
        path: PathBuf,
        /// What was wrong and what to do.
        reason: String,
    },
    /// A process of kvprov itself was to be watched.
    #[error("process {0} is one of kvprov's own; it is not watched")]
    Own(u32),
    /// More processes than can be watched.
    #[error("watching process {tgid}: {reason}")]
    Watch {
        /// The process.
        tgid: u32,
        /// What was wrong.
        reason: String,
    },
    /// Anything else.
    #[error("{what}: {reason}")]
    Other {
        /// What was done.
        what: &'static str,
        /// What was wrong.
        reason: String,
    },
}
