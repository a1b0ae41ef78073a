//! Adapters whose key is the number of their load, or an id that the engine gave them: another order, or another id of the
//! same adapter, on another engine gives another key.

use super::finish;
use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_blocks::shares;
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{AdminClass, Body, Observation, Outcome};
use std::collections::{BTreeMap, BTreeSet};

/// The complete set of findings on the fleet, except for engines of which it is told already.
pub(super) fn detect(view: &View<'_>, told: &[Finding]) -> Vec<Finding> {
    let mut findings = by_number(view, told);
    findings.extend(by_id(view));
    findings
}

/// Ids by the adapter's name, with the observation that tells each.
type Ids = BTreeMap<String, (String, Observation)>;

fn by_id(view: &View<'_>) -> Vec<Finding> {
    let loaded: Vec<(&Member, Ids)> = view
        .roster()
        .members()
        .map(|member| (member, ids(view, member)))
        .filter(|(_, ids)| !ids.is_empty())
        .collect();
    let mut forks = Forks::default();
    for (index, (a, left)) in loaded.iter().enumerate() {
        for (b, right) in loaded.iter().skip(index + 1).filter(|(b, _)| shares(view, a, b)) {
            let apart = left.iter().filter_map(|(name, (id, told))| {
                let (other, told_there) = right.get(name)?;
                (id != other).then_some([told, told_there])
            });
            forks.add(a, b, &apart.flatten().collect::<Vec<_>>());
        }
    }
    forks.told("as each engine gave the same adapter an id of its own")
}

/// The id that a member gave each adapter at its last load, where its keys hold it.
fn ids(view: &View<'_>, member: &Member) -> Ids {
    let mut ids = BTreeMap::new();
    for observation in view.worker(&member.id).iter() {
        let Body::AdminCall(call) = &observation.body else { continue };
        if let ([name], [id]) = (call.names.as_slice(), call.ids.as_slice())
            && call.class == Some(AdminClass::LoraLoad)
            && call.outcome == Some(Outcome::Succeeded)
        {
            ids.insert(name.clone(), (id.clone(), observation.clone()));
        }
    }
    ids
}

/// Engines that keep one adapter under other keys: one fork, however many pairs they make.
#[derive(Default)]
struct Fork {
    workers: BTreeSet<String>,
    proofs: Vec<Observation>,
}

#[derive(Default)]
struct Forks(Vec<Fork>);

impl Forks {
    fn add(&mut self, a: &Member, b: &Member, proofs: &[&Observation]) {
        if proofs.is_empty() {
            return;
        }
        let pair = [a, b].map(|member| member.id.to_string());
        let mut joined = Fork::default();
        for held in self.0.extract_if(.., |held| pair.iter().any(|name| held.workers.contains(name))) {
            joined.workers.extend(held.workers);
            joined.proofs.extend(held.proofs);
        }
        joined.workers.extend(pair);
        for proof in proofs {
            if !joined.proofs.iter().any(|held| held.envelope.id == proof.envelope.id) {
                joined.proofs.push((*proof).clone());
            }
        }
        self.0.push(joined);
    }

    fn told(self, how: &str) -> Vec<Finding> {
        self.0.into_iter().map(|fork| fork.told(how)).collect()
    }
}

impl Fork {
    fn told(self, how: &str) -> Finding {
        let subject = self.workers.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let mut draft = Draft::new(Detector::KeyspaceFork, Cause::LoraId, Confidence::Risk, subject);
        for worker in &self.workers {
            draft.worker(worker);
        }
        draft.proofs(&self.proofs);
        draft.unknown("whether requests for these adapters were looked up on both");
        finish(draft, &Cause::LoraId, how)
    }
}

fn by_number(view: &View<'_>, told: &[Finding]) -> Vec<Finding> {
    let is_told = |a: &Member, b: &Member| {
        told.iter().filter(|finding| finding.cause == Cause::LoraId).any(|finding| {
            [a, b].iter().all(|member| finding.workers.iter().any(|name| name == member.id.as_str()))
        })
    };
    let numbered: Vec<&Member> =
        view.roster().members().filter(|m| m.fact(fact::ADAPTER_KEY) == Some("load_number")).collect();
    let mut forks = Forks::default();
    for (index, a) in numbered.iter().enumerate() {
        for b in numbered.iter().skip(index + 1).filter(|b| shares(view, a, b) && !is_told(a, b)) {
            let (left, right) = (loads(view, a), loads(view, b));
            let moved: Vec<&String> = left
                .iter()
                .enumerate()
                .filter(|(number, (name, _))| {
                    right.iter().position(|(other, _)| other == name).is_some_and(|at| at != *number)
                })
                .map(|(_, (name, _))| name)
                .collect();
            let told = left.iter().chain(&right).filter(|(name, _)| moved.contains(&name)).map(|(_, o)| o);
            forks.add(a, b, &told.collect::<Vec<_>>());
        }
    }
    forks.told("as the adapters were loaded in another order")
}

/// Names of adapters in the order of their first load.
pub(super) fn loads(view: &View<'_>, member: &Member) -> Vec<(String, Observation)> {
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
