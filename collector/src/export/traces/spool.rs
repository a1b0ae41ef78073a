//! What waits to be exported: a bounded queue of parcels, on disk where there is one.
//!
//! One file a parcel, named by its number; the oldest is sent first. When a put returns, the parcel survives `kill -9`.
//! Beyond the capacity the oldest go and are counted. On a disk that takes nothing it goes on in memory, within
//! [`MEMORY`]; beyond that a put is refused and whoever has the spans keeps them.
//!
//! Invariant: every span that was put in is delivered, waits, or is counted as lost.

use super::parcel::{self, Parcel};
use super::stats::{Counters, Holds, Lost, Origin};
use prost::bytes::Bytes;
use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::sync::Notify;

/// Bytes that may wait in memory where the disk takes nothing.
const MEMORY: u64 = 8 << 20;
/// What a file takes at least.
const FILE: u64 = 4096;
/// Least capacity.
const LEAST: u64 = 1 << 20;
const SUFFIX: &str = "kvt";
const SUFFIX_NEW: &str = "kvt-new";

/// The queue cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process has it.
    #[error("the queue of traces in {} is in use by another process; stop that collector, or give another --data", .path.display())]
    Locked {
        /// Where.
        path: PathBuf,
    },
    /// The system refused.
    #[error("could not {doing} the queue of traces in {}: {source}; let the user that runs the collector own it", .path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// There is no room now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the queue of traces cannot be written and its memory is full; free space on the collector's disk")]
pub(super) struct Full;

/// The queue.
#[derive(Debug)]
pub(super) struct Spool {
    inner: Mutex<Inner>,
    directory: Option<PathBuf>,
    _lock: Option<File>,
    capacity: u64,
    counters: Arc<Counters>,
    /// Tells the sender that something came.
    pub(super) wake: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    /// Oldest first.
    waiting: VecDeque<Waiting>,
    next: u64,
    /// The oldest one, while it is being sent.
    in_flight: Option<u64>,
    disk_failed: bool,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    origin: Origin,
    spans: u64,
    bytes: u64,
    since: SystemTime,
    /// The request, where it is not on disk.
    memory: Option<Bytes>,
}

// === impl Spool ===

impl Spool {
    /// Opens a queue with what an earlier run left.
    pub(super) fn open(
        directory: Option<PathBuf>,
        capacity: u64,
        counters: Arc<Counters>,
    ) -> Result<Self, SpoolError> {
        let (mut inner, mut lock) = (Inner::default(), None);
        if let Some(path) = &directory {
            lock = Some(claim(path)?);
            let failed = |doing| move |source| SpoolError::Io { doing, path: path.clone(), source };
            for number in numbers(path).map_err(failed("list"))? {
                inner.next = number + 1;
                match look(&file(path, number, SUFFIX)) {
                    Ok(Some(waiting)) => inner.waiting.push_back(Waiting { number, ..waiting }),
                    Ok(None) => {
                        counters.lost(Origin::Kvprov, Lost::Damaged, 1);
                        let _ = fs::remove_file(file(path, number, SUFFIX));
                    }
                    Err(source) => return Err(failed("read")(source)),
                }
            }
        }
        let capacity = capacity.max(LEAST);
        Ok(Self { inner: Mutex::new(inner), directory, _lock: lock, capacity, counters, wake: Notify::new() })
    }

    /// Puts a request in. When it returns, it is as durable as the queue is.
    pub(super) fn put(&self, origin: Origin, request: &Bytes, spans: u64) -> Result<(), Full> {
        let bytes = (request.len() as u64).max(FILE);
        if bytes > self.capacity {
            self.counters.lost(origin, Lost::Oversized, spans);
            return Ok(());
        }
        let mut inner = self.lock();
        while inner.bytes() + bytes > self.capacity {
            // What is being sent stays: it would be lost and delivered at once.
            let index = usize::from(
                inner.waiting.front().is_some_and(|oldest| Some(oldest.number) == inner.in_flight),
            );
            let Some(oldest) = inner.waiting.remove(index) else { break };
            self.counters.lost(oldest.origin, Lost::QueueFull, oldest.spans);
            self.remove(&oldest);
        }
        let number = inner.next;
        let memory = match &self.directory {
            None => Some(request.clone()),
            Some(path) => match store(path, number, &parcel::write(origin, spans, request)) {
                Ok(()) => {
                    inner.disk_failed = false;
                    None
                }
                Err(error) => {
                    if !std::mem::replace(&mut inner.disk_failed, true) {
                        tracing::warn!(%error, queue = %path.display(), "the queue of traces goes on in memory; free space there");
                    }
                    if inner.memory() + bytes > MEMORY {
                        return Err(Full);
                    }
                    Some(request.clone())
                }
            },
        };
        inner.next += 1;
        inner.waiting.push_back(Waiting { number, origin, spans, bytes, since: SystemTime::now(), memory });
        drop(inner);
        self.counters.queued(origin, spans);
        self.wake.notify_one();
        Ok(())
    }

