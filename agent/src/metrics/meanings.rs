//! What a series means. Input: the packs; a reader asks through a trait, so that it holds no name of any engine.

use kvprov_packs::{MetricType, Packs, Version};
use std::collections::BTreeMap;

/// Tells what series mean.
pub trait Meanings {
    /// Name in `model::counter`, and how series of one meaning are combined.
    fn meaning(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        version: Option<&Version>,
    ) -> Option<(&str, MetricType)>;

    /// Facts that the labels of an info metric hold.
    fn facts(&self, name: &str, labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>>;

    /// Whether the value of an info metric is the time, in unix seconds, at which its labels held.
    fn value_is_time(&self, _name: &str) -> bool {
        false
    }
}

// === impl Packs ===

impl Meanings for Packs {
    fn meaning(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        version: Option<&Version>,
    ) -> Option<(&str, MetricType)> {
        let meaning = self.metrics().lookup(name, labels, version)?;
        Some((meaning.counter.as_str(), meaning.metric_type))
    }

    fn facts(&self, name: &str, labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        self.metrics().info_facts(name, labels)
    }

    fn value_is_time(&self, name: &str) -> bool {
        self.metrics().value_is_time(name)
    }
}
