//! `store_pressure`: a store cannot keep what is written: refused writes, evictions that free nothing, one keyspace
//! that starves another.
//!
//! Cumulative counters that do not move are quiet, however high; so is an eviction that works. A total that is told once only
//! says that it happened; of totals that are told again and again only what they rose by counts.

use super::draft::Draft;
use super::{Subject, words};
use crate::ledger::{IndexKey, IndexKind};
use crate::view::View;
use kvprov_model::clock::WallTime;
use kvprov_model::counter;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{StoreId, WorkerId};
use kvprov_model::observation::{ArtifactAction, Body, Observation, Role, SourceKind};
use kvprov_model::{fact, observation};
use std::collections::{BTreeMap, BTreeSet};

/// Writers wait for room for a moment now and then; this many waits say that none comes free.
const WAITS: f64 = 3.0;

/// Counters of what a store was asked for and could not do.
const TRIED: &[&str] =
    &[counter::STORE_REFUSED_WRITES, counter::STORE_FAILED_WRITES, counter::STORE_EVICTION_ATTEMPTS];

/// The complete set of findings. Words and counters are on workers; they are told together, once a store.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    if *subject != Subject::Fleet {
        return Vec::new();
    }
    let mut pressed: BTreeMap<String, Pressure> = BTreeMap::new();
    for member in view.roster().members() {
        let store = store_of(view, &member.id);
        let told = view.worker(&member.id);
        for observation in told.iter() {
            if let Some(sign) = Sign::of(observation) {
                pressed.entry(store.clone()).or_default().add(&member.id, &[observation], &sign);
            }
        }
        for (sign, proofs) in of_totals(told.iter()) {
            pressed.entry(store.clone()).or_default().add(&member.id, &proofs, &sign);
        }
    }
    pressed.into_iter().filter_map(|(store, pressure)| pressure.finish(view, &store)).collect()
}

/// The store by which a worker's words are grouped: its configured one, else the only store worker's, else its own.
fn store_of(view: &View<'_>, worker: &WorkerId) -> String {
    let member = view.roster().get(worker);
    if let Some(store) = member.and_then(|m| m.fact(fact::STORE))
        && (!is_central(store)
            || view.roster().members().filter(|m| m.role == Some(Role::Store)).count() != 1)
    {
        return store.to_owned();
    }
    let mut stores = view.roster().members().filter(|m| m.role == Some(Role::Store));
    match (stores.next(), stores.next()) {
        (Some(only), None) => only.id.as_str().to_owned(),
        _ => worker.as_str().to_owned(),
    }
}

/// Whether a store is a service with a worker of its own, not a directory.
fn is_central(store: &str) -> bool {
    !store.starts_with("file:")
}

/// Writes that one statement speaks of: keys of one event, times the events that were folded into it.
fn events(store: &observation::Store) -> i64 {
    store.keys.unwrap_or(1).max(1).saturating_mul(store.times.unwrap_or(1).max(1))
}

/// What an observation says of pressure.
#[derive(Default)]
struct Sign {
    refused: f64,
    /// Writes that failed, for want of room or otherwise.
    failed: f64,
    /// Waits for room.
    waits: f64,
    attempts: f64,
    successes: f64,
    evicted: f64,
    /// A total of a single snapshot: it happened, but not when.
    undated: bool,
}

impl Sign {
    fn of(observation: &Observation) -> Option<Self> {
        match &observation.body {
            Body::Store(store) => {
                let times = events(store) as f64;
                match store.event.as_deref() {
                    Some("refused" | "pressure") => Some(Self { refused: times, ..Self::default() }),
                    Some("unwritten") => Some(Self { failed: times, ..Self::default() }),
                    Some("waiting") => Some(Self { waits: times, ..Self::default() }),
                    _ => None,
                }
            }
            // Increases, also those of a line that counts since the line before; totals are weighed together.
            Body::Counters(counters) => Some(Self::read(&counters.values)).filter(Self::presses),
            _ => None,
        }
    }

