//! What a detector may look at: the ledger around one subject, read on demand.
//!
//! A [`View`] is a pure function of the ledger: it reads and never writes, asks no clock and remembers only what it
//! read. Detectors get observations sorted by time, and the [`Roster`]: every worker with its facts and epochs.

pub mod expected;
pub mod hearing;
pub mod legs;
pub mod request;
pub mod roster;
pub mod timeline;

use crate::detect::artifacts::History;
use crate::ledger::{IndexKey, IndexKind, Ledger, LedgerError};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, RequestStem, StoreId, WorkerId};
use kvprov_model::observation::{Body, Counters, Observation, Role};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

pub use expected::Declared;
pub use hearing::{Heard, Hearing};
pub use legs::Legs;
pub use roster::{Member, Roster, Stated};

/// No counter of tokens, requests or bytes moves this far in one interval.
const ABSURD: f64 = 1e16;

/// Observations as a view has read them, shared by whoever looks at them.
pub type Selected = Arc<Vec<Observation>>;

/// How far the input has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More may come: what is absent is absent only up to each node's watermark.
    Running,
    /// The input has ended: a recording.
    Ended,
}

/// The ledger as a detector sees it.
pub struct View<'l> {
    progress: Progress,
    ledger: &'l dyn Ledger,
    roster: Rc<Roster>,
    declared: Rc<Declared>,
    watermarks: BTreeMap<NodeId, WallTime>,
    silent: BTreeSet<NodeId>,
    /// What a conclusion waits for: nodes, and the earliest time up to which they have to be heard.
    awaited: RefCell<BTreeMap<NodeId, WallTime>>,
    /// Before this time something was left out of what was read.
    cut_before: Cell<Option<WallTime>>,
    read: RefCell<BTreeMap<IndexKey, Selected>>,
    intervals: RefCell<BTreeMap<WorkerId, Rc<Vec<Interval>>>>,
    legs: RefCell<Option<Rc<Legs>>>,
    histories: RefCell<BTreeMap<StoreId, Rc<History>>>,
    cut: Cell<u64>,
    failed: RefCell<Option<LedgerError>>,
}

impl<'l> View<'l> {
    /// A view of the ledger. Reads the roster at once.
    pub fn new(ledger: &'l dyn Ledger, progress: Progress) -> Result<Self, LedgerError> {
        Self::over(ledger, progress, &Hearing::default())
    }

    /// A view of the ledger of a running collector.
    pub fn running(ledger: &'l dyn Ledger, hearing: &Hearing) -> Result<Self, LedgerError> {
        Self::over(ledger, Progress::Running, hearing)
    }

    pub(crate) fn over(
        ledger: &'l dyn Ledger,
        progress: Progress,
        hearing: &Hearing,
    ) -> Result<Self, LedgerError> {
        let known = ledger.view(&IndexKey::Roster)?.observations;
        let (roster, declared) = (Rc::new(Roster::build(&known)), Rc::new(Declared::build(&known)));
        let mut watermarks = ledger.watermarks();
        watermarks.extend(hearing.complete.iter().map(|(node, time)| (node.clone(), *time)));
        Ok(Self {
            progress,
            ledger,
            roster,
            declared,
            watermarks,
            silent: hearing.silent.clone(),
            awaited: RefCell::default(),
            cut_before: Cell::new(None),
            read: RefCell::default(),
            intervals: RefCell::default(),
            legs: RefCell::default(),
            histories: RefCell::default(),
            cut: Cell::new(0),
            failed: RefCell::default(),
        })
    }

    /// Every worker with its facts and epochs.
    pub fn roster(&self) -> &Roster {
        &self.roster
    }

    /// What operators declare that names should mean.
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// The event time up to which a node has delivered; `None` when it has delivered nothing.
    pub fn watermark(&self, node: &NodeId) -> Option<WallTime> {
        self.watermarks.get(node).copied()
    }

    /// Whether a node fell silent.
    pub fn is_silent(&self, node: &NodeId) -> bool {
        self.silent.contains(node)
    }

