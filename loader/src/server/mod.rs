//! The loader's end: answers the questions of one agent after the other.
//!
//! It answers what is on the list of [`Request`] and refuses the rest. It writes nothing, opens nothing for writing,
//! sends nothing elsewhere but one question to the container runtime, and keeps no more than the set of watched
//! processes. What the agent can gain through it is reading: the loader does not judge which process an agent may look at.
//!
//! A file server that does not answer would stop whoever asks it. Questions on files therefore go to a few helper
//! threads; when all of them hang, the answer is [`Failure::Busy`], and everything else goes on. A container runtime has
//! a thread of its own, so that one which hangs takes nothing from files.

#[cfg(feature = "attach")]
mod attached;
mod helpers;
mod kernel;

pub use kernel::{KernelPrograms, NoKernel};

use crate::channel::{self, Packet};
use crate::containers::Runtimes;
use crate::inspect::{self, OpenProcess};
use crate::process::{Failure, PATH_MAX, Page, ProcessId};
use crate::protocol::{Answer, Hello, MESSAGE_MAX, PAGE_BYTES, ProgramStatus, Request, VERSION};
use helpers::Helpers;
use kernel::Kernel;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a process in a page.
const PROCESS_BYTES: usize = 12;
/// Bytes of a program in a page, besides its texts.
const PROGRAM_BYTES: usize = 32;
/// Threads that ask about files.
const FILE_HELPERS: usize = 4;
/// Threads that ask container runtimes: these have other work, and are asked one question at a time.
const RUNTIME_HELPERS: usize = 1;
/// Reasons in a greeting.
const LOST_MAX: usize = 40;

/// What an answer is made of.
type Reply = (Answer, Option<OwnedFd>);

/// Answers agents.
#[derive(Debug)]
pub struct Server {
    kernel: Mutex<Kernel>,
    helpers: Helpers,
    runtimes: Arc<Runtimes>,
    runtime_helpers: Helpers,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// Requests that were answered.
    pub answered: u64,
    /// Requests that were malformed.
    pub malformed: u64,
}

// === impl Server ===

impl Server {
    /// A server over the programs that run. Threads inherit capabilities: restrict them before.
    ///
    /// # Errors
    /// When the helper threads cannot be started.
    pub fn new(programs: Box<dyn KernelPrograms>) -> std::io::Result<Self> {
        Ok(Self {
            kernel: Mutex::new(Kernel::new(programs)),
            helpers: Helpers::start("files", FILE_HELPERS)?,
            runtimes: Arc::new(Runtimes::off("container runtimes are not asked")),
            runtime_helpers: Helpers::start("runtime", RUNTIME_HELPERS)?,
        })
    }

    /// Asks these container runtimes; without it, none.
    #[must_use]
    pub fn asking(self, runtimes: Runtimes) -> Self {
        Self { runtimes: Arc::new(runtimes), ..self }
    }

    /// Answers until the agent closes its end, which it also does by dying.
    ///
    /// # Errors
    /// When the socket breaks, or the agent reads no answers for ten seconds.
    pub fn serve(&self, socket: OwnedFd) -> Result<Served, Errno> {
        channel::prepare(&socket)?;
        let socket = Arc::new(socket);
        let mut served = Served::default();
        while let Some(packet) = channel::receive(&socket, false)? {
            match Request::decode(&packet.bytes) {
                (Some(number), Ok(request)) if !packet.cut => {
                    served.answered += 1;
                    match self.answer(request) {
                        Work::Now(reply) => send(&socket, number, reply)?,
                        Work::Later(by, work) => {
                            let to = Arc::clone(&socket);
                            let helpers = match by {
                                By::Files => &self.helpers,
                                By::Runtime => &self.runtime_helpers,
                            };
                            let sent = helpers.run(Box::new(move || {
                                if let Err(error) = send(&to, number, work()) {
                                    tracing::debug!(%error, "the agent is gone before its answer");
                                }
                            }));
                            if !sent {
                                send(&socket, number, (Answer::Failed(Failure::Busy), None))?;
                            }
                        }
                    }
                }
                (number, _) => {
                    served.malformed += 1;
                    note_malformed(&packet);
                    send(&socket, number.unwrap_or(0), (Answer::Failed(Failure::Malformed), None))?;
                }
            }
        }
        Ok(served)
    }

    /// Never watch a child of this process. To be called when it was started.
    ///
    /// # Errors
    /// A reason in words; the child may end up watching what it does itself.
    pub fn exclude(&self, pid: u32) -> Result<(), String> {
        self.kernel().exclude(pid)
    }

    /// A child ended: its pid may come again.
    pub fn include(&self, pid: u32) {
        self.kernel().include(pid);
    }