    /// What counters say.
    fn read(counters: &BTreeMap<String, f64>) -> Self {
        let read = |name: &str| counters.get(name).copied().filter(|v| v.is_finite()).unwrap_or(0.0);
        Self {
            refused: read(counter::STORE_REFUSED_WRITES),
            failed: read(counter::STORE_FAILED_WRITES),
            attempts: read(counter::STORE_EVICTION_ATTEMPTS),
            successes: read(counter::STORE_EVICTION_SUCCESSES),
            evicted: read(counter::STORE_EVICTED_KEYS),
            ..Self::default()
        }
    }

    fn presses(&self) -> bool {
        let starved = self.attempts > 0.0 && self.successes == 0.0 && self.evicted == 0.0;
        let lost = self.refused > 0.0 || self.failed > 0.0;
        if self.undated { lost && starved } else { lost || starved }
    }

    /// Adds what totals rose by since they were told before; whether that is any loss or try. What is less began anew.
    fn climb(&mut self, before: &Self, now: &Self) -> bool {
        let rise = |before: f64, now: f64| if now >= before { now - before } else { now };
        let refused = rise(before.refused, now.refused);
        let failed = rise(before.failed, now.failed);
        let attempts = rise(before.attempts, now.attempts);
        self.refused += refused;
        self.failed += failed;
        self.attempts += attempts;
        self.successes += rise(before.successes, now.successes);
        self.evicted += rise(before.evicted, now.evicted);
        refused > 0.0 || failed > 0.0 || attempts > 0.0
    }
}

/// What totals say that came without increases, by the kind of their source: a single one that something happened, several
/// what happened between them.
fn of_totals<'o>(told: impl Iterator<Item = &'o Observation>) -> Vec<(Sign, Vec<&'o Observation>)> {
    let mut by_source: BTreeMap<SourceKind, Vec<(Sign, &Observation)>> = BTreeMap::new();
    let mut counted: BTreeSet<SourceKind> = BTreeSet::new();
    for observation in told {
        let Body::Counters(counters) = &observation.body else { continue };
        let source = observation.envelope.source.clone();
        if counters.since_wall_ns.is_some() {
            counted.insert(source);
        } else if TRIED.iter().any(|name| counters.totals.contains_key(*name)) {
            by_source.entry(source).or_default().push((Sign::read(&counters.totals), observation));
        }
    }
    // Where increases are told, they say what happened since the first total.
    by_source.retain(|source, _| !counted.contains(source));
    by_source.into_values().filter_map(of_series).collect()
}

/// What the totals of one source say.
fn of_series(mut told: Vec<(Sign, &Observation)>) -> Option<(Sign, Vec<&Observation>)> {
    told.sort_by_key(|(_, observation)| {
        let envelope = &observation.envelope;
        (envelope.wall, envelope.stream.as_str(), envelope.position, envelope.id)
    });
    let mut told = told.into_iter();
    let (mut before, first) = told.next()?;
    let (mut sign, mut proofs) = (Sign::default(), Vec::new());
    let mut is_single = true;
    for (now, observation) in told {
        is_single = false;
        if sign.climb(&before, &now) {
            proofs.push(observation);
        }
        before = now;
    }
    if is_single {
        (sign, proofs) = (Sign { undated: true, ..before }, vec![first]);
    }
    sign.presses().then_some((sign, proofs))
}

#[derive(Default)]
struct Pressure {
    refused_by_words: f64,
    /// By the source that counts.
    refused_by_counters: BTreeMap<SourceKind, f64>,
    failed: f64,
    waits: f64,
    attempts: f64,
    successes: f64,
    dated: bool,
    workers: Vec<WorkerId>,
    proofs: Vec<Observation>,
}

impl Pressure {
    fn add(&mut self, worker: &WorkerId, proofs: &[&Observation], sign: &Sign) {
        let refused = if sign.undated { 0.0 } else { sign.refused };
        // Words and counters, or a log's counts and a scrape, tell the same refusals: the largest count stands.
        match proofs.first() {
            Some(proof) if matches!(proof.body, Body::Counters(_)) => {
                *self.refused_by_counters.entry(proof.envelope.source.clone()).or_default() += refused;
            }
            _ => self.refused_by_words += refused,
        }
        self.failed += if sign.undated { 0.0 } else { sign.failed };
        self.waits += sign.waits;
        self.attempts += sign.attempts;
        self.successes += sign.successes;
        self.dated |= !sign.undated;
        if !self.workers.contains(worker) {
            self.workers.push(worker.clone());
        }
        self.proofs.extend(proofs.iter().copied().cloned());
    }

