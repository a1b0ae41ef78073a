//! The real machine: own rights first, then the loader's.

use super::listening::{self, Listener};
use super::{AccessError, Descriptor, FileStat, Link, Listing, Page, ProcFile, ProcessAccess, ProcessId};
use kvprov_loader::abilities::hides_processes;
use kvprov_loader::client::{Client, ClientError};
use kvprov_loader::containers::{ContainerId, ContainerNames, NotTold};
use kvprov_loader::inspect::{self, OpenProcess};
use kvprov_loader::process::Failure;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Longest text of `/proc` that is read, in bytes.
pub const READ_MAX: usize = 16 * 1024 * 1024;
/// Bytes of one page of descriptors.
const PAGE_BYTES: usize = 48 * 1024;
/// Largest piece of a text of `/proc` that is read by pieces, in bytes: less than a page, which is the most that the kernel
/// makes at once.
const LARGEST_PIECE: usize = 1024;
/// Processes of one page.
const PROCESSES: usize = 4096;

/// What looking into a process of another user takes.
const PTRACE: &str = "the same user as the process, or a loader with CAP_SYS_PTRACE";
/// What opening files of another user takes.
const READ_FILES: &str =
    "the same user as the process, or a loader with CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

/// Looks at the processes of this machine.
#[derive(Debug)]
pub struct Access {
    loader: Option<Arc<Client>>,
    /// `/proc` hides the processes of others from the agent.
    hidden: bool,
    cut: AtomicU64,
    /// The kernel does not tell who listens; it is not asked again.
    tells_no_listeners: AtomicBool,
}

// === impl Access ===

impl Access {
    /// With the loader where there is one. Without, only what the agent's own user may see is seen.
    pub fn new(loader: Option<Arc<Client>>) -> Self {
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        let hidden = hides_processes(&String::from_utf8_lossy(&mounts));
        Self { loader, hidden, cut: AtomicU64::new(0), tells_no_listeners: AtomicBool::new(false) }
    }

    /// How often a text of `/proc` was longer than [`READ_MAX`].
    pub fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Whether the loader is there and answers.
    pub fn has_loader(&self) -> bool {
        self.loader.as_ref().is_some_and(|loader| !loader.is_gone())
    }

    /// Tries with own rights, then asks the loader.
    fn either<T>(
        &self,
        what: &'static str,
        needs: &'static str,
        own: impl FnOnce() -> Result<T, Failure>,
        asked: impl FnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, AccessError> {
        let failure = match own() {
            Ok(value) => return Ok(value),
            Err(failure) => failure,
        };
        let refused = failure == Failure::Denied || (failure == Failure::Gone && self.hidden);
        match &self.loader {
            Some(loader) if refused => asked(loader).map_err(|error| asked_error(error, what, needs)),
            _ => Err(own_error(failure, what, needs)),
        }
    }

    fn open(&self, process: ProcessId, file: ProcFile) -> Result<OwnedFd, AccessError> {
        let own = || OpenProcess::open(process)?.file(file);
        self.either(reading(file), PTRACE, own, |loader| loader.proc_file(process, file))
    }

    fn read_all(&self, file: &OwnedFd) -> Result<Vec<u8>, AccessError> {
        let (text, complete) = inspect::read_at_most(file, READ_MAX).map_err(unread)?;
        if !complete {
            self.cut.fetch_add(1, Ordering::Relaxed);
        }
        Ok(text)
    }
}

impl ProcessAccess for Access {
    fn pids(&self) -> Result<Vec<ProcessId>, AccessError> {
        let what = "list the processes";
        if let (true, Some(loader)) = (self.hidden, &self.loader) {
            return loader.processes().map_err(|error| asked_error(error, what, PTRACE));
        }
        let mut all = Vec::new();
        let mut after = Some(0);
        while let Some(from) = after {
            let mut page =
                inspect::processes(from, PROCESSES).map_err(|failure| own_error(failure, what, PTRACE))?;
            all.append(&mut page.items);
            after = page.next.and_then(|next| u32::try_from(next).ok());
        }
        Ok(all)
    }

    fn identify(&self, pid: u32) -> Result<ProcessId, AccessError> {
        let own = || inspect::identify(pid);
        self.either("see the process", PTRACE, own, |loader| loader.identify(pid))
    }

    fn read(&self, process: ProcessId, file: ProcFile) -> Result<Vec<u8>, AccessError> {
        self.read_all(&self.open(process, file)?)
    }

