//! Where all sources meet: every observation goes to the queue, to the recording, and is counted.

use super::scrape::ScrapeCommand;
use crate::containers::By;
use crate::kernel::Record;
use crate::logs::LineCounts;
use crate::metrics::scrape::Counts;
use crate::record::{RecordError, Recorder};
use crate::ship::Outbox;
use crate::source::Losses;
use crate::status::{Part, Readiness};
use kvprov_model::clock::WallTime;
use kvprov_model::factor::FactorState;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{BlockAction, Body, Observation, Role};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue that takes nothing is asked again after this.
const QUEUE_PAUSE: Duration = Duration::from_millis(50);

/// The meeting place.
#[derive(Debug)]
pub(crate) struct Hub {
    outbox: Outbox,
    recorder: Mutex<Option<Recorder>>,
    counted: Mutex<Counted>,
    ring: (AtomicU64, AtomicU64),
    /// Files of models that wait to be read, and bytes that were read of such files.
    models: (AtomicU64, AtomicU64),
    /// Who wants to hear at once that something changed what a worker's caches may hold.
    on_change: Mutex<Option<Sender<ScrapeCommand>>>,
    readiness: Arc<Readiness>,
}

/// What is counted for the page of metrics.
#[derive(Debug, Default)]
struct Counted {
    kinds: BTreeMap<String, u64>,
    lost: BTreeMap<(&'static str, &'static str), u64>,
    workers: BTreeMap<String, u64>,
    containers: BTreeMap<By, u64>,
    lines: LineCounts,
    files: u64,
    /// KV events by what they say.
    events: BTreeMap<&'static str, u64>,
    /// Publishers of KV events: subscribed, waiting.
    publishers: Option<(u64, u64)>,
    scraped: Counts,
}

// === impl Hub ===

impl Hub {
    pub(crate) fn new(
        outbox: Outbox,
        recording: Option<&Path>,
        readiness: Arc<Readiness>,
    ) -> Result<Self, RecordError> {
        let recorder = recording.map(Recorder::go_on).transpose()?;
        readiness.set("discovery", Part::NotReady("the processes of this node are looked at".to_owned()));
        Ok(Self {
            outbox,
            recorder: Mutex::new(recorder),
            counted: Mutex::default(),
            ring: Default::default(),
            models: Default::default(),
            on_change: Mutex::default(),
            readiness,
        })
    }

    /// Takes observations. True once they survive the end of this process; false when they have to be offered again.
    pub(crate) fn take(&self, observations: &[Observation]) -> bool {
        if observations.is_empty() {
            return true;
        }
        if let Err(error) = self.outbox.append(observations) {
            tracing::warn!(%error, "observations wait for the queue");
            return false;
        }
        {
            let mut counted = lock(&self.counted);
            for observation in observations {
                let kind = observation.body.kind();
                match counted.kinds.get_mut(kind) {
                    Some(count) => *count += 1,
                    None => drop(counted.kinds.insert(kind.to_owned(), 1)),
                }
            }
        }
        if let Some(listener) = &*lock(&self.on_change) {
            for command in observations.iter().flat_map(wanted) {
                // Who listens ends only with the agent.
                let _ = listener.send(command);
            }
        }
        self.recording(|recorder| {
            observations.iter().try_for_each(|observation| recorder.observe(observation))
        });
        true
    }

    /// Hands observations over, waiting for the queue. True once all are with it; false at the end of the agent.
    pub(crate) fn hand_over(&self, observations: &mut Vec<Observation>, end: &AtomicBool) -> bool {
        while !self.take(observations) {
            if end.load(Ordering::Relaxed) {
                return false;
            }
            std::thread::sleep(QUEUE_PAUSE);
        }
        observations.clear();
        true
    }

    /// From now on the listener hears of changes that part what counters count before from what they count after.
    pub(crate) fn tell_changes(&self, listener: Sender<ScrapeCommand>) {
        *lock(&self.on_change) = Some(listener);
    }

    /// Discovery has looked once: says what is seen from now on.
    pub(crate) fn sees(&self, kernel: bool, logs: bool, metrics: bool, events: bool) {
        self.readiness.set("discovery", Part::Ready);
        let part = |on: bool, why: &str| if on { Part::Ready } else { Part::Without(why.to_owned()) };
        self.readiness.set("kernel", part(kernel, "no kernel programs, or switched off; see kvprov doctor"));
        self.readiness.set("logs", part(logs, "switched off"));
        self.readiness.set("events", part(events, "switched off"));
        self.readiness.set("metrics", part(metrics, "switched off"));
    }

