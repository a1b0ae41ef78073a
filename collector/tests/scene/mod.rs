//! Scenes: observations written as a story, and the findings that the collector makes of them.
//!
//! A scene goes through the same ledger and the same evaluation as a replay. Every call of [`Scene::findings`] also
//! checks what must hold for any scene: another order and duplicates give the same findings, and ids are unique.

#![allow(dead_code, reason = "each test binary uses the part of the builder that its detector needs")]
#![allow(unreachable_pub, reason = "a module of a test binary has no outside")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot set its scene has to stop")]

mod cast;
pub mod tell;

pub use cast::Cast;

use kvprov_collector::evaluate::{all_subjects, evaluate};
use kvprov_collector::ledger::{Ledger, Limits, MemoryLedger};
use kvprov_collector::lineage;
use kvprov_collector::run::pages::{self, WorkerEntry};
use kvprov_collector::view::{Progress, View};
use kvprov_model::clock::WallTime;
use kvprov_model::expected::{self, Expectation};
use kvprov_model::finding::{Detector, Finding};
use kvprov_model::id::{NodeId, ObservationId, WorkerId};
use kvprov_model::lineage::Lineage;
use kvprov_model::observation::{Body, Envelope, Observation, SCHEMA_VERSION, SourceKind};
use std::collections::{BTreeMap, BTreeSet};

/// The node of a worker that was not put on another one.
pub const NODE: &str = "node-a";

/// What is observed, told in any order.
#[derive(Clone, Default)]
pub struct Scene {
    observations: Vec<Observation>,
    nodes: BTreeMap<String, String>,
    /// Observations so far by stream and position, so that one line may say several things.
    places: BTreeMap<(String, i64), u32>,
}

/// The place and time of the next statement.
pub struct Moment<'s> {
    scene: &'s mut Scene,
    wall: Option<WallTime>,
    worker: String,
    place: Option<(String, i64)>,
    source: Option<SourceKind>,
    says: Option<String>,
}

// === impl Scene ===

impl Scene {
    /// An empty scene.
    pub fn new() -> Self {
        Self::default()
    }

    /// Declares a worker, or more about one.
    pub fn worker(&mut self, name: &str) -> Cast<'_> {
        self.nodes.entry(name.to_owned()).or_insert_with(|| NODE.to_owned());
        Cast::new(self, name)
    }

    /// Begins a statement at a time of day.
    pub fn at(&mut self, time: &str) -> Moment<'_> {
        self.moment(Some(clock(time)))
    }

    /// Begins a statement that nothing dates.
    pub fn undated(&mut self) -> Moment<'_> {
        self.moment(None)
    }

    /// An operator declares a list; from a time of day on where one is given.
    pub fn expects(&mut self, since: Option<&str>, list: &[Expectation]) {
        self.observations.extend(expected::observations(list, "declared", since.map(clock)));
    }

    /// Puts what was told of a worker on another node.
    fn rehome(&mut self, worker: &str, node: &str) {
        for observation in self.observations.iter_mut().filter(|told| told.worker() == worker) {
            observation.envelope.node = NodeId::from(node);
        }
    }

    /// Takes back what was told of a fact of a worker.
    fn forget(&mut self, worker: &str, fact: &str) {
        for told in self.observations.iter_mut().filter(|told| told.worker() == worker) {
            if let Body::Worker(body) = &mut told.body {
                body.facts.remove(fact);
            }
        }
    }

    fn moment(&mut self, wall: Option<WallTime>) -> Moment<'_> {
        Moment { scene: self, wall, worker: String::new(), place: None, source: None, says: None }
    }

    /// The findings when the input has ended.
    pub fn findings(&self) -> Vec<Finding> {
        self.checked(Progress::Ended)
    }

    /// The findings while more may come.
    pub fn findings_so_far(&self) -> Vec<Finding> {
        self.checked(Progress::Running)
    }

    /// The findings of one detector when the input has ended.
    pub fn by(&self, detector: &Detector) -> Vec<Finding> {
        of(self.findings(), detector)
    }

    /// The findings of one detector while more may come.
    pub fn so_far_by(&self, detector: &Detector) -> Vec<Finding> {
        of(self.findings_so_far(), detector)
    }

    /// The one finding of a detector.
    pub fn only(&self, detector: &Detector) -> Finding {
        let mut found = self.by(detector);
        assert_eq!(found.len(), 1, "one {detector} expected, found {found:#?}");
        found.remove(0)
    }

    /// States that a detector finds nothing.
    pub fn assert_quiet(&self, detector: &Detector) {
        let found = self.by(detector);
        assert!(found.is_empty(), "no {detector} expected, found {found:#?}");
    }

    /// States that no detector finds anything.
    pub fn assert_silent(&self) {
        let found = self.findings();
        assert!(found.is_empty(), "no finding expected, found {found:#?}");
    }

    /// The lineages of every request.
    pub fn lineages(&self) -> BTreeMap<String, Lineage> {
        let ledger = ledger_of(&self.observations, usize::MAX);
        let view = View::new(&ledger, Progress::Ended).unwrap();
        lineage::all(&view, usize::MAX).into_iter().map(|one| (one.request.clone(), one)).collect()
    }

    /// The workers, as readers are shown them.
    pub fn workers(&self) -> Vec<WorkerEntry> {
        let ledger = ledger_of(&self.observations, usize::MAX);
        let view = View::new(&ledger, Progress::Ended).unwrap();
        pages::workers(&view, &BTreeMap::new())
    }

    /// The observations, for tests that look below the findings.
    pub fn observations(&self) -> &[Observation] {
        &self.observations
    }

    fn checked(&self, progress: Progress) -> Vec<Finding> {
        let told = conclude(&self.observations, usize::MAX, progress);
        for seed in 1..=2 {
            let shuffled = shuffled_with_duplicates(&self.observations, seed);
            let again = conclude(&shuffled, 3 + seed as usize, progress);
            assert_eq!(told, again, "another order and duplicates give the same findings");
        }
        let ids: BTreeSet<_> = told.iter().map(|finding| &finding.id).collect();
        assert_eq!(ids.len(), told.len(), "ids of findings are unique: {told:#?}");
        for finding in &told {
            assert!(!finding.evidence.is_empty(), "a finding without evidence: {finding:#?}");
            assert!(finding.count > 0, "a finding that counts nothing: {finding:#?}");
            assert!(!finding.workers.is_empty(), "a finding that concerns nobody: {finding:#?}");
        }
        told
    }
}

