//! The kernel's ring: records in, observations out; the room in the ring is given back once they are with the queue.

use super::adapt::NodeLookup;
use super::alive::Progress;
use super::discovery::ProcessNews;
use super::hub::Hub;
use super::logs::LogCommand;
use super::options::Options;
use crate::access::Access;
use crate::discover::NodeIdentity;
use crate::kernel::live::{LiveKernel, LiveOptions, Notice, Now};
use kvprov_agent_common::ring::Ring;
use kvprov_loader::client::Client;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel};
use std::time::{Duration, Instant};

/// The ring is looked at so often although nothing woke this thread: the programs wake it only for much.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Records between two commits.
const AT_ONCE: usize = 4096;
const TICK_EVERY: Duration = Duration::from_millis(250);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum KernelCommand {
    /// Follow a process. `started`: CLOCK_BOOTTIME in nanoseconds. Says on `done` that its records will be read.
    Process { worker: WorkerId, pid: u32, started: u64, done: SyncSender<()> },
    /// A worker is gone.
    Gone(WorkerId),
}

/// The thread's state.
pub(crate) struct Kernel {
    live: LiveKernel<'static>,
    ring: Option<Ring>,
    hub: Arc<Hub>,
    commands: Receiver<KernelCommand>,
    listeners: Option<Listeners>,
    progress: Progress,
}

/// Who wants to hear of processes and output.
struct Listeners {
    discovery: SyncSender<ProcessNews>,
    logs: Sender<LogCommand>,
}

// === impl Kernel ===

impl Kernel {
    pub(crate) fn new(
        options: &Options,
        node: &NodeIdentity,
        packs: &'static Packs,
        access: &Arc<Access>,
        loader: Option<&Arc<Client>>,
        hub: &Arc<Hub>,
        progress: Progress,
    ) -> (Self, Sender<KernelCommand>) {
        let ring = loader.filter(|_| options.sources.kernel).and_then(|loader| open_ring(loader));
        let name = ring.as_ref().map_or_else(|| "none".to_owned(), |_| node.boot_id.clone());
        let live = LiveKernel::new(
            LiveOptions { node: node.node.clone(), ring: name },
            packs,
            Box::new(NodeLookup(Arc::clone(access))),
            Now::read(),
        );
        let (sender, commands) = channel();
        (Self { live, ring, hub: Arc::clone(hub), commands, listeners: None, progress }, sender)
    }

    pub(crate) fn with_listeners(
        mut self,
        discovery: SyncSender<ProcessNews>,
        logs: Sender<LogCommand>,
    ) -> Self {
        self.listeners = Some(Listeners { discovery, logs });
        self
    }

    pub(crate) fn run(mut self, end: &AtomicBool) {
        let mut observations = Vec::new();
        let mut ticked = Instant::now();
        while !end.load(Ordering::Relaxed) {
            let begun = Now::read();
            self.obey(&mut observations);
            let all = self.drain(&mut observations);
            if ticked.elapsed() >= TICK_EVERY {
                ticked = Instant::now();
                self.live.tick(begun, &mut |observation| observations.push(observation));
                self.hand_over(&mut observations, end);
            }
            if all {
                self.progress.reached(WallTime(begun.wall));
                self.wait();
            }
        }
    }

    fn obey(&mut self, observations: &mut Vec<Observation>) {
        while let Ok(command) = self.commands.try_recv() {
            match command {
                KernelCommand::Process { worker, pid, started, done } => {
                    self.live.add_process(&worker, pid, started);
                    // Who asked may have lost patience.
                    let _ = done.try_send(());
                }
                KernelCommand::Gone(worker) => {
                    self.live.remove_worker(&worker, &mut |observation| observations.push(observation));
                }
            }
        }
    }

    /// Takes what the ring holds; true when that was all.
    fn drain(&mut self, observations: &mut Vec<Observation>) -> bool {
        let Self { live, ring: Some(ring), listeners, .. } = self else {
            return self.hand_over(observations, &AtomicBool::new(false));
        };
        let taken = ring.peek(AT_ONCE, |position, bytes| {
            live.event(position, bytes, &mut |notice| {
                if let Some(listeners) = listeners {
                    listeners.hear(notice);
                }
            });
        });
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(%error, "the ring is unreadable; kernel records end here");
                self.ring = None;
                return true;
            }
        };
        let upto = ring.position();
        live.commit(upto, &mut |observation| observations.push(observation));
        if taken > 0 && self.hand_over(observations, &AtomicBool::new(false))
            && let Some(ring) = &mut self.ring
        {
            ring.release();
        }
        taken < AT_ONCE
    }

    /// Waits for the queue: the ring is the buffer, and what it has no room for is counted there.
    fn hand_over(&self, observations: &mut Vec<Observation>, end: &AtomicBool) -> bool {
        while !self.hub.take(observations) {
            if end.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        observations.clear();
        true
    }

    fn wait(&self) {
        let Some(ring) = &self.ring else {
            std::thread::sleep(LOOK_EVERY * 10);
            return;
        };
        let mut waits = [PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
        // Interrupted or not: the ring is looked at next.
        let _ = poll(&mut waits, Some(&patience));
    }
}

impl Listeners {
    fn hear(&self, notice: Notice<'_>) {
        let news = match notice {
            Notice::Exec(event, _) => ProcessNews::Started(event.pid),
            Notice::Fork(event, _) => ProcessNews::Started(event.pid),
            Notice::Exit(event, code, worker) => {
                let _ = self.logs.send(LogCommand::ProcessEnded { worker: worker.clone(), pid: event.pid });
                ProcessNews::Ended { pid: event.pid, code }
            }
            Notice::Output(piece, worker) => {
                let _ = self.logs.send(LogCommand::output(&piece, worker));
                return;
            }
            Notice::Model(..) => return,
            Notice::BlindSpot { pid, way, worker } => {
                ProcessNews::BlindSpot { pid, way, worker: worker.clone() }
            }
        };
        // A full channel is no loss: the next look at all processes finds what was not heard.
        if let Err(TrySendError::Full(_)) = self.discovery.try_send(news) {
            tracing::debug!("process news come faster than discovery reads them");
        }
    }
}

fn open_ring(loader: &Client) -> Option<Ring> {
    let (hello, descriptor) = match loader.hello() {
        Ok(hello) => hello,
        Err(error) => {
            tracing::error!(%error, "the loader does not answer; system calls are not seen");
            return None;
        }
    };
    for lost in &hello.lost {
        tracing::warn!("not seen: {lost}");
    }
    match Ring::new(descriptor?, u64::from(hello.ring_bytes)) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::error!(%error, "the ring cannot be mapped; system calls are not seen");
            None
        }
    }
}
