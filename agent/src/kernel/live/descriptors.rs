//! Which file an open descriptor is.
//!
//! Files that matter stand in a bounded table by the identity that the kernel gives an open file; files that do not,
//! in a table of fixed size, only so that their reads are known to be of no interest. An identity may come again once
//! the file is closed: an open replaces what stood there.

use crate::kernel::record::FileSystem;
use crate::source::bounded::Bounded;
use foldhash::fast::RandomState;
use kvprov_agent_common::FileIdentity;
use std::hash::BuildHasher;
use std::sync::Arc;

/// Open files that matter.
const FILES: usize = 128 * 1024;
/// Open files that do not, as far as remembered; a power of two.
const IGNORED: usize = 64 * 1024;
/// Open directories.
const DIRECTORIES: usize = 8 * 1024;

/// A place in the ring and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    /// Position of the record in the ring.
    pub position: u64,
    /// CLOCK_MONOTONIC.
    pub time: u64,
    pub tgid: u32,
    pub tid: u32,
}

/// An open file that matters.
#[derive(Debug, Clone)]
pub(super) struct OpenFile {
    pub path: Arc<str>,
    pub file_system: Option<Arc<FileSystem>>,
    /// The process that opened or used it first.
    pub owner: u32,
    /// Its last record.
    pub last: At,
    /// A descriptor was closed while others of the same open file remained.
    pub closing: Option<At>,
}

/// The tables.
pub(super) struct Descriptors {
    files: Bounded<FileIdentity, OpenFile>,
    hasher: RandomState,
    ignored: Box<[FileIdentity]>,
    directories: Bounded<FileIdentity, Arc<str>>,
    /// By process and number, as directory descriptors of calls are given.
    by_number: Bounded<(u32, i32), (FileIdentity, Arc<str>)>,
    /// Files with a close that others outlived.
    pub closing: usize,
}

// === impl Descriptors ===

impl Descriptors {
    pub(super) fn new() -> Self {
        Self {
            files: Bounded::new(FILES),
            hasher: RandomState::default(),
            ignored: vec![FileIdentity::default(); IGNORED].into_boxed_slice(),
            directories: Bounded::new(DIRECTORIES),
            by_number: Bounded::new(DIRECTORIES),
            closing: 0,
        }
    }

    fn slot(&self, file: &FileIdentity) -> usize {
        // Open files lie apart in memory; the inode tells one use of an address from the next.
        (self.hasher.hash_one((file.open_file, file.inode)) >> 32) as usize % IGNORED
    }

    /// A file that matters was opened. Gives back the one that had to make room.
    pub(super) fn insert(&mut self, file: FileIdentity, open: OpenFile) -> Option<(FileIdentity, OpenFile)> {
        let slot = self.slot(&file);
        if self.ignored[slot] == file {
            self.ignored[slot] = FileIdentity::default();
        }
        self.remove(&file);
        let evicted = self.files.insert(file, open);
        if evicted.as_ref().is_some_and(|(_, open)| open.closing.is_some()) {
            self.closing -= 1;
        }
        evicted
    }

    /// A file that does not matter was opened.
    pub(super) fn ignore(&mut self, file: FileIdentity) {
        let slot = self.slot(&file);
        self.ignored[slot] = file;
    }

    pub(super) fn is_ignored(&self, file: &FileIdentity) -> bool {
        self.ignored[self.slot(file)] == *file
    }

    pub(super) fn get_mut(&mut self, file: &FileIdentity) -> Option<&mut OpenFile> {
        self.files.get_mut(file)
    }

    /// Every open file that matters.
    pub(super) fn files(&self) -> impl Iterator<Item = (&FileIdentity, &OpenFile)> + '_ {
        self.files.iter()
    }

    pub(super) fn remove(&mut self, file: &FileIdentity) -> Option<OpenFile> {
        let open = self.files.remove(file)?;
        if open.closing.is_some() {
            self.closing -= 1;
        }
        Some(open)
    }

    /// Files with a close that others outlived, and that nobody touched since a moment: what is to be closed. They stay
    /// known, for whoever has them.
    pub(super) fn unused_since(&mut self, moment: u64) -> Vec<(FileIdentity, At, OpenFile)> {
        let mut unused = Vec::new();
        for (file, open) in self.files.iter_mut() {
            if let Some(at) = open.closing.filter(|at| at.time.max(open.last.time) < moment) {
                open.closing = None;
                self.closing -= 1;
                unused.push((*file, at, open.clone()));
            }
        }
        unused.sort_by_key(|(_, at, _)| at.position);
        unused
    }

    /// Files that meet a condition, taken out, in the order of their last records.
    pub(super) fn take(&mut self, matches: impl Fn(&OpenFile) -> bool) -> Vec<(FileIdentity, OpenFile)> {
        let keys: Vec<FileIdentity> =
            self.files.iter().filter(|(_, open)| matches(open)).map(|(file, _)| *file).collect();
        let mut taken: Vec<_> =
            keys.iter().filter_map(|file| Some((*file, self.remove(file)?))).collect();
        taken.sort_by_key(|(_, open)| open.last.position);
        taken
    }

    /// A directory was opened as a descriptor.
    pub(super) fn open_directory(&mut self, tgid: u32, fd: i32, file: FileIdentity, path: Arc<str>) {
        self.by_number.insert((tgid, fd), (file, Arc::clone(&path)));
        if file.inode != 0 {
            self.directories.insert(file, path);
        }
    }

    /// A directory by its descriptor.
    pub(super) fn directory(&self, tgid: u32, fd: i32) -> Option<&Arc<str>> {
        self.by_number.get(&(tgid, fd)).map(|(_, path)| path)
    }

    /// A directory by its identity.
    pub(super) fn directory_of(&self, file: &FileIdentity) -> Option<&Arc<str>> {
        self.directories.get(file)
    }

    /// A descriptor of a directory was closed.
    pub(super) fn close_directory(&mut self, tgid: u32, fd: i32, file: &FileIdentity, last: bool) {
        self.by_number.remove(&(tgid, fd));
        if last {
            self.directories.remove(file);
        }
    }

    /// A descriptor number now stands for a file.
    pub(super) fn is_no_directory(&mut self, tgid: u32, fd: i32) {
        if !self.by_number.is_empty() {
            self.by_number.remove(&(tgid, fd));
        }
    }

    /// Records were lost: what was only remembered as uninteresting has to be looked at again, and descriptors of
    /// directories may be others by now.
    pub(super) fn distrust(&mut self) {
        self.ignored.fill(FileIdentity::default());
        self.by_number.clear();
        self.directories.clear();
    }
}
