//! Adapters whose key is the number of their load: another order on another engine gives another key.

use super::finish;
use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_blocks::shares;
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{AdminClass, Body, Observation, Outcome};

/// The complete set of findings on the fleet.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let numbered: Vec<&Member> =
        view.roster().members().filter(|m| m.fact(fact::ADAPTER_KEY) == Some("load_number")).collect();
    let mut findings = Vec::new();
    for (index, a) in numbered.iter().enumerate() {
        for b in numbered.iter().skip(index + 1).filter(|b| shares(view, a, b)) {
            let (left, right) = (loads(view, a), loads(view, b));
            let moved: Vec<&String> = left
                .iter()
                .enumerate()
                .filter(|(number, (name, _))| {
                    right.iter().position(|(other, _)| other == name).is_some_and(|at| at != *number)
                })
                .map(|(_, (name, _))| name)
                .collect();
            if moved.is_empty() {
                continue;
            }
            let mut draft = Draft::new(
                Detector::KeyspaceFork,
                Cause::LoraId,
                Confidence::Risk,
                format!("{}, {}", a.id, b.id),
            );
            draft.worker(a.id.as_str()).worker(b.id.as_str());
            draft.proofs(left.iter().chain(&right).filter(|(name, _)| moved.contains(&name)).map(|(_, o)| o));
            draft.unknown("whether requests for these adapters were looked up on both");
            findings.push(finish(draft, &Cause::LoraId, "as the adapters were loaded in another order"));
        }
    }
    findings
}

/// Names of adapters in the order of their first load.
fn loads(view: &View<'_>, member: &Member) -> Vec<(String, Observation)> {
    let mut loads: Vec<(String, Observation)> = Vec::new();
    for observation in view.worker(&member.id).iter() {
        let Body::AdminCall(call) = &observation.body else { continue };
        if call.class != Some(AdminClass::LoraLoad) || call.outcome == Some(Outcome::Failed) {
            continue;
        }
        for name in &call.names {
            if !loads.iter().any(|(held, _)| held == name) {
                loads.push((name.clone(), observation.clone()));
            }
        }
    }
    loads
}
