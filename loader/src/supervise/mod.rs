//! A parent that keeps its children running.
//!
//! The children are this very program with other arguments. Each gets one end of a socket pair as its standard input;
//! the other end stays here. A child that dies is started again, at once at first, then with growing delay. When this
//! process is told to end it tells the children to end, the last started first, so that each can hand over what it
//! holds to those before it. When this process dies without a word, the kernel tells the children ([`child`]).
//!
//! Invariant: a child is told apart by its pidfd, never by its pid alone. Everything happens on the thread that calls
//! [`run`]; children die with that thread, so it has to be one that lives as long as the process.

pub mod child;
mod policy;
mod program;

pub use policy::{Backoff, Verdict};

use crate::channel;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a child may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(10);
/// Signals this close together are one: `timeout` and some shells send theirs to a process and to its group.
const TOGETHER: Duration = Duration::from_millis(500);
/// How long this waits for anything at most, before it looks around.
const LOOK: Duration = Duration::from_secs(60);

/// What is told of a child.
pub trait Watcher {
    /// It was started; `socket` is the other end of its standard input.
    fn started(&mut self, name: &str, pid: u32, socket: OwnedFd);
    /// It ended.
    fn ended(&mut self, name: &str, pid: u32, status: ExitStatus);
    /// Whether one that failed is started again; if not, everything ends with it.
    fn is_needed(&self, _name: &str) -> bool {
        true
    }
}

/// A child to keep running.
#[derive(Debug, Clone)]
pub struct ChildSpec {
    /// Its name, for messages.
    pub name: &'static str,
    /// Arguments after the program.
    pub arguments: Vec<OsString>,
}

/// Why the supervisor came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// A signal asked for it.
    Signal,
    /// This child ended as it should (exit status 0) or is not needed again, and the others were told to.
    Child(&'static str),
}

/// Why children cannot be kept running.
#[derive(Debug, thiserror::Error)]
pub enum SuperviseError {
    /// The machine refuses something that every start needs.
    #[error("{step}: {source}")]
    System {
        /// What was tried.
        step: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended with an error right after its first start; what it printed says why.
    #[error("{name} cannot start ({status}); its message above says why")]
    CannotStart {
        /// The child.
        name: &'static str,
        /// How it ended.
        status: ExitStatus,
    },
}

/// A child that runs.
#[derive(Debug)]
struct Running {
    child: Child,
    pidfd: OwnedFd,
    since: Instant,
}

#[derive(Debug)]
struct Slot {
    spec: ChildSpec,
    running: Option<Running>,
    backoff: Backoff,
    /// When to start it again.
    due: Instant,
}

/// Starts the children in this order and keeps them running until SIGTERM, SIGINT or SIGHUP comes, or one of them ends
/// by itself.
///
/// # Errors
/// When a child cannot be started at all. The others are told to end before.
pub fn run(children: Vec<ChildSpec>, watcher: &mut dyn Watcher) -> Result<Ended, SuperviseError> {
    let signals = signals()?;
    let now = Instant::now();
    let mut slots: Vec<Slot> = children
        .into_iter()
        .map(|spec| Slot { spec, running: None, backoff: Backoff::default(), due: now })
        .collect();
    let result = keep_running(&mut slots, &signals, watcher);
    for slot in slots.iter_mut().rev() {
        end(slot, &signals, watcher);
    }
    result
}

fn keep_running(
    slots: &mut [Slot],
    signals: &UnixStream,
    watcher: &mut dyn Watcher,
) -> Result<Ended, SuperviseError> {
    loop {
        let now = Instant::now();
        for slot in slots.iter_mut() {
            if slot.running.is_none() && slot.due <= now {
                slot.running = Some(start(&slot.spec, watcher)?);
            }
        }
        let due = slots.iter().filter(|slot| slot.running.is_none()).map(|slot| slot.due).min();
        let wait = due.map_or(LOOK, |due| due.saturating_duration_since(now));
        if wait_for_news(slots, signals, wait)? {
            return Ok(Ended::Signal);
        }
        for slot in slots.iter_mut() {
            let Some(status) =
                slot.running.as_mut().and_then(|running| running.child.try_wait().ok().flatten())
            else {
                continue;
            };
            let Some(running) = slot.running.take() else { continue };
            watcher.ended(slot.spec.name, running.child.id(), status);
            match slot.backoff.ended(running.since.elapsed(), status) {
                Verdict::Done => return Ok(Ended::Child(slot.spec.name)),
                Verdict::CannotStart => {
                    return Err(SuperviseError::CannotStart { name: slot.spec.name, status });
                }
                Verdict::Again(_) if !watcher.is_needed(slot.spec.name) => {
                    return Ok(Ended::Child(slot.spec.name));
                }
                Verdict::Again(delay) => {
                    tracing::warn!(child = slot.spec.name, %status, ?delay, "a child died; it is started again");
                    slot.due = Instant::now() + delay;
                }
            }
        }
    }
}

fn start(spec: &ChildSpec, watcher: &mut dyn Watcher) -> Result<Running, SuperviseError> {
    let system = |step| move |source| SuperviseError::System { step, source };
    let (ours, theirs) = channel::pair().map_err(|error| system("making a socket pair")(error.into()))?;
    let mut command = program::own().map_err(system("finding the own program"))?;
    command.args(&spec.arguments).stdin(Stdio::from(theirs));
    // In a group of its own, so that a key on the terminal reaches it through its parent only, and once.
    command.process_group(0);
    let mut child = command.spawn().map_err(system("starting a child"))?;
    // The child was not waited for, so its pid is still its own.
    let pidfd = match pidfd_open(Pid::from_child(&child), PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(error) => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(system("watching a child (pidfd_open came with Linux 5.3)")(error.into()));
        }
    };
    watcher.started(spec.name, child.id(), ours);
    Ok(Running { child, pidfd, since: Instant::now() })
}