    /// Whether these workers have been heard up to a time. What is absent before that is really absent; until then
    /// nothing may be concluded from absence. A worker that is gone has to be heard up to its end, which is all that it
    /// can have said; a silent node is not waited for.
    pub fn heard<'w>(&self, workers: impl IntoIterator<Item = &'w Member>, time: Option<WallTime>) -> Heard {
        if self.progress == Progress::Ended {
            return Heard::All;
        }
        let Some(time) = time else { return Heard::Waiting };
        let mut silent = BTreeSet::new();
        for member in workers {
            let until = member.gone.map_or(time, |gone| gone.min(time));
            if self.watermark(&member.node).is_some_and(|mark| mark >= until) {
                continue;
            }
            if !self.silent.contains(&member.node) {
                let mut awaited = self.awaited.borrow_mut();
                let earliest = awaited.entry(member.node.clone()).or_insert(until);
                *earliest = until.min(*earliest);
                return Heard::Waiting;
            }
            silent.insert(member.node.clone());
        }
        if silent.is_empty() { Heard::All } else { Heard::Except(silent) }
    }

    /// What conclusions have waited for since this was asked last: when one of these nodes has been heard up to its time,
    /// there may be more to conclude.
    pub fn take_awaited(&self) -> BTreeMap<NodeId, WallTime> {
        self.awaited.take()
    }

    /// The workers that can tell what became of a request of a worker: itself, the routers, whoever has no known role,
    /// and those that took part.
    pub fn witnesses<'v>(
        &'v self,
        worker: &'v WorkerId,
        part: &'v BTreeSet<String>,
    ) -> impl Iterator<Item = &'v Member> {
        self.roster.members().filter(move |member| {
            member.id == *worker
                || matches!(member.role, None | Some(Role::Router))
                || part.contains(member.id.as_str())
        })
    }

    /// Whether something of a worker was lost, so that absence on it proves nothing: something of a source from whose
    /// silence one may conclude.
    pub fn has_loss(&self, worker: &WorkerId) -> bool {
        self.worker(worker).iter().any(|observation| {
            matches!(observation.body, Body::Loss(_)) && observation.envelope.source.tells_every_event()
        })
    }

    /// What the ledger has under a key, sorted by time. A ledger that cannot be read gives nothing here and the
    /// error at the end ([`View::finish`]), so that detectors stay free of input and output.
    pub fn select(&self, key: IndexKey) -> Selected {
        if let Some(found) = self.read.borrow().get(&key) {
            return Arc::clone(found);
        }
        let found = match self.ledger.view(&key) {
            Ok(viewed) => {
                self.cut.set(self.cut.get() + viewed.cut);
                if viewed.cut > 0 {
                    let oldest = viewed.observations.iter().filter_map(|o| o.envelope.wall).min();
                    self.cut_before.set(self.cut_before.get().max(oldest));
                }
                viewed.observations
            }
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                Arc::default()
            }
        };
        self.read.borrow_mut().insert(key, Arc::clone(&found));
        found
    }

    /// Every key of a kind.
    pub fn keys(&self, kind: IndexKind) -> Vec<IndexKey> {
        match self.ledger.keys(kind) {
            Ok(keys) => keys,
            Err(error) => {
                self.failed.borrow_mut().get_or_insert(error);
                Vec::new()
            }
        }
    }

    /// Observations that selections left out so far because they were too many.
    pub fn cut(&self) -> u64 {
        self.cut.get()
    }

    /// The time before which some selection left something out; `None` where everything was read.
    pub fn cut_before(&self) -> Option<WallTime> {
        self.cut_before.get()
    }

    /// The first error of the ledger while the view was used. Findings made from such a view must be dropped.
    pub fn finish(self) -> Result<(), LedgerError> {
        match self.failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// All that speaks of a worker.
    pub fn worker(&self, worker: &WorkerId) -> Selected {
        self.select(IndexKey::Worker(worker.clone()))
    }

    /// All that names a request on any leg.
    pub fn request(&self, stem: &RequestStem) -> Selected {
        self.select(IndexKey::Request(stem.clone()))
    }

    /// All that happened in a store.
    pub fn store(&self, store: &StoreId) -> Selected {
        self.select(IndexKey::Store(store.clone()))
    }

    /// The history of a store, made at the first time that somebody asks for it.
    pub(crate) fn history(&self, store: &StoreId, make: impl FnOnce() -> History) -> Rc<History> {
        if let Some(found) = self.histories.borrow().get(store) {
            return Rc::clone(found);
        }
        let found = Rc::new(make());
        self.histories.borrow_mut().insert(store.clone(), Rc::clone(&found));
        found
    }

    /// All that compares workers with each other.
    pub fn fleet(&self) -> Selected {
        self.select(IndexKey::Fleet)
    }

    /// The intervals of a worker's counters in time order.
    pub fn intervals(&self, worker: &WorkerId) -> Rc<Vec<Interval>> {
        if let Some(found) = self.intervals.borrow().get(worker) {
            return Rc::clone(found);
        }
        let found: Rc<Vec<Interval>> = Rc::new(self.worker(worker).iter().filter_map(Interval::of).collect());
        self.intervals.borrow_mut().insert(worker.clone(), Rc::clone(&found));
        found
    }

    /// Every request leg that any router told, with the observation that tells it.
    pub fn router_legs(&self) -> Rc<Legs> {
        if let Some(found) = &*self.legs.borrow() {
            return Rc::clone(found);
        }
        let mut legs = Legs::default();
        for member in self.roster.members() {
            legs.add(self.worker(&member.id));
        }
        let legs = Rc::new(legs);
        *self.legs.borrow_mut() = Some(Rc::clone(&legs));
        legs
    }
}

