//! The running collector: one thread owns the ledger.
//!
//! Receivers offer batches ([`crate::intake`]); the thread merges them first of all, then evaluates what is due, then
//! brings the board up to date that readers see ([`board`]). Evaluating and paging may take a share of the time only,
//! so that merging never starves. What a finding becomes is logged in words, counted ([`totals`]) and told to
//! subscribers.
//!
//! After a restart every subject is evaluated once; what the ledger held as found before is neither opened nor counted
//! again.

pub mod board;
pub mod ear;
pub mod pages;
pub mod requests;
pub mod schedule;
pub mod totals;
pub mod work;

pub use board::{Board, Numbers, Seen};
pub use work::Core;

use crate::evaluate::Transition;
use crate::intake::{self, Accepted, Inbox, Lost, Offered, Queue, Refusal, Room};
use crate::ledger::{Ledger, LedgerError};
use crate::view::View;
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Confidence, Finding, FindingState};
use requests::Requests;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use totals::{Totals, UNKNOWN};

/// The thread looks around at least this often: signs of life and the end of the process.
const TICK: Duration = Duration::from_millis(100);
/// Batches merged before something else gets its turn.
const BATCHES_IN_A_ROW: usize = 64;
/// After an evaluation the thread evaluates no more for as long as this many times it took.
const EVALUATING_REST: u32 = 1;
/// Workers and numbers are brought up to date this often at most, and in this share of the time.
const PAGE_EVERY: Duration = Duration::from_secs(1);
const PAGE_REST: u32 = 20;
/// A survey is made this often when somebody asks, and this often when nobody does.
const SURVEY_ASKED: Duration = Duration::from_secs(2);
const SURVEY_UNASKED: Duration = Duration::from_secs(30);
const SURVEY_REST: u32 = 20;
/// A survey that somebody asked for is kept fresh for this long.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// The counters are written this often at most.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// The size of the ledger is measured, and what it forgot is forgotten, this often.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
/// After a failure of the ledger the thread waits this long before it evaluates again.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// Reasons that receivers may name for losses; more are counted together.
const LOSS_REASONS: usize = 64;

/// Told what findings become.
pub trait Subscriber: Send {
    /// A finding was opened, changed, superseded or resolved.
    fn changed(&mut self, transition: &Transition);
}

/// What to run.
pub struct Options {
    /// The ledger.
    pub ledger: Box<dyn Ledger>,
    /// How long the ledger keeps what is dated, in nanoseconds.
    pub horizon_ns: Option<i64>,
    /// The ledger's directory, to measure its size.
    pub directory: Option<PathBuf>,
    /// Where the counters are kept; `None`: nowhere.
    pub counters: Option<PathBuf>,
    /// How much may wait in front of the ledger.
    pub room: Room,
    /// Told what findings become.
    pub subscribers: Vec<Box<dyn Subscriber>>,
}

/// A collector that runs. Ends when it is dropped.
pub struct Running {
    queue: Queue,
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    alive: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Why the collector could not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The ledger cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// No thread.
    #[error("could not start the ledger's thread: {0}; raise the limit on processes (ulimit -u)")]
    Thread(#[from] std::io::Error),
}

/// Starts the thread that owns the ledger.
pub fn start(options: Options) -> Result<Running, RunError> {
    let board = Arc::new(Board::default());
    let stop = Arc::new(AtomicBool::new(false));
    let lost: Arc<Losses> = Arc::default();
    let counted = Arc::clone(&lost);
    let (queue, inbox) = intake::queue(options.room, move |lost| counted.add(lost));
    let core = Core::new(options.ledger, options.horizon_ns, Instant::now())?;
    let totals = options.counters.as_deref().map(Totals::load).unwrap_or_default();
    let now = Instant::now();
    let mut keeper = Keeper {
        core,
        inbox,
        board: Arc::clone(&board),
        stop: Arc::clone(&stop),
        lost,
        totals,
        counters: options.counters,
        directory: options.directory,
        subscribers: options.subscribers,
        pools: BTreeMap::new(),
        requests: Requests::default(),
        next_evaluation: now,
        next_page: now,
        next_survey: now,
        next_save: now,
        next_measure: now,
        stale: Stale { findings: true, pages: true, survey: true, totals: true },
        ledger_bytes: None,
        failing: None,
    };
    keeper.begin()?;
    let alive = Arc::new(AtomicBool::new(true));
    let life = Life(Arc::clone(&alive));
    let thread = std::thread::Builder::new().name("kvprov-ledger".to_owned()).spawn(move || {
        let _life = life;
        keeper.run();
    })?;
    Ok(Running { queue, board, stop, alive, thread: Some(thread) })
}

// === impl Running ===

impl Running {
    /// Where batches are offered.
    pub fn intake(&self) -> Queue {
        self.queue.clone()
    }

    /// What readers see.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Whether the thread runs; false as soon as it ended, for whatever reason.
    pub fn alive(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.alive)
    }

