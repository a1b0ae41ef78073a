//! A machine in memory, for tests: its processes are what the test says.

use super::{
    AccessError, Descriptor, DirEntry, FileKind, FileStat, Link, Listing, Page, ProcFile, ProcessAccess,
    ProcessId,
};
use kvprov_loader::containers::{ContainerId, ContainerNames};
use rustix::fs::MemfdFlags;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Seek, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A machine in memory.
#[derive(Debug, Default)]
pub struct Fake {
    processes: Mutex<BTreeMap<u32, FakeProcess>>,
    containers: Mutex<BTreeMap<ContainerId, Result<ContainerNames, AccessError>>>,
}

/// One of its processes.
#[derive(Debug, Clone)]
pub struct FakeProcess {
    id: ProcessId,
    texts: BTreeMap<&'static str, Vec<u8>>,
    links: BTreeMap<&'static str, Vec<u8>>,
    descriptors: BTreeMap<u32, Descriptor>,
    files: BTreeMap<Vec<u8>, (Vec<u8>, FileStat)>,
    denied: bool,
}

// === impl FakeProcess ===

impl FakeProcess {
    /// A process without anything; `stat` tells its start time and that its parent is 1.
    pub fn new(pid: u32, started: u64) -> Self {
        let stat = format!("{pid} (fake) S 1 {pid} {pid} 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {started} 0 0\n");
        let process = Self {
            id: ProcessId { pid, started },
            texts: BTreeMap::new(),
            links: BTreeMap::new(),
            descriptors: BTreeMap::new(),
            files: BTreeMap::new(),
            denied: false,
        };
        process.text(ProcFile::Stat, stat.into_bytes())
    }

    /// Which process it is.
    pub fn id(&self) -> ProcessId {
        self.id
    }

    /// The text of a file of `/proc/PID`.
    #[must_use]
    pub fn text(mut self, file: ProcFile, text: impl Into<Vec<u8>>) -> Self {
        self.texts.insert(file.name(), text.into());
        self
    }

    /// Its arguments.
    #[must_use]
    pub fn arguments(self, arguments: &[&str]) -> Self {
        let text: String = arguments.iter().flat_map(|argument| [argument, "\0"]).collect();
        self.text(ProcFile::Cmdline, text)
    }

    /// Its environment, entries as `NAME=value`.
    #[must_use]
    pub fn environment(self, entries: &[&str]) -> Self {
        let text: String = entries.iter().flat_map(|entry| [entry, "\0"]).collect();
        self.text(ProcFile::Environ, text)
    }

    /// Where a link leads.
    #[must_use]
    pub fn leads(mut self, link: Link, target: impl Into<Vec<u8>>) -> Self {
        self.links.insert(link.name(), target.into());
        self
    }

    /// A descriptor. One on a path of [`FakeProcess::file`] opens that file.
    #[must_use]
    pub fn descriptor(mut self, descriptor: Descriptor) -> Self {
        self.descriptors.insert(descriptor.fd, descriptor);
        self
    }

    /// A regular file that it can open. Directories are those of its files.
    #[must_use]
    pub fn file(mut self, path: impl Into<Vec<u8>>, content: impl Into<Vec<u8>>) -> Self {
        let content = content.into();
        let stat = FileStat {
            device: 1 << 20,
            inode: 100 + self.files.len() as u64,
            kind: FileKind::Regular,
            permissions: 0o644,
            size: content.len() as u64,
            modified: 0,
            changed: 0,
            mount: 1,
        };
        self.files.insert(path.into(), (content, stat));
        self
    }

    /// As [`FakeProcess::file`], with all that `stat` tells of it but the size.
    #[must_use]
    pub fn file_with(
        mut self,
        path: impl Into<Vec<u8>>,
        content: impl Into<Vec<u8>>,
        stat: FileStat,
    ) -> Self {
        let content = content.into();
        let stat = FileStat { size: content.len() as u64, ..stat };
        self.files.insert(path.into(), (content, stat));
        self
    }

    /// It belongs to another user and there is no loader: only `stat`, `status`, `cgroup`, `cmdline` and `comm` are
    /// readable.
    #[must_use]
    pub fn of_another_user(mut self) -> Self {
        self.denied = true;
        self
    }
}

// === impl Fake ===

impl Fake {
    /// A machine with these processes.
    pub fn new(processes: impl IntoIterator<Item = FakeProcess>) -> Self {
        let fake = Self::default();
        processes.into_iter().for_each(|process| fake.put(process));
        fake
    }

    /// Adds a process, in place of another with its pid.
    pub fn put(&self, process: FakeProcess) {
        self.processes().insert(process.id.pid, process);
    }

    /// What the container runtime says of a container; without it, that it has none.
    pub fn says_of(&self, id: ContainerId, answer: Result<ContainerNames, AccessError>) {
        self.containers.lock().unwrap_or_else(PoisonError::into_inner).insert(id, answer);
    }