/// The findings of a detector among others.
pub fn of(findings: Vec<Finding>, detector: &Detector) -> Vec<Finding> {
    findings.into_iter().filter(|finding| finding.detector == *detector).collect()
}

/// The places that a finding's evidence points at, as `stream:line`.
pub fn places(finding: &Finding) -> BTreeSet<String> {
    finding.evidence.iter().map(|proof| format!("{}:{}", proof.source, proof.line)).collect()
}

/// Whether a finding says that something is not known.
pub fn names_unknown(finding: &Finding, words: &str) -> bool {
    finding.unknown.iter().any(|unknown| unknown.contains(words))
}

/// A time of day of the scene: `08:00:10` or `08:00:10.250`.
pub fn clock(time: &str) -> WallTime {
    WallTime::parse_rfc3339(&format!("2026-08-16T{time}Z"))
        .unwrap_or_else(|| panic!("no time of day: {time}"))
}

fn ledger_of(observations: &[Observation], batch: usize) -> MemoryLedger {
    let mut ledger = MemoryLedger::new(Limits::unbounded());
    for chunk in observations.chunks(batch.min(observations.len()).max(1)) {
        ledger.merge(chunk).unwrap();
    }
    ledger
}

fn conclude(observations: &[Observation], batch: usize, progress: Progress) -> Vec<Finding> {
    let mut ledger = ledger_of(observations, batch);
    let subjects = all_subjects(&ledger).unwrap();
    evaluate(&mut ledger, &subjects, progress).unwrap();
    ledger.all_findings().unwrap().into_values().flatten().collect()
}

fn shuffled_with_duplicates(observations: &[Observation], seed: u64) -> Vec<Observation> {
    let mut all: Vec<Observation> = observations.to_vec();
    all.extend(observations.iter().skip(seed as usize).step_by(2).cloned());
    let mut state = seed;
    for index in (1..all.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(index, (state >> 33) as usize % (index + 1));
    }
    all
}

// === impl Moment ===

impl Moment<'_> {
    /// The worker that is spoken of; its log is the stream unless [`Moment::line`] names another.
    pub fn on(mut self, worker: &str) -> Self {
        worker.clone_into(&mut self.worker);
        self
    }

    /// The stream and the line in it.
    pub fn line(mut self, stream: &str, line: i64) -> Self {
        self.place = Some((stream.to_owned(), line));
        self
    }

    /// The words.
    pub fn says(mut self, words: &str) -> Self {
        self.says = Some(words.to_owned());
        self
    }

    /// The kind of source, where the body does not tell it.
    pub fn seen_by(mut self, source: SourceKind) -> Self {
        self.source = Some(source);
        self
    }

    /// What is said.
    pub fn tell(self, body: Body) {
        let Self { scene, wall, worker, place, source, says } = self;
        let source = source.unwrap_or(match &body {
            Body::Counters(_) => SourceKind::Metrics,
            Body::Artifact(_) => SourceKind::Kernel,
            Body::Block(_) => SourceKind::Events,
            _ => SourceKind::Log,
        });
        let (stream, position) = place.unwrap_or_else(|| {
            let stream = format!("{worker}.{source}");
            let next = scene.places.keys().filter(|(held, _)| *held == stream).count() as i64 + 1;
            (stream, next)
        });
        let index = scene.places.entry((stream.clone(), position)).or_insert(0);
        let id = ObservationId::derive(&stream, 0, position as u64, *index);
        *index += 1;
        let node = scene.nodes.get(&worker).map_or(NODE, String::as_str);
        let envelope = Envelope {
            schema_version: SCHEMA_VERSION,
            id,
            node: NodeId::from(node),
            boot_id: None,
            worker: (!worker.is_empty()).then(|| WorkerId::from(worker.as_str())),
            source,
            stream,
            position,
            monotonic: None,
            wall,
            says,
        };
        scene.observations.push(Observation {
            envelope,
            body,
            extra: BTreeMap::new(),
            resource: BTreeMap::new(),
        });
    }
}
