//! The kernel's ring: records in, observations out; the room in the ring is given back once they are with the queue.

use super::adapt::{NodeLookup, NodeOpener};
use super::alive::Progress;
use super::around::Around;
use super::discovery::ProcessNews;
use super::drops::{Dropped, Drops};
use super::hub::Hub;
use super::logs::LogCommand;
use super::settled::{Pieces, Settled};
use crate::discover::NodeIdentity;
use crate::identity::{Identities, IdentityOptions};
use crate::kernel::live::{Journal, LiveKernel, LiveOptions, ModelOpen, Notice, Now};
use kvprov_agent_common::ring::Ring;
use kvprov_loader::client::Client;
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel};
use std::time::{Duration, Instant};

/// The ring is looked at so often although nothing woke this thread: the programs wake it only for much.
const LOOK_EVERY: Duration = Duration::from_millis(60);
/// Commands come in a row, and who gives one waits for it: for a while after one the next is looked for so often.
const LOOK_SOON: Duration = Duration::from_millis(2);
const SOON: Duration = Duration::from_millis(200);
/// Records between two commits.
const AT_ONCE: usize = 4096;
const TICK_EVERY: Duration = Duration::from_millis(250);
/// How long the model files of a worker that is gone are remembered.
const REMEMBERED: Duration = Duration::from_secs(120);
/// Bytes of the journal.
const JOURNAL_BYTES: u64 = 64 << 20;
/// How long discovery may take to know the processes that are there, before what an earlier agent left is read.
const TO_BEGIN: Duration = Duration::from_secs(15);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum KernelCommand {
    /// Follow a process. `started`: CLOCK_BOOTTIME in nanoseconds. Says on `done` that its records will be read.
    Process { worker: WorkerId, pid: u32, started: u64, done: SyncSender<()> },
    /// A worker is gone.
    Gone(WorkerId),
    /// What a worker loaded before anybody watched it, as far as that can be told.
    Loaded { worker: WorkerId, opens: Vec<ModelOpen> },
    /// Every process that was there is known.
    Begin,
}

/// The thread's state.
pub(crate) struct Kernel {
    live: LiveKernel<'static>,
    identities: Option<Identities>,
    journal: PathBuf,
    ring_name: String,
    ring: Option<Ring>,
    drops: Option<Drops>,
    /// Up to here it is known what the kernel had no room for.
    checked: Option<WallTime>,
    begins: bool,
    /// Workers that are gone, and since when.
    departed: VecDeque<(WorkerId, Instant)>,
    hub: Arc<Hub>,
    commands: Receiver<KernelCommand>,
    /// When the last command came.
    commanded: Option<Instant>,
    listeners: Option<Listeners>,
    progress: Progress,
}

/// Who wants to hear of processes and output.
struct Listeners {
    discovery: SyncSender<ProcessNews>,
    logs: Sender<LogCommand>,
    pieces: Pieces,
}

// === impl Kernel ===

impl Kernel {
    pub(crate) fn new(
        around: Around<'_>,
        loader: Option<&Arc<Client>>,
        progress: Progress,
    ) -> (Self, Sender<KernelCommand>) {
        let Around { options, node, packs, access, hub } = around;
        let ring = loader.filter(|_| options.sources.kernel).and_then(|loader| open_ring(loader));
        let ring_name = ring_name(node);
        let mut live = LiveKernel::new(
            LiveOptions { node: node.node.clone(), ring: ring_name.clone() },
            packs,
            Box::new(NodeLookup(Arc::clone(access))),
            Now::read(),
        );
        let tap = Arc::clone(hub);
        if hub.is_recording() {
            live.record_to(Some(Box::new(move |worker, record| tap.record(worker, record))));
        }
        let identity = IdentityOptions {
            node: node.node.clone(),
            ring: ring_name.clone(),
            boot: node.boot_id.clone(),
            cache: Some(around.below("digests")),
            rate: options.hash_bytes_per_second,
            threads: options.hash_threads,
            tensors: options.tensor_digests,
        };
        let identities = Identities::new(identity, Box::new(NodeOpener(Arc::clone(access))))
            .inspect_err(|error| tracing::error!(%error, "model files are not hashed"))
            .ok();
        let (sender, commands) = channel();
        let kernel = Self {
            live,
            identities,
            journal: around.below("journal"),
            drops: loader
                .filter(|_| ring.is_some())
                .map(|loader| Drops::new(Arc::clone(loader), around.below("dropped"), ring_name.clone())),
            checked: None,
            ring_name,
            ring,
            begins: false,
            departed: VecDeque::new(),
            hub: Arc::clone(hub),
            commands,
            commanded: None,
            listeners: None,
            progress,
        };
        (kernel, sender)
    }

