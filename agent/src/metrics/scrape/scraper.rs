//! Asks every worker at its time, a few at once, and hands on what comes.
//!
//! Operation: [`Scraper::turn`] starts what is due, waits a moment for answers and handles those that came. Everything but
//! the waiting for answers happens on the caller's thread. While the queue takes nothing, an endpoint is not asked again.

use super::answers::AnswerTarget;
use super::kept::{Kept, Saved};
use super::page::{Ask, Got, Trouble, read_answer, read_page};
use super::pages::{PageTarget, again};
use super::watched::{Watched, Who};
use super::{Counts, Pace, Spent, Taker, Wait};
use crate::access::ProcessAccess;
use crate::discover::FoundWorker;
use crate::http::{Limits, ReadPath};
use crate::kernel::live::Now;
use crate::source::Losses;
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Questions that are open at a time.
pub const AT_ONCE: usize = 4;
/// Answers about models are asked for again after this.
const ANSWERS_EVERY: Duration = Duration::from_secs(30);
/// As long as they do not come, after this.
const ANSWERS_WAIT: Duration = Duration::from_secs(1);
/// What is kept of workers that are not found again is kept this long.
const KEEPS: Duration = Duration::from_secs(120);
/// A port on which nothing listens is said after this; a large model takes long to load.
const SILENCE: Duration = Duration::from_secs(900);
/// Between two pages of an endpoint that are wanted at once, at the least: this long, this many times our own work on the
/// last one, and as long as the engine took for it. Changes of models and caches are rare; what they part cannot be told apart
/// later.
const HURRY_REST: Duration = Duration::from_millis(150);
const HURRY_WORK: u32 = 10;
/// Bytes of an answer about models.
const ANSWER_BYTES: usize = 1 << 20;
/// Pages behind by more than this, when a worker ends, are a loss.
const LATE: Duration = Duration::from_secs(30);

/// How it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapeOptions {
    /// Between two pages of an endpoint that cost little.
    pub interval: Duration,
    /// Until a page has to be there whole.
    pub timeout: Duration,
    /// Bytes of a page; a longer one is not used.
    pub page_bytes: usize,
    /// Whether counters are read.
    pub counters: bool,
    /// What else is asked for.
    pub answers: Vec<ReadPath>,
}

impl Default for ScrapeOptions {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(5),
            page_bytes: 16 << 20,
            counters: true,
            answers: vec![ReadPath::Models, ReadPath::Version],
        }
    }
}

/// What a question was for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    /// The page of an endpoint.
    Page(String),
    /// An answer.
    Answer(ReadPath),
}

/// What came of a question.
struct Done {
    worker: WorkerId,
    question: Question,
    spent: Spent,
    at: WallTime,
    result: Came,
}

enum Came {
    Page(Result<Got<String>, Trouble>),
    Answer(Result<Got<Vec<u8>>, Trouble>),
}

/// Observations that the queue did not take yet.
#[derive(Debug)]
struct Outgoing {
    worker: WorkerId,
    observations: Vec<Observation>,
}

/// Reads what workers show.
pub struct Scraper {
    packs: &'static Packs,
    fingerprint: String,
    access: Arc<dyn ProcessAccess>,
    node: NodeId,
    options: ScrapeOptions,
    pace: Pace,
    runtime: Runtime,
    tasks: JoinSet<Done>,
    workers: BTreeMap<WorkerId, Watched>,
    kept: Kept,
    /// Of an agent before this one, until the worker is found.
    saved: BTreeMap<(WorkerId, String), Saved>,
    began: (Instant, WallTime),
    outgoing: Vec<Outgoing>,
    /// Endpoints of workers that are gone, to be forgotten once all they said is with the queue.
    retired: Vec<(WorkerId, String)>,
    counts: Counts,
    losses: Losses,
}

impl std::fmt::Debug for Scraper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scraper").field("workers", &self.workers.len()).finish_non_exhaustive()
    }
}

// === impl Scraper ===

