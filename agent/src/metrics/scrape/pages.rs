//! The counters of one endpoint, page by page.

use super::kept::{Saved, SavedPage};
use super::page::{Got, Trouble};
use super::watched::Who;
use crate::endpoint::Served;
use crate::metrics::MetricsReader;
use crate::source::{Losses, Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Loss, Observation, SourceKind, Worker};
use kvprov_packs::{Packs, Version};
use std::time::Instant;

/// Tries that fail before it is said.
const SAID_AFTER: u32 = 3;
/// The word of `watched_by`.
const WATCHED_BY: &str = "metrics";
/// Places of observations that are of no page: pages have times, which are far behind.
const FIRST_READ: u64 = 1;
const NEVER_READ: u64 = 2;
const END_UNREAD: u64 = 3;

/// One endpoint with counters.
pub(super) struct PageTarget {
    pub endpoint: String,
    pub port: u16,
    /// Its settings say that it cannot be read.
    pub refused: Option<String>,
    /// Counters of a new process may begin above zero.
    keeps_counters: bool,
    reader: MetricsReader<'static>,
    number: u64,
    pub before: Option<Served>,
    pub due: Instant,
    pub is_asked: bool,
    /// Somebody wants it as soon as may be, although it was just asked.
    pub is_wanted: bool,
    /// Before this time it is not asked again, whoever wants it.
    pub rests_until: Instant,
    pub failures: u32,
    pub tries: u64,
    /// When the last page came, on both clocks.
    last: Option<(Instant, WallTime)>,
    /// Since when nothing listens.
    silent_since: Instant,
    said: Option<String>,
    was_read: bool,
    pub losses: Losses,
}

impl std::fmt::Debug for PageTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageTarget").field("endpoint", &self.endpoint).field("port", &self.port).finish()
    }
}

/// What a page gave: what has to be saved, then told.
#[derive(Debug)]
pub(super) struct Read {
    pub saved: Saved,
    pub observations: Vec<Observation>,
    /// When all counters were zero, where that is known and this is the first page.
    pub zero: Option<WallTime>,
    /// It is the first page that this process read.
    pub is_first: bool,
}

// === impl PageTarget ===

impl PageTarget {
    pub(super) fn new(
        packs: &'static Packs,
        who: &Who,
        endpoint: &kvprov_packs::Endpoint<'_>,
        saved: Option<&Saved>,
    ) -> Self {
        let version = version_of(who.version.as_deref());
        let mut reader = MetricsReader::new(packs, version);
        if let Some(saved) = saved {
            reader = reader.with_state(saved.before.clone());
            // Told before, or told again from the saved page itself.
            take(&mut reader, &context(NodeId(String::new()), saved), &saved.page, &mut Vec::new());
        }
        let now = Instant::now();
        Self {
            endpoint: endpoint.id.to_owned(),
            port: endpoint.port,
            refused: endpoint.refused.map(str::to_owned),
            keeps_counters: endpoint.keeps_counters,
            reader,
            number: saved.map_or(0, |saved| saved.page.number),
            before: None,
            due: now,
            is_asked: false,
            is_wanted: false,
            rests_until: now,
            failures: 0,
            tries: 0,
            last: None,
            silent_since: now,
            said: None,
            was_read: false,
            losses: Losses::default(),
        }
    }

    /// The engine's version is known, or known better.
    pub(super) fn learn(&mut self, packs: &'static Packs, version: Option<&str>) {
        self.reader = MetricsReader::new(packs, version_of(version)).with_state(self.reader.state());
    }

    /// A page came. `watching_since`: when this process began to look at workers.
    pub(super) fn page(
        &mut self,
        node: &NodeId,
        packs: &str,
        who: &Who,
        got: &Got<String>,
        at: WallTime,
        watching_since: WallTime,
    ) -> Read {
        let zero = self.begins_at_zero(who, &got.answer, watching_since).filter(|zero| *zero < at);
        if let Some(zero) = zero {
            let nothing = SavedPage { at: zero, number: 0, stream: String::new(), text: String::new() };
            let saved = self.saved(packs, who, nothing);
            take(&mut self.reader, &context(node.clone(), &saved), &saved.page, &mut Vec::new());
        }
        self.number += 1;
        let stream = format!("http://{}/metrics", got.address);
        let page = SavedPage { at, number: self.number, stream, text: got.answer.clone() };
        let saved = self.saved(packs, who, page);
        let source = context(node.clone(), &saved);
        let mut observations = Vec::new();
        let lost = self.reader.counts().losses.clone();
        take(&mut self.reader, &source, &saved.page, &mut observations);
        for (reason, count) in self.reader.counts().losses.iter() {
            self.losses.add(reason, count.saturating_sub(lost.of(reason)));
        }
        let is_first = !std::mem::replace(&mut self.was_read, true);
        if is_first {
            let body = Body::Worker(Worker { watched_by: vec![WATCHED_BY.to_owned()], ..Worker::default() });
            let place = Place { position: 0, offset: FIRST_READ };
            let says = format!("its counters are read at {}", source.stream);
            observations.push(source.observe(SourceKind::Config, place, 0, Some(at), Some(says), body));
        }
        self.last = Some((Instant::now(), at));
        self.before = Some(got.served.clone());
        self.failures = 0;
        self.said = None;
        Read { saved, observations, zero, is_first }
    }

