//! What is known of one process of a worker: where it stands, and what it sees mounted.

use super::lookup::ProcessLookup;
use super::mountinfo::Mounts;
use super::path;
use crate::kernel::record::FileSystem;
use crate::source::Losses;
use foldhash::fast::{FixedState, RandomState};
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

/// How old what is known of mounts may be where a record does not tell the device, in nanoseconds.
const FRESH: u64 = 250_000_000;
/// Directories of a process whose file system is remembered.
const DIRECTORIES: usize = 4096;
/// Tables of mounts that are kept for the next process that sees the same.
const TABLES: usize = 32;

/// One process.
#[derive(Debug, Default)]
pub(super) struct Process {
    pub worker: u32,
    /// CLOCK_BOOTTIME in nanoseconds; 0: not known.
    pub started: u64,
    pub cwd: Option<Arc<str>>,
    /// It opened a file that matters.
    pub has_files: bool,
    mounts: Option<Arc<Mounts>>,
    text: u64,
    read_at: u64,
    directories: HashMap<Arc<str>, (u32, Arc<FileSystem>), RandomState>,
}

/// Where a path is kept.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kept {
    On(Arc<FileSystem>),
    /// Mounts may not be read.
    Untold,
    /// No mount of the process has the device: it was unmounted, or the file came from elsewhere.
    Nowhere,
}

/// Tables of mounts, shared by processes that see the same.
#[derive(Debug, Default)]
pub(super) struct Tables {
    node: String,
    recent: Vec<(u64, Arc<Mounts>)>,
    /// How often a device number without a disk went away.
    reused: HashMap<u32, u32, RandomState>,
    /// Lines of mountinfo that were not read.
    pub unreadable: u64,
}

// === impl Tables ===

impl Tables {
    pub(super) fn new(node: &str) -> Self {
        Self { node: node.to_owned(), ..Self::default() }
    }

    fn table(&mut self, hash: u64, text: &[u8], before: Option<&Mounts>) -> Arc<Mounts> {
        if let Some((_, table)) = self.recent.iter().find(|(known, _)| *known == hash) {
            return Arc::clone(table);
        }
        let plain = Mounts::parse(text, &self.node, &|_| 0);
        let here: Vec<u32> = plain.anonymous().map(|(device, _)| device).collect();
        // A device that this process saw and sees no more is free for another file system.
        for (device, times) in before.into_iter().flat_map(Mounts::anonymous) {
            let known = self.reused.get(&device).copied().unwrap_or(0);
            if !here.contains(&device) && known == times && self.reused.len() < 4096 {
                self.reused.insert(device, known + 1);
                self.recent.clear();
            }
        }
        let table = Arc::new(Mounts::parse(text, &self.node, &|device| {
            self.reused.get(&device).copied().unwrap_or(0)
        }));
        self.unreadable += table.unreadable;
        if self.recent.len() >= TABLES {
            self.recent.remove(0);
        }
        self.recent.push((hash, Arc::clone(&table)));
        table
    }
}

// === impl Process ===

impl Process {
    pub(super) fn new(worker: u32, started: u64) -> Self {
        Self { worker, started, ..Self::default() }
    }

    /// A child: it stands where its parent stands.
    pub(super) fn child(&self, started: u64) -> Self {
        Self { cwd: self.cwd.clone(), ..Self::new(self.worker, started) }
    }

    /// Learns what it sees mounted. Whoever needs that asks again, and falls back on this.
    pub(super) fn look(&mut self, pid: u32, lookup: &mut dyn ProcessLookup, tables: &mut Tables) {
        self.refresh(pid, 0, lookup, tables);
    }

    /// Whether a start time speaks of this process. Times from `/proc` come in hundredths of a second.
    pub(super) fn is_same(&self, started: u64) -> bool {
        self.started == 0 || started == 0 || self.started.abs_diff(started) <= 20_000_000
    }

    /// The working directory, asked for once.
    pub(super) fn directory(&mut self, pid: u32, lookup: &mut dyn ProcessLookup) -> Option<Arc<str>> {
        if self.cwd.is_none() {
            let bytes = lookup.cwd(pid)?;
            let mut text = String::new();
            if bytes.first() == Some(&b'/')
                && !bytes.ends_with(b" (deleted)")
                && path::absolute("", &bytes, &mut text).is_ok()
            {
                self.cwd = Some(text.into());
            }
        }
        self.cwd.clone()
    }

