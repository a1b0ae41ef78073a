//! Looks at requests on the ledger's thread, and puts what is to be told into the queue.
//!
//! Invariant: a request that was concerned is looked at until its nodes have been heard past its end; what waits and
//! what one look may take are bounded.

use super::stats::{Counters, Lost, Origin};
use super::story::{self, Ahead, Silence};
use super::told::{Told, Turn};
use super::{Settings, Traces, spans, spool::Spool};
use crate::otlp::spans::Span;
use crate::receive::Clocks;
use crate::run::requests::Requests;
use crate::view::View;
use kvprov_model::finding::Finding;
use kvprov_model::id::RequestStem;
use prost::Message as _;
use prost::bytes::Bytes;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Requests that wait to be told.
const WAITING: usize = 100_000;
/// Requests that are looked at in one go.
const AT_ONCE: usize = 2_000;
/// Spans of one export request.
const SPANS: usize = 800;
/// The file of what was told is written this often at most.
const SAVE_EVERY: Duration = Duration::from_secs(5);

/// Tells requests.
pub struct Teller {
    settings: Settings,
    spool: Arc<Spool>,
    counters: Arc<Counters>,
    clocks: Arc<Clocks>,
    waiting: BTreeSet<RequestStem>,
    /// Behind the last request that was looked at: each has its turn.
    place: Option<RequestStem>,
    told: Told,
    file: Option<PathBuf>,
    unsaved: bool,
    next_save: Instant,
}

/// Spans that were made and are not in the queue yet.
#[derive(Default)]
struct Batch {
    spans: Vec<Span>,
    told: Vec<(RequestStem, u64, Option<crate::otlp::context::Context>, story::Why, bool)>,
}

// === impl Teller ===

impl Teller {
    pub(super) fn new(traces: &Traces, clocks: Arc<Clocks>) -> Self {
        Self {
            settings: traces.settings.clone(),
            spool: Arc::clone(&traces.spool),
            counters: Arc::clone(&traces.counters),
            clocks,
            waiting: BTreeSet::new(),
            place: None,
            told: traces.told.as_deref().map(Told::load).unwrap_or_default(),
            file: traces.told.clone(),
            unsaved: false,
            next_save: Instant::now(),
        }
    }

    /// Something was said of requests, or a finding on them became another.
    pub(crate) fn concern(&mut self, stems: impl IntoIterator<Item = RequestStem>) {
        for stem in stems {
            if self.waiting.len() >= WAITING && !self.waiting.contains(&stem) {
                self.counters.lost(Origin::Kvprov, Lost::TooManyWaiting, 1);
            } else {
                self.waiting.insert(stem);
            }
        }
        self.counters.waiting(self.waiting.len());
    }

    /// Whether requests wait.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// How often it is worth looking.
    pub(crate) fn look_every(&self) -> Duration {
        self.settings.settling.max(Duration::from_millis(200))
    }

    /// Looks at what waits. `findings`: those that stand.
    pub(crate) fn look(&mut self, view: &View<'_>, requests: &Requests, findings: &[Finding]) {
        let chosen = self.choose();
        let named = by_request(findings, &chosen);
        let ahead: Ahead =
            self.clocks.all().into_iter().filter_map(|(node, clock)| Some((node, clock.ahead_ns?))).collect();
        let settling = i64::try_from(self.settings.settling.as_nanos()).unwrap_or(i64::MAX);
        let mut batch = Batch::default();
        for stem in chosen {
            let Some(record) = requests.record(&stem) else {
                // No worker is known that decoded it, or newer ones took its place; when more is said it comes again.
                self.waiting.remove(&stem);
                continue;
            };
            if !story::is_settled(view, &stem, settling) {
                continue;
            }
            let names = named.get(&stem).cloned().unwrap_or_default();
            match story::of(view, &stem, record, names, self.settings.sample, &ahead) {
                Ok(story) => self.add(story, &mut batch),
                Err(silence) => {
                    if silence == Silence::Undated {
                        self.counters.lost(Origin::Kvprov, Lost::Undated, 1);
                    }
                    self.waiting.remove(&stem);
                }
            }
            if batch.spans.len() >= SPANS {
                self.put(std::mem::take(&mut batch));
            }
        }
        self.put(batch);
        self.counters.waiting(self.waiting.len());
        self.save(false);
    }

