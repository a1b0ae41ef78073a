//! `stale_kv_read`: blocks were read after their lease had ended, or by a reader that nobody knows.
//!
//! An expiry and a later read of one request prove it. A read by an unknown reader alone is suspected at most: a
//! client that left makes the same line. A read dated before the release is not stale, however late its notification.

use super::draft::Draft;
use super::{Subject, words};
use crate::view::View;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::counter;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, LeaseState, Observation, Outcome, Transfer};
use std::collections::BTreeMap;

/// Statements on one lease that are looked at; ranks and repeats make more.
const MAX_STATEMENTS: usize = 64;

/// Clocks of two nodes are this far apart at most.
const NODES_APART: i64 = 30 * SECOND;

/// What is known of one lease.
#[derive(Default)]
struct Life {
    expired: Vec<Observation>,
    read: Vec<Observation>,
    read_at: Option<WallTime>,
}

/// The complete set of findings on the worker that holds the leases.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Worker(worker) = subject else { return Vec::new() };
    let mut lives: BTreeMap<RequestStem, Life> = BTreeMap::new();
    for observation in view.worker(worker).iter() {
        let Body::Lease(lease) = &observation.body else { continue };
        let Some(id) = &lease.request_id else { continue };
        let life = lives.entry(RequestStem::of(id)).or_default();
        match lease.state {
            Some(LeaseState::Expired) if life.expired.len() < MAX_STATEMENTS => {
                life.expired.push(observation.clone());
            }
            Some(LeaseState::ReadAfterEnd) => {
                life.read_at = life.read_at.max(lease.read_wall_ns.map(WallTime));
                if life.read.len() < MAX_STATEMENTS {
                    life.read.push(observation.clone());
                }
            }
            _ => {}
        }
    }
    let mut proven = draft(worker, Confidence::Confirmed);
    let mut lone = draft(worker, Confidence::Suspected);
    for (stem, life) in lives.iter().filter(|(_, life)| !life.read.is_empty()) {
        let release =
            life.expired.iter().rfind(|expired| life.read.iter().any(|read| precedes(expired, read)));
        let target = match release {
            Some(release) if read_before(view, worker, stem, life, release) => continue,
            Some(_) => &mut proven,
            None => &mut lone,
        };
        target.proofs(&life.expired).proofs(&life.read);
        life.read.iter().chain(&life.expired).for_each(|observation| {
            target.requests_of(observation);
        });
    }
    lone.unknown("no expiry of these leases is seen: a client that left early makes the same line");
    if proven.is_empty() && lone.is_empty() {
        by_counters(view, worker, &mut lone);
    }
    [(proven, "after their lease had ended"), (lone, "that the holder no longer knew")]
        .into_iter()
        .filter(|(draft, _)| !draft.is_empty())
        .map(|(draft, when)| {
            let summary = format!(
                "KV of {} on {worker} was read {when}; the blocks may have held other requests' KV by then, and the reader saw a successful transfer.",
                if draft.count() == 1 { "one request".to_owned() } else { format!("{} requests", draft.count()) }
            );
            draft.finish(summary, words::advice(&Detector::StaleKvRead, &Cause::Unknown))
        })
        .collect()
}

fn draft(worker: &WorkerId, confidence: Confidence) -> Draft {
    let mut draft = Draft::new(Detector::StaleKvRead, Cause::Unknown, confidence, worker.as_str());
    draft.worker(worker.as_str());
    draft
}

/// Whether the expiry was told before the read: by time where both are dated and differ, else by place in the stream.
fn precedes(expired: &Observation, read: &Observation) -> bool {
    match (expired.envelope.wall, read.envelope.wall) {
        (Some(a), Some(b)) if a != b => a < b,
        _ if expired.envelope.stream == read.envelope.stream => {
            expired.envelope.position < read.envelope.position
        }
        _ => false,
    }
}

/// Whether the read itself, not its notification, is dated clearly before the release.
fn read_before(
    view: &View<'_>,
    worker: &WorkerId,
    stem: &RequestStem,
    life: &Life,
    release: &Observation,
) -> bool {
    let Some(released) = release.envelope.wall else { return false };
    let node = &release.envelope.node;
    let by_reader = view.request(stem).iter().any(|observation| match &observation.body {
        Body::Transfer(transfer) => {
            let apart = if observation.envelope.node == *node { SECOND } else { NODES_APART };
            observation.envelope.worker.as_ref() != Some(worker)
                && has_come(transfer)
                && observation.envelope.wall.is_some_and(|ended| ended < released.plus(-apart))
        }
        _ => false,
    });
    by_reader || life.read_at.is_some_and(|read| read < released)
}

/// Whether a reader says that it has the blocks.
fn has_come(transfer: &Transfer) -> bool {
    match (&transfer.outcome, transfer.direction.as_deref()) {
        (Some(Outcome::Succeeded), _) => true,
        (None, Some("receive")) => transfer.cause.is_none() && transfer.failure.is_none(),
        _ => false,
    }
}

/// Where only the counter shows that notifications came after the end of a lease.
fn by_counters(view: &View<'_>, worker: &WorkerId, lone: &mut Draft) {
    for interval in view.intervals(worker).iter() {
        let late = interval.increase(counter::READS_AFTER_EXPIRY);
        if late >= 1.0 {
            lone.proof(&interval.observation).events(late as u64);
            lone.unknown("which requests: only the counter of notifications after expiry shows them");
        }
    }
}
