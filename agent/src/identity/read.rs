//! Reads one file: its digest, a sample of it, or its tensors.
//!
//! The file must be in the state that the record of its open told, before and after it is read; else nothing is told of it
//! but the reason.

use super::cache::FileKey;
use super::opener::{self, FileOpener};
use super::pages::Pages;
use super::queue::{Next, Queue, SMALL};
use super::samples::{self, Sample};
use super::tensors::{Format, TensorSum, line};
use super::texts::{self, Texts};
use kvprov_model::id::hex;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that are read at once: as much as stays in the cache of a core while it is hashed.
const CHUNK: usize = 256 << 10;
/// Longest index of a checkpoint that is read, in bytes.
const MAX_INDEX: u64 = 64 << 20;
/// Kernels since 6.13 mark a change time that was looked at by this bit of its nanoseconds.
const LOOKED_AT: i64 = 1 << 31;
/// The reason that is given where a file changed under the reader.
const CHANGED: &str = "it changed while it was read";

/// One file to read.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub key: FileKey,
    pub pid: u32,
    pub path: Vec<u8>,
    pub task: Task,
}

/// What of it is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    /// Something to show until its digest is known.
    Samples,
    /// The digest of all of it.
    Digest {
        /// Its content names the files of a checkpoint.
        is_index: bool,
    },
    /// The sum of its tensors.
    Tensors,
}

/// A digest with what was seen on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    /// sha256 in hex digits.
    pub digest: String,
    /// The place of the file states the digest: nothing of it was read.
    pub is_named: bool,
    pub texts: Texts,
    /// Files that an index names.
    pub names: Option<BTreeSet<String>>,
}

/// What came of it. An error is a reason in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    Samples(Option<Sample>),
    Digest(Result<Whole, &'static str>),
    /// `None`: its tensors cannot be told.
    Tensors(Option<TensorSum>),
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    pub key: FileKey,
    pub found: Found,
}

/// Nobody wants the file any more, or it cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    GivenUp,
    Because(&'static str),
}

/// A thread that reads.
pub(super) struct Reader {
    pub queue: Arc<Queue>,
    pub opener: Arc<Mutex<Box<dyn FileOpener>>>,
    pub done: Sender<Outcome>,
}

// === impl Reader ===

impl Reader {
    /// Reads what is to be read until nothing is any more.
    pub(super) fn run(&self) {
        while let Some(job) = self.queue.take() {
            self.read(&job, false);
        }
    }

    /// Reads one file and tells what came of it; `passing`: while another one waits.
    fn read(&self, job: &Job, passing: bool) {
        let may_wait = !passing && (job.key.size > SMALL || job.task == Task::Tensors);
        let found = match job.task {
            Task::Samples => self.samples(job).map(|sample| Found::Samples(Some(sample))),
            Task::Digest { is_index } => {
                self.digest(job, is_index, may_wait).map(|whole| Found::Digest(Ok(whole)))
            }
            Task::Tensors => self.tensors(job, may_wait).map(|sum| Found::Tensors(Some(sum))),
        };
        self.queue.over(&job.key);
        let found = match (found, job.task) {
            (Ok(found), _) => found,
            (Err(Stop::GivenUp), _) => return,
            (Err(Stop::Because(_)), Task::Samples) => Found::Samples(None),
            (Err(Stop::Because(_)), Task::Tensors) => Found::Tensors(None),
            (Err(Stop::Because(reason)), Task::Digest { .. }) => Found::Digest(Err(reason)),
        };
        // Who asked may have ended.
        let _ = self.done.send(Outcome { key: job.key, found });
    }

    fn open(&self, job: &Job) -> Result<File, Stop> {
        let mut opener = self.opener.lock().unwrap_or_else(PoisonError::into_inner);
        let file =
            opener.open_file_of(job.pid, &job.path).map_err(|error| Stop::Because(opener::reason(&error)))?;
        drop(opener);
        if is_in_state(&file, &job.key) {
            Ok(file)
        } else {
            Err(Stop::Because("another file was there when it was read"))
        }
    }

    fn samples(&self, job: &Job) -> Result<Sample, Stop> {
        let file = self.open(job)?;
        // Its digest is known at once, without a byte of it.
        if blob(&file).is_some() {
            return Err(Stop::Because("its name tells its digest"));
        }
        let sample = samples::of(&file, job.key.size).map_err(|_| Stop::Because("it could not be read"))?;
        let _ = self.queue.pace(&job.key, samples::BYTES, false);
        if is_in_state(&file, &job.key) { Ok(sample) } else { Err(Stop::Because(CHANGED)) }
    }