    /// Ends it: what waits is merged, what is due is left for the next start. Returns when the ledger is closed.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the ledger's thread ended by a panic; the ledger holds what was acknowledged");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says that the thread runs until it is dropped, by a panic too.
struct Life(Arc<AtomicBool>);

impl Drop for Life {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Losses that receivers report, until the thread counts them.
#[derive(Default)]
struct Losses(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

impl Losses {
    fn add(&self, lost: Lost) {
        let Ok(mut held) = self.0.lock() else { return };
        let key = (lost.stage, lost.reason);
        let key = if held.contains_key(&key) || held.len() < LOSS_REASONS { key } else { ("other", "other") };
        *held.entry(key).or_insert(0) += lost.records;
    }

    fn take(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.0.lock().map(|mut held| std::mem::take(&mut *held)).unwrap_or_default()
    }
}

/// What of the board no longer shows the ledger.
struct Stale {
    findings: bool,
    pages: bool,
    survey: bool,
    totals: bool,
}

/// The thread's own state.
struct Keeper {
    core: Core,
    inbox: Inbox,
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    lost: Arc<Losses>,
    totals: Totals,
    counters: Option<PathBuf>,
    directory: Option<PathBuf>,
    subscribers: Vec<Box<dyn Subscriber>>,
    pools: BTreeMap<String, String>,
    requests: Requests,
    next_evaluation: Instant,
    next_page: Instant,
    next_survey: Instant,
    next_save: Instant,
    next_measure: Instant,
    stale: Stale,
    ledger_bytes: Option<u64>,
    failing: Option<String>,
}

// === impl Keeper ===

impl Keeper {
    /// Before the thread starts: what stood in the ledger is shown and counted if it was not.
    fn begin(&mut self) -> Result<(), LedgerError> {
        self.page()?;
        let findings = self.core.findings()?;
        let pools = &self.pools;
        self.totals.reconcile(&findings, &|finding| pool_of(pools, finding));
        if !self.totals.requests.is_empty() {
            let before = self.core.take_touched();
            self.requests.counted_before(before.clone());
            self.core.touch(before);
        }
        self.pin_findings(findings);
        Ok(())
    }

    fn run(&mut self) {
        loop {
            let ending = self.stop.load(Ordering::Relaxed);
            let closed = self.merge_waiting(!ending);
            if ending || closed {
                break;
            }
            let outcome = self.work();
            match outcome {
                Ok(()) => self.recovered(),
                Err(error) => self.fail("evaluate", &error),
            }
            self.tick();
        }
        self.save();
    }

    /// Merges what waits; waits for something if nothing does and `patient`. Whether every receiver is gone.
    fn merge_waiting(&mut self, patient: bool) -> bool {
        let now = Instant::now();
        let mut first = None;
        if patient {
            let due = self
                .core
                .next()
                .map_or(TICK, |due| due.max(self.next_evaluation).saturating_duration_since(now));
            match self.inbox.next(due.min(TICK)) {
                Ok(offered) => first = offered,
                Err(intake::Closed) => return true,
            }
        }
        let mut offered = first.or_else(|| self.inbox.ready());
        for _ in 0..BATCHES_IN_A_ROW {
            let Some(one) = offered else { break };
            self.merge(one);
            offered = self.inbox.ready();
        }
        if let Some(one) = offered {
            self.merge(one);
        }
        false
    }

    fn merge(&mut self, mut offered: Offered) {
        let observations = offered.take();
        match self.core.take(observations, Instant::now(), wall_now()) {
            Ok(accepted) => {
                self.recovered();
                offered.answer(Ok::<Accepted, Refusal>(accepted));
            }
            Err(error) => {
                self.fail("merge a batch", &error);
                offered.answer(Err(Refusal::Ledger { reason: error.to_string() }));
            }
        }
    }

    /// Evaluates and pages what is due.
    fn work(&mut self) -> Result<(), LedgerError> {
        let now = Instant::now();
        if now >= self.next_evaluation {
            let began = now;
            if let Some(transitions) = self.core.evaluate(now)? {
                self.next_evaluation =
                    Instant::now() + work::rest(began.elapsed(), EVALUATING_REST, Duration::ZERO);
                if !transitions.is_empty() {
                    self.tell(&transitions);
                }
            }
        }
        if self.core.take_changed() {
            (self.stale.pages, self.stale.survey) = (true, true);
        }
        if self.stale.findings {
            let findings = self.core.findings()?;
            self.pin_findings(findings);
        }
        if self.stale.pages && now >= self.next_page {
            let began = Instant::now();
            self.page()?;
            self.next_page = Instant::now() + work::rest(began.elapsed(), PAGE_REST, PAGE_EVERY);
        }
        let asked = self.board.asked_within(ASKED_FOR);
        let first = asked && self.board.seen().survey.is_none();
        if self.stale.survey && (first || now >= self.next_survey) && self.core.is_ready() {
            let began = Instant::now();
            self.survey()?;
            let every = if asked { SURVEY_ASKED } else { SURVEY_UNASKED };
            self.next_survey = Instant::now() + work::rest(began.elapsed(), SURVEY_REST, every);
        } else if asked {
            // Somebody began to ask: the pause is the short one from now on.
            self.next_survey = self
                .next_survey
                .min(now + SURVEY_ASKED.max(self.next_survey.saturating_duration_since(now) / 4));
        }
        if now >= self.next_measure {
            self.core.prune()?;
            self.ledger_bytes = self.directory.as_deref().map(size_of);
            self.next_measure = now + MEASURE_EVERY;
        }
        Ok(())
    }

    /// Logs, counts and tells what changed.
    fn tell(&mut self, transitions: &[Transition]) {
        let pools = &self.pools;
        self.totals.take(transitions, &|finding| pool_of(pools, finding));
        for transition in transitions {
            log(&transition.finding);
            self.subscribers.iter_mut().for_each(|subscriber| subscriber.changed(transition));
        }
        (self.stale.findings, self.stale.totals) = (true, true);
    }

    fn pin_findings(&mut self, findings: Vec<Finding>) {
        let (findings, totals) = (Arc::new(findings), Arc::new(self.totals.clone()));
        self.board.pin(|seen| (seen.findings, seen.totals) = (findings, totals));
        self.stale.findings = false;
    }

    fn page(&mut self) -> Result<(), LedgerError> {
        let view = View::running(self.core.ledger(), &self.core.hearing(Instant::now()))?;
        let workers = pages::workers(&view, self.core.seen());
        view.finish()?;
        self.pools = workers.iter().map(|worker| (worker.id.clone(), worker.pool.clone())).collect();
        let workers = Arc::new(workers);
        self.board.pin(|seen| seen.workers = workers);
        self.stale.pages = false;
        Ok(())
    }

    fn survey(&mut self) -> Result<(), LedgerError> {
        let touched = self.core.take_touched();
        let said = !touched.is_empty();
        let view = View::running(self.core.ledger(), &self.core.hearing(Instant::now()))?;
        let survey = pages::survey(&view, &mut self.requests, touched);
        view.finish()?;
        self.board.pin_survey(survey);
        let ended = self.requests.take_ended();
        self.totals.count_requests(&ended);
        self.stale.totals |= !ended.is_empty();
        // What was said last is counted by a survey after this one.
        self.stale.survey = said;
        Ok(())
    }

    /// Brings the numbers up to date, and the file of counters.
    fn tick(&mut self) {
        let now = Instant::now();
        for ((stage, reason), records) in self.lost.take() {
            self.core.lose(stage, reason, records);
        }
        let mut numbers = self.core.numbers(now);
        numbers.ledger_bytes = self.ledger_bytes;
        let (numbers, ready, failing) = (Arc::new(numbers), self.core.is_ready(), self.failing.clone());
        self.board.pin(|seen| (seen.numbers, seen.ready, seen.failing) = (numbers, ready, failing));
        if self.stale.totals && now >= self.next_save {
            self.save();
            self.next_save = now + SAVE_EVERY;
        }
    }

    fn save(&mut self) {
        let Some(path) = &self.counters else { return };
        if let Err(error) = self.totals.save(path) {
            tracing::warn!(path = %path.display(), %error, "the counters could not be written; they are kept in memory");
        }
        self.stale.totals = false;
    }

    fn fail(&mut self, doing: &str, error: &LedgerError) {
        self.core.failed();
        let text = error.to_string();
        if self.failing.as_ref() != Some(&text) {
            tracing::error!(doing, error = %text, "the ledger fails");
        }
        self.failing = Some(text);
        self.next_evaluation = Instant::now() + FAILURE_PAUSE;
    }

    fn recovered(&mut self) {
        // Reading may work while writing does not: only what failed last tells.
        if Instant::now() >= self.next_evaluation && self.failing.take().is_some() {
            tracing::info!("the ledger works again");
        }
    }
}

/// The pool of the first worker of a finding whose pool is known.
fn pool_of(pools: &BTreeMap<String, String>, finding: &Finding) -> String {
    let mut known = finding.workers.iter().filter_map(|worker| pools.get(worker));
    known.find(|pool| *pool != UNKNOWN).cloned().unwrap_or_else(|| UNKNOWN.to_owned())
}

/// One line for people.
fn log(finding: &Finding) {
    let (id, detector, cause) = (finding.id.as_str(), finding.detector.as_str(), finding.cause.as_str());
    let confidence = match finding.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Suspected => "suspected",
        Confidence::Risk => "risk",
    };
    // Names come from outside; a line of ours stays a line.
    let what = finding.summary.replace(char::is_control, " ");
    match finding.state {
        FindingState::Opened => tracing::warn!(id, detector, cause, confidence, "found: {what}"),
        FindingState::Changed => tracing::debug!(id, detector, cause, confidence, "now: {what}"),
        FindingState::Superseded => {
            tracing::info!(id, detector, cause, "goes on under the id of its true beginning: {what}");
        }
        FindingState::Resolved => tracing::info!(id, detector, cause, "no longer stated: {what}"),
    }
}

/// The collector's wall clock.
fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    WallTime(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

/// Bytes of the files below a directory; what vanishes meanwhile counts nothing.
fn size_of(directory: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(directory) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => size_of(&entry.path()),
            Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
            _ => 0,
        })
        .sum()
}
