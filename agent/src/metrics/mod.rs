//! Turns snapshots of Prometheus text into increases of counters.
//!
//! Input: pages of one worker in order of time, scraped or recorded. Output: one `counters` observation a page, with
//! totals alone for the first page of an endpoint and with the increases since the page before it for every later one;
//! and facts from info metrics. Invariant: an increase is never negative. A counter that fell began anew and its
//! increase is its value; so did all counters of a process whose start time moved.
//!
//! A worker may have several endpoints (engine, cache server, router). Where the source says which one a page is of, that
//! counts; else pages are assigned by the families on them, so that the first page of a second endpoint is not taken for a
//! jump of the first. A series that is gone from a page is remembered: when it comes back, it is no new one.

pub mod exposition;
pub mod meanings;
mod page;
pub mod query_answer;
pub mod recorded;
pub mod scrape;
mod state;
mod trim;

pub use meanings::Meanings;
pub use state::ReaderState;
pub use trim::Trim;

use crate::source::{Losses, Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Counters, SourceKind, Worker};
use kvprov_packs::Version;
use page::Page;
use std::collections::{BTreeMap, BTreeSet};

/// Counters that the words of an observation name.
const MAX_WORDS: usize = 8;

/// Endpoints of one worker.
const MAX_ENDPOINTS: usize = 16;
/// Largest page that is read, in bytes; the rest is cut and counted.
pub const MAX_PAGE: usize = 64 * 1024 * 1024;

/// What a reader read and what it skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsCounts {
    /// Pages read.
    pub pages: u64,
    /// Samples that a pack knows.
    pub matched: u64,
    /// Samples without a meaning for KV.
    pub ignored: u64,
    /// What was skipped, by reason.
    pub losses: Losses,
}

/// What is remembered of an endpoint.
#[derive(Debug, Clone, PartialEq)]
struct Endpoint {
    /// Its name, where the source gives one.
    name: Option<String>,
    families: BTreeSet<String>,
    series: BTreeMap<String, BTreeMap<String, f64>>,
    process_start: Option<f64>,
    at: Option<WallTime>,
    incomplete: bool,
}

/// Increases since the page before.
struct Increases {
    values: BTreeMap<String, f64>,
    resets: i64,
}

/// Reads the pages of one worker.
pub struct MetricsReader<'m> {
    meanings: &'m dyn Meanings,
    version: Option<Version>,
    endpoints: Vec<Endpoint>,
    told_facts: BTreeMap<String, String>,
    counts: MetricsCounts,
}

// === impl MetricsReader ===

impl<'m> MetricsReader<'m> {
    /// A reader before the first page. `version` is that of the engine, where known.
    pub fn new(meanings: &'m dyn Meanings, version: Option<Version>) -> Self {
        Self {
            meanings,
            version,
            endpoints: Vec::new(),
            told_facts: BTreeMap::new(),
            counts: MetricsCounts::default(),
        }
    }

    /// Goes on where another reader of the same packs was.
    #[must_use]
    pub fn with_state(mut self, state: ReaderState) -> Self {
        (self.endpoints, self.told_facts) = state.into_parts();
        self
    }

    /// Where it is.
    pub fn state(&self) -> ReaderState {
        ReaderState::of(&self.endpoints, &self.told_facts)
    }

    /// As [`Self::snapshot`], of an endpoint that the source names.
    pub fn snapshot_of(
        &mut self,
        endpoint: &str,
        at: Option<WallTime>,
        source: &SourceContext,
        place: Place,
        page: &[u8],
        sink: Sink<'_>,
    ) {
        self.take(Some(endpoint), at, source, place, page, sink);
    }

    /// Takes the next page. `at` is the node's time of the scrape; without it the time on the samples counts, and
    /// without that the page gives totals only. `place.offset` tells pages of one stream apart.
    pub fn snapshot(
        &mut self,
        at: Option<WallTime>,
        source: &SourceContext,
        place: Place,
        page: &[u8],
        sink: Sink<'_>,
    ) {
        self.take(None, at, source, place, page, sink);
    }

    fn take(
        &mut self,
        endpoint: Option<&str>,
        at: Option<WallTime>,
        source: &SourceContext,
        place: Place,
        page: &[u8],
        sink: Sink<'_>,
    ) {
        self.counts.pages += 1;
        let losses = &mut self.counts.losses;
        let whole = page.get(..MAX_PAGE).unwrap_or(page);
        if whole.len() < page.len() {
            losses.one("page too long");
        }
        let text = String::from_utf8_lossy(whole);
        let mut read = Page::read(&text, self.meanings, self.version.as_ref(), losses);
        read.incomplete |= whole.len() < page.len();
        self.counts.matched += read.matched;
        self.counts.ignored += read.ignored;
        let at = at.or_else(|| read.timestamp_ms.map(|ms| WallTime(ms.saturating_mul(1_000_000))));
        if at.is_none() {
            losses.one("snapshot without a time");
        }
        self.tell_facts(at, source, place, &read, sink);
        let totals = read.totals();
        let labels = read.labels.clone();
        let (since, increases) = self.advance(endpoint, at, read);
        if totals.is_empty() {
            return;
        }
        let says = match &increases {
            Some(increases) => increases.in_words(),
            None => format!("first snapshot of {} counters", totals.len()),
        };
        let (values, resets) = match increases {
            Some(increases) => (increases.values, Some(increases.resets).filter(|resets| *resets > 0)),
            None => (BTreeMap::new(), None),
        };
        let body = Body::Counters(Counters {
            since_wall_ns: since.map(|since| since.0),
            values,
            totals,
            labels,
            resets,
        });
        sink(source.observe(SourceKind::Metrics, place, 1, at, Some(says), body));
    }