    /// The oldest request, which stays until [`Spool::done`], whatever else makes room.
    pub(super) fn oldest(&self) -> Option<(u64, Parcel)> {
        loop {
            let mut inner = self.lock();
            let oldest = inner.waiting.front()?;
            let (number, origin, spans, memory) =
                (oldest.number, oldest.origin, oldest.spans, oldest.memory.clone());
            inner.in_flight = Some(number);
            if let Some(request) = memory {
                return Some((number, Parcel { origin, spans, request }));
            }
            let bytes = self.directory.as_ref().and_then(|path| fs::read(file(path, number, SUFFIX)).ok());
            if let Some(parcel) = bytes.and_then(parcel::read) {
                return Some((number, parcel));
            }
            if let Some(damaged) = inner.waiting.pop_front() {
                self.counters.lost(origin, Lost::Damaged, spans);
                self.remove(&damaged);
            }
        }
    }

    /// A request has left, for good.
    pub(super) fn done(&self, number: u64) {
        let mut inner = self.lock();
        inner.in_flight = None;
        if inner.waiting.front().is_some_and(|oldest| oldest.number == number)
            && let Some(left) = inner.waiting.pop_front()
        {
            self.remove(&left);
        }
    }

    /// What waits.
    pub(super) fn holds(&self) -> Holds {
        let inner = self.lock();
        Holds {
            capacity_bytes: self.capacity,
            bytes: inner.bytes(),
            spans: inner.waiting.iter().map(|waiting| waiting.spans).sum(),
            oldest: inner.waiting.front().map(|oldest| oldest.since.elapsed().unwrap_or_default()),
            durable: self.directory.is_none() || inner.memory() == 0,
        }
    }

    fn remove(&self, waiting: &Waiting) {
        if let (Some(path), None) = (&self.directory, &waiting.memory)
            && let Err(error) = fs::remove_file(file(path, waiting.number, SUFFIX))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, queue = %path.display(), "sent traces cannot be removed; they are sent again after a restart");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    fn bytes(&self) -> u64 {
        self.waiting.iter().map(|waiting| waiting.bytes).sum()
    }

    fn memory(&self) -> u64 {
        self.waiting.iter().filter(|waiting| waiting.memory.is_some()).map(|waiting| waiting.bytes).sum()
    }
}

