//! `guard_disabled`: a safety check is off. Always a risk, from the configuration alone.
//!
//! Each says which setting does it and where that was seen. Stays quiet where a setting has no effect: scales are only
//! computed for KV of eight bits or less, and a directory of the same name on another node is another store.

use super::draft::Draft;
use super::{Subject, keyspace_fork, words};
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};

/// Types of KV that have scales, by how their names begin.
const SCALED: [&str; 4] = ["fp8", "int8", "nvfp4", "fp4"];

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
    let mut tell = |cause: Cause, name: &str, what: &str| {
        let subject = format!("{} {}", member.id, cause);
        let mut draft = Draft::new(Detector::GuardDisabled, cause.clone(), Confidence::Risk, subject);
        draft.worker(member.id.as_str());
        draft.statement(member.id.as_str(), member.told_fact(name));
        let summary = format!("{} {what}: {}.", member.id, member.told_fact(name));
        findings.push(draft.finish(summary, words::advice(&Detector::GuardDisabled, &cause)));
    };
    if member.fact(fact::COMPAT_CHECK) == Some("false") {
        tell(
            Cause::CompatCheckOff,
            fact::COMPAT_CHECK,
            "accepts KV of peers whose compatibility hash differs from its own",
        );
    }
    if member.fact(fact::STORE_CAP) == Some("none") {
        tell(Cause::UnboundedStore, fact::STORE_CAP, "writes to its store without a bound");
    }
    if member.is(fact::DYNAMIC_KV_SCALES) && may_have_scales(member) {
        tell(
            Cause::DynamicKvScales,
            fact::DYNAMIC_KV_SCALES,
            "computes KV scales while serving, so that equal tokens give other bytes on another worker",
        );
    }
    findings
}

/// Whether its KV has scales, as far as is known.
fn may_have_scales(member: &Member) -> bool {
    member.fact(fact::KV_CACHE_DTYPE).is_none_or(|name| SCALED.iter().any(|scaled| name.starts_with(scaled)))
}

fn shared_evictors(view: &View<'_>) -> Vec<Finding> {
    keyspace_fork::by_place(view)
        .into_iter()
        .filter_map(|((store, node), members)| {
            let evictors: Vec<&Member> =
                members.into_iter().filter(|member| member.is(fact::PRIVATE_EVICTOR)).collect();
            (evictors.len() > 1).then_some((store, node, evictors))
        })
        .map(|(store, node, members)| {
            let cause = Cause::SharedEvictors;
            let subject = [store, &node, cause.as_str()].join(" ");
            let mut draft = Draft::new(Detector::GuardDisabled, cause.clone(), Confidence::Risk, subject);
            for member in &members {
                draft.worker(member.id.as_str());
                let says = format!("evicts by its own count: {}", member.told_fact(fact::PRIVATE_EVICTOR));
                draft.statement(member.id.as_str(), says);
            }
            let summary = format!("{} evict in {store}, each by its own count.", draft.worker_names());
            draft.finish(summary, words::advice(&Detector::GuardDisabled, &cause))
        })
        .collect()
}
