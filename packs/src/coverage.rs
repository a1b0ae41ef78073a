//! How much is known of each version of an engine, for people.
//!
//! A version stands here where something begins or ends; between two of them nothing does. An entry without bounds
//! holds for every version, so the numbers tell what may be recognised, not what a release is known to print.

use crate::load::Packs;
use crate::version::{Version, VersionRange};
use std::collections::{BTreeMap, BTreeSet};

/// What holds from one version of an engine on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    /// The version from which it holds; absent: before the first that an entry names.
    pub since: Option<Version>,
    /// Log templates, JSON lines among them.
    pub templates: usize,
    /// Meanings of metrics.
    pub metrics: usize,
}

impl Packs {
    /// By engine: what holds before the first version that an entry names, and from each such version on.
    pub fn coverage(&self) -> BTreeMap<String, Vec<Coverage>> {
        let engines: BTreeSet<&str> = self.files.iter().map(|(_, engine)| engine.as_str()).collect();
        engines.into_iter().map(|engine| (engine.to_owned(), self.coverage_of(engine))).collect()
    }

    fn coverage_of(&self, engine: &str) -> Vec<Coverage> {
        let of_templates: Vec<&VersionRange> = self
            .templates
            .iter()
            .filter(|template| template.engine == engine)
            .map(|template| &template.versions)
            .collect();
        let of_metrics: Vec<&VersionRange> = self
            .metrics
            .meanings()
            .filter(|meaning| meaning.engine == engine)
            .map(|meaning| &meaning.versions)
            .collect();
        let timeless = self.json.iter().filter(|signature| signature.engine == engine).count();
        let mut bounds: Vec<&Version> = of_templates
            .iter()
            .chain(&of_metrics)
            .flat_map(|range| range.since.iter().chain(&range.until))
            .collect();
        bounds.sort();
        bounds.dedup_by(|a, b| a.cmp(&b).is_eq());
        let at = |since: Option<&Version>| {
            let holding =
                |ranges: &[&VersionRange]| ranges.iter().filter(|range| holds(range, since)).count();
            Coverage {
                since: since.cloned(),
                templates: holding(&of_templates) + timeless,
                metrics: holding(&of_metrics),
            }
        };
        std::iter::once(at(None)).chain(bounds.into_iter().map(|bound| at(Some(bound)))).collect()
    }
}

/// Whether a range holds at a version; before every version that is named, where there is none.
fn holds(range: &VersionRange, at: Option<&Version>) -> bool {
    match at {
        None => range.since.is_none(),
        Some(version) => range.contains(Some(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_is_counted_from_each_version_that_is_named() {
        let range = |since: &str, until: &str| VersionRange {
            since: Version::parse(since),
            until: Version::parse(until),
        };
        let at = |version: &str| Version::parse(version);
        let bounded = range("0.11", "0.14");
        let held: Vec<bool> =
            ["", "0.11.0", "0.13.2", "0.14"].map(|version| holds(&bounded, at(version).as_ref())).to_vec();
        assert_eq!(held, [false, true, true, false]);
        assert!(holds(&range("", "0.14"), None), "without a first version it holds before any");
    }
}
