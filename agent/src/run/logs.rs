//! Logs: files are followed, output that is no file is read as the kernel saw it.

use super::adapt::NodeFiles;
use super::alive::Progress;
use super::around::Around;
use super::hub::Hub;
use super::kernel::ring_name;
use super::settled::{Readings, Settled};
use crate::kernel::live::{Now, OutputPiece};
use crate::logs::LogOptions;
use crate::logs::follow::{Follower, Hints, Source, SourceId, Turn};
use crate::logs::streams::{Piece, Streams};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Observation;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Files are looked at so often.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A message may wait for its next line so long, in nanoseconds: what is absent before that is absent.
const HELD_BACK: i64 = 1_200_000_000;
const IDLE_EVERY: Duration = Duration::from_secs(1);
/// Readings of output are saved so often while there is output.
const SETTLE_EVERY: Duration = Duration::from_millis(250);

/// What the thread is told.
#[derive(Debug)]
pub(crate) enum LogCommand {
    /// Follow a file that a worker writes.
    Follow(Box<Source>),
    /// Read what the kernel sees of a worker's output.
    Read { worker: WorkerId, options: LogOptions },
    /// A worker is gone.
    Gone(WorkerId),
    /// A process of a worker ended.
    ProcessEnded { worker: WorkerId, pid: u32 },
    /// A piece of output.
    Output {
        worker: WorkerId,
        pid: u32,
        fd: i32,
        position: u64,
        wall: WallTime,
        bytes: Vec<u8>,
        skipped: u64,
    },
}

/// The thread's state.
pub(crate) struct Logs {
    follower: Follower<'static>,
    streams: Streams<'static>,
    hints: Hints,
    hub: Arc<Hub>,
    commands: Receiver<LogCommand>,
    sources: BTreeMap<WorkerId, Vec<(PathBuf, SourceId)>>,
    progress: Progress,
    readings: Readings,
    settled: Settled,
    /// Position and time of the last piece of output; `None`: all that came is settled.
    last: Option<(u64, WallTime)>,
    /// Why a log is not read, and whether that was said.
    troubles: BTreeMap<PathBuf, (String, bool)>,
}

// === impl LogCommand ===

impl LogCommand {
    pub(crate) fn output(piece: &OutputPiece<'_>, worker: &WorkerId) -> Self {
        Self::Output {
            worker: worker.clone(),
            pid: piece.pid,
            fd: piece.fd,
            position: piece.position,
            wall: piece.wall,
            bytes: piece.bytes.to_vec(),
            skipped: piece.skipped,
        }
    }
}

// === impl Logs ===

impl Logs {
    pub(crate) fn new(
        around: Around<'_>,
        progress: Progress,
        settled: Settled,
    ) -> std::io::Result<(Self, Sender<LogCommand>)> {
        let Around { options, node, packs, access, hub } = around;
        let files = Box::new(NodeFiles(Arc::clone(access)));
        let mut follower = Follower::new(files, &around.below("positions"), packs)?;
        for file in options.log_files.iter().filter(|file| file.of.is_none()) {
            follower.add(Source {
                path: file.path.clone(),
                node: node.node.clone(),
                worker: None,
                options: LogOptions { engine: file.engine.clone(), ..LogOptions::default() },
                not_before: None,
            });
        }
        let ring = ring_name(node);
        let mut streams = Streams::new(node.node.clone(), ring.clone(), packs);
        let readings = Readings::new(around.below("output.json"), ring);
        streams.restore(readings.load());
        if hub.is_recording() {
            follower.record();
            streams.record();
        }
        let (sender, commands) = channel();
        let logs = Self {
            follower,
            streams,
            hints: Hints::new(),
            hub: Arc::clone(hub),
            commands,
            sources: BTreeMap::new(),
            progress,
            readings,
            settled,
            last: None,
            troubles: BTreeMap::new(),
        };
        Ok((logs, sender))
    }

