//! A finding in the making: proofs, requests and workers are gathered, then turned into the finding.

use crate::view::request::printed_ids;
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Cause, Confidence, Detector, Evidence, Finding, FindingState};
use kvprov_model::id::{FindingId, RequestStem};
use kvprov_model::observation::Observation;
use std::collections::{BTreeMap, BTreeSet};

/// Evidence kept with one finding; the rest is counted in the summary by `count`.
const MAX_EVIDENCE: usize = 24;
/// Request ids kept with one finding.
const MAX_REQUESTS: usize = 1_000;

/// A finding in the making.
#[derive(Debug, Clone)]
pub struct Draft {
    detector: Detector,
    cause: Cause,
    confidence: Confidence,
    subject: String,
    requests: BTreeSet<String>,
    stems: BTreeSet<RequestStem>,
    workers: BTreeSet<String>,
    tokens: f64,
    events: u64,
    first: Option<WallTime>,
    last: Option<WallTime>,
    proofs: BTreeMap<(Option<WallTime>, String, u64), Evidence>,
    unknown: Vec<String>,
}

impl Draft {
    /// An empty draft about a subject.
    pub fn new(detector: Detector, cause: Cause, confidence: Confidence, subject: impl Into<String>) -> Self {
        Self {
            detector,
            cause,
            confidence,
            subject: subject.into(),
            requests: BTreeSet::new(),
            stems: BTreeSet::new(),
            workers: BTreeSet::new(),
            tokens: 0.0,
            events: 0,
            first: None,
            last: None,
            proofs: BTreeMap::new(),
            unknown: Vec::new(),
        }
    }

    /// Adds an observation that proves it, with its place and time; not its request ids.
    pub fn proof(&mut self, observation: &Observation) -> &mut Self {
        let evidence = observation.evidence();
        let wall = observation.envelope.wall;
        self.at(wall);
        self.proofs.entry((wall, evidence.source.clone(), evidence.line)).or_insert(evidence);
        self
    }

    /// Adds several proofs.
    pub fn proofs<'o>(&mut self, observations: impl IntoIterator<Item = &'o Observation>) -> &mut Self {
        for observation in observations {
            self.proof(observation);
        }
        self
    }

    /// Adds an observation that is needed to understand the proofs, without making it part of the episode: what was there
    /// before. An episode that began with it would begin anew with every older one that is found.
    pub fn context(&mut self, observation: &Observation) -> &mut Self {
        let evidence = observation.evidence();
        self.proofs
            .entry((observation.envelope.wall, evidence.source.clone(), evidence.line))
            .or_insert(evidence);
        self
    }

    /// Adds words that no single line says.
    pub fn statement(&mut self, source: &str, says: impl Into<String>) -> &mut Self {
        let key = (None, source.to_owned(), 0);
        self.proofs.entry(key).or_insert(Evidence { source: source.to_owned(), line: 0, says: says.into() });
        self
    }

    /// Widens the episode to a time.
    pub fn at(&mut self, time: Option<WallTime>) -> &mut Self {
        if let Some(time) = time {
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = Some(self.last.map_or(time, |last| last.max(time)));
        }
        self
    }

    /// Adds a request under an id as printed; its stem, the client's id, is added too.
    pub fn request(&mut self, printed: &str) -> &mut Self {
        let stem = RequestStem::of(printed);
        self.requests.insert(printed.to_owned());
        self.requests.insert(stem.as_str().to_owned());
        self.stems.insert(stem);
        self
    }

    /// Adds another id of a request that is counted under its own.
    pub fn also_called(&mut self, printed: &str) -> &mut Self {
        self.requests.insert(printed.to_owned());
        self.requests.insert(RequestStem::of(printed).as_str().to_owned());
        self
    }

    /// Adds every request that an observation names.
    pub fn requests_of(&mut self, observation: &Observation) -> &mut Self {
        for id in printed_ids(observation) {
            self.request(id);
        }
        self
    }

    /// Adds a worker.
    pub fn worker(&mut self, worker: impl Into<String>) -> &mut Self {
        let worker = worker.into();
        if !worker.is_empty() {
            self.workers.insert(worker);
        }
        self
    }

    /// Adds tokens to the cost.
    pub fn tokens(&mut self, tokens: f64) -> &mut Self {
        if tokens.is_finite() && tokens > 0.0 {
            self.tokens += tokens;
        }
        self
    }

    /// Adds events that name no request.
    pub fn events(&mut self, events: u64) -> &mut Self {
        self.events += events;
        self
    }

    /// Names what is not known and would change the verdict.
    pub fn unknown(&mut self, what: impl Into<String>) -> &mut Self {
        let what = what.into();
        if !self.unknown.contains(&what) {
            self.unknown.push(what);
        }
        self
    }

    /// Raises the confidence; never lowers it.
    pub fn at_least(&mut self, confidence: Confidence) -> &mut Self {
        self.confidence = self.confidence.max(confidence);
        self
    }

    /// Distinct requests so far, or events where none is named.
    pub fn count(&self) -> u64 {
        (self.stems.len() as u64 + self.events).max(u64::from(!self.proofs.is_empty()))
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.proofs.is_empty()
    }

    /// How sure it is so far.
    pub fn confidence(&self) -> Confidence {
        self.confidence
    }

    /// The workers so far, comma-separated.
    pub fn worker_names(&self) -> String {
        self.workers.iter().cloned().collect::<Vec<_>>().join(", ")
    }

    /// The tokens so far.
    pub fn token_count(&self) -> u64 {
        self.tokens.round() as u64
    }

    /// The finding. The id is over detector, subject and first event: neither cause nor confidence.
    pub fn finish(self, summary: impl Into<String>, advice: &str) -> Finding {
        let count = self.count();
        let start = self.first.map_or_else(|| "undated".to_owned(), |first| first.0.to_string());
        Finding {
            id: FindingId::derive(&self.detector, &self.subject, &start),
            tokens: self.token_count(),
            count,
            state: FindingState::Opened,
            summary: summary.into(),
            requests: self.requests.into_iter().take(MAX_REQUESTS).collect(),
            workers: self.workers.into_iter().collect(),
            first_seen: self.first,
            last_seen: self.last,
            evidence: self.proofs.into_values().take(MAX_EVIDENCE).collect(),
            unknown: self.unknown,
            advice: advice.to_owned(),
            subject: self.subject,
            detector: self.detector,
            cause: self.cause,
            confidence: self.confidence,
        }
    }
}
