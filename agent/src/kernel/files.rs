//! Follows the files of stores: from system calls to one observation per artifact and use.
//!
//! Input: records of one worker in order. What a name was before is known per worker, not per process: ranks of one
//! worker share a store, and what one of them removed is not gone by another's hand. Who else did it is for the
//! collector to find.
//!
//! Bounded: open files, temporary files and known names each have a capacity; what makes room is counted.

use crate::kernel::emit::{Emitter, Happening};
use crate::kernel::file_key::{ByProcess, FileKey, Wanted};
use crate::kernel::handle::{FileUse, Handle, Stamp};
use crate::kernel::known::Known;
use crate::kernel::names::{ArtifactName, FileRole};
use crate::kernel::record::{ENOENT, ESTALE, FileSystem, Operation, Record};
use crate::kernel::scan::Scans;
use crate::kernel::state::{Kept, NAMES};
use crate::source::bounded::Bounded;
use crate::source::{Losses, Place};
use kvprov_model::clock::SECOND;
use kvprov_model::observation::ArtifactAction;
use std::sync::Arc;

const OPEN_FILES: usize = 128 * 1024;
const TEMPORARY_FILES: usize = 16 * 1024;
const KNOWN_NAMES: usize = 256 * 1024;
/// Opens of one file within this time are one use, where no close tells them apart.
const ONE_USE: i64 = SECOND;

/// An open file and what its name is.
#[derive(Debug)]
struct OpenFile {
    handle: Handle,
    role: Arc<FileRole>,
    file_system: Option<Arc<FileSystem>>,
}

/// The tables.
#[derive(Debug)]
pub(crate) struct Files {
    open: Bounded<FileKey, OpenFile>,
    /// Files that were written under a name that is no key and may become one.
    temporary: Bounded<FileKey, FileUse>,
    known: Bounded<Arc<str>, Known>,
    scans: Scans,
}

/// One record and what its path is.
#[derive(Clone, Copy)]
pub(crate) struct Step<'r> {
    pub record: &'r Record,
    pub path: &'r Arc<str>,
    pub role: &'r Arc<FileRole>,
    pub stamp: Stamp,
}

/// Looks up without a key.
fn by<'w>(wanted: &'w Wanted<'w>) -> &'w (dyn ByProcess + 'w) {
    wanted
}

// === impl Step ===

impl<'r> Step<'r> {
    fn artifact(&self) -> Option<&'r ArtifactName> {
        match &**self.role {
            FileRole::Artifact(name) => Some(name),
            _ => None,
        }
    }

    fn key(&self) -> FileKey {
        FileKey { pid: self.record.pid, path: Arc::clone(self.path) }
    }

    fn wanted(&self) -> Wanted<'r> {
        Wanted { pid: self.record.pid, path: self.path }
    }
}