    /// Since when a first page has counted, where that is for sure: the process began under our eyes, and with it its
    /// counters.
    fn begins_at_zero(&self, who: &Who, text: &str, watching_since: WallTime) -> Option<WallTime> {
        let started = who.started.filter(|started| *started > watching_since)?;
        // A process of an earlier worker would say so, if it says anything.
        let is_older =
            process_start(text).is_some_and(|start| start.since(started) < -2 * kvprov_model::clock::SECOND);
        (self.number == 0 && !self.keeps_counters && !is_older).then_some(started)
    }

    fn saved(&self, packs: &str, who: &Who, page: SavedPage) -> Saved {
        Saved {
            packs: packs.to_owned(),
            worker: who.id.clone(),
            endpoint: self.endpoint.clone(),
            version: who.version.clone(),
            before: self.reader.state(),
            page,
        }
    }

    /// Nothing listens; for how long that has been so.
    pub(super) fn is_silent_for(&mut self) -> std::time::Duration {
        if self.before.take().is_some() {
            self.silent_since = Instant::now();
        }
        self.silent_since.elapsed()
    }

    /// Nothing came. Gives what there is to say of it, once for each reason that lasts.
    pub(super) fn failed(&mut self, trouble: &Trouble) -> Option<String> {
        self.failures = self.failures.saturating_add(1);
        self.before = None;
        let text = trouble.to_string();
        if self.failures < SAID_AFTER || self.said.as_deref() == Some(trouble.reason()) {
            return None;
        }
        self.said = Some(trouble.reason().to_owned());
        Some(text)
    }

    /// Something about the endpoint that will not change was said now.
    pub(super) fn say_once(&mut self, what: &str) -> bool {
        if self.said.as_deref() == Some(what) {
            return false;
        }
        self.said = Some(what.to_owned());
        true
    }

    /// That a worker's counters are not read is a loss, told once.
    pub(super) fn unread(&self, node: &NodeId, who: &Who, at: WallTime, reason: &str) -> Observation {
        let says = format!("its counters are not read: {reason}");
        self.loss(node, &who.id, NEVER_READ, at, "counters not read", says)
    }

    /// What is lost when the worker ends: what it counted since the last page, where that is long ago.
    pub(super) fn ended(
        &self,
        node: &NodeId,
        who: &Who,
        at: WallTime,
        late: std::time::Duration,
    ) -> Option<Observation> {
        let (last, seen) = self.last?;
        let missed = last.elapsed();
        (missed > late).then(|| {
            let says = format!("what it counted after {} was not read", seen.to_rfc3339());
            self.loss(node, &who.id, END_UNREAD, at, "last counters not read", says)
        })
    }

    fn loss(
        &self,
        node: &NodeId,
        worker: &WorkerId,
        offset: u64,
        at: WallTime,
        reason: &str,
        says: String,
    ) -> Observation {
        let source = SourceContext {
            node: node.clone(),
            worker: Some(worker.clone()),
            stream: self.endpoint.clone(),
            instance: instance(worker, &self.endpoint),
            generation: 0,
        };
        let body = Body::Loss(Loss {
            stage: Some("read".to_owned()),
            reason: Some(reason.to_owned()),
            records: Some(1),
            bytes: None,
        });
        source.observe(SourceKind::Metrics, Place { position: 0, offset }, 0, Some(at), Some(says), body)
    }
}

/// What a saved page said, again: the same observations under the same ids.
pub(super) fn again(packs: &'static Packs, node: &NodeId, saved: &Saved) -> Vec<Observation> {
    let version = version_of(saved.version.as_deref());
    let mut reader = MetricsReader::new(packs, version).with_state(saved.before.clone());
    let mut observations = Vec::new();
    take(&mut reader, &context(node.clone(), saved), &saved.page, &mut observations);
    observations
}

fn take(
    reader: &mut MetricsReader<'static>,
    source: &SourceContext,
    page: &SavedPage,
    observations: &mut Vec<Observation>,
) {
    let offset = u64::try_from(page.at.0).unwrap_or(0);
    let place = Place { position: page.number, offset };
    let mut sink = |observation| observations.push(observation);
    let endpoint = source.instance.clone();
    reader.snapshot_of(&endpoint, Some(page.at), source, place, page.text.as_bytes(), &mut sink);
}

fn context(node: NodeId, saved: &Saved) -> SourceContext {
    SourceContext {
        node,
        worker: Some(saved.worker.clone()),
        stream: saved.page.stream.clone(),
        instance: instance(&saved.worker, &saved.endpoint),
        generation: 0,
    }
}

fn instance(worker: &WorkerId, endpoint: &str) -> String {
    format!("metrics {worker} {endpoint}")
}

fn version_of(text: Option<&str>) -> Option<Version> {
    text.and_then(Version::parse)
}

/// When the process that serves a page says that it started.
fn process_start(text: &str) -> Option<WallTime> {
    let line = text.lines().find(|line| line.starts_with(crate::metrics::page::PROCESS_START))?;
    WallTime::from_unix_seconds(line.rsplit(' ').next()?.parse().ok()?)
}