    fn read_until(
        &self,
        process: ProcessId,
        file: ProcFile,
        piece: usize,
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), AccessError> {
        let file = self.open(process, file)?;
        let mut bytes = vec![0; piece.clamp(1, LARGEST_PIECE)];
        let mut read = 0;
        while read < READ_MAX {
            let count = match rustix::io::read(&file, &mut bytes) {
                Err(Errno::INTR) => continue,
                other => other.map_err(unread)?,
            };
            read += count;
            // A file gives less than was asked for at its end alone. To be told so once more, the kernel would look
            // through all its tables again.
            if take(&bytes[..count]) || count < bytes.len() {
                return Ok(());
            }
        }
        self.cut.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn own_listeners(&self, port: u16) -> Option<Vec<Listener>> {
        if self.tells_no_listeners.load(Ordering::Relaxed) {
            return None;
        }
        let asked = listening::on(port);
        if let Err(error) = &asked
            && !listening::is_for_now(*error)
        {
            self.tells_no_listeners.store(true, Ordering::Relaxed);
        }
        asked.ok()
    }

    fn container(&self, id: &ContainerId) -> Result<ContainerNames, AccessError> {
        let what = "ask the container runtime";
        let Some(loader) = &self.loader else {
            return Err(AccessError::Refused {
                what,
                needs: "a loader, which `kvprov up` and `kvprov agent` start",
            });
        };
        loader.container(id).map_err(|error| match error {
            ClientError::NotTold(NotTold::NotNow(reason)) => AccessError::NotNow(reason),
            other => asked_error(other, what, "a loader that may"),
        })
    }

    fn link(&self, process: ProcessId, link: Link) -> Result<Vec<u8>, AccessError> {
        let own = || OpenProcess::open(process)?.link(link);
        self.either("see its program and directories", PTRACE, own, |loader| loader.link(process, link))
    }

    fn descriptors(&self, process: ProcessId, from: u32, most: u32) -> Result<Page<Descriptor>, AccessError> {
        let count = if most == 0 { usize::MAX } else { most as usize };
        let own = || OpenProcess::open(process)?.descriptors(from, count, PAGE_BYTES);
        let asked = |loader: &Client| loader.descriptors(process, from, most);
        self.either("see its open files", PTRACE, own, asked)
    }

    fn open_file_of(&self, process: ProcessId, path: &[u8]) -> Result<(File, FileStat), AccessError> {
        let own = || OpenProcess::open(process)?.open_path(path);
        let asked = |loader: &Client| loader.open_path(process, path);
        self.either("open the file", READ_FILES, own, asked).map(as_file)
    }

    fn open_fd_of(&self, process: ProcessId, fd: u32) -> Result<(File, FileStat), AccessError> {
        let own = || OpenProcess::open(process)?.open_descriptor(fd);
        let asked = |loader: &Client| loader.open_descriptor(process, fd);
        self.either("open the file of its descriptor", READ_FILES, own, asked).map(as_file)
    }

    fn list_dir_of(&self, process: ProcessId, directory: &[u8]) -> Result<Listing, AccessError> {
        let own = || OpenProcess::open(process)?.open_directory(directory);
        let asked = |loader: &Client| loader.open_directory(process, directory);
        let directory = self.either("list the directory", READ_FILES, own, asked)?;
        inspect::list(directory)
            .map_err(|error| AccessError::Failed(format!("listing the directory: {error}")))
    }

    fn stat_path_of(&self, process: ProcessId, path: &[u8], follow: bool) -> Result<FileStat, AccessError> {
        let own = || OpenProcess::open(process)?.stat_path(path, follow);
        let asked = |loader: &Client| loader.stat_path(process, path, follow);
        self.either("look at the path", READ_FILES, own, asked)
    }
}

fn unread(error: Errno) -> AccessError {
    match error {
        Errno::SRCH => AccessError::Gone,
        error => AccessError::Failed(format!("reading it: {error}")),
    }
}

fn as_file((file, stat): (OwnedFd, FileStat)) -> (File, FileStat) {
    (File::from(file), stat)
}

fn asked_error(error: ClientError, what: &'static str, needs: &'static str) -> AccessError {
    match error {
        ClientError::Refused(failure) => own_error(failure, what, needs),
        error @ (ClientError::LoaderGone | ClientError::Timeout(_)) => AccessError::NotNow(error.to_string()),
        error => AccessError::Failed(error.to_string()),
    }
}

fn own_error(failure: Failure, what: &'static str, needs: &'static str) -> AccessError {
    match failure {
        Failure::Gone => AccessError::Gone,
        Failure::NotFound => AccessError::NotFound,
        Failure::NotRegular => AccessError::NotRegular,
        Failure::Denied => AccessError::Refused { what, needs },
        Failure::Busy => AccessError::NotNow(failure.to_string()),
        Failure::Unsupported | Failure::Malformed | Failure::NoKernel | Failure::Os(_) => {
            AccessError::Failed(format!("cannot {what}: {failure}"))
        }
    }
}

fn reading(file: ProcFile) -> &'static str {
    match file {
        ProcFile::Environ => "read its environment",
        ProcFile::Cmdline => "read its arguments",
        ProcFile::Maps => "read its memory map",
        ProcFile::Mountinfo => "read its mounts",
        ProcFile::Cgroup => "read its control groups",
        ProcFile::Status => "read its status",
        ProcFile::Stat => "read its times",
        ProcFile::Comm => "read its name",
        ProcFile::Tcp | ProcFile::Tcp6 => "read its sockets",
        ProcFile::FibTrie | ProcFile::IfInet6 => "read its network addresses",
    }
}
