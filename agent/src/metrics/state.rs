//! What a reader has to remember over the end of its process, in a form for a disk.
//!
//! Numbers are kept by their bits: one that came back a hair larger than it was would make its counter look as if it had
//! begun anew.

use super::Endpoint;
use kvprov_model::clock::WallTime;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Where a reader is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReaderState {
    endpoints: Vec<SavedEndpoint>,
    told_facts: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SavedEndpoint {
    name: Option<String>,
    families: BTreeSet<String>,
    /// Bits of the value of every series, by counter and series.
    series: BTreeMap<String, BTreeMap<String, u64>>,
    process_start: Option<u64>,
    at: Option<WallTime>,
    incomplete: bool,
}

// === impl ReaderState ===

impl ReaderState {
    pub(super) fn of(endpoints: &[Endpoint], told_facts: &BTreeMap<String, String>) -> Self {
        let endpoints = endpoints.iter().map(|endpoint| SavedEndpoint {
            name: endpoint.name.clone(),
            families: endpoint.families.clone(),
            series: mapped(&endpoint.series, f64::to_bits),
            process_start: endpoint.process_start.map(f64::to_bits),
            at: endpoint.at,
            incomplete: endpoint.incomplete,
        });
        Self { endpoints: endpoints.collect(), told_facts: told_facts.clone() }
    }

    pub(super) fn into_parts(self) -> (Vec<Endpoint>, BTreeMap<String, String>) {
        let endpoints = self.endpoints.into_iter().map(|saved| Endpoint {
            series: mapped(&saved.series, f64::from_bits),
            process_start: saved.process_start.map(f64::from_bits),
            name: saved.name,
            families: saved.families,
            at: saved.at,
            incomplete: saved.incomplete,
        });
        (endpoints.collect(), self.told_facts)
    }
}

type Series<T> = BTreeMap<String, BTreeMap<String, T>>;

fn mapped<F: Copy, T>(series: &Series<F>, convert: impl Fn(F) -> T) -> Series<T> {
    let of_counter = |values: &BTreeMap<String, F>| {
        values.iter().map(|(text, value)| (text.clone(), convert(*value))).collect()
    };
    series.iter().map(|(counter, values)| (counter.clone(), of_counter(values))).collect()
}
