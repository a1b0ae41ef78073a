//! Digests of files, and what else was read of them, kept over restarts: a model of hundreds of gigabytes is read once.
//!
//! Keyed by all that tells one state of a file from another. Device numbers without a disk are given anew at every
//! boot, so that they count together with it. A line that is torn or of no use is left out; a disk that is full costs
//! a second reading, nothing else.

use super::tensors::TensorSum;
use super::texts::Texts;
use crate::source::bounded::Bounded;
use kvprov_agent_common::{FileIdentity, FileState};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Digests that are kept.
const CAPACITY: usize = 64 * 1024;
/// Longest line that is read, in bytes. A sum of tensors takes 4,096.
const MAX_LINE: u64 = 16 * 1024;

/// A file in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey {
    /// major << 20 | minor.
    pub device: u32,
    /// The inode.
    pub inode: u64,
    /// Bytes.
    pub size: u64,
    /// Unix nanoseconds of the last change of content.
    pub modified: i64,
    /// Unix nanoseconds of the last change of the inode.
    pub changed: i64,
}

#[derive(Serialize, Deserialize)]
struct Line {
    device: u32,
    inode: u64,
    size: u64,
    modified: i64,
    changed: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    sha256: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    texts: Option<Texts>,
    /// The sum of the tensors; empty where they cannot be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tensors: Option<String>,
}

/// What is known of a file in one state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Remembered {
    /// sha256 in hex digits.
    pub digest: String,
    /// What was found inside; `None`: it was not looked into.
    pub texts: Option<Texts>,
    /// The sum of its tensors, or that they cannot be told; `None`: they were not read.
    pub tensors: Option<Option<TensorSum>>,
}

/// The digests.
#[derive(Debug)]
pub(super) struct DigestCache {
    known: Bounded<FileKey, Remembered>,
    path: Option<PathBuf>,
    boot: String,
    lines: usize,
    /// Digests that could not be written.
    pub not_written: u64,
}

// === impl FileKey ===

impl FileKey {
    /// The state that a record of an open tells. `None` where the kernel's layout was not known.
    pub fn of(identity: &FileIdentity, state: &FileState) -> Option<Self> {
        let is_known = identity.inode != 0 && state.changed != 0;
        is_known.then_some(Self {
            device: identity.device,
            inode: identity.inode,
            size: state.size,
            modified: state.modified,
            changed: state.changed,
        })
    }

    /// Whether the device number is of a file system without a disk.
    pub(super) fn is_anonymous(&self) -> bool {
        self.device >> 20 == 0
    }
}

// === impl DigestCache ===

impl DigestCache {
    /// Reads a file of digests; without a path they are kept in memory.
    pub(super) fn open(path: Option<&Path>, boot: &str) -> Self {
        let mut cache = Self {
            known: Bounded::new(CAPACITY),
            path: path.map(Path::to_owned),
            boot: boot.to_owned(),
            lines: 0,
            not_written: 0,
        };
        if let Some(file) = path.and_then(|path| File::open(path).ok()) {
            cache.load(file);
        }
        cache
    }