    /// When pressure was first told by a worker.
    fn first_sign(&self, worker: &WorkerId) -> Option<WallTime> {
        let own = self.proofs.iter().filter(|proof| proof.envelope.worker.as_ref() == Some(worker));
        own.filter_map(|proof| proof.envelope.wall).min()
    }

    fn finish(mut self, view: &View<'_>, store: &str) -> Option<Finding> {
        // In the order of time: the first ones are shown, whoever tells of it later.
        self.proofs.sort_by_key(|proof| (proof.envelope.wall, proof.envelope.id));
        let refused =
            self.refused_by_counters.values().fold(self.refused_by_words, |most, one| most.max(*one));
        let starved = self.attempts > 0.0 && self.successes == 0.0;
        let only_waits = refused == 0.0 && self.attempts == 0.0 && self.waits > 0.0;
        if only_waits && self.waits < WAITS {
            return None;
        }
        let starving = self.workers.iter().find(|worker| starves(view, worker, self.first_sign(worker)));
        let cause = if starving.is_some() {
            Cause::KeyspaceStarved
        } else if starved {
            Cause::EvictionStarved
        } else {
            Cause::RefusedWrites
        };
        let confidence = if self.dated && (refused > 0.0 || starved) {
            Confidence::Confirmed
        } else {
            Confidence::Suspected
        };
        let mut draft = Draft::new(Detector::StorePressure, cause.clone(), confidence, store);
        draft.proofs(self.proofs.iter().take(16)).events(refused.max(self.failed) as u64);
        draft.at(self.proofs.iter().filter_map(|o| o.envelope.wall).max());
        for worker in &self.workers {
            draft.worker(worker.as_str());
        }
        if !self.dated {
            draft.unknown("when: only totals since the store's start are seen");
        }
        if only_waits {
            draft.unknown("whether room came free later");
        }
        let mut summary = format!("{store} cannot keep what is written: {refused:.0} writes refused");
        if self.failed > 0.0 {
            summary.push_str(&format!(", {:.0} failed", self.failed));
            if refused == 0.0 && !starved {
                draft.unknown("why writes failed: for want of room or otherwise");
            }
        }
        if self.waits > 0.0 {
            summary.push_str(&format!(", {:.0} waits for room", self.waits));
        }
        if self.attempts > 0.0 {
            summary.push_str(&format!(
                ", {:.0} of {:.0} eviction passes freed something",
                self.successes, self.attempts
            ));
        }
        if let Some(worker) = starving {
            summary.push_str(&format!("; {worker} holds nothing there while others fill it"));
        }
        summary.push('.');
        Some(draft.finish(summary, words::advice(&Detector::StorePressure, &cause)))
    }
}

/// Whether a worker had nothing in its store while another had, when pressure was first told: what it may write later, once
/// there is room, changes nothing about that.
fn starves(view: &View<'_>, worker: &WorkerId, at: Option<WallTime>) -> bool {
    let mut others_wrote = false;
    for key in view.keys(IndexKind::Store) {
        let IndexKey::Store(store) = key else { continue };
        let wrote = |who: &dyn Fn(&WorkerId) -> bool, store: &StoreId| {
            view.store(store).iter().any(|o| match &o.body {
                Body::Artifact(a) => {
                    let is_before = at.is_none_or(|at| o.envelope.wall.is_none_or(|wall| wall <= at));
                    let is_written = a.action == Some(ArtifactAction::Written);
                    is_written && is_before && o.envelope.worker.as_ref().is_some_and(who)
                }
                _ => false,
            })
        };
        let concerned = view.store(&store).iter().any(|o| o.envelope.worker.as_ref() == Some(worker));
        if !concerned {
            continue;
        }
        if wrote(&|who| who == worker, &store) {
            return false;
        }
        others_wrote |= wrote(&|who| who != worker, &store);
    }
    others_wrote
}
