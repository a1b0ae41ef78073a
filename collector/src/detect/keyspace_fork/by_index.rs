//! An index of prefixes that a router keeps over its engines and that counts or hashes otherwise than they do: a risk,
//! for nothing was looked up.
//!
//! What an index must have in common with its engines packs say of the router (`key_factors`).

use super::by_blocks::differs;
use super::by_settings::same_model;
use super::{cause_of, finish};
use crate::detect::draft::Draft;
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::Role;
use std::collections::BTreeMap;

/// The complete set of findings on the fleet, except for what a router states itself.
pub(super) fn detect(view: &View<'_>, told: &[Finding]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for router in view.roster().members().filter(|member| keeps_index(member)) {
        let factors = router.fact(fact::KEY_FACTORS).unwrap_or_default();
        let mut drafts: BTreeMap<Cause, Draft> = BTreeMap::new();
        for engine in view.roster().members().filter(|member| is_engine(member)) {
            if !same_model(router, engine) {
                continue;
            }
            for name in factors.split(',').map(str::trim).filter(|name| differs(router, engine, name)) {
                let cause = cause_of(name);
                if told.iter().any(|finding| finding.cause == cause && names(finding, router)) {
                    continue;
                }
                let subject = format!("index of {}", router.id);
                let draft = drafts
                    .entry(cause.clone())
                    .or_insert_with(|| Draft::new(Detector::KeyspaceFork, cause, Confidence::Risk, subject));
                draft.worker(router.id.as_str()).worker(engine.id.as_str());
                for member in [router, engine] {
                    draft.statement(member.id.as_str(), member.told_fact(name));
                }
                draft.unknown("whether equal content was looked up under both");
            }
        }
        findings.extend(drafts.into_iter().map(|(cause, draft)| {
            finish(draft, &cause, &format!("as the settings of {} and of its engines show", router.id))
        }));
    }
    findings
}

fn keeps_index(member: &Member) -> bool {
    member.fact(fact::ROUTER_INDEX).is_some()
}

fn is_engine(member: &Member) -> bool {
    !keeps_index(member) && !matches!(member.role, Some(Role::Router | Role::Store))
}

fn names(finding: &Finding, member: &Member) -> bool {
    finding.workers.iter().any(|name| name == member.id.as_str())
}