    /// What was read so far.
    pub fn counts(&self) -> &MetricsCounts {
        &self.counts
    }

    fn tell_facts(
        &mut self,
        at: Option<WallTime>,
        source: &SourceContext,
        place: Place,
        page: &Page,
        sink: Sink<'_>,
    ) {
        for (index, (time, facts)) in (2..).zip(&page.dated_facts) {
            let says =
                facts.iter().map(|(fact, value)| format!("{fact} {value}")).collect::<Vec<_>>().join(", ");
            let body = Body::Worker(Worker { facts: facts.clone(), ..Worker::default() });
            sink(source.observe(SourceKind::Metrics, place, index, Some(*time), Some(says), body));
        }
        let news = page.facts.iter().any(|(fact, value)| self.told_facts.get(fact) != Some(value));
        if !news {
            return;
        }
        self.told_facts.extend(page.facts.clone());
        let says = format!("info metrics give {}", page.facts.keys().cloned().collect::<Vec<_>>().join(", "));
        let body = Body::Worker(Worker {
            facts: page.facts.clone(),
            fact_origins: page.fact_origins.clone(),
            ..Worker::default()
        });
        sink(source.observe(SourceKind::Metrics, place, 0, at, Some(says), body));
    }

    /// Finds the endpoint of a page, computes the increases since its last one and remembers the page.
    fn advance(
        &mut self,
        name: Option<&str>,
        at: Option<WallTime>,
        mut page: Page,
    ) -> (Option<WallTime>, Option<Increases>) {
        let losses = &mut self.counts.losses;
        let found = self.endpoints.iter().position(|endpoint| match name {
            Some(_) => endpoint.name.as_deref() == name,
            None => endpoint.name.is_none() && endpoint.is_the_one_of(&page),
        });
        let Some(index) = found else {
            if self.endpoints.len() >= MAX_ENDPOINTS {
                losses.one("too many endpoints");
                return (None, None);
            }
            self.endpoints.push(Endpoint::new(name, at, page));
            return (None, None);
        };
        let endpoint = &mut self.endpoints[index];
        let interval = match (endpoint.at, at) {
            (Some(since), Some(now)) if now > since => Some(since),
            (Some(since), Some(now)) if now == since => {
                losses.one("two snapshots at one time");
                return (None, None);
            }
            (Some(_), Some(_)) => {
                losses.one("snapshot before the last one");
                // A clock that was set back: what has increased counts from here on.
                endpoint.at = at;
                return (None, None);
            }
            _ => None,
        };
        let increases = interval.map(|_| endpoint.increases(&page));
        endpoint.hand_on_to(&mut page);
        *endpoint = Endpoint::new(name, at, page);
        (interval, increases)
    }
}

// === impl Endpoint ===

impl Endpoint {
    fn new(name: Option<&str>, at: Option<WallTime>, page: Page) -> Self {
        Self {
            name: name.map(str::to_owned),
            families: page.families,
            series: page.counters,
            process_start: page.process_start,
            at,
            incomplete: page.incomplete,
        }
    }

    /// A page is of this endpoint when it shows at least half of the families, by the shorter of the two: clients add
    /// families as they come to need them, and a page may be cut.
    fn is_the_one_of(&self, page: &Page) -> bool {
        let shorter = self.families.len().min(page.families.len());
        let shared = self.families.intersection(&page.families).count();
        shared > 0 && shared * 2 >= shorter
    }

    /// Whether a page is of another process than the last one.
    fn is_before_restart(&self, page: &Page) -> bool {
        match (self.process_start, page.process_start) {
            // A start that moved back is another process behind the same address.
            (Some(before), Some(now)) => (before - now).abs() > 1.0,
            _ => false,
        }
    }

    /// Leaves to a page what it does not show.
    fn hand_on_to(&mut self, page: &mut Page) {
        if self.is_before_restart(page) {
            return;
        }
        let mut room = page::MAX_SERIES.saturating_sub(page.counters.values().map(BTreeMap::len).sum());
        for (counter, series) in std::mem::take(&mut self.series) {
            let shown = page.counters.entry(counter).or_default();
            for (text, value) in series {
                if room > 0 && !shown.contains_key(&text) {
                    room -= 1;
                    shown.insert(text, value);
                }
            }
        }
        page.process_start = page.process_start.or(self.process_start);
    }

    fn increases(&self, page: &Page) -> Increases {
        let restarted = self.is_before_restart(page);
        let mut result = Increases { values: page.levels.clone(), resets: 0 };
        for (counter, series) in &page.counters {
            let before = self.series.get(counter);
            let mut increase = 0.0;
            let mut reset = false;
            for (text, value) in series {
                match before.and_then(|before| before.get(text)) {
                    Some(old) if restarted || value < old => {
                        reset = true;
                        increase += value;
                    }
                    Some(old) => increase += value - old,
                    // Born since: clients make a series with its first event. On a cut page it may only have been
                    // out of sight.
                    None if self.incomplete => {}
                    None => increase += value,
                }
            }
            result.resets += i64::from(reset);
            result.values.insert(counter.clone(), increase);
        }
        result
    }
}

// === impl Increases ===

impl Increases {
    /// The counters that moved, largest first, as evidence shows them.
    fn in_words(&self) -> String {
        let mut moved: Vec<(&String, f64)> = self
            .values
            .iter()
            .filter(|(_, value)| **value > 0.0)
            .map(|(name, value)| (name, *value))
            .collect();
        moved.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        if moved.is_empty() {
            return format!("none of {} counters moved", self.values.len());
        }
        let shown: Vec<String> =
            moved.iter().take(MAX_WORDS).map(|(name, value)| format!("{name} +{value:.0}")).collect();
        let more = moved.len().saturating_sub(MAX_WORDS);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{}{rest}", shown.join(", "))
    }
}
