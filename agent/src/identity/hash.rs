//! Reads files of models and gives their digests: one thread, at a bounded rate, leaving the page cache as it was.
//!
//! A read that must not wait tells which pages were in memory before: those stay, and only pages that this thread
//! brought in are given back (`posix_fadvise(DONTNEED)`); read-ahead is off, or it would bring in pages of its own.
//! The file must be in the state that the record of its open told, before and after it is read.

use super::cache::FileKey;
use kvprov_model::id::hex;
use rustix::fs::Advice;
use rustix::io::ReadWriteFlags;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;
/// Longest index of a checkpoint that is read, in bytes.
const MAX_INDEX: u64 = 64 << 20;
/// Kernels since 6.13 mark a change time that was looked at by this bit of its nanoseconds.
const LOOKED_AT: i64 = 1 << 31;

/// Opens files of other processes for reading.
pub trait FileOpener: Send {
    /// Opens a file as a process sees it (below `/proc/PID/root`).
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<File>;
}

/// Opens what this process itself may see; for tests and for an agent with the rights to.
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnFiles;

/// One file to read.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub key: FileKey,
    pub pid: u32,
    pub path: Vec<u8>,
    /// Its content names the files of a checkpoint.
    pub is_index: bool,
}

/// What came of it. The error is a reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub key: FileKey,
    pub digest: Result<String, &'static str>,
    /// Files that an index names.
    pub names: Option<BTreeSet<String>>,
}

impl FileOpener for OwnFiles {
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<File> {
        use std::os::unix::ffi::OsStrExt;
        let mut inside = format!("/proc/{pid}/root").into_bytes();
        inside.extend_from_slice(path);
        File::open(std::ffi::OsStr::from_bytes(&inside))
    }
}

/// Reads one file. `rate` is in bytes a second, 0: as fast as it goes. It is given up when the other side of `end` goes.
pub(super) fn read(job: &Job, opener: &mut dyn FileOpener, rate: u64, end: &Receiver<()>) -> Outcome {
    let mut names = None;
    let digest = digest_of(job, opener, rate, end, &mut names);
    Outcome { key: job.key, digest, names }
}

fn digest_of(
    job: &Job,
    opener: &mut dyn FileOpener,
    rate: u64,
    end: &Receiver<()>,
    names: &mut Option<BTreeSet<String>>,
) -> Result<String, &'static str> {
    let file = opener.open_file_of(job.pid, &job.path).map_err(|_| "it could not be opened to be read")?;
    if !is_in_state(&file, &job.key) {
        return Err("another file was there when it was read");
    }
    if job.is_index {
        *names = index(&file, job.key.size);
    } else if let Some(digest) = blob(&file) {
        return Ok(digest);
    }
    let digest = stream(&file, job.key.size, rate, end).map_err(|_| "it could not be read")?;
    if !is_in_state(&file, &job.key) {
        return Err("it changed while it was read");
    }
    Ok(digest)
}

/// Whether a file is as a record of its open told it.
fn is_in_state(file: &File, key: &FileKey) -> bool {
    let Ok(now) = file.metadata() else { return false };
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let device = rustix::fs::major(now.dev()) << 20 | rustix::fs::minor(now.dev());
    let same_time = |told: i64, now: i64| told == now || told == now + LOOKED_AT;
    // File systems without a disk (btrfs, overlay) may show another device to `stat` than they have.
    (device == key.device || key.is_anonymous())
        && now.ino() == key.inode
        && now.size() == key.size
        && same_time(key.modified, nanos(now.mtime(), now.mtime_nsec()))
        && same_time(key.changed, nanos(now.ctime(), now.ctime_nsec()))
}

/// The digest that the place of a file states: the cache of a hub keeps large files as `blobs/<sha256>`. Forty digits
/// are a git object id, which is no digest of the content alone.
fn blob(file: &File) -> Option<String> {
    let path = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()?;
    let name = path.file_name()?.to_str()?;
    let is_digest = name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let in_blobs = path.parent()?.file_name()? == "blobs";
    (is_digest && in_blobs).then(|| name.to_owned())
}

fn index(file: &File, size: u64) -> Option<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    if size > MAX_INDEX {
        return None;
    }
    let mut text = Vec::new();
    let mut at = 0;
    // By position, since the content is read again for the digest.
    loop {
        let mut chunk = vec![0; CHUNK];
        match std::os::unix::fs::FileExt::read_at(file, &mut chunk, at) {
            Ok(0) => break,
            Ok(read) => {
                text.extend_from_slice(&chunk[..read]);
                at += read as u64;
            }
            Err(_) => return None,
        }
        if at > MAX_INDEX {
            return None;
        }
    }
    let index: Index = serde_json::from_slice(&text).ok()?;
    Some(index.weight_map.into_values().collect())
}

fn stream(file: &File, size: u64, rate: u64, end: &Receiver<()>) -> std::io::Result<String> {
    // Advice is not needed for the result.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
    let start = Instant::now();
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0u64;
    loop {
        let cached = at_once(file, &mut buffer, at);
        let (read, brought_in) = match cached {
            Some(read) => (read, false),
            None => (std::os::unix::fs::FileExt::read_at(file, &mut buffer, at)?, true),
        };
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        if brought_in && let Some(length) = std::num::NonZeroU64::new(read as u64) {
            let _ = rustix::fs::fadvise(file, at, Some(length), Advice::DontNeed);
        }
        at += read as u64;
        if at > size {
            break; // it grows; the state check says so
        }
        if let Some(ahead) = ahead(at, rate, start.elapsed())
            && end.recv_timeout(ahead) == Err(RecvTimeoutError::Disconnected)
        {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
    }
    Ok(hex(&hash.finalize()))
}

/// What is in memory already at a place. `None`: not in memory, or it cannot be told.
fn at_once(file: &File, buffer: &mut [u8], at: u64) -> Option<usize> {
    let mut slices = [IoSliceMut::new(buffer)];
    // A zero may be the end, which the read that waits decides.
    rustix::io::preadv2(file, &mut slices, at, ReadWriteFlags::NOWAIT).ok().filter(|read| *read > 0)
}

/// How long to wait so that the rate is kept on the average.
fn ahead(read: u64, rate: u64, elapsed: Duration) -> Option<Duration> {
    let due =
        Duration::from_nanos(u64::try_from(u128::from(read) * 1_000_000_000 / u128::from(rate.max(1))).ok()?);
    (rate > 0).then(|| due.checked_sub(elapsed)).flatten()
}