    /// The file system of a path. `device` as an open told it; without one the mounts decide, read anew if they are
    /// not fresh at `time` (CLOCK_MONOTONIC).
    pub(super) fn kept(
        &mut self,
        pid: u32,
        path: &str,
        device: Option<u32>,
        time: u64,
        lookup: &mut dyn ProcessLookup,
        tables: &mut Tables,
    ) -> Kept {
        let directory = path.rfind('/').map_or("", |slash| &path[..slash]);
        if let Some((known, file_system)) = self.directories.get(directory)
            && match device {
                Some(device) => device == *known,
                None => time.saturating_sub(self.read_at) <= FRESH,
            }
        {
            return Kept::On(Arc::clone(file_system));
        }
        self.refresh(pid, time, lookup, tables);
        if let Some((known, file_system)) = self.directories.get(directory)
            && device.is_none_or(|device| device == *known)
        {
            return Kept::On(Arc::clone(file_system));
        }
        let Some(mounts) = &self.mounts else { return Kept::Untold };
        let place = if directory.is_empty() { "/" } else { directory };
        let on_path = match device {
            Some(_) => None,
            None => lookup.mount_of(pid, &path::to_bytes(place)).and_then(|id| mounts.of_id(id)),
        };
        let Some(on_path) = on_path.or_else(|| mounts.of_path(path)) else { return Kept::Nowhere };
        let (device, file_system) = match device {
            Some(device) if on_path.device != device => {
                // A link leads elsewhere: which directory of that file system it is, is not known.
                let Some(other) = mounts.of_device(device) else { return Kept::Nowhere };
                (device, Arc::new(FileSystem::named(&other.file_system.name)))
            }
            _ if on_path.file_system.inside(place).is_none() && !directory.is_empty() => {
                (on_path.device, Arc::new(FileSystem::named(&on_path.file_system.name)))
            }
            _ => (on_path.device, Arc::clone(&on_path.file_system)),
        };
        if self.directories.len() >= DIRECTORIES {
            self.directories.clear();
        }
        self.directories.insert(Arc::from(directory), (device, Arc::clone(&file_system)));
        Kept::On(file_system)
    }

    /// Whether an open descriptor, looked up now, is on the device of a record.
    pub(super) fn is_on(
        &mut self,
        pid: u32,
        mount: u32,
        device: u32,
        time: u64,
        lookup: &mut dyn ProcessLookup,
        tables: &mut Tables,
    ) -> bool {
        if self.mounts.is_none() {
            self.refresh(pid, time, lookup, tables);
        }
        let of_id = |mounts: &Option<Arc<Mounts>>| mounts.as_ref()?.of_id(mount).map(|mount| mount.device);
        let mut found = of_id(&self.mounts);
        if found != Some(device) {
            self.refresh(pid, time, lookup, tables);
            found = of_id(&self.mounts);
        }
        // A mount of another namespace is in no table of this one: the inode alone has to do.
        found.is_none_or(|found| found == device)
    }

    fn refresh(&mut self, pid: u32, time: u64, lookup: &mut dyn ProcessLookup, tables: &mut Tables) {
        let Some(text) = lookup.mountinfo(pid) else { return };
        self.read_at = time;
        let hash = FixedState::with_seed(7).hash_one(&text);
        if self.mounts.is_some() && hash == self.text {
            return;
        }
        self.mounts = Some(tables.table(hash, &text, self.mounts.as_deref()));
        self.text = hash;
        self.directories.clear();
    }
}

/// Counts what became of a lookup; `None` for a record that is not to be told.
pub(super) fn known(kept: Kept, losses: &mut Losses) -> Option<Option<Arc<FileSystem>>> {
    match kept {
        Kept::On(file_system) => Some(Some(file_system)),
        Kept::Untold => {
            losses.one("mounts of a process not readable");
            Some(None)
        }
        Kept::Nowhere => {
            losses.one("file system not among the mounts");
            None
        }
    }
}