    fn answer(&self, request: Request) -> Work {
        Work::Now(match request {
            Request::Hello { version } => self.hello(version),
            Request::Watch { process, flags } => (self.kernel().watch(process, flags), None),
            Request::Unwatch { process } => (self.kernel().unwatch(process), None),
            Request::Watched { after } => {
                (Answer::Processes(self.kernel().watched(after, PAGE_BYTES / PROCESS_BYTES)), None)
            }
            Request::Counters => (self.kernel().counters(), None),
            Request::Programs { from } => (Answer::Programs(page(self.kernel().programs(), from)), None),
            Request::Identify { pid } => told(inspect::identify(pid).map(Answer::Identity)),
            Request::ProcFile { process, file } => {
                opened(open(process).and_then(|it| it.file(file)).map(|file| (Answer::Opened, file)))
            }
            Request::Link { process, link } => {
                told(open(process).and_then(|it| it.link(link)).map(Answer::Target))
            }
            Request::Processes { after } => {
                return Work::later(move || {
                    told(inspect::processes(after, PAGE_BYTES / PROCESS_BYTES).map(Answer::Processes))
                });
            }
            Request::Descriptors { process, from, most } => {
                let most = if most == 0 { usize::MAX } else { most as usize };
                return Work::later(move || {
                    let page = open(process).and_then(|it| it.descriptors(from, most, PAGE_BYTES));
                    told(page.map(Answer::Descriptors))
                });
            }
            Request::OpenPath { process, path } => {
                return Work::later(move || {
                    let file = open(process).and_then(|it| it.open_path(&path));
                    opened(file.map(|(file, stat)| (Answer::OpenedFile(stat), file)))
                });
            }
            Request::OpenDescriptor { process, fd } => {
                return Work::later(move || {
                    let file = open(process).and_then(|it| it.open_descriptor(fd));
                    opened(file.map(|(file, stat)| (Answer::OpenedFile(stat), file)))
                });
            }
            Request::OpenDirectory { process, path } => {
                return Work::later(move || {
                    let directory = open(process).and_then(|it| it.open_directory(&path));
                    opened(directory.map(|directory| (Answer::Opened, directory)))
                });
            }
            Request::Stat { process, path, follow } => {
                return Work::later(move || {
                    told(open(process).and_then(|it| it.stat_path(&path, follow)).map(Answer::Stat))
                });
            }
            Request::Container { id } => {
                let runtimes = Arc::clone(&self.runtimes);
                return Work::Later(
                    By::Runtime,
                    Box::new(move || match runtimes.ask(&id) {
                        Ok(names) => (Answer::Container(names), None),
                        Err(why) => (Answer::NotTold(why), None),
                    }),
                );
            }
        })
    }

    fn hello(&self, version: u32) -> Reply {
        if version != VERSION {
            tracing::warn!(version, own = VERSION, "an agent of another version asks");
        }
        let kernel = self.kernel();
        let (ring, ring_bytes) = kernel.ring();
        let mut lost = kernel.lost();
        lost.truncate(LOST_MAX);
        let capabilities = rustix::thread::capabilities(None).map_or(0, |sets| sets.effective.bits());
        (Answer::Hello(Hello { version: VERSION, ring_bytes, capabilities, lost }), ring)
    }

    fn kernel(&self) -> std::sync::MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reply, or what a helper has to do for it.
enum Work {
    Now(Reply),
    Later(By, Box<dyn FnOnce() -> Reply + Send>),
}

/// Which helpers do it.
enum By {
    Files,
    Runtime,
}

impl Work {
    fn later(work: impl FnOnce() -> Reply + Send + 'static) -> Self {
        Self::Later(By::Files, Box::new(work))
    }
}

fn open(process: ProcessId) -> Result<OpenProcess, Failure> {
    OpenProcess::open(process)
}

fn told(answer: Result<Answer, Failure>) -> Reply {
    (answer.unwrap_or_else(Answer::Failed), None)
}

fn opened(answer: Result<(Answer, OwnedFd), Failure>) -> Reply {
    match answer {
        Ok((answer, descriptor)) => (answer, Some(descriptor)),
        Err(failure) => (Answer::Failed(failure), None),
    }
}

fn send(socket: &OwnedFd, number: u32, (answer, descriptor): Reply) -> Result<(), Errno> {
    channel::send(socket, &answer.encode(number), descriptor.as_ref().map(AsFd::as_fd))
}

/// The programs from a place in their list on, as many as fit.
fn page(programs: Vec<ProgramStatus>, from: u32) -> Page<ProgramStatus> {
    let mut items = Vec::new();
    let mut used = 0;
    for (place, program) in programs.into_iter().enumerate().skip(from as usize) {
        used += PROGRAM_BYTES
            + program.name.len()
            + program.problem.as_ref().map_or(0, |it| it.reason.len() + it.lost.len());
        if used > PAGE_BYTES && !items.is_empty() {
            return Page { items, next: Some(place as u64) };
        }
        items.push(program);
    }
    Page { items, next: None }
}

fn note_malformed(packet: &Packet) {
    // Only its length: the bytes are the agent's, and whatever it read.
    tracing::warn!(bytes = packet.bytes.len(), cut = packet.cut, "a malformed request was refused");
}

const _: () =
    assert!(PAGE_BYTES + PATH_MAX + 1024 < MESSAGE_MAX, "a page with its last item fits into a message");

#[cfg(test)]
mod tests;