impl Scraper {
    /// Asks nobody yet. `directory`: what was read of counters is kept there.
    ///
    /// # Errors
    /// When the directory or a runtime cannot be made.
    pub fn new(
        packs: &'static Packs,
        access: Arc<dyn ProcessAccess>,
        node: NodeId,
        directory: &Path,
        options: ScrapeOptions,
    ) -> std::io::Result<Self> {
        let kept = Kept::new(directory)?;
        let fingerprint = packs.metrics().fingerprint();
        let mut scraper = Self {
            packs,
            access,
            node,
            pace: Pace::new(options.interval),
            options,
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build()?,
            tasks: JoinSet::new(),
            workers: BTreeMap::new(),
            saved: BTreeMap::new(),
            kept,
            fingerprint,
            began: (Instant::now(), now()),
            outgoing: Vec::new(),
            retired: Vec::new(),
            counts: Counts::default(),
            losses: Losses::default(),
        };
        for saved in scraper.kept.load(&scraper.fingerprint) {
            // Perhaps the end came between saving a page and telling it; told twice it merges into one.
            let observations = again(packs, &scraper.node, &saved);
            scraper.outgoing.push(Outgoing { worker: saved.worker.clone(), observations });
            scraper.saved.insert((saved.worker.clone(), saved.endpoint.clone()), saved);
        }
        Ok(scraper)
    }

    /// A worker is there, or something else is known of it.
    pub fn worker(&mut self, found: &FoundWorker, out: &dyn Taker) {
        let who = Who::of(found);
        let packs = self.packs;
        let endpoints = packs.endpoints(&who.engine, &who.settings, who.seen.arguments);
        let watched = self.workers.entry(who.id.clone()).or_insert_with(|| Watched {
            who: who.clone(),
            pages: BTreeMap::new(),
            answers: BTreeMap::new(),
            has_adapters: false,
            followed: None,
        });
        if watched.who.version != who.version {
            watched.pages.values_mut().for_each(|page| page.learn(packs, who.version.as_deref()));
        }
        watched.who = who;
        let who = &watched.who;
        for endpoint in endpoints {
            let has_counters = endpoint.serves.iter().any(|path| path == ReadPath::Metrics.as_str());
            if has_counters && self.options.counters && !watched.pages.contains_key(endpoint.id) {
                let key = (who.id.clone(), endpoint.id.to_owned());
                let mut target = PageTarget::new(packs, who, &endpoint, self.saved.remove(&key).as_ref());
                if let Some(reason) = target.refused.clone().filter(|reason| target.say_once(reason)) {
                    out.blind(format!("the metrics of {}: {reason}", who.id));
                    let unread = target.unread(&self.node, who, now(), &reason);
                    self.outgoing.push(Outgoing { worker: who.id.clone(), observations: vec![unread] });
                }
                watched.pages.insert(endpoint.id.to_owned(), target);
            }
            if endpoint.refused.is_some() {
                continue;
            }
            let paths = endpoint.serves.iter().filter_map(|path| ReadPath::from_name(path));
            for path in paths.filter(|path| self.options.answers.contains(path)) {
                if packs.reads_answer(&who.engine, path.as_str()) {
                    watched.answers.entry(path).or_insert_with(|| AnswerTarget::new(endpoint.port));
                }
            }
        }
    }

    /// Something changed that parts what a worker counted before from what it counts after: its pages are read as soon as
    /// their cost allows.
    pub fn hurry(&mut self, worker: &WorkerId) {
        if let Some(watched) = self.workers.get_mut(worker) {
            watched.hurry();
        }
    }

    /// A worker loaded an adapter.
    pub fn has_adapters(&mut self, worker: &WorkerId) {
        if let Some(watched) = self.workers.get_mut(worker) {
            watched.has_adapters = true;
        }
    }

    /// A router had an answer from a port: what ran there may have been an adapter.
    pub fn answered(&mut self, port: u16) {
        let now = Instant::now();
        self.workers.values_mut().for_each(|watched| watched.answered(port, now));
    }

    /// A worker is gone.
    pub fn gone(&mut self, worker: &WorkerId) {
        let Some(watched) = self.workers.remove(worker) else { return };
        let late = LATE.max(self.options.interval * 3);
        for target in watched.pages.values() {
            if let Some(loss) = target.ended(&self.node, &watched.who, now(), late) {
                self.outgoing.push(Outgoing { worker: worker.clone(), observations: vec![loss] });
            }
            self.retired.push((worker.clone(), target.endpoint.clone()));
        }
    }

    /// Starts what is due and handles what came, waiting at most `patience`. True when all that was read is with the
    /// queue.
    pub fn turn(&mut self, out: &dyn Taker, patience: Duration) -> bool {
        self.hand_over(out);
        self.forget();
        self.start();
        let tasks = &mut self.tasks;
        let mut came = self.runtime.block_on(async {
            match tokio::time::timeout(patience, tasks.join_next()).await {
                Ok(Some(done)) => Some(done),
                // Nothing is open: the time has to pass otherwise.
                Ok(None) => {
                    tokio::time::sleep(patience).await;
                    None
                }
                Err(_) => None,
            }
        });
        while let Some(done) = came {
            match done {
                Ok(done) => self.handle(done, out),
                // Whose it was is not known: all are asked anew at their time.
                Err(error) => {
                    tracing::error!(%error, "a question to an engine failed");
                    for watched in self.workers.values_mut() {
                        watched.pages.values_mut().for_each(|target| target.is_asked = false);
                        watched.answers.values_mut().for_each(|target| target.is_asked = false);
                    }
                }
            }
            came = self.tasks.try_join_next();
        }
        self.hand_over(out);
        self.outgoing.is_empty()
    }

