//! What a metric means.

use crate::version::{Version, VersionRange};
use std::collections::BTreeMap;

/// How series of one meaning are combined and read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetricType {
    /// Only grows; series are added up and read as increases.
    Counter,
    /// A level; the largest series is taken.
    Gauge,
}

/// The meaning of a metric.
#[derive(Debug, Clone)]
pub struct Meaning {
    /// The engine whose pack holds it.
    pub engine: String,
    /// Name as exposed.
    pub name: String,
    /// Labels that a series must carry.
    pub labels: BTreeMap<String, String>,
    /// How to read it.
    pub metric_type: MetricType,
    /// Name in `model::counter`.
    pub counter: String,
    /// Versions in which it means this.
    pub versions: VersionRange,
    /// What misleads.
    pub note: Option<String>,
}

/// Meanings by name.
#[derive(Debug, Clone, Default)]
pub struct MetricTable {}

impl MetricTable {
    /// What a series means. One hash of the name, no allocation. Of several that fit, the one with most labels.
    pub fn lookup(&self, _name: &str, _labels: &[(&str, &str)], _version: Option<&Version>) -> Option<&Meaning> {
        None
    }
    /// Facts that the labels of an info metric hold; `None` when the name is no info metric.
    pub fn info_facts(&self, _name: &str, _labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        None
    }
    /// Whether any meaning has this name, whatever the labels.
    pub fn knows(&self, _name: &str) -> bool {
        false
    }
}
