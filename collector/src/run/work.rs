//! The running collector without its thread: merges what comes, evaluates what is due, and says when to come back.
//!
//! Every instant and time is handed in, so that a test can run a day in a second. Invariant: what is stated is what a
//! replay of the ledger states, up to what has not been heard yet.

use super::board::Numbers;
use super::ear::{Ear, Sort};
use super::schedule::{Concern, Schedule};
use crate::evaluate::{Awaited, Transition, all_subjects, evaluate_running};
use crate::intake::Accepted;
use crate::ledger::{IndexKey, IndexKind, Ledger, LedgerError, Subject, index_keys};
use crate::receive::spans;
use crate::view::{Hearing, Progress, View};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::{NodeId, RequestStem, WorkerId};
use kvprov_model::observation::{Body, Observation, SourceKind};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::time::Instant;

/// Requests that are remembered as touched until somebody asks; what comes beyond is found when it is touched again.
const TOUCHED: usize = 100_000;

/// The collector.
pub struct Core {
    ledger: Box<dyn Ledger>,
    horizon_ns: Option<i64>,
    schedule: Schedule,
    ear: Ear,
    awaited: BTreeMap<Subject, Awaited>,
    /// Subjects from before the start that were not evaluated yet.
    unread: BTreeSet<Subject>,
    /// First and last time at which anything was said of a worker.
    seen: BTreeMap<WorkerId, (WallTime, WallTime)>,
    numbers: Numbers,
    /// Something was merged since this was last asked.
    changed: bool,
    /// Requests of which something was said since this was last asked.
    touched: BTreeSet<RequestStem>,
}

/// What a batch may concern beyond the subjects that it names.
#[derive(Default)]
struct Reach {
    /// Who there is or what they run changed: everything depends on it.
    roster: bool,
    /// A leg, a lease or a transfer: a worker that does not print the request may be the one that answered.
    requests: bool,
    /// What an operator did: stores and the fleet depend on it.
    admin: bool,
    anything: bool,
}

// === impl Core ===

impl Core {
    /// A collector over a ledger that may hold something already, all of which is evaluated first. `horizon_ns`: how
    /// long the ledger keeps what is dated.
    pub fn new(ledger: Box<dyn Ledger>, horizon_ns: Option<i64>, now: Instant) -> Result<Self, LedgerError> {
        let mut core = Self {
            ledger,
            horizon_ns,
            schedule: Schedule::default(),
            ear: Ear::default(),
            awaited: BTreeMap::new(),
            unread: BTreeSet::new(),
            seen: BTreeMap::new(),
            numbers: Numbers::default(),
            changed: true,
            touched: BTreeSet::new(),
        };
        for (node, newest) in core.ledger.watermarks().into_iter().filter(|(node, _)| is_machine(node)) {
            core.ear.expect(&node, newest, now);
        }
        // A node that never dated anything is known by its workers only; nobody waits for it for ever either.
        let known = View::new(core.ledger.as_ref(), Progress::Running)?;
        let nodes: BTreeSet<NodeId> = known.roster().members().map(|member| member.node.clone()).collect();
        drop(known);
        for node in nodes.iter().filter(|node| core.ledger.watermark(node).is_none()) {
            core.ear.expect(node, WallTime(i64::MIN), now);
        }
        core.unread = all_subjects(core.ledger.as_ref())?;
        core.unread.extend(core.ledger.all_findings()?.into_keys());
        core.touched = core.ledger.keys(IndexKind::Request)?.into_iter().filter_map(request).collect();
        for subject in &core.unread {
            core.schedule.concern(subject, Concern::Direct, now);
            if let Subject::Worker(worker) = subject {
                let first = first_seen(core.ledger.as_ref(), worker)?;
                core.seen.extend(first.map(|first| (worker.clone(), (first, first))));
            }
        }
        Ok(core)
    }

