//! `guard_disabled`: a safety check is off. Always a risk.

use super::draft::Draft;
use super::{Subject, words};
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use std::collections::BTreeMap;

/// The complete set of findings: a worker's own settings on the worker, shared evictors on the fleet.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    match subject {
        Subject::Worker(worker) => view.roster().get(worker).map(of_worker).unwrap_or_default(),
        Subject::Fleet => shared_evictors(view),
        Subject::Store(_) => Vec::new(),
    }
}

fn of_worker(member: &Member) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut tell = |cause: Cause, name: &str, summary: String| {
        let subject = format!("{} {}", member.id, cause);
        let mut draft = Draft::new(Detector::GuardDisabled, cause.clone(), Confidence::Risk, subject);
        draft.worker(member.id.as_str());
        draft.statement(member.id.as_str(), format!("{name} = {}", member.fact(name).unwrap_or("not set")));
        findings.push(draft.finish(summary, words::advice(&Detector::GuardDisabled, &cause)));
    };
    if member.fact(fact::COMPAT_CHECK) == Some("false") {
        tell(
            Cause::CompatCheckOff,
            fact::COMPAT_CHECK,
            format!("{} accepts KV of peers whose compatibility hash differs from its own.", member.id),
        );
    }
    let stores_itself =
        member.fact(fact::PRIVATE_EVICTOR).is_some() || member.fact(fact::STORE_CAP) == Some("none");
    if stores_itself && member.fact(fact::STORE_CAP) == Some("none") {
        tell(
            Cause::UnboundedStore,
            fact::STORE_CAP,
            format!("Nothing bounds what {} writes to its store.", member.id),
        );
    }
    if member.is(fact::DYNAMIC_KV_SCALES) {
        tell(
            Cause::DynamicKvScales,
            fact::DYNAMIC_KV_SCALES,
            format!(
                "{} computes KV scales while serving: equal tokens give other bytes on another worker.",
                member.id
            ),
        );
    }
    findings
}

fn shared_evictors(view: &View<'_>) -> Vec<Finding> {
    let mut by_store: BTreeMap<&str, Vec<&Member>> = BTreeMap::new();
    for member in view.roster().members().filter(|member| member.is(fact::PRIVATE_EVICTOR)) {
        if let Some(store) = member.fact(fact::STORE) {
            by_store.entry(store).or_default().push(member);
        }
    }
    by_store
        .into_iter()
        .filter(|(_, members)| members.len() > 1)
        .map(|(store, members)| {
            let cause = Cause::SharedEvictors;
            let mut draft = Draft::new(
                Detector::GuardDisabled,
                cause.clone(),
                Confidence::Risk,
                format!("{store} {cause}"),
            );
            for member in &members {
                draft.worker(member.id.as_str());
                draft.statement(member.id.as_str(), "evicts by its own count".to_owned());
            }
            let summary = format!("{} evict in {store}, each by its own count.", draft.worker_names());
            draft.finish(summary, words::advice(&Detector::GuardDisabled, &cause))
        })
        .collect()
}