    pub(crate) fn run(mut self, end: &AtomicBool) {
        let mut idled = Instant::now();
        let mut settled = Instant::now();
        while !end.load(Ordering::Relaxed) {
            let begun = Now::read();
            let mut observations = Vec::new();
            self.obey(&mut observations);
            if idled.elapsed() >= IDLE_EVERY {
                idled = Instant::now();
                self.streams.idle(&mut |observation| observations.push(observation));
                self.count();
                self.record(false);
            }
            if self.last.is_some() && settled.elapsed() >= SETTLE_EVERY {
                settled = Instant::now();
                self.settle(&mut observations, end);
            }
            self.hub.hand_over(&mut observations, end);
            let hub = Arc::clone(&self.hub);
            let mut take = |observation: Observation| {
                if hub.take(std::slice::from_ref(&observation)) { Ok(()) } else { Err(Box::new(observation)) }
            };
            match self.follower.poll(Instant::now(), &mut take) {
                Ok(Turn::More) => continue,
                Ok(Turn::Rest) => self.progress.reached(WallTime(begun.wall).plus(-HELD_BACK)),
                Ok(Turn::Full) => {}
                Err(error) => tracing::warn!(%error, "positions of logs are not saved"),
            }
            self.hints.watch(self.follower.watched().iter().map(PathBuf::as_path));
            self.hints.wait(LOOK_EVERY);
        }
        self.record(true);
        if let Err(error) = self.follower.save(Instant::now()) {
            tracing::warn!(%error, "positions of logs are not saved; some lines will be read again");
        }
    }

    /// Hands redacted lines to the recording. `all`: also those that may still turn out to belong to the next.
    fn record(&mut self, all: bool) {
        if !self.hub.is_recording() {
            return;
        }
        let hub = &self.hub;
        self.follower.recorded(all, &mut |source, lines| {
            if let Some(worker) = &source.worker {
                hub.log_lines(worker, &source.path.to_string_lossy(), lines);
            }
        });
        self.streams.recorded(all, &mut |worker, process, descriptor, lines| {
            hub.log_lines(worker, &format!("{process}/{descriptor}"), lines);
        });
    }

    fn count(&mut self) {
        let mut lines = self.follower.counts();
        lines.add_all(&self.streams.counts());
        let reports = self.follower.report();
        let files = reports.iter().filter(|report| report.is_followed).count();
        self.hub.lines(lines, files as u64);
        let mut troubles = BTreeMap::new();
        for report in reports.into_iter().filter(|report| !report.is_followed) {
            let Some(trouble) = report.trouble else { continue };
            // What is so for a moment, as while a log is rotated, is not said.
            let is_said = match self.troubles.get(&report.path) {
                Some((before, is_said)) if *before == trouble => {
                    if !is_said {
                        tracing::warn!(path = %report.path.display(), trouble, "a log is not read");
                    }
                    true
                }
                _ => false,
            };
            troubles.insert(report.path, (trouble, is_said));
        }
        self.troubles = troubles;
    }

    /// Makes what was read of output safe from a kill, then lets the ring move on.
    fn settle(&mut self, observations: &mut Vec<Observation>, end: &AtomicBool) {
        let Some((last, wall)) = self.last else { return };
        let first = self.streams.settle(wall, &mut |observation| observations.push(observation));
        if !self.hub.hand_over(observations, end) {
            return;
        }
        if let Err(error) = self.readings.save(self.streams.states()) {
            tracing::warn!(%error, "readings of output are not saved; their pieces stay in the ring");
            return;
        }
        self.settled.reached(first.unwrap_or(last + 1));
        if first.is_none() {
            self.last = None;
        }
    }

    fn obey(&mut self, observations: &mut Vec<Observation>) {
        let mut sink = |observation| observations.push(observation);
        while let Ok(command) = self.commands.try_recv() {
            match command {
                LogCommand::Follow(source) => {
                    let Some(worker) = source.worker.clone() else { continue };
                    let known = self.sources.entry(worker).or_default();
                    if known.iter().all(|(path, _)| *path != source.path) {
                        let path = source.path.clone();
                        known.push((path, self.follower.add(*source)));
                    }
                }
                LogCommand::Read { worker, options } => {
                    if !self.streams.reads(&worker) {
                        self.streams.add(worker, options);
                    }
                }
                LogCommand::Gone(worker) => {
                    for (_, id) in self.sources.remove(&worker).unwrap_or_default() {
                        self.follower.remove(id);
                    }
                    self.streams.remove(&worker, &mut sink);
                }
                LogCommand::ProcessEnded { worker, pid } => {
                    self.streams.process_ended(&worker, pid, &mut sink);
                }
                LogCommand::Output { worker, pid, fd, position, wall, bytes, skipped } => {
                    let piece =
                        Piece { process: pid, descriptor: fd, position, wall, bytes: &bytes, skipped };
                    self.streams.piece(&worker, piece, &mut sink);
                    self.last = Some((position, wall));
                }
            }
        }
    }
}

const _: () = assert!(HELD_BACK > SECOND, "longer than a reader waits for a next line");
