//! Which file an open descriptor is.
//!
//! Files that matter stand in a bounded table by the identity that the kernel gives an open file; files that do not,
//! in a table of fixed size, only so that their reads are known to be of no interest. An identity may come again once
//! the file is closed: an open replaces what stood there.

use super::CLOSE_WAIT;
use crate::kernel::record::FileSystem;
use crate::source::bounded::Bounded;
use foldhash::fast::RandomState;
use kvprov_agent_common::FileIdentity;
use std::collections::BTreeSet;
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
    /// Its last record; a close that nobody called is dated by it, as at the end of a recording.
    pub last: At,
    /// A descriptor was closed while others of the same open file remained.
    pub closing: Option<At>,
    /// The segment of the journal, as this agent counts them, that holds its path; 0: none.
    pub told: u64,
}

/// The tables.
pub(super) struct Descriptors {
    files: Bounded<FileIdentity, OpenFile>,
    hasher: RandomState,
    ignored: Box<[FileIdentity]>,
    directories: Bounded<FileIdentity, Arc<str>>,
    /// By process and number, as directory descriptors of calls are given.
    by_number: Bounded<(u32, i32), (FileIdentity, Arc<str>)>,
    /// Files with a close that others outlived, by the time at which they are not used any more.
    waiting: BTreeSet<(u64, u32, u32, u64)>,
    /// The first of these times.
    pub next_deadline: u64,
}

/// When an open file with a closed descriptor is not used any more, if nobody touches it.
fn deadline(open: &OpenFile, closing: At) -> u64 {
    closing.time.max(open.last.time).saturating_add(CLOSE_WAIT)
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
            waiting: BTreeSet::new(),
            next_deadline: u64::MAX,
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
        self.files.insert(file, open)
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

    /// Directories by their identities.
    pub(super) fn directories(&self) -> impl Iterator<Item = (&FileIdentity, &Arc<str>)> + '_ {
        self.directories.in_order()
    }

    pub(super) fn remove(&mut self, file: &FileIdentity) -> Option<OpenFile> {
        self.files.remove(file)
    }

    /// A descriptor was closed while others of the same open file remained.
    pub(super) fn closing(&mut self, file: FileIdentity, at: At) -> Option<&OpenFile> {
        let open = self.files.get_mut(&file)?;
        open.closing = Some(at);
        let deadline = deadline(open, at);
        self.wait(deadline, file);
        self.files.get(&file)
    }

    fn wait(&mut self, deadline: u64, file: FileIdentity) {
        self.waiting.insert((deadline, file.device, file.open_file, file.inode));
        self.next_deadline = self.next_deadline.min(deadline);
    }

    /// The next file with a close that others outlived, and that nobody touched for [`CLOSE_WAIT`] before a moment. It
    /// stays known, for whoever has it.
    pub(super) fn unused_at(&mut self, moment: u64) -> Option<(FileIdentity, OpenFile)> {
        if moment <= self.next_deadline {
            return None;
        }
        let mut found = None;
        while let Some((first, device, open_file, inode)) = self.waiting.first().copied() {
            if found.is_some() || first >= moment {
                break;
            }
            self.waiting.pop_first();
            let file = FileIdentity { device, open_file, inode };
            let Some(open) = self.files.get_mut(&file) else { continue };
            let Some(closing) = open.closing else { continue };
            let due = deadline(open, closing);
            if due < moment {
                open.closing = None;
                found = Some((file, open.clone()));
            } else {
                self.wait(due, file);
            }
        }
        self.next_deadline = self.waiting.first().map_or(u64::MAX, |(deadline, ..)| *deadline);
        found
    }

    /// Files that meet a condition, taken out, in the order of their last records.
    pub(super) fn take(&mut self, matches: impl Fn(&OpenFile) -> bool) -> Vec<(FileIdentity, OpenFile)> {
        let keys: Vec<FileIdentity> =
            self.files.iter().filter(|(_, open)| matches(open)).map(|(file, _)| *file).collect();
        let mut taken: Vec<_> = keys.iter().filter_map(|file| Some((*file, self.remove(file)?))).collect();
        taken.sort_by_key(|(_, open)| open.last.position);
        taken
    }

    /// A directory was opened as a descriptor.
    pub(super) fn open_directory(&mut self, tgid: u32, fd: i32, file: FileIdentity, path: Arc<str>) {
        self.by_number.insert((tgid, fd), (file, Arc::clone(&path)));
        self.know_directory(file, path);
    }

    /// Which directory an identity is.
    pub(super) fn know_directory(&mut self, file: FileIdentity, path: Arc<str>) {
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