    /// Whether there are records at all.
    pub(crate) fn sees(&self) -> bool {
        self.ring.is_some()
    }

    pub(crate) fn with_listeners(
        mut self,
        discovery: SyncSender<ProcessNews>,
        logs: Sender<LogCommand>,
        settled: Settled,
    ) -> Self {
        self.listeners = Some(Listeners { discovery, logs, pieces: Pieces::new(settled) });
        self
    }

    pub(crate) fn run(mut self, end: &AtomicBool) {
        let mut observations = Vec::new();
        self.begin(end, &mut observations);
        let mut ticked = Instant::now();
        while !end.load(Ordering::Relaxed) {
            let begun = Now::read();
            self.obey(&mut observations);
            let all = self.drain(&mut observations, end);
            if ticked.elapsed() >= TICK_EVERY {
                ticked = Instant::now();
                self.tick(begun, &mut observations);
                if self.hub.hand_over(&mut observations, end)
                    && let Some(drops) = &mut self.drops
                {
                    drops.told();
                }
            }
            if all {
                if let Some(checked) = self.checked {
                    self.progress.reached(checked);
                }
                self.wait();
            }
        }
    }

    /// Waits until the processes that are there are known, then takes up what an agent before this one left.
    fn begin(&mut self, end: &AtomicBool, observations: &mut Vec<Observation>) {
        let begun = Instant::now();
        while !self.begins && !end.load(Ordering::Relaxed) && begun.elapsed() < TO_BEGIN {
            self.obey(observations);
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.ring.is_none() {
            return;
        }
        let Self { live, identities, listeners, journal, ring_name, .. } = self;
        let restored = Journal::open(journal, ring_name, JOURNAL_BYTES).and_then(|journal| {
            let mut hear = |notice: Notice<'_>| hear(&notice, listeners.as_mut(), identities.as_mut());
            live.with_journal(journal, &mut hear, &mut |observation| observations.push(observation))
        });
        match restored {
            Ok(restored) => tracing::info!(records = restored.records, "the journal was read"),
            Err(error) => {
                tracing::warn!(%error, "there is no journal: what is in memory is lost if this agent is killed");
            }
        }
        self.hub.hand_over(observations, end);
    }

    fn tick(&mut self, now: Now, observations: &mut Vec<Observation>) {
        let mut sink = |observation| observations.push(observation);
        self.live.tick(now, &mut sink);
        match self.drops.as_mut().map_or(Dropped::Nothing, Drops::check) {
            Dropped::Nothing => self.checked = Some(WallTime(now.wall)),
            Dropped::Later => {}
            Dropped::Some { records, total } => {
                self.live.records_lost(records, total, now, &mut sink);
                self.checked = Some(WallTime(now.wall));
            }
        }
        if let Some(identities) = &mut self.identities {
            identities.poll(WallTime(now.wall), &mut sink);
            // What a worker loaded is told also when it ended before its files were read.
            while self.departed.front().is_some_and(|(_, since)| since.elapsed() > REMEMBERED) {
                if let Some((worker, _)) = self.departed.pop_front() {
                    identities.forget(&worker);
                }
            }
            self.hub.lose("identity", &identities.take_losses());
            self.hub.read_models(identities.waiting() as u64, identities.bytes_read());
        }
        self.hub.lose("kernel", &self.live.take_losses());
        if let Some(ring) = &self.ring {
            self.hub.ring(ring.pending(), ring.capacity());
        }
    }

    fn obey(&mut self, observations: &mut Vec<Observation>) {
        while let Ok(command) = self.commands.try_recv() {
            self.commanded = Some(Instant::now());
            match command {
                KernelCommand::Process { worker, pid, started, done } => {
                    self.live.add_process(&worker, pid, started);
                    // Who asked may have lost patience.
                    let _ = done.try_send(());
                }
                KernelCommand::Gone(worker) => {
                    self.live.remove_worker(&worker, &mut |observation| observations.push(observation));
                    self.departed.push_back((worker, Instant::now()));
                }
                KernelCommand::Loaded { worker, opens } => {
                    if let Some(identities) = &mut self.identities {
                        opens.iter().for_each(|open| identities.opened(&worker, open));
                    }
                }
                KernelCommand::Begin => self.begins = true,
            }
        }
    }

    /// Takes what the ring holds; true when that was all.
    fn drain(&mut self, observations: &mut Vec<Observation>, end: &AtomicBool) -> bool {
        let Self { live, ring: Some(ring), listeners, identities, .. } = self else {
            self.hub.hand_over(observations, end);
            return true;
        };
        let taken = ring.peek(AT_ONCE, |position, bytes| {
            live.event(position, bytes, &mut |notice| hear(&notice, listeners.as_mut(), identities.as_mut()));
        });
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(%error, "the ring is unreadable; kernel records end here");
                self.ring = None;
                return true;
            }
        };
        if taken > 0 {
            let upto = ring.position();
            live.commit(upto, &mut |observation| observations.push(observation));
            if !self.hub.hand_over(observations, end) {
                return true;
            }
        }
        self.give_back();
        taken < AT_ONCE
    }

    /// Gives back the room of what was taken, but for output of which the lines are not with the queue yet. That it may
    /// keep half of the ring at most: a kill then may lose lines, which is less than what a full ring loses.
    fn give_back(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        let taken = ring.position();
        let free = self.listeners.as_ref().map_or(taken, |listeners| listeners.pieces.free(taken));
        ring.release_up_to(free);
        if ring.held() > ring.capacity() / 2 {
            tracing::debug!(
                bytes = ring.held(),
                "output waits for too long; its room in the ring is given back"
            );
            ring.release();
        }
    }

    fn wait(&self) {
        let is_commanded = self.commanded.is_some_and(|at| at.elapsed() < SOON);
        let patience = if is_commanded { LOOK_SOON } else { LOOK_EVERY };
        let Some(ring) = &self.ring else {
            std::thread::sleep(patience);
            return;
        };
        if ring.held() > 0 {
            // The descriptor is readable while any room is not given back.
            std::thread::sleep(patience);
            return;
        }
        let mut waits = [PollFd::from_borrowed_fd(ring.fd(), PollFlags::IN)];
        let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
        // Interrupted or not: the ring is looked at next.
        let _ = poll(&mut waits, Some(&patience));
    }
}