    /// Merges a batch. When it returns, the batch is as durable as the ledger makes it.
    pub fn take(
        &mut self,
        observations: Vec<Observation>,
        now: Instant,
        receive: WallTime,
    ) -> Result<Accepted, LedgerError> {
        let began = Instant::now();
        let mut kept = Vec::with_capacity(observations.len());
        let (mut signs, mut ahead) = (0, 0);
        for observation in observations {
            self.count(&observation);
            match self.ear.take(&observation, now, receive) {
                Sort::Keep => kept.push(observation),
                Sort::Sign => signs += 1,
                Sort::Ahead => ahead += 1,
            }
        }
        self.lose("merge", "dated_ahead", ahead);
        let mut accepted = Accepted { kept: signs, refused: ahead };
        if !kept.is_empty() {
            let merged = self.ledger.merge(&kept)?;
            let refused = [
                ("too_old", merged.expired),
                ("too_many_nodes", merged.refused_nodes),
                ("too_large", merged.oversized),
            ];
            for (reason, records) in refused {
                self.lose("merge", reason, records);
                accepted.refused += records;
            }
            accepted.kept += merged.added + merged.replaced + merged.duplicates;
            self.numbers.added += merged.added;
            self.numbers.duplicates += merged.duplicates;
            self.numbers.removed += merged.removed;
            if merged.added + merged.replaced + merged.removed > 0 {
                self.changed = true;
                self.concern(&kept, &merged.dirty, now);
            }
        }
        self.numbers.batches += 1;
        self.numbers.merging += began.elapsed();
        Ok(accepted)
    }

    /// Evaluates what is due, a few subjects at once. `None`: nothing is due.
    pub fn evaluate(&mut self, now: Instant) -> Result<Option<Vec<Transition>>, LedgerError> {
        let hearing = self.hearing(now);
        self.awake(&hearing, now);
        let due = self.schedule.due(now);
        if due.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        let subjects: BTreeSet<Subject> = due.iter().cloned().collect();
        let outcome = evaluate_running(self.ledger.as_mut(), &subjects, &hearing);
        let took = began.elapsed();
        // What failed is tried again like anything else, and not at once.
        self.schedule.evaluated(&due, took, now + took);
        self.numbers.evaluations += due.len() as u64;
        self.numbers.evaluating += took;
        self.numbers.longest = self.numbers.longest.max(took);
        let mut evaluated = outcome?;
        for subject in &due {
            self.unread.remove(subject);
            match evaluated.awaited.remove(subject) {
                Some(awaited) => self.awaited.insert(subject.clone(), awaited),
                None => self.awaited.remove(subject),
            };
        }
        Ok(Some(evaluated.transitions))
    }