    /// Counts what a source lost since it last told.
    pub(crate) fn lose(&self, stage: &'static str, losses: &Losses) {
        if losses.is_empty() {
            return;
        }
        let mut counted = lock(&self.counted);
        for (reason, count) in losses.iter() {
            *counted.lost.entry((stage, reason)).or_default() += count;
        }
    }

    /// Says how a part of the agent is.
    pub(crate) fn part(&self, name: &'static str, part: Part) {
        self.readiness.set(name, part);
    }

    /// Counts KV events that were taken.
    pub(crate) fn count_events(&self, observations: &[Observation]) {
        let mut counted = lock(&self.counted);
        for observation in observations {
            let Body::Block(block) = &observation.body else { continue };
            let action = match &block.action {
                Some(BlockAction::Stored) => "stored",
                Some(BlockAction::Removed) => "removed",
                Some(BlockAction::Cleared) => "cleared",
                _ => "other",
            };
            *counted.events.entry(action).or_default() += 1;
        }
    }

    /// How many publishers of KV events are subscribed, and how many are not.
    pub(crate) fn publishers(&self, subscribed: u64, waiting: u64) {
        lock(&self.counted).publishers = Some((subscribed, waiting));
    }

    pub(crate) fn kv_events(&self) -> Vec<(Vec<String>, f64)> {
        let counted = lock(&self.counted);
        counted.events.iter().map(|(action, count)| (vec![(*action).to_owned()], *count as f64)).collect()
    }

    pub(crate) fn kv_publishers(&self) -> Vec<(Vec<String>, f64)> {
        let Some((subscribed, waiting)) = lock(&self.counted).publishers else { return Vec::new() };
        let states = [("subscribed", subscribed), ("waiting", waiting)];
        states.into_iter().map(|(state, count)| (vec![state.to_owned()], count as f64)).collect()
    }

    /// How full the ring is.
    pub(crate) fn ring(&self, used: u64, size: u64) {
        self.ring.0.store(used, Ordering::Relaxed);
        self.ring.1.store(size, Ordering::Relaxed);
    }

    /// How many files of models wait to be read, and how many bytes were read of such files so far.
    pub(crate) fn read_models(&self, waiting: u64, bytes: u64) {
        self.models.0.store(waiting, Ordering::Relaxed);
        self.models.1.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn models(&self) -> (u64, u64) {
        (self.models.0.load(Ordering::Relaxed), self.models.1.load(Ordering::Relaxed))
    }

    /// The engines of the workers that are there.
    pub(crate) fn workers<'e>(&self, engines: impl Iterator<Item = &'e str>) {
        let mut workers = BTreeMap::new();
        for engine in engines {
            *workers.entry(engine.to_owned()).or_default() += 1;
        }
        lock(&self.counted).workers = workers;
    }

    /// The containers that workers are in, by who told what they are called.
    pub(crate) fn containers(&self, told: BTreeMap<By, u64>) {
        lock(&self.counted).containers = told;
    }

    /// What became of log lines so far, and how many files are followed.
    pub(crate) fn lines(&self, lines: LineCounts, files: u64) {
        let mut counted = lock(&self.counted);
        counted.lines = lines;
        counted.files = files;
    }

    /// What came of reading counters so far.
    pub(crate) fn scraped(&self, counts: Counts) {
        lock(&self.counted).scraped = counts;
    }

    /// The figures of reading counters.
    pub(crate) fn scraping(&self) -> Counts {
        lock(&self.counted).scraped.clone()
    }

    /// Takes a trimmed page of counters for the recording.
    pub(crate) fn page(&self, worker: &WorkerId, endpoint: &str, at: WallTime, text: &str) {
        self.recording(|recorder| recorder.page(worker, endpoint, at, text));
    }

    pub(crate) fn kinds(&self) -> Vec<(Vec<String>, f64)> {
        lock(&self.counted).kinds.iter().map(|(kind, count)| (vec![kind.clone()], *count as f64)).collect()
    }

    pub(crate) fn losses(&self) -> Vec<(Vec<String>, f64)> {
        let counted = lock(&self.counted);
        let series = |(&(stage, reason), count): (&(&str, &str), &u64)| {
            (vec![stage.to_owned(), reason.to_owned()], *count as f64)
        };
        counted.lost.iter().map(series).collect()
    }

