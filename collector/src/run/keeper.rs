//! The thread that owns the ledger: merge first of all, then evaluate what is due, then bring the board up to date.
//!
//! Every kind of work beside merging rests a multiple of what it took, so that none of them can starve another.

use super::board::Board;
use super::requests::Requests;
use super::totals::{Totals, UNKNOWN};
use super::work::Core;
use super::{Subscriber, pages};
use crate::evaluate::Transition;
use crate::export::traces::Teller;
use crate::intake::{self, Accepted, Inbox, Lost, Offered, Refusal};
use crate::ledger::LedgerError;
use crate::view::View;
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Confidence, Finding, FindingState};
use kvprov_model::id::RequestStem;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
/// And this often while requests wait to be traced.
const SURVEY_TRACED: Duration = Duration::from_secs(5);
const SURVEY_REST: u32 = 20;
/// A survey that somebody asked for is kept fresh for this long.
const ASKED_FOR: Duration = Duration::from_secs(60);
/// The counters are written this often at most.
const SAVE_EVERY: Duration = Duration::from_secs(5);
/// The size of the ledger is measured, and what it forgot is forgotten, this often.
const MEASURE_EVERY: Duration = Duration::from_secs(60);
/// After a failure of the ledger the thread waits this long before it evaluates again.
const FAILURE_PAUSE: Duration = Duration::from_secs(2);
/// Reasons that receivers may name for losses; more are counted together.
const LOSS_REASONS: usize = 64;

/// Losses that receivers report, until the thread counts them.
#[derive(Default)]
pub(super) struct Losses(Mutex<BTreeMap<(&'static str, &'static str), u64>>);

impl Losses {
    pub(super) fn add(&self, lost: Lost) {
        let Ok(mut held) = self.0.lock() else { return };
        let key = (lost.stage, lost.reason);
        let key = if held.contains_key(&key) || held.len() < LOSS_REASONS { key } else { ("other", "other") };
        *held.entry(key).or_insert(0) += lost.records;
    }

    fn take(&self) -> BTreeMap<(&'static str, &'static str), u64> {
        self.0.lock().map(|mut held| std::mem::take(&mut *held)).unwrap_or_default()
    }
}

/// How the thread is reached.
pub(super) struct Links {
    /// What comes.
    pub(super) inbox: Inbox,
    /// What readers see.
    pub(super) board: Arc<Board>,
    /// Whether to end.
    pub(super) stop: Arc<AtomicBool>,
    /// What receivers report as lost.
    pub(super) lost: Arc<Losses>,
}

/// Who is told what the thread concludes.
pub(super) struct Tells {
    /// Told what findings become.
    pub(super) subscribers: Vec<Box<dyn Subscriber>>,
    /// Tells requests as traces.
    pub(super) teller: Option<Teller>,
}

/// What of the board no longer shows the ledger.
struct Stale {
    findings: bool,
    pages: bool,
    survey: bool,
    totals: bool,
}

/// The thread's own state.
pub(super) struct Keeper {
    core: Core,
    links: Links,
    totals: Totals,
    counters: Option<PathBuf>,
    directory: Option<PathBuf>,
    tells: Tells,
    pools: BTreeMap<String, String>,
    requests: Requests,
    evaluated: Done,
    paged: Done,
    surveyed: Done,
    next_save: Instant,
    next_measure: Instant,
    /// After a failure nothing is evaluated before this time.
    pause_until: Instant,
    stale: Stale,
    ledger_bytes: Option<u64>,
    /// Why merging and why reading fails, while it does.
    failing: [Option<String>; 2],
}

/// What fails.
#[derive(Debug, Clone, Copy)]
enum Doing {
    Merging = 0,
    Evaluating = 1,
}

/// When some work ended last, and what it took.
#[derive(Debug, Clone, Copy, Default)]
struct Done(Option<(Instant, Duration)>);

// === impl Done ===

impl Done {
    fn now(began: Instant) -> Self {
        let now = Instant::now();
        Self(Some((now, now.duration_since(began))))
    }

