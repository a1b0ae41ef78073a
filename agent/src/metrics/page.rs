//! One page of metrics, reduced to what has a meaning.

use crate::metrics::exposition::{Line, Sample, lines};
use crate::metrics::meanings::Meanings;
use crate::source::Losses;
use kvprov_model::clock::WallTime;
use kvprov_packs::{MetricType, Version};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Series with a meaning that one page may have.
pub(super) const MAX_SERIES: usize = 64 * 1024;
/// Families by which a page is recognised.
const MAX_FAMILIES: usize = 4096;
/// Info metrics with a time of their own that one page may have.
const MAX_DATED: usize = 64;
/// The start of the process; moves when every counter begins anew.
pub(super) const PROCESS_START: &str = "process_start_time_seconds";
/// Labels that are worth telling where all series agree on them.
pub(super) const TOLD_LABELS: [&str; 2] = ["model_name", "engine"];

/// A page, reduced.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// Value of each counter series: by name in `model::counter`, then by the text of the series.
    pub counters: BTreeMap<String, BTreeMap<String, f64>>,
    /// The largest value of each gauge.
    pub levels: BTreeMap<String, f64>,
    /// Families on the page, meaningful or not: by them one endpoint is told from another.
    pub families: BTreeSet<String>,
    /// Facts from info metrics.
    pub facts: BTreeMap<String, String>,
    /// The info metric that each fact comes from.
    pub fact_origins: BTreeMap<String, String>,
    /// Facts that held at a time of their own, which the value of their metric tells.
    pub dated_facts: Vec<(WallTime, BTreeMap<String, String>)>,
    /// Labels on which all meaningful series agree.
    pub labels: BTreeMap<String, String>,
    pub process_start: Option<f64>,
    /// Latest time on a sample.
    pub timestamp_ms: Option<i64>,
    /// Samples with and without a meaning.
    pub matched: u64,
    pub ignored: u64,
    /// The page was cut or had unreadable lines: what is absent may have been there.
    pub incomplete: bool,
}

// === impl Page ===

impl Page {
    /// Reads a page.
    pub(crate) fn read(
        text: &str,
        meanings: &dyn Meanings,
        version: Option<&Version>,
        losses: &mut Losses,
    ) -> Self {
        let mut page = Self::default();
        let mut disagreeing = BTreeSet::new();
        let mut series_count = 0;
        for line in lines(text) {
            match line {
                Line::Family(name) => page.add_family(name),
                Line::Bad(reason) => {
                    losses.one(reason);
                    page.incomplete = true;
                }
                Line::Sample(sample) => {
                    page.add_family(sample.name);
                    page.timestamp_ms = page.timestamp_ms.max(sample.timestamp_ms);
                    page.add(&sample, meanings, version, &mut disagreeing, &mut series_count, losses);
                }
            }
        }
        page.labels.retain(|name, _| !disagreeing.contains(name.as_str()));
        page
    }

    fn add_family(&mut self, name: &str) {
        let family = ["_total", "_count", "_sum", "_bucket", "_created"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        if self.families.len() < MAX_FAMILIES && !self.families.contains(family) {
            self.families.insert(family.to_owned());
        }
    }

    fn add(
        &mut self,
        sample: &Sample<'_>,
        meanings: &dyn Meanings,
        version: Option<&Version>,
        disagreeing: &mut BTreeSet<&'static str>,
        series_count: &mut usize,
        losses: &mut Losses,
    ) {
        let labels: Vec<(&str, &str)> =
            sample.labels.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        if sample.name == PROCESS_START && sample.value.is_finite() {
            self.process_start = Some(self.process_start.map_or(sample.value, |old| old.max(sample.value)));
        }
        if let Some(facts) = meanings.facts(sample.name, &labels) {
            if meanings.value_is_time(sample.name) {
                let time = WallTime::from_unix_seconds(sample.value);
                if let (Some(time), false, true) =
                    (time, facts.is_empty(), self.dated_facts.len() < MAX_DATED)
                {
                    self.dated_facts.push((time, facts));
                }
                self.matched += 1;
                return;
            }
            for (fact, value) in facts {
                self.fact_origins.insert(fact.clone(), format!("metric {}", sample.name));
                self.facts.insert(fact, value);
            }
            self.matched += 1;
            return;
        }
        let Some((counter, metric_type)) = meanings.meaning(sample.name, &labels, version) else {
            self.ignored += 1;
            return;
        };
        self.matched += 1;
        if !sample.value.is_finite() || (metric_type == MetricType::Counter && sample.value < 0.0) {
            losses.one("value that no counter has");
            self.incomplete = true;
            return;
        }
        self.agree_on_labels(&labels, disagreeing);
        match metric_type {
            MetricType::Gauge => {
                let level = self.levels.entry(counter.to_owned()).or_insert(sample.value);
                *level = level.max(sample.value);
            }
            MetricType::Counter => {
                if *series_count >= MAX_SERIES {
                    losses.one("too many series");
                    self.incomplete = true;
                    return;
                }
                let series = self.counters.entry(counter.to_owned()).or_default();
                // The last one wins, as in Prometheus.
                if series.insert(series_text(sample), sample.value).is_some() {
                    losses.one("series twice on one page");
                } else {
                    *series_count += 1;
                }
            }
        }
    }

    fn agree_on_labels(&mut self, labels: &[(&str, &str)], disagreeing: &mut BTreeSet<&'static str>) {
        for told in TOLD_LABELS {
            let Some((_, value)) = labels.iter().find(|(name, _)| *name == told) else { continue };
            match self.labels.get(told) {
                Some(known) if known != value => {
                    disagreeing.insert(told);
                }
                Some(_) => {}
                None => {
                    self.labels.insert(told.to_owned(), (*value).to_owned());
                }
            }
        }
    }

    /// Sums of counters and levels, as `totals`.
    pub(crate) fn totals(&self) -> BTreeMap<String, f64> {
        let sums = self.counters.iter().map(|(counter, series)| (counter.clone(), series.values().sum()));
        sums.chain(self.levels.clone()).collect()
    }
}

/// Name and labels in one order, whatever the order on the page.
fn series_text(sample: &Sample<'_>) -> String {
    let mut labels: Vec<&(&str, Cow<'_, str>)> = sample.labels.iter().collect();
    labels.sort();
    let mut text = sample.name.to_owned();
    for (name, value) in labels {
        text.push('\u{1f}');
        text.push_str(name);
        text.push('=');
        text.push_str(value);
    }
    text
}
