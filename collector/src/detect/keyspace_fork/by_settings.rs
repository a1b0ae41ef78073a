//! Workers that share a store or an index and whose settings put different factors into the key: a risk, for nothing
//! was looked up.
//!
//! Which factors are in the key depends on the store; packs say so per backend (`key_factors`). Two models in one
//! store are no fork: the model must be the same, by name, path or digest.

use super::{cause_of, finish};
use crate::detect::artifacts::History;
use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_blocks::differs;
use crate::ledger::{IndexKey, IndexKind};
use crate::view::{Member, View};
use kvprov_model::fact;
use kvprov_model::factor::Comparison;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{NodeId, StoreId, WorkerId};
use kvprov_model::observation::ArtifactAction;
use std::collections::{BTreeMap, BTreeSet};

/// The complete set of findings on the fleet, except for stores whose fork is proven and pairs that are told already.
pub(super) fn detect(view: &View<'_>, proven: &[String], told: &[Finding]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ((store, _), members) in by_place(view) {
        if proven.iter().any(|held| same_place(held, store)) {
            continue;
        }
        let mut drafts: BTreeMap<Cause, Draft> = BTreeMap::new();
        let mut shared: Option<BTreeSet<(WorkerId, WorkerId)>> = None;
        for (index, a) in members.iter().enumerate() {
            for b in members.iter().skip(index + 1) {
                let both_told = told.iter().any(|finding| {
                    [a, b].iter().all(|member| finding.workers.iter().any(|name| name == member.id.as_str()))
                });
                if both_told || !same_model(a, b) || are_ranks(a, b) {
                    continue;
                }
                let mut differing =
                    key_factors(a, b).into_iter().filter(|name| differs(a, b, name)).peekable();
                if differing.peek().is_none() {
                    continue;
                }
                let shared = shared.get_or_insert_with(|| sharers(view, store));
                let pairs = [(a.id.clone(), b.id.clone()), (b.id.clone(), a.id.clone())];
                if pairs.iter().any(|pair| shared.contains(pair)) {
                    continue;
                }
                for name in differing {
                    let cause = cause_of(&name);
                    let draft = drafts.entry(cause.clone()).or_insert_with(|| {
                        Draft::new(Detector::KeyspaceFork, cause, Confidence::Risk, store)
                    });
                    draft.worker(a.id.as_str()).worker(b.id.as_str());
                    for member in [a, b] {
                        draft.statement(member.id.as_str(), member.told_fact(&name));
                    }
                    draft.unknown("whether equal content was looked up under both");
                }
            }
        }
        findings.extend(drafts.into_iter().map(|(cause, draft)| {
            finish(draft, &cause, &format!("as the settings of engines on {store} show"))
        }));
    }
    findings
}

/// Workers by the store that they are configured to use, and where it is. A directory or a loopback address is a place on one
/// node: the same text on another node is another store, unless both are seen in it.
pub(in crate::detect) fn by_place<'v>(view: &'v View<'_>) -> BTreeMap<(&'v str, String), Vec<&'v Member>> {
    let local = ["file:", "//localhost", "//127.", ":localhost", ":127."];
    let users: Vec<(&Member, &str)> =
        view.roster().members().filter_map(|member| Some((member, member.fact(fact::STORE)?))).collect();
    let mut seen: BTreeMap<(&NodeId, &str), StoreId> = BTreeMap::new();
    for store in view.keys(IndexKind::Store) {
        let IndexKey::Store(store) = store else { continue };
        for (member, configured) in users.iter().copied() {
            let is_same = store.0 != configured && same_place(&store.0, configured);
            if is_same && History::of(view, &store).is_used_by(&member.id) {
                seen.entry((&member.node, configured)).or_insert_with(|| store.clone());
            }
        }
    }
    let mut places: BTreeMap<(&str, String), Vec<&Member>> = BTreeMap::new();
    for (member, store) in users {
        let place = if local.iter().any(|mark| store.contains(mark)) {
            let seen = seen.get(&(&member.node, store)).map(|store| &store.0);
            seen.cloned().unwrap_or_else(|| member.node.to_string())
        } else {
            String::new()
        };
        places.entry((store, place)).or_default().push(member);
    }
    places
}

/// Whether a store seen by its artifacts (`file:<file system>:<directory>`) is the one in a setting (`file:<directory>`).
fn same_place(seen: &str, configured: &str) -> bool {
    let directory = configured.strip_prefix("file:").map(|dir| dir.trim_end_matches('/'));
    seen == configured
        || directory.is_some_and(|dir| !dir.is_empty() && seen.starts_with("file:") && seen.ends_with(dir))
}

/// Whether two workers are ranks of one engine: each has keys of its own.
fn are_ranks(a: &Member, b: &Member) -> bool {
    let both = |name: &str| a.fact(name).zip(b.fact(name));
    both(fact::TP_RANK).is_some_and(|(a, b)| a != b) && both(fact::TP_SIZE).is_some_and(|(a, b)| a == b)
}

/// Of a configured store the writers whose artifacts somebody was seen to read, with who read them: their keys are the same,
/// whatever is set.
fn sharers(view: &View<'_>, configured: &str) -> BTreeSet<(WorkerId, WorkerId)> {
    let mut found = BTreeSet::new();
    for seen in view.keys(IndexKind::Store) {
        let IndexKey::Store(seen) = seen else { continue };
        if !same_place(&seen.0, configured) {
            continue;
        }
        let history = History::of(view, &seen);
        for key in history.keys.keys() {
            history.walk(key, |event, held| {
                if event.action == ArtifactAction::Read
                    && let Some(held) = held
                    && held.by != event.actor
                {
                    found.insert(((*held.by).clone(), (*event.actor).clone()));
                }
            });
        }
    }
    found
}

/// Facts that are part of the key on both sides.
fn key_factors(a: &Member, b: &Member) -> Vec<String> {
    let of = |member: &Member| -> Vec<String> {
        let listed = member.fact(fact::KEY_FACTORS).unwrap_or_default();
        listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect()
    };
    let there = of(b);
    of(a).into_iter().filter(|name| there.contains(name)).collect()
}

/// Whether two workers serve one model: by digest where both are known, else by path or name.
pub(super) fn same_model(a: &Member, b: &Member) -> bool {
    match a.factors_at(None, None).compare(&b.factors_at(None, None), "weights") {
        Comparison::Equal => return true,
        Comparison::Different => return false,
        Comparison::Unknown => {}
    }
    let equal = |name: &str| match (a.fact(name), b.fact(name)) {
        (Some(a), Some(b)) => Some(a == b),
        _ => None,
    };
    equal(fact::MODEL_PATH).or_else(|| equal(fact::MODEL_NAME)).unwrap_or(true)
}