    /// When it is due again, if it may take one part in `share` of the time and rests `at_least` so long.
    fn due(self, share: u32, at_least: Duration) -> Option<Instant> {
        self.0.map(|(ended, took)| ended + (took * share).max(at_least))
    }

    fn is_due(self, now: Instant, share: u32, at_least: Duration) -> bool {
        self.due(share, at_least).is_none_or(|due| due <= now)
    }
}

// === impl Keeper ===

impl Keeper {
    pub(super) fn new(
        core: Core,
        links: Links,
        directory: Option<PathBuf>,
        counters: Option<PathBuf>,
        tells: Tells,
    ) -> Self {
        let now = Instant::now();
        Self {
            core,
            links,
            totals: counters.as_deref().map(Totals::load).unwrap_or_default(),
            counters,
            directory,
            tells,
            pools: BTreeMap::new(),
            requests: Requests::default(),
            evaluated: Done::default(),
            paged: Done::default(),
            surveyed: Done::default(),
            next_save: now,
            next_measure: now,
            pause_until: now,
            stale: Stale { findings: true, pages: true, survey: true, totals: true },
            ledger_bytes: None,
            failing: [None, None],
        }
    }

    /// Before the thread starts: what stood in the ledger is shown and counted if it was not.
    pub(super) fn begin(&mut self) -> Result<(), LedgerError> {
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

    pub(super) fn run(&mut self) {
        while !self.links.stop.load(Ordering::Relaxed) {
            if self.merge_waiting().is_err() {
                break;
            }
            match self.work() {
                Ok(()) => self.works(Doing::Evaluating),
                Err(error) => {
                    self.fails(Doing::Evaluating, &error);
                    self.pause_until = Instant::now() + FAILURE_PAUSE;
                }
            }
            self.tick();
        }
        while let Some(offered) = self.links.inbox.ready() {
            self.merge(offered);
        }
        self.save();
        if let Some(teller) = &mut self.tells.teller {
            teller.save(true);
        }
    }

    /// Waits for something to merge until something else is due, and merges what waits.
    fn merge_waiting(&mut self) -> Result<(), intake::Closed> {
        let now = Instant::now();
        let mut due = self.core.next().unwrap_or(now + TICK).max(self.pause_until);
        if let Some(rested) = self.evaluated.due(EVALUATING_REST, Duration::ZERO) {
            due = due.max(rested);
        }
        let mut offered = self.links.inbox.next(due.saturating_duration_since(now).min(TICK))?;
        for _ in 0..BATCHES_IN_A_ROW {
            let Some(one) = offered.take() else { break };
            self.merge(one);
            offered = self.links.inbox.ready();
        }
        if let Some(one) = offered {
            self.merge(one);
        }
        Ok(())
    }

    fn merge(&mut self, mut offered: Offered) {
        let observations = offered.take();
        match self.core.take(observations, Instant::now(), wall_now()) {
            Ok(accepted) => {
                self.works(Doing::Merging);
                offered.answer(Ok::<Accepted, Refusal>(accepted));
            }
            Err(error) => {
                self.fails(Doing::Merging, &error);
                offered.answer(Err(Refusal::Ledger { reason: error.to_string() }));
            }
        }
    }

    /// Evaluates and pages what is due.
    fn work(&mut self) -> Result<(), LedgerError> {
        let now = Instant::now();
        if now < self.pause_until {
            return Ok(());
        }
        if self.evaluated.is_due(now, EVALUATING_REST, Duration::ZERO)
            && let Some(transitions) = self.core.evaluate(now)?
        {
            self.evaluated = Done::now(now);
            if !transitions.is_empty() {
                self.tell(&transitions);
            }
        }
        if self.core.take_changed() {
            (self.stale.pages, self.stale.survey) = (true, true);
        }
        if self.stale.findings {
            let findings = self.core.findings()?;
            self.pin_findings(findings);
        }
        if self.stale.pages && self.paged.is_due(now, PAGE_REST, PAGE_EVERY) {
            self.page()?;
        }
        let asked = self.links.board.asked_within(ASKED_FOR);
        let every = match &self.tells.teller {
            _ if asked => SURVEY_ASKED,
            Some(teller) if teller.has_waiting() => teller.look_every().min(SURVEY_TRACED),
            _ => SURVEY_UNASKED,
        };
        if self.stale.survey && self.core.is_ready() && self.surveyed.is_due(now, SURVEY_REST, every) {
            self.survey()?;
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
            self.tells.subscribers.iter_mut().for_each(|subscriber| subscriber.changed(transition));
        }
        if let Some(teller) = &mut self.tells.teller {
            let named = transitions.iter().flat_map(|transition| &transition.finding.requests);
            teller.concern(named.map(|id| RequestStem::of(id)));
            self.stale.survey = true;
        }
        (self.stale.findings, self.stale.totals) = (true, true);
        // What opens and ends before the file is written would be counted nowhere if this process were killed.
        if transitions.iter().any(|transition| transition.finding.state != FindingState::Changed) {
            self.save();
        }
    }

    fn pin_findings(&mut self, findings: Vec<Finding>) {
        let (findings, totals) = (Arc::new(findings), Arc::new(self.totals.clone()));
        self.links.board.pin(|seen| (seen.findings, seen.totals) = (findings, totals));
        self.stale.findings = false;
    }

    fn page(&mut self) -> Result<(), LedgerError> {
        let began = Instant::now();
        let view = View::running(self.core.ledger(), &self.core.hearing(Instant::now()))?;
        let workers = pages::workers(&view, self.core.seen());
        view.finish()?;
        self.pools = workers.iter().map(|worker| (worker.id.clone(), worker.pool.clone())).collect();
        let workers = Arc::new(workers);
        self.links.board.pin(|seen| seen.workers = workers);
        self.stale.pages = false;
        self.paged = Done::now(began);
        Ok(())
    }

    fn survey(&mut self) -> Result<(), LedgerError> {
        let began = Instant::now();
        let touched = self.core.take_touched();
        let said = !touched.is_empty();
        if let Some(teller) = &mut self.tells.teller {
            teller.concern(touched.iter().cloned());
        }
        let view = View::running(self.core.ledger(), &self.core.hearing(Instant::now()))?;
        let survey = pages::survey(&view, &mut self.requests, touched);
        if let Some(teller) = &mut self.tells.teller {
            teller.look(&view, &self.requests, &self.links.board.seen().findings);
        }
        view.finish()?;
        let pools = &self.pools;
        let before = self.totals.evictions.clone();
        self.totals.count_evictions(&survey.stores, &|worker| {
            pools.get(worker).cloned().unwrap_or_else(|| UNKNOWN.to_owned())
        });
        self.stale.totals |= before != self.totals.evictions;
        self.links.board.pin_survey(survey);
        let ended = self.requests.take_ended();
        self.totals.count_requests(&ended);
        self.stale.totals |= !ended.is_empty();
        let totals = Arc::new(self.totals.clone());
        self.links.board.pin(|seen| seen.totals = totals);
        // What was said last is counted by a survey after this one.
        self.stale.survey = said || self.tells.teller.as_ref().is_some_and(Teller::has_waiting);
        self.surveyed = Done::now(began);
        Ok(())
    }

    /// Brings the numbers up to date, and the file of counters.
    fn tick(&mut self) {
        let now = Instant::now();
        for ((stage, reason), records) in self.links.lost.take() {
            self.core.lose(stage, reason, records);
        }
        let mut numbers = self.core.numbers(now);
        numbers.ledger_bytes = self.ledger_bytes;
        let failing = self.failing.iter().flatten().next().cloned();
        let (numbers, ready) = (Arc::new(numbers), self.core.is_ready());
        self.links.board.pin(|seen| (seen.numbers, seen.ready, seen.failing) = (numbers, ready, failing));
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

    fn fails(&mut self, doing: Doing, error: &LedgerError) {
        self.core.failed();
        let text = error.to_string();
        let held = &mut self.failing[doing as usize];
        if held.as_ref() != Some(&text) {
            tracing::error!(?doing, error = %text, "the ledger fails");
        }
        *held = Some(text);
    }

    fn works(&mut self, doing: Doing) {
        if Instant::now() >= self.pause_until && self.failing[doing as usize].take().is_some() {
            tracing::info!(?doing, "the ledger works again");
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
