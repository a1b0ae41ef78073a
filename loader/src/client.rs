//! The agent's end: asks, and waits for the answer.
//!
//! Any number of threads may ask at once; one thread of its own receives and hands each answer to who asked. A question
//! that hangs (a file server that does not answer) costs only the one who asked, and no longer than the timeout. When
//! the loader is gone every question fails with [`ClientError::LoaderGone`], at once and for ever: there is no way back
//! but to start the agent anew, which is what a loader does.

use crate::channel;
use crate::containers::{ContainerId, ContainerNames, NotTold};
use crate::process::{Descriptor, Failure, FileStat, Link, Page, ProcFile, ProcessId};
use crate::protocol::{Answer, Hello, KernelCounters, ProgramStatus, Request, VERSION};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::Shutdown;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How long an answer may take.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// Pages of one list; more are not asked for.
const PAGES_MAX: usize = 4096;

/// Why a question to the loader has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// It closed the socket or died.
    #[error("the loader is gone")]
    LoaderGone,
    /// It did not answer in time; perhaps a file server does not answer it.
    #[error("the loader did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It answered, and refused.
    #[error(transparent)]
    Refused(#[from] Failure),
    /// The kernel programs refused.
    #[error("the kernel programs refused: {0}")]
    Kernel(String),
    /// No container runtime told what was asked.
    #[error(transparent)]
    NotTold(#[from] NotTold),
    /// It answered something else than what was asked.
    #[error("the loader gave an answer to another question; is it of another version?")]
    Confused,
    /// It speaks another protocol.
    #[error("the loader speaks version {theirs} of the protocol, this agent {VERSION}; restart both")]
    Version {
        /// Its version.
        theirs: u32,
    },
    /// The socket could not be used.
    #[error("using the socket of the loader: {0}")]
    Socket(Errno),
}

type Reply = (Answer, Option<OwnedFd>);

/// Who waits for which answer; `None` once the loader is gone.
type Waiting = Mutex<Option<HashMap<u32, SyncSender<Reply>>>>;

/// A connection to the loader.
#[derive(Debug)]
pub struct Client {
    socket: Arc<OwnedFd>,
    waiting: Arc<Waiting>,
    next: AtomicU32,
    timeout: Duration,
}

// === impl Client ===

impl Client {
    /// Takes one end of a socket whose other end a loader serves.
    ///
    /// # Errors
    /// When the descriptor is no such socket or the receiving thread cannot be started.
    pub fn new(socket: OwnedFd) -> Result<Self, ClientError> {
        Self::with_timeout(socket, TIMEOUT)
    }

    /// As [`Client::new`], with another limit of patience.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn with_timeout(socket: OwnedFd, timeout: Duration) -> Result<Self, ClientError> {
        use rustix::net::{SocketType, sockopt};
        if sockopt::socket_type(&socket).map_err(ClientError::Socket)? != SocketType::SEQPACKET {
            return Err(ClientError::Socket(Errno::PROTOTYPE));
        }
        channel::prepare(&socket).map_err(ClientError::Socket)?;
        let socket = Arc::new(socket);
        let waiting: Arc<Waiting> = Arc::new(Mutex::new(Some(HashMap::new())));
        let (from, to) = (Arc::clone(&socket), Arc::clone(&waiting));
        std::thread::Builder::new()
            .name("loader-answers".into())
            .spawn(move || receive(&from, &to))
            .map_err(|error| ClientError::Socket(Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))?;
        Ok(Self { socket, waiting, next: AtomicU32::new(1), timeout })
    }

    /// Takes standard input, which is where a supervisor puts the socket. `None` when standard input is something else.
    pub fn from_stdin() -> Option<Self> {
        let socket = rustix::io::fcntl_dupfd_cloexec(std::io::stdin(), 3).ok()?;
        Self::new(socket).ok()
    }

    /// Who is the loader; and the ring, where kernel programs run.
    ///
    /// # Errors
    /// [`ClientError::Version`] for a loader of another version.
    pub fn hello(&self) -> Result<(Hello, Option<OwnedFd>), ClientError> {
        match self.ask(&Request::Hello { version: VERSION })? {
            (Answer::Hello(hello), _) if hello.version != VERSION => {
                Err(ClientError::Version { theirs: hello.version })
            }
            (Answer::Hello(hello), ring) => Ok((hello, ring)),
            _ => Err(ClientError::Confused),
        }
    }

    /// Follow a process and its children from now on. `flags` as the kernel programs define them.
    ///
    /// # Errors
    /// [`Failure::Gone`] when the pid is another process's now.
    pub fn watch(&self, process: ProcessId, flags: u32) -> Result<(), ClientError> {
        self.done(&Request::Watch { process, flags })
    }

    /// Follow a process no longer.
    ///
    /// # Errors
    /// When the kernel programs refuse.
    pub fn unwatch(&self, process: ProcessId) -> Result<(), ClientError> {
        self.done(&Request::Unwatch { process })
    }

    /// The processes that were named to [`Client::watch`], also by an agent before this one.
    ///
    /// # Errors
    /// When the loader does not answer.
    pub fn watched(&self) -> Result<Vec<ProcessId>, ClientError> {
        self.pages(0, |from| Request::Watched { after: from }, processes)
    }

    /// What the kernel programs counted.
    ///
    /// # Errors
    /// When the loader does not answer.
    pub fn counters(&self) -> Result<KernelCounters, ClientError> {
        match self.ask(&Request::Counters)? {
            (Answer::Counters(counters), _) => Ok(counters),
            _ => Err(ClientError::Confused),
        }
    }

    /// The kernel programs.
    ///
    /// # Errors
    /// When the loader does not answer.
    pub fn programs(&self) -> Result<Vec<ProgramStatus>, ClientError> {
        self.pages(
            0,
            |from| Request::Programs { from },
            |answer| if let Answer::Programs(page) = answer { Some(page) } else { None },
        )
    }

    /// The processes of the machine.
    ///
    /// # Errors
    /// When `/proc` cannot be listed.
    pub fn processes(&self) -> Result<Vec<ProcessId>, ClientError> {
        self.pages(0, |from| Request::Processes { after: from }, processes)
    }

    /// Which process has a pid.
    ///
    /// # Errors
    /// [`Failure::Gone`] when none has it.
    pub fn identify(&self, pid: u32) -> Result<ProcessId, ClientError> {
        match self.ask(&Request::Identify { pid })? {
            (Answer::Identity(process), _) => Ok(process),
            _ => Err(ClientError::Confused),
        }
    }

    /// Opens a file of `/proc/PID`.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::file`].
    pub fn proc_file(&self, process: ProcessId, file: ProcFile) -> Result<OwnedFd, ClientError> {
        self.descriptor(&Request::ProcFile { process, file })
    }

    /// Reads a link of `/proc/PID`.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::link`].
    pub fn link(&self, process: ProcessId, link: Link) -> Result<Vec<u8>, ClientError> {
        match self.ask(&Request::Link { process, link })? {
            (Answer::Target(target), _) => Ok(target),
            _ => Err(ClientError::Confused),
        }
    }

    /// One page of the descriptors of a process, from a number on; at most `most`, or as many as fit for 0.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::descriptors`].
    pub fn descriptors(
        &self,
        process: ProcessId,
        from: u32,
        most: u32,
    ) -> Result<Page<Descriptor>, ClientError> {
        match self.ask(&Request::Descriptors { process, from, most })? {
            (Answer::Descriptors(page), _) => Ok(page),
            _ => Err(ClientError::Confused),
        }
    }

    /// Opens a regular file for reading by the path that the process would use.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::open_path`].
    pub fn open_path(&self, process: ProcessId, path: &[u8]) -> Result<(OwnedFd, FileStat), ClientError> {
        self.file(&Request::OpenPath { process, path: path.to_vec() })
    }

    /// Opens the regular file behind a descriptor again, for reading.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::open_descriptor`].
    pub fn open_descriptor(&self, process: ProcessId, fd: u32) -> Result<(OwnedFd, FileStat), ClientError> {
        self.file(&Request::OpenDescriptor { process, fd })
    }

    /// Opens a directory for listing by the path that the process would use.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::open_directory`].
    pub fn open_directory(&self, process: ProcessId, path: &[u8]) -> Result<OwnedFd, ClientError> {
        self.descriptor(&Request::OpenDirectory { process, path: path.to_vec() })
    }

    /// What a path of a process names.
    ///
    /// # Errors
    /// As [`crate::inspect::OpenProcess::stat_path`].
    pub fn stat_path(&self, process: ProcessId, path: &[u8], follow: bool) -> Result<FileStat, ClientError> {
        match self.ask(&Request::Stat { process, path: path.to_vec(), follow })? {
            (Answer::Stat(stat), _) => Ok(stat),
            _ => Err(ClientError::Confused),
        }
    }

    /// What the container runtime says of a container.
    ///
    /// # Errors
    /// [`ClientError::NotTold`] with the reason.
    pub fn container(&self, id: &ContainerId) -> Result<ContainerNames, ClientError> {
        match self.ask(&Request::Container { id: id.clone() })? {
            (Answer::Container(names), _) => Ok(names),
            (Answer::NotTold(why), _) => Err(why.into()),
            _ => Err(ClientError::Confused),
        }
    }

    /// Whether the loader is gone.
    pub fn is_gone(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    fn done(&self, request: &Request) -> Result<(), ClientError> {
        match self.ask(request)? {
            (Answer::Done, _) => Ok(()),
            _ => Err(ClientError::Confused),
        }
    }

    fn descriptor(&self, request: &Request) -> Result<OwnedFd, ClientError> {
        match self.ask(request)? {
            (Answer::Opened, Some(descriptor)) => Ok(descriptor),
            _ => Err(ClientError::Confused),
        }
    }

    fn file(&self, request: &Request) -> Result<(OwnedFd, FileStat), ClientError> {
        match self.ask(request)? {
            (Answer::OpenedFile(stat), Some(file)) => Ok((file, stat)),
            _ => Err(ClientError::Confused),
        }
    }

    fn pages<T>(
        &self,
        from: u32,
        request: impl Fn(u32) -> Request,
        page: impl Fn(Answer) -> Option<Page<T>>,
    ) -> Result<Vec<T>, ClientError> {
        let mut all = Vec::new();
        let mut from = from;
        for _ in 0..PAGES_MAX {
            let Page { mut items, next } = page(self.ask(&request(from))?.0).ok_or(ClientError::Confused)?;
            all.append(&mut items);
            match next.map(u32::try_from) {
                // A list goes forward, or it is no list.
                Some(Ok(next)) if next > from => from = next,
                Some(_) => return Err(ClientError::Confused),
                None => return Ok(all),
            }
        }
        Ok(all)
    }

    fn ask(&self, request: &Request) -> Result<Reply, ClientError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, waits) = sync_channel(1);
        self.waiting().as_mut().ok_or(ClientError::LoaderGone)?.insert(number, answer);
        if let Err(error) = channel::send(&self.socket, &request.encode(number), None) {
            self.forget(number);
            return Err(match error {
                Errno::PIPE | Errno::CONNRESET => ClientError::LoaderGone,
                Errno::AGAIN => ClientError::Timeout(self.timeout),
                other => ClientError::Socket(other),
            });
        }
        match waits.recv_timeout(self.timeout) {
            Ok((Answer::Failed(failure), _)) => Err(ClientError::Refused(failure)),
            Ok((Answer::KernelFailed(reason), _)) => Err(ClientError::Kernel(reason)),
            Ok(reply) => Ok(reply),
            Err(RecvTimeoutError::Disconnected) => Err(ClientError::LoaderGone),
            Err(RecvTimeoutError::Timeout) => {
                self.forget(number);
                Err(ClientError::Timeout(self.timeout))
            }
        }
    }

    fn forget(&self, number: u32) {
        if let Some(waiting) = self.waiting().as_mut() {
            waiting.remove(&number);
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, Option<HashMap<u32, SyncSender<Reply>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Wakes the receiving thread, which holds the socket too.
        if let Err(error) = rustix::net::shutdown(&self.socket, Shutdown::Both) {
            tracing::debug!(%error, "closing the socket of the loader");
        }
    }
}

/// Hands answers to who asked, until the loader is gone. An answer that nobody waits for any more is dropped, and its
/// descriptor closed.
fn receive(socket: &OwnedFd, waiting: &Waiting) {
    let lock = || waiting.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        match channel::receive(socket, true) {
            Ok(Some(packet)) => match Answer::decode(&packet.bytes) {
                Ok((number, answer)) => {
                    let asker = lock().as_mut().and_then(|waiting| waiting.remove(&number));
                    if asker.is_none_or(|asker| asker.try_send((answer, packet.descriptor)).is_err()) {
                        tracing::debug!(number, "an answer came too late");
                    }
                }
                Err(malformed) => {
                    tracing::error!(%malformed, "the loader speaks another protocol");
                    break;
                }
            },
            Ok(None) => break,
            Err(error) => {
                tracing::error!(%error, "receiving from the loader");
                break;
            }
        }
    }
    *lock() = None;
}

fn processes(answer: Answer) -> Option<Page<ProcessId>> {
    if let Answer::Processes(page) = answer { Some(page) } else { None }
}