/// Passes a notice on to whoever it is for.
fn hear(notice: &Notice<'_>, listeners: Option<&mut Listeners>, identities: Option<&mut Identities>) {
    if let Notice::Model(open, worker) = notice {
        if let Some(identities) = identities {
            identities.opened(worker, open);
        }
        return;
    }
    let Some(listeners) = listeners else { return };
    let news = match notice {
        Notice::Model(..) => return,
        Notice::Exec(event, _) | Notice::Fork(event, _) => ProcessNews::Started(event.pid),
        Notice::Exit(event, code, worker) => {
            let _ =
                listeners.logs.send(LogCommand::ProcessEnded { worker: (*worker).clone(), pid: event.pid });
            ProcessNews::Ended { pid: event.pid, code: *code }
        }
        Notice::Output(piece, worker) => {
            listeners.pieces.pass(piece);
            // The thread ends only with the agent.
            let _ = listeners.logs.send(LogCommand::output(piece, worker));
            return;
        }
        Notice::BlindSpot { pid, way, worker } => {
            ProcessNews::BlindSpot { pid: *pid, way: *way, worker: (*worker).clone() }
        }
    };
    // A full channel is no loss: the next look at all processes finds what was not heard.
    if let Err(TrySendError::Full(_)) = listeners.discovery.try_send(news) {
        tracing::debug!("process news come faster than discovery reads them");
    }
}

/// What makes positions in the ring unique: the boot, and the parent that made the ring.
pub(crate) fn ring_name(node: &NodeIdentity) -> String {
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).unwrap_or_default();
    let started = crate::discover::Stat::parse(&stat).map_or(0, |stat| stat.start);
    format!("{}-{parent}-{started}", node.boot_id)
}

fn open_ring(loader: &Client) -> Option<Ring> {
    let (hello, descriptor) = match loader.hello() {
        Ok(hello) => hello,
        Err(error) => {
            tracing::error!(%error, "the loader does not answer; system calls are not seen");
            return None;
        }
    };
    // The parent says so to people.
    for lost in &hello.lost {
        tracing::info!("not seen: {lost}");
    }
    match Ring::new(descriptor?, u64::from(hello.ring_bytes)) {
        Ok(ring) => Some(ring),
        Err(error) => {
            tracing::error!(%error, "the ring cannot be mapped; system calls are not seen");
            None
        }
    }
}
