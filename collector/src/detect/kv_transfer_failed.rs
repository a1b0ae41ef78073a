//! `kv_transfer_failed`: KV did not arrive and the request failed, hung or was aborted, or what became of it is not
//! known (then suspected, saying that it may have been recomputed).
//!
//! Stays quiet about failures that ended as recompute: those are `silent_recompute`.

use super::draft::Draft;
use super::silent_recompute::add;
use super::unarrived::{self, Fate};
use super::{Subject, words};
use crate::view::request::stems;
use crate::view::{Interval, View};
use kvprov_model::counter;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, LeaseState, Observation, Role, SourceKind};
use std::collections::{BTreeMap, BTreeSet};

/// The other side's words on an unread lease come within this time: a failed pull takes a minute and a half at worst.
const SETTLE: i64 = 120 * kvprov_model::clock::SECOND;

/// The complete set of findings on a worker.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Worker(worker) = subject else { return Vec::new() };
    let mut drafts: BTreeMap<Cause, Draft> = BTreeMap::new();
    let mut fates: BTreeMap<Cause, BTreeSet<&'static str>> = BTreeMap::new();
    for one in unarrived::of_worker(view, worker).into_iter().filter(|one| one.settled) {
        let fate = match one.fate {
            Fate::Recomputed => continue,
            Fate::Failed if one.proven => "failed",
            Fate::Failed => "probably failed",
            Fate::Unknown => "failed or were computed anew",
        };
        let cause = one.trouble.cause.clone();
        fates.entry(cause.clone()).or_default().insert(fate);
        add(draft_for(&mut drafts, &cause, worker), &one);
    }
    for lease in unread_leases(view, worker) {
        fates.entry(Cause::LeaseExpired).or_default().insert("failed or were computed anew");
        let draft = draft_for(&mut drafts, &Cause::LeaseExpired, worker);
        draft.proof(&lease).requests_of(&lease);
        draft.unknown(
            "the decode side is not seen: the client may have left, or the prompt was computed anew there",
        );
    }
    for (interval, ended) in counted_leases(view, worker) {
        fates.entry(Cause::LeaseExpired).or_default().insert("failed or were computed anew");
        let draft = draft_for(&mut drafts, &Cause::LeaseExpired, worker);
        draft.proof(&interval.observation).events(ended);
        draft.unknown("which requests: only the counter of leases that ended unread shows them");
    }
    drafts
        .into_iter()
        .map(|(cause, draft)| {
            let fate = fates.remove(&cause).unwrap_or_default().into_iter().collect::<Vec<_>>().join(" or ");
            finish(worker, &cause, draft, &fate)
        })
        .collect()
}

fn draft_for<'d>(drafts: &'d mut BTreeMap<Cause, Draft>, cause: &Cause, worker: &WorkerId) -> &'d mut Draft {
    drafts.entry(cause.clone()).or_insert_with(|| {
        let mut draft =
            Draft::new(Detector::KvTransferFailed, cause.clone(), Confidence::Suspected, worker.as_str());
        draft.worker(worker.as_str());
        draft
    })
}

/// Leases that ended before anybody read, where no decode side is seen. A failure, a lost parameter or a client that
/// left explains an unread lease; a visible decode side that shows nothing means that the request never came.
fn unread_leases(view: &View<'_>, worker: &WorkerId) -> Vec<Observation> {
    if decode_side_seen(view, worker) {
        return Vec::new();
    }
    // Nothing may be concluded from silence before every node has delivered the time in which an answer would lie.
    let settled = |observation: &Observation| {
        let until = observation.envelope.wall.map(|wall| wall.plus(SETTLE));
        view.heard(view.roster().members(), until).is_settled()
    };
    let observations = view.worker(worker);
    let mut read: BTreeSet<RequestStem> = BTreeSet::new();
    for observation in observations.iter() {
        if let Body::Lease(lease) = &observation.body
            && matches!(lease.state, Some(LeaseState::ReadAfterEnd | LeaseState::Released))
        {
            read.extend(stems(observation));
        }
    }
    observations
        .iter()
        .filter(|observation| match &observation.body {
            Body::Lease(lease) => lease.state == Some(LeaseState::Expired) && lease.readers.unwrap_or(0) == 0,
            _ => false,
        })
        .filter(|observation| {
            let stems = stems(observation);
            settled(observation)
                && !stems.is_empty()
                && stems.iter().all(|stem| !read.contains(stem) && !explained(view, stem))
        })
        .cloned()
        .collect()
}

/// Whether another worker decodes and is watched.
fn decode_side_seen(view: &View<'_>, worker: &WorkerId) -> bool {
    view.roster().members().any(|m| {
        m.id != *worker && matches!(m.role, Some(Role::Decode | Role::Both)) && !m.watched_by.is_empty()
    })
}

/// Leases that ended unread of which nothing but a counter tells, where no decode side is seen. Whoever prints one such
/// lease prints them all; clients that left meanwhile and blocks that were read too late explain as many.
fn counted_leases(view: &View<'_>, worker: &WorkerId) -> Vec<(Interval, u64)> {
    let decodes = view.roster().get(worker).is_some_and(|member| member.role == Some(Role::Decode));
    let told = view.worker(worker).iter().any(|observation| {
        matches!(&observation.body, Body::Lease(lease) if lease.state == Some(LeaseState::Expired))
    });
    if decodes || told || decode_side_seen(view, worker) {
        return Vec::new();
    }
    let intervals = view.intervals(worker);
    // A page of counters and a line of the log show the same ones.
    let of = |log: bool| -> Vec<(Interval, u64)> {
        let mut ended = Vec::new();
        for interval in intervals.iter() {
            let is_log = interval.observation.envelope.source == SourceKind::Log;
            let is_increase = is_log || interval.since.is_some();
            let unread = interval.increase(counter::LEASES_EXPIRED)
                - interval.increase(counter::REQUESTS_ABORTED)
                - interval.increase(counter::READS_AFTER_EXPIRY);
            let until = interval.until.map(|until| until.plus(SETTLE));
            let is_settled = view.heard(view.roster().members(), until).is_settled();
            if is_log == log && is_increase && unread >= 1.0 && is_settled {
                ended.push((interval.clone(), unread as u64));
            }
        }
        ended
    };
    let pages = of(false);
    if pages.is_empty() { of(true) } else { pages }
}

/// Whether another statement on the request explains that nobody read its lease.
fn explained(view: &View<'_>, stem: &RequestStem) -> bool {
    view.request(stem).iter().any(|observation| match &observation.body {
        Body::Transfer(_) | Body::Handshake(_) | Body::KvLoad(_) => true,
        Body::RequestLeg(leg) => leg.client_gone == Some(true) || leg.leg == Some(Role::Decode),
        _ => false,
    })
}

fn finish(worker: &WorkerId, cause: &Cause, draft: Draft, fate: &str) -> Finding {
    let count = draft.count();
    let requests = if count == 1 { "One request".to_owned() } else { format!("{count} requests") };
    let summary =
        format!("{requests} of {worker} {fate} because KV did not arrive: {}.", words::because(cause));
    draft.finish(summary, words::advice(&Detector::KvTransferFailed, cause))
}
