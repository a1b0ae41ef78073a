//! `keyspace_fork`: the same content exists, or is looked up, under disjoint keys. Names the factor that differs.
//!
//! Seven kinds of evidence, one file each: stored artifacts; KV events of two engines; printed key derivations; the order
//! in which adapters were loaded; what the processes of one engine say at their start; settings of workers that share a
//! store; settings of a router's index and its engines. What happened beats what
//! is configured: where artifacts show a fork of a store, its settings are not told again.

mod by_adapters;
mod by_artifacts;
mod by_blocks;
mod by_derivation;
mod by_index;
mod by_process;
mod by_settings;

pub(super) use by_settings::by_place;

use super::{Subject, words};
use crate::detect::draft::Draft;
use crate::ledger::{IndexKey, IndexKind};
use crate::view::View;
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{Body, Observation};
use std::collections::BTreeMap;

/// The complete set of findings: artifacts on a store, everything that compares workers on the fleet.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    match subject {
        Subject::Store(store) => by_artifacts::detect(view, store),
        Subject::Fleet => {
            let proven = proven_stores(view);
            let mut findings = by_blocks::detect(view);
            findings.extend(by_derivation::detect(view));
            findings.extend(stated(view));
            findings.extend(by_adapters::detect(view, &findings));
            findings.extend(by_process::detect(view));
            findings.extend(by_settings::detect(view, &proven, &findings));
            findings.extend(by_index::detect(view, &findings));
            findings
        }
        Subject::Worker(_) => Vec::new(),
    }
}

/// Stores whose artifacts show a fork.
fn proven_stores(view: &View<'_>) -> Vec<String> {
    view.keys(IndexKind::Store)
        .into_iter()
        .filter_map(|key| match key {
            IndexKey::Store(store) if !by_artifacts::detect(view, &store).is_empty() => Some(store.0),
            _ => None,
        })
        .collect()
}

/// Disagreements that a source states itself: nothing was looked up yet.
fn stated(view: &View<'_>) -> Vec<Finding> {
    let mut by_factor: BTreeMap<(Cause, String), Vec<Observation>> = BTreeMap::new();
    for observation in view.fleet().iter() {
        if let Body::Store(store) = &observation.body {
            for (name, values) in &store.disagreement {
                let key = (cause_of(name), format!("{}: {name} {values}", observation.worker()));
                by_factor.entry(key).or_default().push(observation.clone());
            }
        }
    }
    by_factor
        .into_iter()
        .map(|((cause, what), proofs)| {
            let subject = proofs.first().map_or_else(String::new, |o| o.worker().to_owned());
            let mut draft = Draft::new(Detector::KeyspaceFork, cause.clone(), Confidence::Risk, subject);
            draft.proofs(&proofs);
            for proof in &proofs {
                draft.worker(proof.worker());
            }
            draft.unknown("whether equal content was looked up under both");
            finish(draft, &cause, &format!("as it says itself ({what})"))
        })
        .collect()
}

/// The cause that stands for a fact which differs.
fn cause_of(name: &str) -> Cause {
    match name {
        fact::TP_SIZE | fact::TP_LCM_SIZE => Cause::TpSize,
        fact::PP_SIZE => Cause::PpSize,
        fact::CP_SIZE => Cause::CpSize,
        fact::MODEL_NAME => Cause::ModelName,
        fact::MODEL_PATH => Cause::ModelPath,
        fact::BLOCK_SIZE => Cause::BlockSize,
        fact::HASH_ALGORITHM => Cause::HashAlgorithm,
        fact::HASH_SEED => Cause::HashSeed,
        fact::DTYPE | fact::KV_CACHE_DTYPE => Cause::Dtype,
        fact::TOKEN_FORM => Cause::TokenForm,
        fact::KEY_TAG => Cause::ExtraTag,
        fact::ADAPTER_KEY => Cause::AdapterId,
        _ => Cause::Unknown,
    }
}

fn finish(draft: Draft, cause: &Cause, how: &str) -> Finding {
    let names = draft.worker_names();
    let verb = match draft.confidence() {
        Confidence::Risk => "may keep equal content under disjoint keys",
        Confidence::Suspected => "probably keep equal content under disjoint keys",
        Confidence::Confirmed => "keep equal content under disjoint keys and share nothing",
    };
    let summary = format!("{names} {verb}: {} differs, {how}.", words::factor_name(cause));
    draft.finish(summary, words::advice(&Detector::KeyspaceFork, cause))
}
