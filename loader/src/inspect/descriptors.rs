//! The descriptors of a process: what was open before anybody watched.
//!
//! A process may have a hundred thousand, so they are told in pages, and only files have their position read.

use super::OpenProcess;
use super::files::{file_stat, read_at_most};
use crate::process::{Descriptor, Failure, FileKind, PATH_MAX, Page};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, SeekFrom, StatxFlags};
use std::mem::MaybeUninit;

/// Bytes of a descriptor in a page, besides its target.
const DESCRIPTOR_BYTES: usize = 48;
/// Bytes of `/proc/PID/fdinfo/N` that are read; locks and watches come after what is wanted.
const INFO_MAX: usize = 512;
/// In `/proc/PID/fd`, position 0 and 1 are `.` and `..`.
const FIRST: u64 = 2;

// === impl OpenProcess ===

impl OpenProcess {
    /// Descriptors from number `from` on: at most `most`, and as many as fit in about `budget` bytes, but at least one
    /// if there is one. Descriptors that are closed while this looks are left out.
    ///
    /// # Errors
    /// [`Failure::Denied`] for a process of another user without CAP_SYS_PTRACE.
    pub fn descriptors(&self, from: u32, most: usize, budget: usize) -> Result<Page<Descriptor>, Failure> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(&self.directory, "fd", flags, Mode::empty())
            .map_err(|error| self.failure(error))?;
        let info = rustix::fs::openat(&self.directory, "fdinfo", OFlags::PATH | flags, Mode::empty())
            .map_err(|error| self.failure(error))?;
        rustix::fs::seek(&directory, SeekFrom::Start(u64::from(from) + FIRST))
            .map_err(|error| self.failure(error))?;
        let mut items = Vec::new();
        let mut used = 0;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut listing = RawDir::new(&directory, &mut buffer);
        while let Some(entry) = listing.next() {
            let entry = entry.map_err(|error| self.failure(error))?;
            let name = entry.file_name().to_str().unwrap_or_default();
            let Ok(fd) = name.parse::<u32>() else { continue };
            if fd < from {
                continue;
            }
            if used >= budget || items.len() >= most.max(1) {
                return Ok(Page { items, next: Some(u64::from(fd)) });
            }
            let Some(descriptor) = look(&directory, &info, fd, name) else { continue };
            let size = DESCRIPTOR_BYTES + descriptor.target.len();
            if used > 0 && used + size > budget {
                return Ok(Page { items, next: Some(u64::from(fd)) });
            }
            used += size;
            items.push(descriptor);
        }
        self.check()?;
        Ok(Page { items, next: None })
    }
}

fn look(directory: &OwnedFd, info: &OwnedFd, fd: u32, name: &str) -> Option<Descriptor> {
    let mut target = rustix::fs::readlinkat(directory, name, Vec::with_capacity(256)).ok()?.into_bytes();
    target.truncate(PATH_MAX);
    // A file server that does not answer must not stop this: what is known is enough.
    let asked = StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO | StatxFlags::MNT_ID;
    let stat =
        rustix::fs::statx(directory, name, AtFlags::STATX_DONT_SYNC, asked).ok().as_ref().map(file_stat);
    let mut descriptor = Descriptor {
        fd,
        target,
        device: stat.map_or(0, |stat| stat.device),
        inode: stat.map_or(0, |stat| stat.inode),
        kind: stat.map_or(FileKind::Unknown, |stat| stat.kind),
        flags: 0,
        position: 0,
        mount: 0,
    };
    if descriptor.target.first() == Some(&b'/') {
        let file = rustix::fs::openat(info, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let (text, _) = read_at_most(&file, INFO_MAX).ok()?;
        read_info(&text, &mut descriptor);
    }
    Some(descriptor)
}

/// Takes `pos:`, `flags:` (octal) and `mnt_id:` from the text of `fdinfo`.
fn read_info(text: &[u8], descriptor: &mut Descriptor) {
    for line in text.split(|byte| *byte == b'\n') {
        let Ok(line) = std::str::from_utf8(line) else { continue };
        let Some((key, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        match key {
            "pos" => descriptor.position = value.parse().unwrap_or(0),
            "flags" => descriptor.flags = u32::from_str_radix(value, 8).unwrap_or(0),
            "mnt_id" => descriptor.mount = value.parse().unwrap_or(0),
            _ => {}
        }
    }
}
