//! What a metric means, by name, labels and version.
//!
//! Input is the name and labels of a series as an engine exposes them.

use crate::version::{Version, VersionRange};
use std::collections::{BTreeMap, HashMap, HashSet};

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
pub struct MetricTable {
    meanings: HashMap<String, Vec<Meaning>>,
    /// By name of an info metric: label and fact.
    info: HashMap<String, Vec<(String, String)>>,
    /// Info metrics whose value is the time at which their labels held.
    dated: HashSet<String>,
    /// Names under which something between the engine and the page shows a metric, and its own.
    aliases: HashMap<String, String>,
}

impl MetricTable {
    /// What a series means. A few hashes of the name, no allocation. Of several that fit, the one of the version, and of
    /// these the one with most labels. A series that the version is not known to have means what it means elsewhere:
    /// it is there.
    pub fn lookup(&self, name: &str, labels: &[(&str, &str)], version: Option<&Version>) -> Option<&Meaning> {
        let name = self.own_name(name);
        let fits = |meaning: &&Meaning| {
            meaning.labels.iter().all(|(key, value)| {
                labels.iter().any(|(of_series, its_value)| of_series == key && its_value == value)
            })
        };
        let meanings = self.meanings.get(name)?;
        let of_version = meanings.iter().filter(|meaning| meaning.versions.contains(version)).find(fits);
        of_version.or_else(|| meanings.iter().find(fits))
    }

    /// Facts that the labels of an info metric hold; `None` when the name is no info metric.
    pub fn info_facts(&self, name: &str, labels: &[(&str, &str)]) -> Option<BTreeMap<String, String>> {
        let wanted = self.info.get(self.own_name(name))?;
        let value_of = |key: &str| labels.iter().find(|(label, _)| *label == key).map(|(_, value)| *value);
        Some(
            wanted
                .iter()
                .filter_map(|(label, fact)| Some((fact.clone(), value_of(label)?)))
                .filter(|(_, value)| !matches!(*value, "" | "None"))
                .map(|(fact, value)| (fact, value.to_owned()))
                .collect(),
        )
    }

    /// Whether the value of an info metric is the time, in unix seconds, at which its labels held.
    pub fn value_is_time(&self, name: &str) -> bool {
        self.dated.contains(self.own_name(name))
    }

    /// Whether a label of a metric says something: an entry names it.
    pub fn names_label(&self, name: &str, label: &str) -> bool {
        let name = self.own_name(name);
        let of_meaning = |meaning: &Meaning| meaning.labels.contains_key(label);
        self.meanings.get(name).is_some_and(|all| all.iter().any(of_meaning))
            || self.info.get(name).is_some_and(|all| all.iter().any(|(known, _)| known == label))
    }

    /// Whether any meaning has this name, whatever the labels.
    pub fn knows(&self, name: &str) -> bool {
        let name = self.own_name(name);
        self.meanings.contains_key(name) || self.info.contains_key(name)
    }

    /// The name that the engine itself gives to a metric.
    fn own_name<'n>(&'n self, name: &'n str) -> &'n str {
        if self.meanings.contains_key(name) || self.info.contains_key(name) {
            return name;
        }
        self.aliases.get(name).map_or(name, String::as_str)
    }

    /// Names what is known: two tables with the same one read a page alike.
    pub fn fingerprint(&self) -> String {
        let mut all: Vec<String> = self
            .meanings()
            .map(|m| format!("{} {:?} {:?} {} {:?}", m.name, m.labels, m.metric_type, m.counter, m.versions))
            .collect();
        let is_dated = |name| self.dated.contains(name);
        all.extend(self.info.iter().map(|(name, labels)| format!("{name} {labels:?} {}", is_dated(name))));
        all.sort();
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        // FNV-1a: a name, no proof.
        for byte in all.join("\n").bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        format!("{hash:016x}")
    }

    /// Every meaning, in no order.
    pub fn meanings(&self) -> impl Iterator<Item = &Meaning> {
        self.meanings.values().flatten()
    }

    /// A colon is no letter of a name to many collectors, which write an underscore for it; Ray puts its own name before
    /// what its actors count.
    fn add_aliases(&mut self, name: &str) {
        let flat = name.replace(':', "_");
        for alias in [format!("ray_{name}"), format!("ray_{flat}"), flat] {
            if alias != name {
                self.aliases.entry(alias).or_insert_with(|| name.to_owned());
            }
        }
    }

    pub(crate) fn add(&mut self, meaning: Meaning) {
        self.add_aliases(&meaning.name);
        let of_name = self.meanings.entry(meaning.name.clone()).or_default();
        of_name.push(meaning);
        // The first that fits is taken: most labels first.
        of_name.sort_by_key(|meaning| std::cmp::Reverse(meaning.labels.len()));
    }

    pub(crate) fn add_info(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (String, String)>,
        value_is_time: bool,
    ) {
        self.add_aliases(name);
        if value_is_time {
            self.dated.insert(name.to_owned());
        }
        self.info.entry(name.to_owned()).or_default().extend(labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meaning(labels: &[(&str, &str)], counter: &str, until: Option<&str>) -> Meaning {
        Meaning {
            engine: "e".to_owned(),
            name: "m_total".to_owned(),
            labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            metric_type: MetricType::Counter,
            counter: counter.to_owned(),
            versions: VersionRange { since: None, until: until.and_then(Version::parse) },
            note: None,
        }
    }

    #[test]
    fn the_meaning_with_most_labels_wins_and_versions_bound_it() {
        let mut table = MetricTable::default();
        table.add(meaning(&[], "all", None));
        table.add(meaning(&[("source", "local")], "local", Some("0.5")));
        let of = |labels: &[(&str, &str)], version: &str| {
            table
                .lookup("m_total", labels, Version::parse(version).as_ref())
                .map(|found| found.counter.clone())
        };
        assert_eq!(of(&[("model", "x"), ("source", "local")], "0.4").as_deref(), Some("local"));
        assert_eq!(of(&[("source", "local")], "0.5").as_deref(), Some("all"));
        assert_eq!(of(&[], "0.4").as_deref(), Some("all"));
        assert!(table.lookup("other", &[], None).is_none());
    }

    #[test]
    fn a_series_that_the_version_is_not_known_to_have_means_what_it_means_elsewhere() {
        let mut table = MetricTable::default();
        table.add(meaning(&[], "all", Some("0.5")));
        let version = Version::parse("0.6");
        assert_eq!(
            table.lookup("m_total", &[], version.as_ref()).map(|found| found.counter.as_str()),
            Some("all")
        );
    }

    #[test]
    fn a_metric_is_known_under_the_names_that_collectors_give_it() {
        let mut table = MetricTable::default();
        table.add(Meaning { name: "engine:m_total".to_owned(), ..meaning(&[], "all", None) });
        for name in ["engine:m_total", "engine_m_total", "ray_engine:m_total", "ray_engine_m_total"] {
            let found = table.lookup(name, &[], None).map(|found| found.counter.as_str());
            assert_eq!(found, Some("all"), "{name}");
            assert!(table.knows(name));
        }
        assert!(!table.knows("other_engine_m_total"));
    }

    #[test]
    fn an_info_metric_gives_facts() {
        let mut table = MetricTable::default();
        table.add_info("info", [("block_size".to_owned(), "block_size".to_owned())], false);
        let facts = table.info_facts("info", &[("block_size", "16"), ("x", "y")]).unwrap_or_default();
        assert_eq!(facts.get("block_size").map(String::as_str), Some("16"));
        assert_eq!(table.info_facts("m", &[]), None);
    }
}