// === impl Files ===

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            open: Bounded::new(OPEN_FILES),
            temporary: Bounded::new(TEMPORARY_FILES),
            known: Bounded::new(KNOWN_NAMES),
            scans: Scans::new(),
        }
    }

    /// Takes the next record of a file. `target` is the role of `path2`.
    pub(crate) fn step(
        &mut self,
        step: Step<'_>,
        target: Option<&FileRole>,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        match step.record.op {
            Operation::Open => self.opened(step, losses, emitter),
            Operation::Read => {
                self.used(step, losses, emitter, |handle| handle.read(step.record, step.stamp));
            }
            Operation::Write => {
                self.used(step, losses, emitter, |handle| handle.write(step.record, step.stamp));
            }
            Operation::Mmap if step.record.succeeded() => {
                self.used(step, losses, emitter, |handle| handle.map(step.stamp));
            }
            Operation::Close => self.closed(step, losses, emitter),
            Operation::Rename => self.renamed(step, target, losses, emitter),
            Operation::Unlink => self.unlinked(step, losses, emitter),
            Operation::Stat => self.looked_at(step, losses, emitter),
            Operation::Readdir if step.record.succeeded() => {
                self.scans.list(step.record.thread(), step.path, step.stamp.wall);
            }
            _ => {}
        }
    }

    /// The records end: what is still open was used all the same.
    pub(crate) fn finish(&mut self, emitter: &mut Emitter<'_, '_>) {
        let mut losses = Losses::default();
        while let Some((key, file)) = self.open.pop_first() {
            self.conclude(key, file, &mut losses, emitter);
        }
    }

    /// What is known, to be put back by [`Files::restore`].
    pub(crate) fn keep(&self, take: &mut dyn FnMut(Kept)) {
        for (FileKey { pid, path }, file) in self.open.in_order() {
            take(Kept::Open {
                pid: *pid,
                path: path.to_string(),
                fs: file.file_system.as_deref().map(Into::into),
                handle: file.handle.clone(),
            });
        }
        for (FileKey { pid, path }, last) in self.temporary.in_order() {
            take(Kept::Temporary { pid: *pid, path: path.to_string(), last: *last });
        }
        let too_many = self.known.len().saturating_sub(NAMES);
        for (path, known) in self.known.in_order().skip(too_many) {
            take(Kept::Known { path: path.to_string(), known: known.clone() });
        }
        self.scans.keep(take);
    }

    /// Puts one thing back; `role` is what a path is.
    pub(crate) fn restore(&mut self, kept: Kept, role: &mut dyn FnMut(&Arc<str>) -> Arc<FileRole>) {
        match kept {
            Kept::Open { pid, path, fs, handle } => {
                let path: Arc<str> = path.into();
                let role = role(&path);
                let file_system = fs.map(|fs| Arc::new(fs.into()));
                self.open.insert(FileKey { pid, path }, OpenFile { handle, role, file_system });
            }
            Kept::Temporary { pid, path, last } => {
                drop(self.temporary.insert(FileKey { pid, path: path.into() }, last));
            }
            Kept::Known { path, known } => drop(self.known.insert(path.into(), known)),
            Kept::Listing { thread, directory, last } => self.scans.restore(thread, directory, last),
            Kept::Burst { .. } | Kept::Load { .. } => {}
        }
    }

    /// Whether a close at a place ends a use that is known.
    pub(crate) fn has_use(&self, pid: i64, path: &Arc<str>, place: Place) -> bool {
        self.open.get(by(&Wanted { pid, path })).is_some_and(|file| file.handle.is_closed_by(place))
    }

    fn opened(&mut self, step: Step<'_>, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        let record = step.record;
        if record.open_flags().is_no_file() {
            return;
        }
        if !record.succeeded() {
            if let Some(name) = step.artifact() {
                self.open_failed(step, name, losses, emitter);
            }
            return;
        }
        let may_become_key = record.opens_for_writing();
        if step.artifact().is_none() && !may_become_key {
            return;
        }
        if step.artifact().is_some() || **step.role == FileRole::Temporary {
            self.scans.end(record.thread());
        }
        if let Some(OpenFile { handle, .. }) = self.open.get_mut(by(&step.wanted())) {
            let same_use = match (handle.last.wall, step.stamp.wall) {
                (Some(last), Some(now)) => now.since(last) <= ONE_USE,
                _ => true,
            };
            if same_use {
                handle.reopen(record, step.stamp);
                return;
            }
            self.end_use(step.key(), losses, emitter);
        }
        self.insert_open(step, Handle::new(Some(record), step.stamp), losses, emitter);
    }

    fn insert_open(
        &mut self,
        step: Step<'_>,
        handle: Handle,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let file_system = step.record.fs.clone();
        let file = OpenFile { handle, role: Arc::clone(step.role), file_system };
        if let Some((key, file)) = self.open.insert(step.key(), file) {
            if matches!(*file.role, FileRole::Artifact(_)) {
                losses.one("too many open files");
            }
            self.conclude(key, file, losses, emitter);
        }
    }

    fn open_failed(
        &mut self,
        step: Step<'_>,
        name: &ArtifactName,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let record = step.record;
        if record.opens_for_writing() {
            if record.was_refused() {
                self.emit(
                    step,
                    name,
                    ArtifactAction::Refused,
                    None,
                    Some("open for writing failed"),
                    emitter,
                );
            }
        } else if matches!(record.ret, Some(ENOENT | ESTALE)) {
            self.not_there(step, name, losses, emitter);
        }
    }

    fn used(
        &mut self,
        step: Step<'_>,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
        change: impl FnOnce(&mut Handle),
    ) {
        if **step.role == FileRole::Other && self.open.get(by(&step.wanted())).is_none() {
            return;
        }
        if step.record.op == Operation::Read && step.record.ret == Some(ESTALE) {
            if let Some(name) = step.artifact() {
                self.open.remove(by(&step.wanted()));
                self.not_there(step, name, losses, emitter);
            }
            return;
        }
        if let Some(OpenFile { handle, .. }) = self.open.get_mut(by(&step.wanted())) {
            change(handle);
            return;
        }
        // Opened before the records began.
        let mut handle = Handle::new(None, step.stamp);
        change(&mut handle);
        self.insert_open(step, handle, losses, emitter);
    }

    fn closed(&mut self, step: Step<'_>, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        let last = self
            .open
            .get_mut(by(&step.wanted()))
            .is_some_and(|OpenFile { handle, .. }| handle.close(step.stamp));
        if last {
            self.end_use(step.key(), losses, emitter);
        }
    }

    fn end_use(&mut self, key: FileKey, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        if let Some(file) = self.open.remove(&key) {
            self.conclude(key, file, losses, emitter);
        }
    }

    /// The use of a file ended: an artifact is told of, a file under another name waits for its rename.
    fn conclude(&mut self, key: FileKey, file: OpenFile, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        let OpenFile { handle, role, file_system } = file;
        let end = handle.ended();
        match &*role {
            FileRole::Artifact(name) => {
                let present = !matches!(end, FileUse::Refused { .. });
                self.note(&key.path, file_system.as_deref(), present, losses);
                emitter.artifact(handle.last, &happening(name, file_system.as_deref(), end, key.pid));
            }
            // One that had to make room only leaves the size of its artifact unknown.
            _ => drop(self.temporary.insert(key, end)),
        }
    }

    fn renamed(
        &mut self,
        step: Step<'_>,
        target: Option<&FileRole>,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let record = step.record;
        let Some(new_path) = record.path2.as_ref() else {
            losses.one("rename without its new name");
            return;
        };
        self.scans.end(record.thread());
        let file_system = record.fs.as_deref();
        let from_handle = self.open.remove(by(&step.wanted())).map(|file| file.handle.ended());
        let written = from_handle.or_else(|| self.temporary.remove(by(&step.wanted())));
        if !record.succeeded() {
            if let Some(FileRole::Artifact(name)) = target {
                let bytes = written.and_then(FileUse::bytes);
                let remark = if record.ret == Some(ENOENT) {
                    "the temporary file was gone before its rename"
                } else {
                    "rename failed"
                };
                let mut what = happening(name, file_system, FileUse::Written { bytes }, record.pid);
                what.action = ArtifactAction::Refused;
                what.remark = Some(remark);
                emitter.artifact(step.stamp, &what);
            }
            return;
        }
        if let Some(name) = step.artifact() {
            self.forget(step, losses);
            self.emit(step, name, ArtifactAction::Removed, None, Some("renamed away"), emitter);
        }
        match target {
            Some(FileRole::Artifact(name)) => {
                // A file that was only read or never seen open: its content came from elsewhere, its size is not known.
                let end = match written {
                    Some(end @ (FileUse::Written { .. } | FileUse::Refused { .. })) => end,
                    _ => FileUse::Written { bytes: None },
                };
                self.note(new_path, file_system, true, losses);
                emitter.artifact(step.stamp, &happening(name, file_system, end, record.pid));
            }
            _ => {
                if let Some(end) = written {
                    self.temporary.insert(FileKey { pid: record.pid, path: Arc::clone(new_path) }, end);
                }
            }
        }
    }

    fn unlinked(&mut self, step: Step<'_>, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        let record = step.record;
        self.temporary.remove(by(&step.wanted()));
        let Some(name) = step.artifact() else {
            // A clear removes temporary files as well; that is part of going through the listing.
            self.scans.covers(record.thread(), step.path, step.stamp.wall);
            return;
        };
        if record.succeeded() {
            let cleared = self.scans.covers(record.thread(), step.path, step.stamp.wall);
            let action = if cleared { ArtifactAction::Cleared } else { ArtifactAction::Removed };
            self.forget(step, losses);
            self.emit(step, name, action, None, None, emitter);
        } else if matches!(record.ret, Some(ENOENT | ESTALE)) {
            let removed_here = self.known(step.path, record.fs.as_deref(), losses).removed_here;
            if !removed_here {
                self.note(step.path, record.fs.as_deref(), false, losses);
                self.emit(step, name, ArtifactAction::Gone, None, Some("to be removed"), emitter);
            }
        }
    }

    fn looked_at(&mut self, step: Step<'_>, losses: &mut Losses, emitter: &mut Emitter<'_, '_>) {
        let Some(name) = step.artifact() else { return };
        if self.open.get(by(&step.wanted())).is_some() {
            return; // the size of an open file, no lookup
        }
        if step.record.succeeded() {
            if self.scans.covers(step.record.thread(), step.path, step.stamp.wall) {
                self.note(step.path, step.record.fs.as_deref(), true, losses);
                return;
            }
            let known = self.known(step.path, step.record.fs.as_deref(), losses);
            known.present = true;
            known.removed_here = false;
            if known.looks_up(&ArtifactAction::Found, step.stamp.wall) {
                self.emit(step, name, ArtifactAction::Found, None, None, emitter);
            }
        } else if matches!(step.record.ret, Some(ENOENT | ESTALE)) {
            self.not_there(step, name, losses, emitter);
        }
    }

    /// A name that was looked up is not there: missed, or gone where this worker knew it and did not remove it.
    fn not_there(
        &mut self,
        step: Step<'_>,
        name: &ArtifactName,
        losses: &mut Losses,
        emitter: &mut Emitter<'_, '_>,
    ) {
        self.scans.end(step.record.thread());
        let known = self.known(step.path, step.record.fs.as_deref(), losses);
        let action = if known.present { ArtifactAction::Gone } else { ArtifactAction::Missed };
        known.present = false;
        // The check just after a name was found gone is the same lookup.
        let repeated = action == ArtifactAction::Missed && known.just(&ArtifactAction::Gone, step.stamp.wall);
        if known.looks_up(&action, step.stamp.wall) && !repeated {
            self.emit(step, name, action, None, None, emitter);
        }
    }

    /// What is known of a name on a file system. What was known of it on another one (the store was unmounted, or
    /// something else mounted over it) says nothing of this one.
    fn known(
        &mut self,
        path: &Arc<str>,
        file_system: Option<&FileSystem>,
        losses: &mut Losses,
    ) -> &mut Known {
        let (known, evicted) = self.known.get_or_insert_with(Arc::clone(path), Known::default);
        if evicted {
            losses.one("too many known names");
        }
        known.is_of(file_system.map(|file_system| &file_system.name));
        known
    }

    fn note(
        &mut self,
        path: &Arc<str>,
        file_system: Option<&FileSystem>,
        present: bool,
        losses: &mut Losses,
    ) {
        self.known(path, file_system, losses).is_seen(present);
    }

    fn forget(&mut self, step: Step<'_>, losses: &mut Losses) {
        self.known(step.path, step.record.fs.as_deref(), losses).is_removed();
    }

    fn emit(
        &mut self,
        step: Step<'_>,
        name: &ArtifactName,
        action: ArtifactAction,
        bytes: Option<u64>,
        remark: Option<&'static str>,
        emitter: &mut Emitter<'_, '_>,
    ) {
        let file_system = step.record.fs.as_deref();
        let pid = step.record.pid;
        emitter
            .artifact(step.stamp, &Happening { name, file_system, action, bytes, wanted: None, pid, remark });
    }
}

// === impl FileUse ===

impl FileUse {
    fn bytes(self) -> Option<u64> {
        match self {
            Self::Read { bytes } | Self::Written { bytes } => bytes,
            Self::Short { bytes, .. } | Self::Refused { bytes, .. } => Some(bytes),
        }
    }
}

fn happening<'n>(
    name: &'n ArtifactName,
    file_system: Option<&'n FileSystem>,
    end: FileUse,
    pid: i64,
) -> Happening<'n> {
    let bytes = end.bytes();
    let (action, wanted) = match end {
        FileUse::Read { .. } => (ArtifactAction::Read, bytes),
        FileUse::Written { .. } => (ArtifactAction::Written, bytes),
        FileUse::Short { wanted, .. } => (ArtifactAction::Partial, Some(wanted)),
        FileUse::Refused { wanted, .. } => (ArtifactAction::Refused, Some(wanted)),
    };
    Happening { name, file_system, action, bytes, wanted, pid, remark: None }
}