    /// When something is due next; signs of life may make it earlier.
    pub fn next(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Whether everything that the ledger held at the start has been evaluated.
    pub fn is_ready(&self) -> bool {
        self.unread.is_empty()
    }

    /// Every finding that stands, surest first, as replay lists them.
    pub fn findings(&self) -> Result<Vec<Finding>, LedgerError> {
        let mut findings: Vec<Finding> = self.ledger.all_findings()?.into_values().flatten().collect();
        findings.sort_by(Finding::in_lists);
        Ok(findings)
    }

    /// The ledger, to read.
    pub fn ledger(&self) -> &dyn Ledger {
        self.ledger.as_ref()
    }

    /// What has been heard of the nodes.
    pub fn hearing(&self, now: Instant) -> Hearing {
        let mut hearing = self.ear.hearing(now);
        if let Some(horizon) = self.horizon_ns {
            let watermarks = self.ledger.watermarks().into_iter().filter(|(node, _)| is_machine(node));
            let newest = watermarks.map(|(_, newest)| newest).max();
            hearing.expired_before = newest.map(|newest| newest.plus(-horizon));
        }
        hearing
    }

    /// First and last time at which anything was said of each worker.
    pub fn seen(&self) -> &BTreeMap<WorkerId, (WallTime, WallTime)> {
        &self.seen
    }

    /// Forgets subjects that the ledger no longer knows: retention removed all of them.
    pub fn prune(&mut self) -> Result<(), LedgerError> {
        let mut known = all_subjects(self.ledger.as_ref())?;
        known.extend(self.ledger.all_findings()?.into_keys());
        let gone: Vec<Subject> =
            self.schedule.subjects().filter(|subject| !known.contains(subject)).cloned().collect();
        for subject in gone {
            self.schedule.forget(&subject);
            self.awaited.remove(&subject);
            self.unread.remove(&subject);
            if let Subject::Worker(worker) = &subject {
                self.seen.remove(worker);
            }
        }
        Ok(())
    }

    /// Whether anything was merged since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Requests of which something was said since this was last asked; at first, all that the ledger holds.
    pub fn take_touched(&mut self) -> BTreeSet<RequestStem> {
        std::mem::take(&mut self.touched)
    }

    /// Remembers requests as touched.
    pub(super) fn touch(&mut self, stems: BTreeSet<RequestStem>) {
        self.touched.extend(stems);
    }

    /// The collector's own numbers.
    pub fn numbers(&self, now: Instant) -> Numbers {
        let hearing = self.ear.hearing(now);
        Numbers {
            subjects: self.schedule.subjects().count(),
            due: self.schedule.waiting(now),
            awaiting: self.awaited.len(),
            nodes: hearing.complete.len().max(hearing.silent.len()),
            silent: hearing.silent.len(),
            ..self.numbers.clone()
        }
    }

    /// Counts records that were lost before they came here.
    pub fn lose(&mut self, stage: &str, reason: &str, records: u64) {
        if records > 0 {
            *self.numbers.lost.entry((stage.to_owned(), reason.to_owned())).or_insert(0) += records;
        }
    }

    /// Counts a failure of the ledger.
    pub fn failed(&mut self) {
        self.numbers.failures += 1;
    }

    fn count(&mut self, observation: &Observation) {
        // A kind of a newer sender is any text.
        let kind = match &observation.body {
            Body::Unknown { .. } => "other",
            body => body.kind(),
        };
        match self.numbers.observations.get_mut(kind) {
            Some(count) => *count += 1,
            None => {
                self.numbers.observations.insert(kind.to_owned(), 1);
            }
        }
    }

    /// Marks what a batch concerns, and what depends on it.
    fn concern(&mut self, observations: &[Observation], dirty: &BTreeSet<Subject>, now: Instant) {
        let mut reach = Reach::default();
        for observation in observations {
            reach.take(observation);
            if self.touched.len() < TOUCHED {
                self.touched.extend(index_keys(observation).0.into_iter().filter_map(request));
            }
            if let (Some(worker), Some(wall)) = (&observation.envelope.worker, observation.envelope.wall) {
                match self.seen.get_mut(worker) {
                    Some((first, last)) => (*first, *last) = ((*first).min(wall), (*last).max(wall)),
                    None => {
                        self.seen.insert(worker.clone(), (wall, wall));
                    }
                }
            }
        }
        for subject in dirty {
            self.schedule.concern(subject, Concern::Direct, now);
        }
        if reach.anything {
            self.schedule.concern(&Subject::Fleet, Concern::Related, now);
        }
        self.schedule.concern_all(now, |subject| match subject {
            Subject::Worker(_) => reach.roster || reach.requests,
            Subject::Store(_) => reach.roster || reach.admin,
            Subject::Fleet => false,
        });
    }

    /// Makes due what waited for a node that has been heard now.
    fn awake(&mut self, hearing: &Hearing, now: Instant) {
        if self.awaited.is_empty() {
            return;
        }
        let watermarks = self.ledger.watermarks();
        let heard = |awaited: &Awaited| {
            awaited.iter().any(|(node, until)| {
                hearing.silent.contains(node)
                    || hearing
                        .complete
                        .get(node)
                        .or_else(|| watermarks.get(node))
                        .is_some_and(|mark| mark >= until)
            })
        };
        let awake: Vec<Subject> = self
            .awaited
            .iter()
            .filter(|(_, awaited)| heard(awaited))
            .map(|(subject, _)| subject.clone())
            .collect();
        for subject in awake {
            self.awaited.remove(&subject);
            self.schedule.concern(&subject, Concern::Direct, now);
        }
    }
}

// === impl Reach ===

impl Reach {
    fn take(&mut self, observation: &Observation) {
        // A span tells where a request stands in its trace, of which no detector knows.
        if observation.envelope.source == SourceKind::Traces {
            return;
        }
        self.anything = true;
        match &observation.body {
            Body::Worker(_) | Body::WorkerGone(_) | Body::Factor(_) | Body::Expected(_) | Body::Loss(_) => {
                self.roster = true;
            }
            Body::RequestLeg(_) | Body::Lease(_) | Body::Handshake(_) | Body::Transfer(_) => {
                self.requests = true;
            }
            Body::AdminCall(call) => {
                self.admin = true;
                // Where an adapter is.
                self.roster |= !call.paths.is_empty();
            }
            _ => {}
        }
    }
}

/// Whether a node is one that an agent speaks for.
fn is_machine(node: &NodeId) -> bool {
    node.as_str() != spans::NODE
}

fn request(key: IndexKey) -> Option<RequestStem> {
    match key {
        IndexKey::Request(stem) => Some(stem),
        _ => None,
    }
}

/// The first time at which anything was said of a worker. The last one would take reading all of it.
fn first_seen(ledger: &dyn Ledger, worker: &WorkerId) -> Result<Option<WallTime>, LedgerError> {
    let mut first = None;
    ledger.visit(&IndexKey::Worker(worker.clone()), &mut |observation| {
        first = observation.envelope.wall;
        if first.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(first)
}
