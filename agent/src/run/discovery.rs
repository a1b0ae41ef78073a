//! Finds workers and has everything of them followed.

use super::adapt::NodeProcesses;
use super::annotation::Annotations;
use super::around::Around;
use super::earlier;
use super::events::{EventCommand, EventCommands};
use super::hub::Hub;
use super::kernel::KernelCommand;
use super::left::{Left, Roll};
use super::logs::LogCommand;
use super::named_logs::NamedLogs;
use super::report::Report;
use super::scrape::ScrapeCommand;
use crate::access::{Access, ProcessAccess, ProcessId};
use crate::containers::{Asker, Wanted};
use crate::discover::{Change, Discovery, Exit, FoundProcess, FoundWorker, NodeIdentity, Output, ProcessKey};
use crate::kernel::live::Now;
use crate::logs::LogOptions;
use crate::logs::follow::Source;
use kvprov_loader::client::Client;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// All processes are looked at so often.
const SCAN_EVERY: Duration = Duration::from_secs(2);
/// Process news that may wait.
const NEWS: usize = 4096;
const PATIENCE: Duration = Duration::from_millis(500);
/// How long the kernel thread may take to know a process.
const ACK_PATIENCE: Duration = Duration::from_secs(2);
/// After which a configured log that names no process is told.
const NAMED_PATIENCE: Duration = Duration::from_secs(60);
/// How long the records of what happened while no agent ran may take to tell how a missing worker ended.
const MISSING_PATIENCE: Duration = Duration::from_secs(10);
/// A worker's log from before it started is another worker's, but clocks print whole seconds.
const START_SLACK: i64 = 2 * SECOND;

/// What the kernel tells of processes.
#[derive(Debug)]
pub(crate) enum ProcessNews {
    /// A program was started, or a worker's process made another.
    Started(u32),
    /// A worker's process ended; the code as `wait(2)` encodes it.
    Ended { pid: u32, code: u32 },
    /// A worker moves data on a way that is not followed.
    BlindSpot { pid: u32, way: u32, worker: WorkerId },
}

/// Who follows what is found.
pub(crate) struct Followers {
    pub(crate) logs: Sender<LogCommand>,
    pub(crate) kernel: Sender<KernelCommand>,
    /// `None`: KV events are left alone.
    pub(crate) events: Option<EventCommands>,
    /// Where something is asked over HTTP.
    pub(crate) scrape: Option<Sender<ScrapeCommand>>,
}

/// The thread's state.
pub(crate) struct Found {
    discovery: Discovery<'static>,
    access: Arc<Access>,
    node: NodeIdentity,
    /// Of the kernel programs, where there are any.
    loader: Option<Arc<Client>>,
    hub: Arc<Hub>,
    followers: Followers,
    news: Receiver<ProcessNews>,
    follows_logs: bool,
    reads_metrics: bool,
    watched: BTreeMap<WorkerId, BTreeMap<ProcessKey, u32>>,
    outputs: BTreeSet<(WorkerId, Output)>,
    ways: BTreeSet<(WorkerId, u32)>,
    roll: Roll,
    /// Who is there, as the next agent needs it.
    present: BTreeMap<WorkerId, Left>,
    /// No look at all processes is over yet.
    is_first_look: bool,
    packs: &'static Packs,
    annotations: Annotations,
    named_logs: NamedLogs,
    /// Asks what containers are called; `None`: that is left alone.
    containers: Option<Asker>,
    /// Who was there for the agent before this one and is not; their ends may still be heard.
    missing: Vec<Left>,
}

// === impl Found ===