    fn digest(&self, job: &Job, is_index: bool, may_wait: bool) -> Result<Whole, Stop> {
        let file = self.open(job)?;
        let keeps = if is_index { job.key.size <= MAX_INDEX } else { texts::are_in(&job.path, job.key.size) };
        if !keeps && let Some(digest) = blob(&file) {
            return Ok(Whole { digest, is_named: true, texts: Texts::default(), names: None });
        }
        let mut hash = Sha256::new();
        let mut kept = Vec::new();
        self.stream(job, &file, (0, u64::MAX), may_wait, &mut |bytes| {
            hash.update(bytes);
            if keeps {
                kept.extend_from_slice(bytes);
            }
        })?;
        let digest = hex(&hash.finalize());
        let names = is_index.then(|| index(&kept)).flatten();
        let texts = if is_index {
            Texts::default()
        } else if keeps {
            texts::read(&job.path, &kept)
        } else {
            let layout = Format::of(&job.path)
                .filter(|format| *format == Format::Gguf)
                .and_then(|format| format.layout(&file, job.key.size));
            Texts { template: layout.and_then(|layout| layout.template), meaning: None }
        };
        if !is_in_state(&file, &job.key) {
            return Err(Stop::Because(CHANGED));
        }
        Ok(Whole { digest, is_named: false, texts, names })
    }

    fn tensors(&self, job: &Job, may_wait: bool) -> Result<TensorSum, Stop> {
        let file = self.open(job)?;
        let layout = Format::of(&job.path)
            .and_then(|format| format.layout(&file, job.key.size))
            .ok_or(Stop::Because("its header is not known"))?;
        let mut sum = TensorSum::default();
        for setting in &layout.settings {
            sum.add(&line(setting, b""));
        }
        for tensor in &layout.tensors {
            let mut hash = Sha256::new();
            let end = tensor.begin.saturating_add(tensor.length);
            let read =
                self.stream(job, &file, (tensor.begin, end), may_wait, &mut |bytes| hash.update(bytes))?;
            if read != tensor.length {
                return Err(Stop::Because(CHANGED));
            }
            sum.add(&line(&tensor.head, &hash.finalize()));
        }
        if is_in_state(&file, &job.key) { Ok(sum) } else { Err(Stop::Because(CHANGED)) }
    }

    /// Reads a range of a file and gives its length, at the rate, with room for small files in between.
    fn stream(
        &self,
        job: &Job,
        file: &File,
        (begin, end): (u64, u64),
        may_wait: bool,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<u64, Stop> {
        let mut pages = Pages::new(file);
        let mut buffer = vec![0; CHUNK.min(usize::try_from(end.saturating_sub(begin)).unwrap_or(CHUNK))];
        let mut at = begin;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(buffer.len());
            let read = match pages.read(&mut buffer[..wanted], at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return Err(Stop::Because("it could not be read")),
            };
            take(&buffer[..read]);
            at += read as u64;
            if at > job.key.size {
                return Err(Stop::Because(CHANGED)); // it grows
            }
            let mut bytes = read as u64;
            loop {
                match self.queue.pace(&job.key, bytes, may_wait) {
                    Next::Go => break,
                    Next::First(small) => self.read(&small, true),
                    Next::Stop => return Err(Stop::GivenUp),
                }
                bytes = 0;
            }
        }
        Ok(at - begin)
    }
}

/// Whether a file is as a record of its open told it.
fn is_in_state(file: &File, key: &FileKey) -> bool {
    let Ok(now) = file.metadata() else { return false };
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    let device = rustix::fs::major(now.dev()) << 20 | rustix::fs::minor(now.dev());
    let same_time = |told: i64, now: i64| told == now || told == now + LOOKED_AT;
    // File systems without a disk (btrfs, overlay) may show another device to `stat` than they have.
    now.is_file()
        && (device == key.device || key.is_anonymous())
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

fn index(text: &[u8]) -> Option<BTreeSet<String>> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let index: Index = serde_json::from_slice(text).ok()?;
    Some(index.weight_map.into_values().collect())
}
