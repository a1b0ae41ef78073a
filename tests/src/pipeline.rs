//! The pipeline in this process: bundle → observations → ledger → findings.
//!
//! The binary does the same and takes a fifth of a second to start, which is too much for thousands of replays. That both
//! say the same is a test of its own (`tests/order.rs`).

use crate::bundle::Bundle;
use crate::verdict::Found;
use kvprov_collector::evaluate::{all_subjects, evaluate};
use kvprov_collector::ledger::{Ledger, Limits, MemoryLedger};
use kvprov_collector::view::Progress;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;

/// Observations merged at once.
const BATCH: usize = 512;

/// The observations of a bundle, in the order of its sources.
pub fn observe(bundle: &Bundle) -> Result<Vec<Observation>, String> {
    let on_disk = bundle.write().map_err(|error| error.to_string())?;
    let opened = kvprov_agent::bundle::Bundle::open(&[on_disk.path().to_owned()])
        .map_err(|error| error.to_string())?;
    let packs = Packs::builtin();
    let mut observations = Vec::new();
    opened.read(packs, packs.matcher(), &mut |observation| observations.push(observation), &mut |_, _| {});
    Ok(observations)
}

/// What is concluded from observations, as replay prints it.
pub fn conclude(observations: &[Observation]) -> Result<Vec<Found>, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut ledger = MemoryLedger::new(Limits::unbounded());
    for batch in observations.chunks(BATCH) {
        ledger.merge(batch).map_err(|error| text(&error))?;
    }
    let subjects = all_subjects(&ledger).map_err(|error| text(&error))?;
    evaluate(&mut ledger, &subjects, Progress::Ended).map_err(|error| text(&error))?;
    let findings: Vec<_> =
        ledger.all_findings().map_err(|error| text(&error))?.into_values().flatten().collect();
    let mut found = Found::all(&serde_json::json!({ "findings": findings })).map_err(|error| text(&error))?;
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}

/// Both.
pub fn replay(bundle: &Bundle) -> Result<Vec<Found>, String> {
    conclude(&observe(bundle)?)
}
