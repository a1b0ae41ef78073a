//! Files and directories as a process sees them: through its root, its mounts and its links.

use super::{OpenProcess, PLACE, failure, place};
use crate::process::{Failure, FileKind, FileStat, PATH_MAX};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// How often a path is resolved again after the kernel saw a rename or mount on the way.
const RETRIES: usize = 8;

/// Flags of a file that is read.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NOCTTY).union(OFlags::NONBLOCK);

/// File systems whose files the kernel makes up: reading some of them (memory, trace pipes) is no reading of files.
const MADE_UP: [u64; 15] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x7472_6163, // tracefs
    0x6462_6720, // debugfs
    0x7363_6673, // securityfs
    0xcafe_4a11, // bpf
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0xde5e_81e4, // efivarfs
    0x6165_676c, // pstore
    0x6265_6570, // configfs
    0xf97c_ff8c, // selinuxfs
    0x5a3c_69f0, // apparmorfs
    0x6e73_6673, // nsfs
    0x4249_4e4d, // binfmt_misc
];

// === impl OpenProcess ===

impl OpenProcess {
    /// Opens a regular file for reading by the path that the process would use. The path is absolute.
    ///
    /// # Errors
    /// [`Failure::NotRegular`] for anything but a regular file of a real file system.
    pub fn open_path(&self, path: &[u8]) -> Result<(OwnedFd, FileStat), Failure> {
        let place = self.resolve(path, true)?;
        open_regular(&place).map_err(|error| self.settle(error))
    }

    /// Opens the file behind a descriptor of the process again, for reading. The new descriptor has its own position.
    ///
    /// # Errors
    /// [`Failure::NotRegular`] when it is no regular file.
    pub fn open_descriptor(&self, fd: u32) -> Result<(OwnedFd, FileStat), Failure> {
        let place = rustix::fs::openat(&self.directory, format!("fd/{fd}"), PLACE, Mode::empty())
            .map_err(|error| self.failure(error))?;
        open_regular(&place).map_err(|error| self.settle(error))
    }

    /// Opens a directory for listing by the path that the process would use.
    ///
    /// # Errors
    /// [`Failure::NotFound`] when it is no directory.
    pub fn open_directory(&self, path: &[u8]) -> Result<OwnedFd, Failure> {
        let place = self.resolve(path, true)?;
        let stat = stat_place(&place).map_err(|error| self.failure(error))?;
        if stat.kind != FileKind::Directory {
            return Err(Failure::NotFound);
        }
        if is_made_up(&place) {
            return Err(Failure::NotRegular);
        }
        reopen(&place, READ | OFlags::DIRECTORY).map_err(|error| self.failure(error))
    }

    /// What a path of the process names. With `follow`, where a link leads; else the link itself.
    ///
    /// # Errors
    /// [`Failure::NotFound`] when it names nothing.
    pub fn stat_path(&self, path: &[u8], follow: bool) -> Result<FileStat, Failure> {
        let place = self.resolve(path, follow)?;
        stat_place(&place).map_err(|error| self.failure(error))
    }

    /// Finds what a path names, without opening it. Links, also absolute ones and `..`, stay below the process's root.
    fn resolve(&self, path: &[u8], follow: bool) -> Result<OwnedFd, Failure> {
        if path.first() != Some(&b'/') || path.len() > PATH_MAX || path.contains(&0) {
            return Err(Failure::Malformed);
        }
        let root = rustix::fs::openat(&self.directory, "root", PLACE | OFlags::DIRECTORY, Mode::empty())
            .map_err(|error| self.failure(error))?;
        let flags = if follow { PLACE } else { PLACE | OFlags::NOFOLLOW };
        let how = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let mut tries = 0;
        loop {
            match rustix::fs::openat2(&root, path, flags, Mode::empty(), how) {
                Ok(place) => return Ok(place),
                Err(Errno::AGAIN) if tries < RETRIES => tries += 1,
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    fn settle(&self, failure: Failure) -> Failure {
        match self.check() {
            Ok(()) => failure,
            Err(gone) => gone,
        }
    }
}

/// Opens what is at a place, if it is a regular file.
fn open_regular(place: &OwnedFd) -> Result<(OwnedFd, FileStat), Failure> {
    let kind = stat_place(place).map_err(failure)?.kind;
    if kind != FileKind::Regular || is_made_up(place) {
        return Err(Failure::NotRegular);
    }
    // Only the owner may read without leaving a trace in the access time.
    let file = match reopen(place, READ | OFlags::NOATIME) {
        Err(Errno::PERM) => reopen(place, READ),
        other => other,
    }
    .map_err(failure)?;
    let stat = stat_place(&file).map_err(failure)?;
    Ok((file, stat))
}

/// Opens what is at a place; the place cannot become another file in between.
fn reopen(place: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::openat(CWD, format!("/proc/self/fd/{}", place.as_raw_fd()), flags, Mode::empty())
}

/// What is not known counts as made up.
fn is_made_up(place: &OwnedFd) -> bool {
    match rustix::fs::fstatfs(place) {
        // The type is signed on some machines; only its 32 bits count.
        Ok(system) => MADE_UP.contains(&(system.f_type as u64 & 0xffff_ffff)),
        Err(_) => true,
    }
}

/// What is at a place or behind a descriptor.
fn stat_place(file: impl AsFd) -> Result<FileStat, Errno> {
    let stat =
        rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS | StatxFlags::MNT_ID)?;
    Ok(file_stat(&stat))
}

/// The kernel's answer in our words.
pub(super) fn file_stat(stat: &Statx) -> FileStat {
    let time = |seconds: i64, nanoseconds: u32| {
        seconds.saturating_mul(1_000_000_000).saturating_add(i64::from(nanoseconds))
    };
    let has_mount = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::MNT_ID);
    FileStat {
        device: stat.stx_dev_major << 20 | (stat.stx_dev_minor & 0xf_ffff),
        inode: stat.stx_ino,
        kind: FileType::from_raw_mode(u32::from(stat.stx_mode)).into(),
        permissions: stat.stx_mode & 0o7777,
        size: stat.stx_size,
        modified: time(stat.stx_mtime.tv_sec, stat.stx_mtime.tv_nsec),
        changed: time(stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
        mount: if has_mount { stat.stx_mnt_id } else { 0 },
    }
}

/// Reads a descriptor to its end, but at most `limit` bytes. The second value tells whether that was all.
///
/// # Errors
/// What `read(2)` says.
pub fn read_at_most(file: impl AsFd, limit: usize) -> Result<(Vec<u8>, bool), Errno> {
    const PIECE: usize = 16 * 1024;
    let mut bytes = Vec::new();
    loop {
        let length = bytes.len();
        if length >= limit {
            return Ok((bytes, false));
        }
        bytes.resize(length + PIECE.min(limit - length), 0);
        let count = match rustix::io::read(&file, &mut bytes[length..]) {
            Err(Errno::INTR) => 0,
            Ok(0) => {
                bytes.truncate(length);
                return Ok((bytes, true));
            }
            Ok(count) => count,
            Err(error) => return Err(error),
        };
        bytes.truncate(length + count);
    }
}

/// Whether this kernel can resolve a path below a root that is not the own one.
pub fn can_resolve() -> bool {
    place("/").is_ok_and(|root| {
        rustix::fs::openat2(&root, ".", PLACE, Mode::empty(), ResolveFlags::IN_ROOT).is_ok()
    })
}