/// Waits until a child ended or a signal came; `true` for a signal.
fn wait_for_news(slots: &[Slot], signals: &UnixStream, wait: Duration) -> Result<bool, SuperviseError> {
    let mut polled = vec![PollFd::new(signals, PollFlags::IN)];
    let running = slots.iter().filter_map(|slot| slot.running.as_ref());
    polled.extend(running.map(|running| PollFd::new(&running.pidfd, PollFlags::IN)));
    let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: i64::from(wait.subsec_nanos()) };
    match rustix::event::poll(&mut polled, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => Ok(polled[0].revents().contains(PollFlags::IN)),
        Err(error) => Err(SuperviseError::System { step: "waiting for the children", source: error.into() }),
    }
}

/// Tells a child to end, and ends it when it does not within the grace period or a second signal comes.
fn end(slot: &mut Slot, signals: &UnixStream, watcher: &mut dyn Watcher) {
    let Some(mut running) = slot.running.take() else { return };
    let begun = Instant::now();
    let deadline = begun + GRACE;
    // It fails only where the child ended already.
    let _ = pidfd_send_signal(&running.pidfd, Signal::TERM);
    drain(signals);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut polled = [PollFd::new(&running.pidfd, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        let wait = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        let result = rustix::event::poll(&mut polled, Some(&wait));
        if polled[0].revents().contains(PollFlags::IN) {
            break;
        }
        let mut impatient = polled[1].revents().contains(PollFlags::IN);
        if impatient && begun.elapsed() < TOGETHER {
            drain(signals);
            impatient = false;
        }
        if impatient || left.is_zero() || result.is_err_and(|error| error != Errno::INTR) {
            tracing::warn!(child = slot.spec.name, "it does not end; it is killed");
            let _ = pidfd_send_signal(&running.pidfd, Signal::KILL);
            break;
        }
    }
    if let Ok(status) = running.child.wait() {
        watcher.ended(slot.spec.name, running.child.id(), status);
    }
}

/// A stream that becomes readable when a signal says that this process should end.
fn signals() -> Result<UnixStream, SuperviseError> {
    let system = |source| SuperviseError::System { step: "taking signals", source };
    let (read, write) = UnixStream::pair().map_err(system)?;
    read.set_nonblocking(true).map_err(system)?;
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let write = write.try_clone().map_err(system)?;
        signal_hook::low_level::pipe::register(signal.as_raw(), write).map_err(system)?;
    }
    Ok(read)
}

fn drain(signals: &UnixStream) {
    let mut bytes = [0; 64];
    while rustix::io::read(signals.as_fd(), &mut bytes).is_ok_and(|count| count > 0) {}
}