    pub(crate) fn workers_by_engine(&self) -> Vec<(Vec<String>, f64)> {
        let counted = lock(&self.counted);
        counted.workers.iter().map(|(engine, count)| (vec![engine.clone()], *count as f64)).collect()
    }

    pub(crate) fn containers_by_teller(&self) -> Vec<(Vec<String>, f64)> {
        let counted = lock(&self.counted);
        counted.containers.iter().map(|(by, count)| (vec![by.as_str().to_owned()], *count as f64)).collect()
    }

    pub(crate) fn line_outcomes(&self) -> Vec<(Vec<String>, f64)> {
        let lines = lock(&self.counted).lines;
        let outcomes = [("matched", lines.matched), ("ignored", lines.ignored), ("unparsed", lines.unparsed)];
        let series =
            |(outcome, count): (&str, u64)| (vec!["all".to_owned(), outcome.to_owned()], count as f64);
        outcomes.into_iter().map(series).collect()
    }

    pub(crate) fn followed_files(&self) -> f64 {
        lock(&self.counted).files as f64
    }

    pub(crate) fn ring_bytes(&self) -> Vec<(Vec<String>, f64)> {
        let [used, size] = [&self.ring.0, &self.ring.1].map(|bytes| bytes.load(Ordering::Relaxed) as f64);
        vec![(vec!["used".to_owned()], used), (vec!["size".to_owned()], size)]
    }

    /// Whether somebody wants records and redacted lines.
    pub(crate) fn is_recording(&self) -> bool {
        lock(&self.recorder).is_some()
    }

    /// Takes a kernel record for the recording.
    pub(crate) fn record(&self, worker: &WorkerId, record: &Record) {
        self.recording(|recorder| recorder.kernel(worker, record));
    }

    /// Takes redacted lines of one log for the recording.
    pub(crate) fn log_lines(&self, worker: &WorkerId, stream: &str, lines: &[u8]) {
        self.recording(|recorder| recorder.log(worker, stream, lines));
    }

    /// Takes note of a batch of KV events that says nothing, for the recording.
    pub(crate) fn empty_batch(&self, worker: &WorkerId, stream: &str, seq: u64, wall: Option<WallTime>) {
        self.recording(|recorder| recorder.empty_batch(worker, stream, seq, wall));
    }

    /// Makes the recording replayable up to here.
    pub(crate) fn flush_recording(&self) {
        self.recording(Recorder::flush);
    }

    /// A recording that fails ends; the agent goes on.
    fn recording(&self, work: impl FnOnce(&mut Recorder) -> Result<(), RecordError>) {
        let mut recorder = lock(&self.recorder);
        let Some(active) = &mut *recorder else { return };
        if let Err(error) = work(active) {
            tracing::error!(%error, "the recording ends");
            *recorder = None;
        }
    }
}

/// Whether what is counted after it means something else than what was counted before.
/// What an observation means to who reads pages.
fn wanted(observation: &Observation) -> impl Iterator<Item = ScrapeCommand> {
    let Observation { envelope, body, .. } = observation;
    let worker = envelope.worker.as_ref();
    let is_adapter = matches!(body, Body::Factor(factor) if factor.factor.as_deref() == Some("adapter"));
    let adapters = worker.filter(|_| is_adapter).map(|worker| ScrapeCommand::Adapters(worker.clone()));
    let hurry = worker.filter(|_| changes_caches(body)).map(|worker| ScrapeCommand::Hurry(worker.clone()));
    let answered = answered_at(body).map(ScrapeCommand::Answered);
    adapters.into_iter().chain(hurry).chain(answered)
}

/// The port at which a request was answered.
fn answered_at(body: &Body) -> Option<u16> {
    let Body::RequestLeg(leg) = body else { return None };
    let decodes = matches!(leg.leg, Some(Role::Decode | Role::Both)) && leg.status.is_some();
    let endpoint = leg.endpoint.as_deref().filter(|_| decodes)?;
    let place = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest).split('/').next()?;
    place.rsplit_once(':')?.1.parse().ok()
}

fn changes_caches(body: &Body) -> bool {
    match body {
        Body::AdminCall(_) => true,
        Body::Factor(factor) => {
            let decides = matches!(factor.factor.as_deref(), Some("weights" | "adapter"));
            decides && factor.state == Some(FactorState::Provisional)
        }
        _ => false,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