    /// Writes what was told, where it is time.
    pub(crate) fn save(&mut self, now: bool) {
        if !self.unsaved || (!now && Instant::now() < self.next_save) {
            return;
        }
        let Some(path) = &self.file else { return };
        match self.told.save(path) {
            Ok(()) => self.unsaved = false,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "it could not be written which requests were traced");
            }
        }
        self.next_save = Instant::now() + SAVE_EVERY;
    }

    /// The next requests in order, from the place on where the last look ended.
    fn choose(&mut self) -> Vec<RequestStem> {
        use std::ops::Bound::{Excluded, Unbounded};
        let begin = self.place.as_ref().map_or(Unbounded, Excluded);
        let behind = self.waiting.range((begin, Unbounded));
        let chosen: Vec<RequestStem> = behind.take(AT_ONCE).cloned().collect();
        // Nothing behind: from the front again.
        let chosen =
            if chosen.is_empty() { self.waiting.iter().take(AT_ONCE).cloned().collect() } else { chosen };
        self.place = chosen.last().cloned();
        chosen
    }

    fn add(&mut self, mut story: story::Story<'_>, batch: &mut Batch) {
        let said = said(&story);
        let again = match self.told.turn(&story.stem, said) {
            Turn::Not => {
                self.waiting.remove(&story.stem);
                return;
            }
            Turn::First => false,
            Turn::Again(parent) => {
                // Ids stay, whatever was learnt of the parent since.
                story.parent = parent;
                true
            }
        };
        batch.spans.extend(spans::of(&story));
        batch.told.push((story.stem, said, story.parent, story.why, again));
    }

    /// Puts spans into the queue; where there is no room now, their requests go on waiting.
    fn put(&mut self, batch: Batch) {
        if batch.spans.is_empty() {
            return;
        }
        let count = batch.spans.len() as u64;
        let request = Bytes::from(spans::request(batch.spans).encode_to_vec());
        if self.spool.put(Origin::Kvprov, &request, count).is_err() {
            return;
        }
        for (stem, said, parent, why, again) in batch.told {
            self.waiting.remove(&stem);
            self.counters.told(why, again);
            self.told.note(stem, said, parent);
        }
        self.unsaved = true;
    }
}

/// The findings that name each of some requests.
fn by_request<'f>(findings: &'f [Finding], stems: &[RequestStem]) -> BTreeMap<RequestStem, Vec<&'f Finding>> {
    let wanted: BTreeSet<&RequestStem> = stems.iter().collect();
    let mut named: BTreeMap<RequestStem, Vec<&Finding>> = BTreeMap::new();
    for finding in findings {
        for id in &finding.requests {
            let stem = RequestStem::of(id);
            if wanted.contains(&stem) {
                let held = named.entry(stem).or_default();
                // Both sides' ids of one request name it.
                if held.last().is_none_or(|last| last.id != finding.id) {
                    held.push(finding);
                }
            }
        }
    }
    named
}

/// A hash of what makes a request worth telling again: status, points, findings. Not of times and counts that only grow.
fn said(story: &story::Story<'_>) -> u64 {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    let lineage = &story.record.lineage;
    add(crate::run::requests::status_word(lineage.status));
    add(story.why.as_str());
    let points =
        [&lineage.points.request, &lineage.points.prefill, &lineage.points.artifact, &lineage.points.decode];
    for point in points {
        for part in [&point.worker, &point.revision, &point.weights, &point.outcome] {
            add(part.as_deref().unwrap_or(""));
        }
    }
    for finding in &story.findings {
        for part in [finding.id.as_str(), finding.cause.as_str()] {
            add(part);
        }
        add(&(finding.confidence as u8).to_string());
    }
    let digest = hash.finalize();
    u64::from_be_bytes(digest.first_chunk().copied().unwrap_or_default())
}