    fn load(&mut self, file: File) {
        let mut reader = BufReader::new(file);
        let mut line = Vec::new();
        loop {
            line.clear();
            match std::io::Read::take(&mut reader, MAX_LINE).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => self.lines += 1,
            }
            let Ok(line) = serde_json::from_slice::<Line>(&line) else { continue };
            let Line { device, inode, size, modified, changed, boot, sha256, texts, tensors } = line;
            let key = FileKey { device, inode, size, modified, changed };
            let is_of_now = !key.is_anonymous() || boot.as_deref() == Some(&self.boot);
            if is_of_now && sha256.len() == 64 && sha256.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let tensors = tensors.and_then(|sum| match sum.as_str() {
                    "" => Some(None),
                    sum => TensorSum::from_hex(sum).map(Some),
                });
                self.known.insert(key, Remembered { digest: sha256, texts, tensors });
            }
        }
    }

    pub(super) fn get(&self, key: &FileKey) -> Option<&Remembered> {
        self.known.get(key)
    }

    pub(super) fn insert(&mut self, key: FileKey, known: Remembered) {
        let line = self.path.is_some().then(|| known.clone());
        self.known.insert(key, known);
        let (Some(path), Some(known)) = (&self.path, line) else { return };
        let written =
            if self.lines >= 2 * CAPACITY { self.rewrite(path) } else { self.append(path, &key, &known) };
        match written {
            Ok(lines) => self.lines = lines,
            Err(_) => self.not_written += 1,
        }
    }

    fn append(&self, path: &Path, key: &FileKey, known: &Remembered) -> std::io::Result<usize> {
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        // A torn line before this one must not take it along.
        file.write_all(format!("\n{}\n", self.line(key, known)).as_bytes())?;
        Ok(self.lines + 2)
    }

    fn rewrite(&self, path: &Path) -> std::io::Result<usize> {
        let beside = path.with_extension("new");
        let mut out = BufWriter::new(File::create(&beside)?);
        for (key, known) in self.known.iter() {
            writeln!(out, "{}", self.line(key, known))?;
        }
        out.flush()?;
        std::fs::rename(&beside, path)?;
        Ok(self.known.len())
    }

    fn line(&self, key: &FileKey, known: &Remembered) -> String {
        let sum = |sum: &Option<TensorSum>| sum.as_ref().map(TensorSum::to_hex).unwrap_or_default();
        let line = Line {
            device: key.device,
            inode: key.inode,
            size: key.size,
            modified: key.modified,
            changed: key.changed,
            boot: key.is_anonymous().then(|| self.boot.clone()),
            sha256: known.digest.clone(),
            texts: known.texts.clone(),
            tensors: known.tensors.as_ref().map(sum),
        };
        serde_json::to_string(&line).unwrap_or_default()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const KEY: FileKey = FileKey { device: 8 << 20, inode: 1, size: 2, modified: 3, changed: 4 };

    fn digest() -> Remembered {
        Remembered { digest: "a".repeat(64), texts: None, tensors: None }
    }

    #[test]
    fn a_digest_is_known_after_a_restart_and_only_for_that_state_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests.jsonl");
        DigestCache::open(Some(&path), "b1").insert(KEY, digest());
        let again = DigestCache::open(Some(&path), "b2");
        assert_eq!(again.get(&KEY), Some(&digest()));
        assert_eq!(again.get(&FileKey { changed: 5, ..KEY }), None);
    }

    #[test]
    fn tensors_and_texts_are_known_after_a_restart_and_so_is_that_there_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests.jsonl");
        let mut sum = TensorSum::default();
        sum.add(&[1; 32]);
        let texts = Some(Texts { meaning: Some("config-v1:a+b".to_owned()), template: None });
        for tensors in [Some(Some(sum)), Some(None), None] {
            let known = Remembered { texts: texts.clone(), tensors, ..digest() };
            DigestCache::open(Some(&path), "b").insert(KEY, known.clone());
            assert_eq!(DigestCache::open(Some(&path), "b").get(&KEY), Some(&known));
        }
    }

    #[test]
    fn a_device_without_a_disk_is_another_after_a_boot() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests.jsonl");
        let key = FileKey { device: 50, ..KEY };
        DigestCache::open(Some(&path), "b1").insert(key, digest());
        assert!(DigestCache::open(Some(&path), "b1").get(&key).is_some());
        assert_eq!(DigestCache::open(Some(&path), "b2").get(&key), None);
    }

    #[test]
    fn a_torn_line_takes_no_other_along() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digests.jsonl");
        std::fs::write(&path, b"{\"device\":1,\"ino").unwrap();
        DigestCache::open(Some(&path), "b").insert(KEY, digest());
        assert!(DigestCache::open(Some(&path), "b").get(&KEY).is_some());
    }

    #[test]
    fn a_disk_that_takes_nothing_is_counted() {
        let mut cache = DigestCache::open(Some(Path::new("/nowhere/at/all")), "b");
        cache.insert(KEY, digest());
        assert_eq!((cache.not_written, cache.get(&KEY).is_some()), (1, true));
    }
}