impl Found {
    pub(crate) fn new(
        around: Around<'_>,
        loader: Option<Arc<Client>>,
        followers: Followers,
    ) -> (Self, SyncSender<ProcessNews>) {
        let Around { options, node, packs, access, hub } = around;
        let (sender, news) = sync_channel(NEWS);
        let roll = Roll::new(around.below("workers.json"), node.boot_id.clone());
        let found = Self {
            discovery: Discovery::new(packs, node.clone(), options.scope.clone())
                .hearing_exits(loader.is_some()),
            access: Arc::clone(access),
            node: node.clone(),
            loader,
            hub: Arc::clone(hub),
            followers,
            news,
            follows_logs: options.sources.logs,
            reads_metrics: options.sources.metrics,
            watched: BTreeMap::new(),
            outputs: BTreeSet::new(),
            ways: BTreeSet::new(),
            missing: roll.load(),
            is_first_look: true,
            packs,
            annotations: Annotations::new(options.annotations_file.clone()),
            named_logs: NamedLogs::of(&options.log_files),
            containers: options.containers.then(|| asker(access)).flatten(),
            roll,
            present: BTreeMap::new(),
        };
        (found, sender)
    }

    pub(crate) fn run(mut self, end: &AtomicBool, reports: &Sender<Report>) {
        let system = match NodeProcesses::new(Arc::clone(&self.access)) {
            Ok(system) => system,
            Err(error) => {
                tracing::error!(%error, "/proc cannot be read; no worker will be found");
                return;
            }
        };
        let mut scanned: Option<Instant> = None;
        let begun = Instant::now();
        while !end.load(Ordering::Relaxed) {
            if scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_EVERY) {
                scanned = Some(Instant::now());
                match self.discovery.scan(&system, now()) {
                    Ok(changes) => self.heed(changes, reports),
                    Err(error) => tracing::warn!(%error, "processes cannot be listed"),
                }
                self.declare();
                self.want_names();
                self.hub.workers(self.discovery.workers().map(|worker| worker.engine.as_str()));
                if begun.elapsed() >= NAMED_PATIENCE {
                    for misfit in self.named_logs.of_nobody() {
                        tracing::warn!("configured log: {misfit}");
                    }
                }
                if !self.is_first_look {
                    if begun.elapsed() >= MISSING_PATIENCE || self.loader.is_none() {
                        for left in std::mem::take(&mut self.missing) {
                            self.heed(vec![gone(left.worker, None)], reports);
                        }
                    }
                } else {
                    self.is_first_look = false;
                    self.read_what_is_left();
                    self.save();
                    let _ = self.followers.kernel.send(KernelCommand::Begin);
                    self.unwatch_strangers();
                    let reads_events = self.followers.events.is_some();
                    self.hub.sees(self.loader.is_some(), self.follows_logs, self.reads_metrics, reads_events);
                }
            }
            self.learn_names(reports);
            let news = match self.news.recv_timeout(PATIENCE) {
                Ok(news) => news,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => {
                    std::thread::sleep(PATIENCE);
                    continue;
                }
            };
            let changes = match news {
                ProcessNews::Started(pid) => self.discovery.exec(&system, pid, now()),
                ProcessNews::Ended { pid, code } => {
                    let mut changes = self.discovery.exited(&system, pid, exit(code), now());
                    let ended = self.missing.extract_if(.., |left| left.pid == pid);
                    changes.extend(ended.map(|left| gone(left.worker, Some(exit(code)))));
                    changes
                }
                ProcessNews::BlindSpot { pid, way, worker } => {
                    self.blind(&worker, pid, way, reports);
                    continue;
                }
            };
            self.heed(changes, reports);
        }
    }

    /// Of those who ended while no agent ran.
    fn read_what_is_left(&mut self) {
        let is_there: BTreeSet<&WorkerId> = self.discovery.workers().map(|worker| &worker.id).collect();
        self.missing.retain(|left| !is_there.contains(&left.worker));
        for left in self.missing.iter().filter(|_| self.follows_logs) {
            if left.reads_stream {
                let command = LogCommand::Read { worker: left.worker.clone(), options: left.options() };
                let _ = self.followers.logs.send(command);
            }
            for path in &left.logs {
                let source = Source {
                    path: path.clone(),
                    node: self.node.node.clone(),
                    worker: Some(left.worker.clone()),
                    options: left.options(),
                    not_before: left.not_before,
                };
                let _ = self.followers.logs.send(LogCommand::Follow(Box::new(source)));
            }
        }
    }

    fn save(&self) {
        self.roll.save(self.present.values().chain(&self.missing));
    }

    fn heed(&mut self, changes: Vec<Change>, reports: &Sender<Report>) {
        let is_other = !changes.is_empty();
        for change in changes {
            match &change {
                Change::Found(worker) | Change::Changed(worker) => {
                    if self.is_first_look && matches!(change, Change::Found(_)) {
                        self.tell_what_was_loaded(worker);
                    }
                    self.follow(worker, reports);
                    if let Some(scrape) = &self.followers.scrape {
                        let _ = scrape.send(ScrapeCommand::Worker(Box::new(worker.clone())));
                    }
                }
                Change::Gone { worker, .. } => {
                    self.leave(worker);
                }
            }
            self.tell(&change);
            let _ = reports.send(Report::Worker(change));
        }
        // After it was told: who is killed in between tells it again.
        if is_other {
            self.save();
        }
    }

    /// Of a worker that nobody watched when it loaded its model.
    fn tell_what_was_loaded(&self, worker: &FoundWorker) {
        if self.missing.iter().any(|left| left.worker == worker.id) {
            return;
        }
        let opens = earlier::loaded(&*self.access, self.packs, worker, self.node.ticks_per_second);
        let _ = self.followers.kernel.send(KernelCommand::Loaded { worker: worker.id.clone(), opens });
    }

    fn tell(&self, change: &Change) {
        let mut told: Vec<Observation> = Vec::new();
        change.observe(&self.node, now(), &mut |observation| told.push(observation));
        for observation in &mut told {
            if let kvprov_model::observation::Body::Worker(body) = &mut observation.body {
                body.watched_by = self.watched_by();
            }
        }
        if !self.hub.take(&told) {
            tracing::warn!("a change of a worker could not be queued; the next scan will not tell it again");
        }
    }

    /// Has the containers of all workers asked for.
    fn want_names(&mut self) {
        let Some(asker) = &mut self.containers else { return };
        let containers = self.discovery.workers().filter_map(|worker| worker.container.as_ref());
        asker.want(containers.filter_map(Wanted::of), Instant::now());
        self.hub.containers(asker.figures());
    }

    /// What containers are called, as far as it was told meanwhile.
    fn learn_names(&mut self, reports: &Sender<Report>) {
        let Some(asker) = &mut self.containers else { return };
        let (told, complaints) = asker.told(Instant::now());
        for complaint in complaints {
            let _ = reports.send(Report::Blind(format!("{}: {}", complaint.what, complaint.why)));
        }
        for (container, told) in told {
            let changes = self.discovery.learn(container.as_str(), &told.names);
            self.heed(changes, reports);
        }
    }

    /// What the pods of the workers are declared to run.
    fn declare(&mut self) {
        let workers = self.discovery.workers();
        let told = self.annotations.look(&*self.access, workers, &self.node, now());
        if !told.is_empty() && !self.hub.take(&told) {
            self.annotations.untell();
        }
    }

    /// An agent before this one may have watched what is of no worker now.
    fn unwatch_strangers(&self) {
        let Some(loader) = &self.loader else { return };
        let ours: BTreeSet<ProcessId> = self
            .watched
            .values()
            .flat_map(BTreeMap::keys)
            .map(|key| ProcessId { pid: key.pid, started: key.start })
            .collect();
        for stranger in loader.watched().unwrap_or_default().iter().filter(|id| !ours.contains(id)) {
            let _ = loader.unwatch(*stranger);
        }
    }

    fn watched_by(&self) -> Vec<String> {
        let sources = [("kernel", self.loader.is_some()), ("log", self.follows_logs)];
        sources.into_iter().filter(|(_, on)| *on).map(|(name, _)| name.to_owned()).collect()
    }

    fn follow(&mut self, worker: &FoundWorker, reports: &Sender<Report>) {
        if let Some(events) = &self.followers.events {
            let _ = events.send(EventCommand::Worker(Box::new(worker.clone())));
        }
        let mut reads_stream = false;
        for process in &worker.processes {
            let streams =
                self.follows_logs && process.output.iter().any(|output| matches!(output, Output::Stream(_)));
            reads_stream |= streams;
        }
        let options = LogOptions {
            engine: Some(worker.engine.clone()),
            version: worker.engine_version.clone(),
            ..LogOptions::default()
        };
        let not_before = worker.started.map(|started| started.plus(-START_SLACK));
        let left = self
            .present
            .entry(worker.id.clone())
            .or_insert_with(|| Left::new(worker.id.clone(), worker.leader.pid, &options, not_before));
        left.reads_stream |= reads_stream;
        if reads_stream && self.outputs.insert((worker.id.clone(), Output::Nowhere)) {
            let what = "its output, as the kernel sees it written".to_owned();
            let _ = reports.send(Report::Output { worker: worker.id.to_string(), what });
            let command = LogCommand::Read { worker: worker.id.clone(), options: options.clone() };
            let _ = self.followers.logs.send(command);
        }
        // Whoever reads the output is told first: a piece of a worker that is not read is left out.
        for process in &worker.processes {
            let streams =
                self.follows_logs && process.output.iter().any(|output| matches!(output, Output::Stream(_)));
            self.watch(worker, process, streams);
        }
        if !self.follows_logs {
            return;
        }
        let refused = Output::Unknown(std::io::ErrorKind::PermissionDenied);
        if worker.processes.iter().any(|process| process.output.contains(&refused))
            && self.outputs.insert((worker.id.clone(), refused))
        {
            let what =
                format!("the output of {}: the rights do not suffice to look where it goes", worker.id);
            let _ = reports.send(Report::Blind(what));
        }
        self.follow_named(worker, &options, not_before, reports);
        for output in worker.output_files() {
            if !self.outputs.insert((worker.id.clone(), output.clone())) {
                continue;
            }
            let Output::File { path, device, inode } = output else { continue };
            let path = self.reachable(worker, path, *device, *inode);
            let what = format!("the log {}", path.display());
            let _ = reports.send(Report::Output { worker: worker.id.to_string(), what });
            if let Some(left) = self.present.get_mut(&worker.id) {
                left.logs.push(path.clone());
            }
            let source = Source {
                path,
                node: self.node.node.clone(),
                worker: Some(worker.id.clone()),
                options: options.clone(),
                not_before,
            };
            let _ = self.followers.logs.send(LogCommand::Follow(Box::new(source)));
        }
    }

    /// Follows the logs that the configuration names for a worker.
    fn follow_named(
        &mut self,
        worker: &FoundWorker,
        options: &LogOptions,
        not_before: Option<WallTime>,
        reports: &Sender<Report>,
    ) {
        let access = Arc::clone(&self.access);
        let arguments = |pid: u32| {
            let arguments = access.identify(pid).and_then(|process| access.cmdline(process)).ok()?;
            Some(crate::discover::texts(&arguments).join(" "))
        };
        let pids = worker.processes.iter().map(|process| process.key.pid);
        let (files, misfits) = self.named_logs.of_worker(&worker.id, pids, arguments);
        for misfit in misfits {
            tracing::warn!("configured log: {misfit}");
        }
        for file in files {
            let what = format!("the log {}, which the configuration names", file.path.display());
            if let Some(left) = self.present.get_mut(&worker.id) {
                left.logs.push(file.path.clone());
            }
            let _ = reports.send(Report::Output { worker: worker.id.to_string(), what });
            let source = Source {
                path: file.path,
                node: self.node.node.clone(),
                worker: Some(worker.id.clone()),
                options: LogOptions { engine: file.engine.or(options.engine.clone()), ..options.clone() },
                not_before,
            };
            let _ = self.followers.logs.send(LogCommand::Follow(Box::new(source)));
        }
    }

    /// A path by which this process reaches a worker's file: its own where that is the same file, else below the
    /// worker's root.
    fn reachable(&self, worker: &FoundWorker, path: &Path, device: u64, inode: u64) -> PathBuf {
        let is_same =
            std::fs::metadata(path).is_ok_and(|found| found.dev() == device && found.ino() == inode);
        if is_same || worker.container.is_none() {
            return path.to_owned();
        }
        let root = PathBuf::from(format!("/proc/{}/root", worker.leader.pid));
        root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn watch(&mut self, worker: &FoundWorker, process: &FoundProcess, output: bool) {
        let Some(loader) = &self.loader else { return };
        let mut flags =
            kvprov_agent_common::kernel::watch::FILES | kvprov_agent_common::kernel::watch::SOCKETS;
        if output {
            flags |= kvprov_agent_common::kernel::watch::OUTPUT;
        }
        let watched = self.watched.entry(worker.id.clone()).or_default();
        if watched.get(&process.key) == Some(&flags) {
            return;
        }
        let id = ProcessId { pid: process.key.pid, started: process.key.start };
        let started = process.key.start.saturating_mul(1_000_000_000 / self.node.ticks_per_second.max(1));
        // First who reads, then what is read: a record of a process that is not known yet would be lost.
        let (done, is_known) = sync_channel(1);
        let command =
            KernelCommand::Process { worker: worker.id.clone(), pid: process.key.pid, started, done };
        if self.followers.kernel.send(command).is_err() || is_known.recv_timeout(ACK_PATIENCE).is_err() {
            tracing::warn!(pid = process.key.pid, "the kernel thread is busy; this process is watched later");
            return;
        }
        match loader.watch(id, flags) {
            Ok(()) => drop(watched.insert(process.key, flags)),
            // One that ended meanwhile is missed by the next scan.
            Err(error) => tracing::debug!(%error, pid = process.key.pid, "a process is not watched"),
        }
    }

    fn leave(&mut self, worker: &WorkerId) {
        if let Some(loader) = &self.loader {
            for key in self.watched.remove(worker).unwrap_or_default().keys() {
                let _ = loader.unwatch(ProcessId { pid: key.pid, started: key.start });
            }
        }
        self.present.remove(worker);
        self.named_logs.leave(worker);
        self.outputs.retain(|(of, _)| of != worker);
        self.ways.retain(|(of, _)| of != worker);
        let _ = self.followers.kernel.send(KernelCommand::Gone(worker.clone()));
        let _ = self.followers.logs.send(LogCommand::Gone(worker.clone()));
        if let Some(events) = &self.followers.events {
            let _ = events.send(EventCommand::Gone(worker.clone()));
        }
        if let Some(scrape) = &self.followers.scrape {
            let _ = scrape.send(ScrapeCommand::Gone(worker.clone()));
        }
    }

    fn blind(&mut self, worker: &WorkerId, pid: u32, way: u32, reports: &Sender<Report>) {
        if self.ways.insert((worker.clone(), way)) {
            let way = match way {
                1 => "io_uring",
                2 => "sendfile",
                3 => "splice",
                4 => "copy_file_range",
                5 => "32-bit system calls",
                _ => "a way that is not known",
            };
            let _ = reports.send(Report::Blind(format!(
                "process {pid} of {worker} moves data by {way}, which is not followed"
            )));
        }
    }
}

fn asker(access: &Arc<Access>) -> Option<Asker> {
    let started = Asker::start(Arc::clone(access));
    started.inspect_err(|error| tracing::warn!(%error, "no thread to ask what containers are called")).ok()
}

fn gone(worker: WorkerId, exit: Option<Exit>) -> Change {
    Change::Gone { worker, exit, at: now() }
}

fn now() -> WallTime {
    WallTime(Now::read().wall)
}

fn exit(code: u32) -> Exit {
    let signal = code & 0x7f;
    match signal {
        0 => Exit { signal: None, status: Some(i64::from((code >> 8) & 0xff)) },
        signal => Exit { signal: Some(i64::from(signal)), status: None },
    }
}
