//! Where the parts of the agent put their figures: sources that are asked when somebody looks.
//!
//! Input: closures. Invariant: a page has each series once (sources of one counter add up) and at most [`MAX_SERIES`] of
//! a metric; what is cut is counted.

use super::metric::{self, Kind, Metric};
use prometheus::proto::{Counter, Gauge, LabelPair, Metric as Sample, MetricFamily, MetricType};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// Most series of one metric.
const MAX_SERIES: usize = 512;
/// Longest value of a label, in bytes; a longer one is cut.
const MAX_LABEL: usize = 128;

/// One value: the values of its labels in the order of [`Metric::labels`], and the number.
pub type Series = (Vec<String>, f64);

type Source = Box<dyn Fn() -> Vec<Series> + Send + Sync>;

/// The sources of all metrics.
#[derive(Default)]
pub struct Stats {
    sources: Mutex<Vec<(Metric, Source)>>,
}

impl fmt::Debug for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stats").finish_non_exhaustive()
    }
}

// === impl Stats ===

impl Stats {
    /// Adds a source of a metric. It is asked on every look at the page, on the page's thread: it should not wait.
    pub fn source(&self, metric: Metric, source: impl Fn() -> Vec<Series> + Send + Sync + 'static) {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner).push((metric, Box::new(source)));
    }

    /// Adds a source of a metric without labels; `None`: nothing is known now.
    pub fn value(&self, metric: Metric, source: impl Fn() -> Option<f64> + Send + Sync + 'static) {
        self.source(metric, move || source().map(|value| (Vec::new(), value)).into_iter().collect());
    }

    /// The page in Prometheus' text format.
    pub fn page(&self) -> String {
        let mut families: BTreeMap<&'static str, (Metric, BTreeMap<Vec<String>, f64>)> = BTreeMap::new();
        let mut cut: BTreeMap<&'static str, u64> = BTreeMap::new();
        for (metric, source) in self.sources.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let (_, series) = families.entry(metric.name).or_insert_with(|| (*metric, BTreeMap::new()));
            for (labels, value) in source() {
                let labels: Vec<String> = labels.into_iter().map(shorten).collect();
                // A source that does not fit its metric is a mistake of ours; its figures would be misread.
                if labels.len() != metric.labels.len() {
                    *cut.entry(metric.name).or_default() += 1;
                } else if let Some(sum) = series.get_mut(&labels) {
                    *sum = if metric.kind == Kind::Counter { *sum + value } else { value };
                } else if series.len() < MAX_SERIES {
                    series.insert(labels, value);
                } else {
                    *cut.entry(metric.name).or_default() += 1;
                }
            }
        }
        if !cut.is_empty() {
            let series = cut.into_iter().map(|(name, count)| (vec![name.to_owned()], count as f64)).collect();
            families.insert(metric::SERIES_CUT.name, (metric::SERIES_CUT, series));
        }
        let families: Vec<MetricFamily> = families
            .into_values()
            .filter(|(_, series)| !series.is_empty())
            .map(|(metric, series)| family(metric, series))
            .collect();
        // Fails only on a family without samples or a name; there is none.
        prometheus::TextEncoder::new().encode_to_string(&families).unwrap_or_default()
    }
}

fn family(metric: Metric, series: BTreeMap<Vec<String>, f64>) -> MetricFamily {
    let samples = series.into_iter().map(|(values, value)| {
        let labels = metric.labels.iter().zip(values).map(|(name, value)| {
            let mut label = LabelPair::default();
            label.set_name((*name).to_owned());
            label.set_value(value);
            label
        });
        let mut sample = Sample::from_label(labels.collect());
        match metric.kind {
            Kind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(value);
                sample.set_counter(counter);
            }
            Kind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(value);
                sample.set_gauge(gauge);
            }
        }
        sample
    });
    let mut family = MetricFamily::default();
    family.set_name(metric.name.to_owned());
    family.set_help(metric.help.to_owned());
    family.set_field_type(match metric.kind {
        Kind::Counter => MetricType::COUNTER,
        Kind::Gauge => MetricType::GAUGE,
    });
    family.set_metric(samples.collect());
    family
}

fn shorten(mut text: String) -> String {
    if text.len() > MAX_LABEL {
        let end = (0..=MAX_LABEL).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_of_one_counter_add_up() {
        let stats = Stats::default();
        for value in [1.0, 2.0] {
            stats.source(metric::LOST, move || {
                vec![
                    (vec!["ship".to_owned(), "queue_full".to_owned()], value),
                    (vec!["read".to_owned(), "gone".to_owned()], value),
                ]
            });
        }
        let page = stats.page();
        assert!(
            page.contains("kvprov_observations_lost_total{stage=\"ship\",reason=\"queue_full\"} 3\n"),
            "{page}"
        );
        assert_eq!(page.matches("# TYPE kvprov_observations_lost_total counter").count(), 1, "{page}");
    }

    #[test]
    fn a_metric_without_a_figure_is_absent() {
        let stats = Stats::default();
        stats.value(metric::PROCESS_CPU, || None);
        assert_eq!(stats.page(), "");
    }

    #[test]
    fn labels_are_bounded_and_the_cut_is_told() {
        let stats = Stats::default();
        stats
            .source(metric::OBSERVATIONS, || (0..1000).map(|kind| (vec![format!("k{kind}")], 1.0)).collect());
        stats.source(metric::WORKERS, || vec![(vec!["é".repeat(100)], 1.0)]);
        let page = stats.page();
        assert_eq!(page.matches("kvprov_observations_total{").count(), MAX_SERIES);
        assert!(
            page.contains("kvprov_metric_series_cut{metric=\"kvprov_observations_total\"} 488\n"),
            "{page}"
        );
        assert!(page.contains(&format!("{{engine=\"{}\"}}", "é".repeat(64))), "{page}");
    }

    #[test]
    fn hostile_labels_stay_inside_of_their_quotes() {
        let stats = Stats::default();
        stats.source(metric::WORKERS, || vec![(vec!["a\"} 1\nkvprov_fake 2\\".to_owned()], 1.0)]);
        assert!(!stats.page().lines().any(|line| line.starts_with("kvprov_fake")));
    }
}
