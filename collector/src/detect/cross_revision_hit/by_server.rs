//! A store that is a server of its own gave out what only engines of another revision had stored.
//!
//! The server's own words tell that something was stored or found, not by whom: it is one of the engines that are configured to
//! use it and run at that moment. Where all that had been stored until then came from engines of other revisions than those
//! that can have asked, the KV was of another revision. Stays quiet where any of them had the reader's revision, where a
//! revision is not known, and after the store was emptied.

use super::{difference, finish};
use crate::detect::draft::Draft;
use crate::view::{Member, View};
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::factor::Factors;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{AdminClass, Body, CacheUse, Observation, Outcome, Role, Tier};
use std::collections::BTreeMap;

/// Addresses that mean this machine, whichever it is.
const HERE: [&str; 5] = ["127.0.0.1", "localhost", "0.0.0.0", "[::]", "[::1]"];

/// The complete set of findings on a store server.
pub(super) fn detect(view: &View<'_>, worker: &WorkerId) -> Vec<Finding> {
    let Some(server) = view.roster().get(worker).filter(|member| member.role == Some(Role::Store)) else {
        return Vec::new();
    };
    let users: Vec<&Member> = view.roster().members().filter(|member| uses(member, server)).collect();
    let mut drafts: BTreeMap<Cause, (Draft, String)> = BTreeMap::new();
    let mut stored: Vec<&Observation> = Vec::new();
    let observations = view.worker(worker);
    for observation in observations.iter() {
        match &observation.body {
            Body::AdminCall(call) if empties(call) => stored.clear(),
            Body::CacheUse(used) if used.stored.unwrap_or(0) > 0 => stored.push(observation),
            Body::CacheUse(used) if gave(used) => {
                let Some((cause, confidence, what, by)) = judge(&users, &stored, observation.envelope.wall)
                else {
                    continue;
                };
                let (draft, _) = drafts.entry(cause.clone()).or_insert_with(|| {
                    let mut draft =
                        Draft::new(Detector::CrossRevisionHit, cause, confidence, worker.as_str());
                    draft.worker(worker.as_str());
                    (draft, what)
                });
                draft.at_least(confidence).proof(observation).requests_of(observation);
                draft.tokens(used.retrieved.unwrap_or(0) as f64);
                by.iter().for_each(|member| {
                    draft.worker(member.id.as_str());
                });
                if let Some(first) = stored.first() {
                    draft.context(first);
                }
                if used.request_id.is_none() && draft.count() == 0 {
                    draft.events(1);
                }
            }
            _ => {}
        }
    }
    drafts
        .into_iter()
        .map(|(cause, (draft, what))| {
            let summary =
                format!("{worker} gave out KV that only engines of another model had stored: {what}.");
            finish(draft, &cause, summary)
        })
        .collect()
}

/// In what everybody who may have asked differs from everybody who stored what there is; and who may have asked.
fn judge<'v>(
    users: &[&'v Member],
    stored: &[&Observation],
    at: Option<WallTime>,
) -> Option<(Cause, Confidence, String, Vec<&'v Member>)> {
    let at = at?;
    let readers: Vec<&Member> = users.iter().copied().filter(|member| member.ran_at(at)).collect();
    let read: Vec<Factors> = readers.iter().map(|member| member.factors_at(Some(at), None)).collect();
    let mut found = None;
    for observation in stored {
        let then = observation.envelope.wall?;
        let writers = users.iter().filter(|member| member.ran_at(then));
        let written: Vec<Factors> = writers.map(|member| member.factors_at(Some(then), None)).collect();
        for (made, with) in written.iter().flat_map(|made| read.iter().map(move |with| (made, with))) {
            let difference = difference(made, with)?;
            found.get_or_insert(difference);
        }
        if written.is_empty() {
            return None;
        }
    }
    let (cause, confidence, what) = found?;
    Some((cause, confidence, what, readers))
}

/// Whether an engine is configured to use a server.
fn uses(member: &Member, server: &Member) -> bool {
    let (Some(store), Some(address)) = (member.fact(fact::STORE), server.fact(fact::STORE_ADDRESS)) else {
        return false;
    };
    let asked = store.split_once(':').map_or(store, |(_, asked)| asked);
    match (asked.rsplit_once(':'), address.rsplit_once(':')) {
        (Some((host, port)), Some((own, own_port))) => {
            let is_here = HERE.contains(&host) && member.node == server.node;
            port == own_port && (host == own && !HERE.contains(&host) || is_here)
        }
        _ => false,
    }
}

/// Whether something that was stored was found or handed out.
fn gave(used: &CacheUse) -> bool {
    [used.retrieved, used.hit, used.keys].into_iter().flatten().any(|count| count > 0)
}

fn empties(call: &kvprov_model::observation::AdminCall) -> bool {
    call.class == Some(AdminClass::CacheReset)
        && call.outcome != Some(Outcome::Failed)
        && call.tiers.iter().any(|tier| tier == Tier::Storage.as_str())
}
