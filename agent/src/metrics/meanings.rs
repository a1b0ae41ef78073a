//! What a series means. Input: the packs; a reader asks through a trait, so that it holds no name of any engine.

use kvprov_packs::{MetricType, Packs, Version};
use std::collections::BTreeMap;

/// Tells what series mean.
pub trait Meanings: Sync {
    /// Name in `model::counter`, and how series of one meaning are combined.
    fn meaning(
        &self,
        name: &str,
        labels: &[(&str, &str)],
        version: Option<&Version>,
    ) -> Option<(&str, MetricType)>;

    /// Facts that the labels of an info metric hold.
    fn facts(&self, name: &str, labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>>;

    /// Whether a metric of this name may mean something, whatever its labels.
    fn knows(&self, _name: &str) -> bool {
        true
    }

    /// Whether the value of a label decides what a series means, or is a fact.
    fn names_label(&self, _name: &str, _label: &str) -> bool {
        true
    }

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

    fn knows(&self, name: &str) -> bool {
        self.metrics().knows(name)
    }

    fn names_label(&self, name: &str, label: &str) -> bool {
        self.metrics().names_label(name, label)
    }

    fn value_is_time(&self, name: &str) -> bool {
        self.metrics().value_is_time(name)
    }
}