    /// What it cost and gave so far.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts.clone();
        for target in self.workers.values().flat_map(|watched| watched.pages.values()) {
            let state = if target.refused.is_some() {
                "refused"
            } else if target.failures > 0 {
                "failing"
            } else if target.before.is_some() {
                "read"
            } else {
                "waiting"
            };
            *counts.endpoints.entry(state).or_default() += 1;
        }
        counts
    }

    /// What was lost since the last time this was asked.
    pub fn losses(&mut self) -> Losses {
        std::mem::take(&mut self.losses)
    }

    fn hand_over(&mut self, out: &dyn Taker) {
        // In order: what comes later may rest on what comes first.
        let taken = self.outgoing.iter().take_while(|outgoing| out.take(&outgoing.observations)).count();
        self.outgoing.drain(..taken);
    }

    /// Removes what is kept of workers that are gone, also of those that ended while no agent ran, once all they said is
    /// with the queue.
    fn forget(&mut self) {
        if self.began.0.elapsed() >= KEEPS {
            self.retired.extend(std::mem::take(&mut self.saved).into_keys());
        }
        let outgoing = &self.outgoing;
        let is_told = |(worker, _): &mut (WorkerId, String)| outgoing.iter().all(|one| one.worker != *worker);
        for (worker, endpoint) in self.retired.extract_if(.., is_told) {
            self.kept.forget(&worker, &endpoint);
        }
    }

    fn start(&mut self) {
        let now = Instant::now();
        let mut due: Vec<(Instant, WorkerId, Question, u16)> = Vec::new();
        for (id, watched) in &self.workers {
            if self.outgoing.iter().any(|outgoing| outgoing.worker == *id) {
                continue;
            }
            for (endpoint, target) in &watched.pages {
                if !target.is_asked && target.refused.is_none() && target.due <= now {
                    due.push((target.due, id.clone(), Question::Page(endpoint.clone()), target.port));
                }
            }
            for (path, target) in &watched.answers {
                if !target.is_asked && !target.is_done && target.due <= now {
                    due.push((target.due, id.clone(), Question::Answer(*path), target.port));
                }
            }
        }
        due.sort();
        let room = AT_ONCE.saturating_sub(self.tasks.len());
        for (_, worker, question, port) in due.into_iter().take(room) {
            self.ask(worker, question, port);
        }
    }

    fn ask(&mut self, worker: WorkerId, question: Question, port: u16) {
        let Some(watched) = self.workers.get_mut(&worker) else { return };
        let before = match &question {
            Question::Page(endpoint) => watched.pages.get_mut(endpoint).and_then(|target| {
                target.is_asked = true;
                target.before.clone()
            }),
            Question::Answer(path) => watched.answers.get_mut(path).and_then(|target| {
                target.is_asked = true;
                target.before.clone()
            }),
        };
        let ask = Ask { processes: watched.who.processes.clone(), port, before };
        let access = Arc::clone(&self.access);
        let packs = self.packs;
        let mut limits =
            Limits { total: self.options.timeout, bytes: self.options.page_bytes, ..Limits::default() };
        let task = async move {
            let begun = Instant::now();
            let result = match &question {
                Question::Page(_) => Came::Page(read_page(&*access, &ask, packs, &limits).await),
                Question::Answer(path) => {
                    limits.bytes = ANSWER_BYTES;
                    Came::Answer(read_answer(&*access, &ask, *path, &limits).await)
                }
            };
            let worked = match &result {
                Came::Page(Ok(got)) => got.worked,
                Came::Answer(Ok(got)) => got.worked,
                Came::Page(Err(_)) | Came::Answer(Err(_)) => Duration::ZERO,
            };
            let spent = Spent { waited: begun.elapsed(), worked };
            Done { worker, question, spent, at: now(), result }
        };
        self.tasks.spawn_on(task, self.runtime.handle());
    }

    fn handle(&mut self, done: Done, out: &dyn Taker) {
        self.counts.spent = self.counts.spent.saturating_add(done.spent.waited);
        self.counts.worked = self.counts.worked.saturating_add(done.spent.worked);
        match (done.question, done.result) {
            (Question::Page(endpoint), Came::Page(result)) => {
                self.page(&done.worker, &endpoint, result, done.spent, done.at, out);
            }
            (Question::Answer(path), Came::Answer(result)) => {
                self.answer(&done.worker, path, result, done.spent, done.at, out);
            }
            _ => {}
        }
    }

    fn page(
        &mut self,
        worker: &WorkerId,
        endpoint: &str,
        result: Result<Got<String>, Trouble>,
        spent: Spent,
        at: WallTime,
        out: &dyn Taker,
    ) {
        let Some(watched) = self.workers.get_mut(worker) else { return };
        let Some(target) = watched.pages.get_mut(endpoint) else { return };
        target.is_asked = false;
        target.tries = target.tries.wrapping_add(1);
        let wait = match result {
            Ok(got) => {
                self.counts.pages += 1;
                self.counts.bytes += got.bytes as u64;
                let read = target.page(&self.node, &self.fingerprint, &watched.who, &got, at, self.began.1);
                for (reason, count) in std::mem::take(&mut target.losses).iter() {
                    self.losses.add(reason, count);
                }
                if let Err(error) = self.kept.save(&read.saved) {
                    self.losses.one("counters not kept");
                    tracing::warn!(%error, "what was read of counters is not kept; a restart of the agent loses an interval");
                }
                if let Some(zero) = read.zero {
                    out.page(worker, endpoint, zero, "");
                }
                out.page(worker, endpoint, at, &read.saved.page.text);
                if read.is_first {
                    out.reads(worker, format!("its metrics at {}", read.saved.page.stream));
                }
                self.outgoing.push(Outgoing { worker: worker.clone(), observations: read.observations });
                Wait::Read
            }
            Err(trouble) if trouble.is_silence() => {
                if target.is_silent_for() > SILENCE {
                    if target.say_once("silent") {
                        out.blind(format!("the metrics of {worker}: {trouble}"));
                    }
                    Wait::Read
                } else {
                    Wait::Listen
                }
            }
            Err(trouble) => {
                *self.counts.failures.entry(trouble.reason()).or_default() += 1;
                self.losses.one(trouble.reason());
                if let Some(text) = target.failed(&trouble) {
                    out.blind(format!("the metrics of {worker}: {text}"));
                    let unread = target.unread(&self.node, &watched.who, at, &text);
                    self.outgoing.push(Outgoing { worker: worker.clone(), observations: vec![unread] });
                }
                Wait::Failed(target.failures)
            }
        };
        let now = Instant::now();
        target.due = now + self.pace.after(wait, spent, target.tries);
        target.rests_until = now + HURRY_REST.max(spent.worked * HURRY_WORK).max(spent.waited);
        if std::mem::take(&mut target.is_wanted) && wait == Wait::Read {
            target.due = target.due.min(target.rests_until);
        }
    }

    fn answer(
        &mut self,
        worker: &WorkerId,
        path: ReadPath,
        result: Result<Got<Vec<u8>>, Trouble>,
        spent: Spent,
        at: WallTime,
        out: &dyn Taker,
    ) {
        let Some(watched) = self.workers.get_mut(worker) else { return };
        let Some(target) = watched.answers.get_mut(&path) else { return };
        target.is_asked = false;
        target.tries = target.tries.wrapping_add(1);
        let wait = match result {
            Ok(got) => {
                self.counts.answers += 1;
                self.counts.bytes += got.bytes as u64;
                target.failures = 0;
                target.before = Some(got.served);
                // A version is for life.
                target.is_done = path == ReadPath::Version;
                let told = target.told(self.packs, &self.node, &watched.who, path, &got.answer, at);
                if let Some(observation) = told {
                    self.outgoing.push(Outgoing { worker: worker.clone(), observations: vec![observation] });
                }
                Wait::Read
            }
            Err(trouble) if trouble.is_silence() => Wait::Listen,
            Err(trouble) => {
                *self.counts.failures.entry(trouble.reason()).or_default() += 1;
                target.failures = target.failures.saturating_add(1);
                target.before = None;
                if let Trouble::NoAnswer(error) = &trouble
                    && error.is_final()
                {
                    target.is_done = true;
                    out.blind(format!("{path} of {worker}: {error}; it is not asked for again"));
                }
                Wait::Failed(target.failures)
            }
        };
        let pause = self.pace.after(wait, spent, target.tries);
        let at_least = if wait == Wait::Read { ANSWERS_EVERY } else { ANSWERS_WAIT };
        let pause = pause.max(at_least);
        target.due = Instant::now() + pause;
    }
}

fn now() -> WallTime {
    WallTime(Now::read().wall)
}