/// One interval of a worker's counters.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Its begin; `None` for the totals of a first snapshot.
    pub since: Option<WallTime>,
    /// Its end.
    pub until: Option<WallTime>,
    /// The observation.
    pub observation: Observation,
    counters: Counters,
}

impl Interval {
    fn of(observation: &Observation) -> Option<Self> {
        let Body::Counters(counters) = &observation.body else { return None };
        Some(Self {
            since: counters.since_wall_ns.map(WallTime),
            until: observation.envelope.wall,
            observation: observation.clone(),
            counters: counters.clone(),
        })
    }

    /// The increase of a counter in the interval; 0 when it is not there.
    pub fn increase(&self, counter: &str) -> f64 {
        self.counters.values.get(counter).copied().filter(|v| v.is_finite() && *v < ABSURD).unwrap_or(0.0)
    }

    /// Whether the increase of a counter is known.
    pub fn has(&self, counter: &str) -> bool {
        self.counters.values.contains_key(counter)
    }

    /// The total of a counter at the end.
    pub fn total(&self, counter: &str) -> Option<f64> {
        self.counters.totals.get(counter).copied()
    }

    /// The same interval, begun earlier where a time is given.
    #[must_use]
    pub fn beginning(&self, since: Option<WallTime>) -> Self {
        Self { since: since.or(self.since), ..self.clone() }
    }

    /// Whether something that lasted from one time to another was going on in the interval, with the same tolerance as
    /// [`Interval::contains`].
    pub fn overlaps(&self, begin: Option<WallTime>, end: Option<WallTime>) -> bool {
        let (Some(since), Some(until), Some(begin), Some(end)) = (self.since, self.until, begin, end) else {
            return false;
        };
        begin <= until && end >= since.plus(-kvprov_model::clock::SECOND)
    }

    /// Whether a time lies in the interval, with a second of tolerance for clocks that print whole seconds.
    pub fn contains(&self, time: Option<WallTime>) -> bool {
        let (Some(since), Some(until), Some(time)) = (self.since, self.until, time) else { return false };
        let second = kvprov_model::clock::SECOND;
        time >= since.plus(-second) && time <= until
    }
}