/// Makes a directory and takes it; the claim ends when the file is dropped.
fn claim(path: &Path) -> Result<File, SpoolError> {
    let failed = |doing| move |source| SpoolError::Io { doing, path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed("make"))?;
    let lock = File::open(path).map_err(failed("open"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(SpoolError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(failed("lock")(source)),
    }
}

/// Numbers of the parcels, in order. What a killed process left half-written is removed.
fn numbers(path: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let number = stem.and_then(|stem| u64::from_str_radix(stem, 16).ok());
        match (number, path.extension().and_then(|suffix| suffix.to_str())) {
            (Some(number), Some(SUFFIX)) => numbers.push(number),
            (Some(_), Some(SUFFIX_NEW)) => fs::remove_file(&path)?,
            _ => {}
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a file says of itself; the request is read when it is sent.
fn look(path: &Path) -> io::Result<Option<Waiting>> {
    let mut file = File::open(path)?;
    let data = file.metadata()?;
    let mut begin = Vec::new();
    (&mut file).take(16).read_to_end(&mut begin)?;
    let since = data.modified().unwrap_or_else(|_| SystemTime::now());
    Ok(parcel::head(&begin).map(|(origin, spans)| Waiting {
        number: 0,
        origin,
        spans,
        bytes: data.len().max(FILE),
        since,
        memory: None,
    }))
}

/// Writes a file whole or not at all.
fn store(path: &Path, number: u64, bytes: &[u8]) -> io::Result<()> {
    let new = file(path, number, SUFFIX_NEW);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let written = options
        .open(&new)
        .and_then(|mut out| out.write_all(bytes))
        .and_then(|()| fs::rename(&new, file(path, number, SUFFIX)));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

fn file(path: &Path, number: u64, suffix: &str) -> PathBuf {
    path.join(format!("{number:016x}.{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(directory: &Path, capacity: u64) -> (Spool, Arc<Counters>) {
        let counters: Arc<Counters> = Arc::default();
        let spool = Spool::open(Some(directory.to_owned()), capacity, Arc::clone(&counters)).unwrap();
        (spool, counters)
    }

    fn lost(spool: &Spool, counters: &Counters, reason: Lost) -> u64 {
        let lost = counters.read(&spool.holds()).lost;
        lost.into_iter().filter(|((_, why), _)| *why == reason).map(|(_, count)| count).sum()
    }

    fn drain(spool: &Spool) -> Vec<Bytes> {
        std::iter::from_fn(|| {
            let (number, parcel) = spool.oldest()?;
            spool.done(number);
            Some(parcel.request)
        })
        .collect()
    }

    #[test]
    fn what_was_put_in_survives_and_comes_out_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, _) = open(directory.path(), 1 << 20);
        for text in ["one", "two", "three"] {
            spool.put(Origin::Kvprov, &Bytes::from(text), 1).unwrap();
        }
        let (number, first) = spool.oldest().unwrap();
        assert_eq!(first.request, "one");
        spool.done(number);
        // As after a kill: nothing is closed, and a file was being written.
        fs::write(directory.path().join("00000000000000ff.kvt-new"), b"half").unwrap();
        drop(spool);
        let (again, _) = open(directory.path(), 1 << 20);
        again.put(Origin::Engine, &Bytes::from("four"), 1).unwrap();
        assert_eq!(drain(&again), ["two", "three", "four"]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_full_queue_gives_up_the_oldest_and_counts_them() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, counters) = open(directory.path(), 1 << 20);
        for number in 0..300u32 {
            spool.put(Origin::Kvprov, &Bytes::from(number.to_string()), 2).unwrap();
        }
        assert!(spool.holds().bytes <= 1 << 20);
        assert_eq!(lost(&spool, &counters, Lost::QueueFull), 2 * (300 - 256));
        assert_eq!(drain(&spool)[0], "44");
        spool.put(Origin::Engine, &Bytes::from(vec![0; 2 << 20]), 9).unwrap();
        assert_eq!(lost(&spool, &counters, Lost::Oversized), 9);
    }

    #[test]
    fn what_is_damaged_is_passed_over_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, _) = open(directory.path(), 1 << 20);
        for text in ["one", "two", "three"] {
            spool.put(Origin::Kvprov, &Bytes::from(text), 1).unwrap();
        }
        drop(spool);
        let path = |number| file(directory.path(), number, SUFFIX);
        fs::write(path(0), b"").unwrap();
        let mut second = fs::read(path(1)).unwrap();
        *second.last_mut().unwrap() ^= 1;
        fs::write(path(1), second).unwrap();
        let (again, counters) = open(directory.path(), 1 << 20);
        assert_eq!(drain(&again), ["three"]);
        assert_eq!(lost(&again, &counters, Lost::Damaged), 2);
    }

    #[test]
    fn a_disk_that_takes_nothing_is_stood_in_for_by_memory_and_then_refuses() {
        let directory = tempfile::tempdir().unwrap();
        let (spool, _) = open(&directory.path().join("q"), 64 << 20);
        // No directory, no file, whoever runs this.
        fs::remove_dir(directory.path().join("q")).unwrap();
        let parcel = Bytes::from(vec![1; 3 << 20]);
        assert_eq!(spool.put(Origin::Engine, &parcel, 1), Ok(()));
        assert!(!spool.holds().durable);
        assert_eq!(spool.put(Origin::Engine, &parcel, 1), Ok(()));
        assert_eq!(spool.put(Origin::Engine, &parcel, 1), Err(Full));
        assert_eq!(drain(&spool).len(), 2);
    }

    #[test]
    fn one_process_alone_has_it() {
        let directory = tempfile::tempdir().unwrap();
        let (_spool, _) = open(directory.path(), 0);
        let error = Spool::open(Some(directory.path().to_owned()), 0, Arc::default()).unwrap_err();
        assert!(error.to_string().contains("--data"), "{error}");
    }
}