    /// Ends a process.
    pub fn end(&self, pid: u32) {
        self.processes().remove(&pid);
    }

    fn processes(&self) -> MutexGuard<'_, BTreeMap<u32, FakeProcess>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        process: ProcessId,
        open: bool,
        look: impl FnOnce(&FakeProcess) -> Result<T, AccessError>,
    ) -> Result<T, AccessError> {
        let processes = self.processes();
        let found =
            processes.get(&process.pid).filter(|found| found.id == process).ok_or(AccessError::Gone)?;
        if found.denied && !open {
            return Err(AccessError::Refused { what: "look at it", needs: "a loader" });
        }
        look(found)
    }
}

impl ProcessAccess for Fake {
    fn pids(&self) -> Result<Vec<ProcessId>, AccessError> {
        Ok(self.processes().values().map(|process| process.id).collect())
    }

    fn identify(&self, pid: u32) -> Result<ProcessId, AccessError> {
        self.processes().get(&pid).map(|process| process.id).ok_or(AccessError::Gone)
    }

    fn read(&self, process: ProcessId, file: ProcFile) -> Result<Vec<u8>, AccessError> {
        use ProcFile::{Cgroup, Cmdline, Comm, Stat, Status};
        let open = matches!(file, Cgroup | Cmdline | Comm | Stat | Status);
        self.with(process, open, |found| found.texts.get(file.name()).cloned().ok_or(AccessError::NotFound))
    }

    fn read_until(
        &self,
        process: ProcessId,
        file: ProcFile,
        piece: usize,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), AccessError> {
        let text = self.read(process, file)?;
        let _ = text.chunks(piece.max(1)).any(take);
        Ok(())
    }

    fn container(&self, id: &ContainerId) -> Result<ContainerNames, AccessError> {
        let containers = self.containers.lock().unwrap_or_else(PoisonError::into_inner);
        containers.get(id).cloned().unwrap_or(Err(AccessError::NotFound))
    }

    fn link(&self, process: ProcessId, link: Link) -> Result<Vec<u8>, AccessError> {
        self.with(process, false, |found| found.links.get(link.name()).cloned().ok_or(AccessError::NotFound))
    }

    fn descriptors(&self, process: ProcessId, from: u32, most: u32) -> Result<Page<Descriptor>, AccessError> {
        let most = if most == 0 { usize::MAX } else { most as usize };
        self.with(process, false, |found| {
            let mut above = found.descriptors.range(from..).map(|(_, descriptor)| descriptor);
            let items = above.by_ref().take(most).cloned().collect();
            Ok(Page { items, next: above.next().map(|descriptor| u64::from(descriptor.fd)) })
        })
    }

    fn open_file_of(&self, process: ProcessId, path: &[u8]) -> Result<(File, FileStat), AccessError> {
        self.with(process, false, |found| {
            let (content, stat) = found.files.get(path).ok_or(AccessError::NotFound)?;
            Ok((in_memory(content)?, *stat))
        })
    }

    fn open_fd_of(&self, process: ProcessId, fd: u32) -> Result<(File, FileStat), AccessError> {
        let target = self.descriptor(process, fd)?.target;
        match self.open_file_of(process, &target) {
            Err(AccessError::NotFound) => Err(AccessError::NotRegular),
            other => other,
        }
    }

    fn list_dir_of(&self, process: ProcessId, directory: &[u8]) -> Result<Listing, AccessError> {
        self.with(process, false, |found| {
            let prefix = [directory.strip_suffix(b"/").unwrap_or(directory), b"/"].concat();
            let mut entries: Vec<DirEntry> = found
                .files
                .iter()
                .filter_map(|(path, (_, stat))| {
                    let rest = path.strip_prefix(prefix.as_slice())?;
                    Some(match rest.iter().position(|byte| *byte == b'/') {
                        None => DirEntry { name: rest.to_vec(), inode: stat.inode, kind: FileKind::Regular },
                        Some(end) => {
                            DirEntry { name: rest[..end].to_vec(), inode: 0, kind: FileKind::Directory }
                        }
                    })
                })
                .collect();
            entries.dedup_by(|later, first| later.name == first.name);
            if entries.is_empty() {
                Err(AccessError::NotFound)
            } else {
                Ok(Listing { entries, complete: true })
            }
        })
    }

    fn stat_path_of(&self, process: ProcessId, path: &[u8], _follow: bool) -> Result<FileStat, AccessError> {
        self.with(process, false, |found| {
            found.files.get(path).map(|(_, stat)| *stat).ok_or(AccessError::NotFound)
        })
    }
}

fn in_memory(content: &[u8]) -> Result<File, AccessError> {
    let failed = |error: std::io::Error| AccessError::Failed(format!("making a file in memory: {error}"));
    let memory =
        rustix::fs::memfd_create("fake", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
    let mut file = File::from(memory);
    file.write_all(content).and_then(|()| file.rewind()).map_err(failed)?;
    Ok(file)
}
