//! Detectors: pure functions from a view of the ledger to the complete set of findings on one subject.
//!
//! A detector knows neither where an observation came from nor where a finding goes. It reads, compares and states;
//! it asks no clock. What is absent is evidence only where the path is visible; what was lost makes unknown. One file
//! a detector; [`words`] has the sentences, [`draft`] the finding in the making.

pub mod adapter_used;
pub mod artifacts;
pub mod cross_revision_hit;
pub mod draft;
pub mod guard_disabled;
pub mod handshake_stall;
pub mod keyspace_fork;
pub mod kv_transfer_failed;
pub mod mutual_eviction;
pub mod silent_recompute;
pub mod stale_kv_read;
pub mod store_conflict;
pub mod store_pressure;
pub mod unarrived;
pub mod unexpected_revision;
pub mod words;

pub use crate::ledger::Subject;

use crate::view::View;
use kvprov_model::finding::{Finding, FindingState};
use kvprov_model::id::FindingId;
use std::collections::BTreeMap;

type Detect = fn(&View<'_>, &Subject) -> Vec<Finding>;

/// Every detector.
const DETECTORS: &[Detect] = &[
    silent_recompute::detect,
    kv_transfer_failed::detect,
    stale_kv_read::detect,
    cross_revision_hit::detect,
    keyspace_fork::detect,
    mutual_eviction::detect,
    store_pressure::detect,
    store_conflict::detect,
    handshake_stall::detect,
    guard_disabled::detect,
    unexpected_revision::detect,
];

/// The complete set of findings on a subject, in a stable order with unique ids.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let mut findings: Vec<Finding> = DETECTORS.iter().flat_map(|detect| detect(view, subject)).collect();
    findings.sort_by(|a, b| {
        (&a.detector, &a.subject, &a.cause, a.first_seen).cmp(&(
            &b.detector,
            &b.subject,
            &b.cause,
            b.first_seen,
        ))
    });
    number_twins(&mut findings);
    findings
}

/// Two causes on one subject that began at one moment are two episodes: the later in order gets an id of its own.
fn number_twins(findings: &mut [Finding]) {
    let mut seen: BTreeMap<FindingId, u32> = BTreeMap::new();
    for finding in findings {
        let twins = seen.entry(finding.id.clone()).or_insert(0);
        *twins += 1;
        if *twins > 1 {
            finding.id = FindingId::derive(&finding.detector, finding.id.as_str(), &twins.to_string());
        }
        finding.state = FindingState::Opened;
    }
}
