//! `handshake_stall`: handshakes queue behind unreachable peers. One thread does them all and waits five seconds for
//! each peer that does not answer, so that a healthy peer's first handshake waits behind them.
//!
//! Stays quiet on a first connection, on one dead peer for which nobody is seen to wait in turn, and on failures that come
//! one after the other because their requests did.

use super::draft::Draft;
use super::unarrived;
use super::{Subject, words};
use crate::view::View;
use crate::view::request::stems;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Observation, Outcome, RequestLeg, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Timeouts of one queue follow each other within this time: five seconds each, and scheduling.
const QUEUE_STEP: i64 = 9 * SECOND;
/// Routers tell a request when it ends, which is this long after its own handshake gave up, at most.
const TOLD_WITHIN: i64 = 10 * SECOND;
/// Handshakes that give up in turn do so this far apart at least; those of one attempt give up together.
const TURN: i64 = 3 * SECOND;
/// A request that waited at least this long behind others did not wait for its own peer alone.
const WAITED: i64 = 5 * SECOND;

/// The complete set of findings on a worker.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Worker(worker) = subject else { return Vec::new() };
    let mut timeouts: Vec<unarrived::Trouble> = unarrived::trouble::collect(view, worker)
        .into_iter()
        .filter(|trouble| {
            matches!(trouble.cause, Cause::HandshakeTimeout | Cause::PeerDied) && trouble.last.is_some()
        })
        .filter(|trouble| trouble.remote_engine.is_some())
        .collect();
    timeouts.sort_by_key(|trouble| (gave_up(trouble), trouble.stem.clone()));
    let mut queues: Vec<Vec<unarrived::Trouble>> = Vec::new();
    for trouble in timeouts {
        let joins = queues.last().and_then(|queue| queue.last()).is_some_and(|before| {
            let gap = gave_up(&trouble).zip(gave_up(before)).map_or(i64::MAX, |(a, b)| a.since(b));
            gap <= QUEUE_STEP && !came_after(view, before, &trouble)
        });
        match queues.last_mut() {
            Some(queue) if joins => queue.push(trouble),
            _ => queues.push(vec![trouble]),
        }
    }
    queues.iter().filter_map(|queue| stall(view, worker, queue)).collect()
}

fn stall(view: &View<'_>, worker: &WorkerId, queue: &[unarrived::Trouble]) -> Option<Finding> {
    let mut peers: Vec<&str> = queue.iter().filter_map(|trouble| trouble.remote_engine.as_deref()).collect();
    peers.sort_unstable();
    peers.dedup();
    let (first, last) = (gave_up(queue.first()?)?, gave_up(queue.last()?)?);
    let waiting = waiting_behind(view, worker, queue, first, last);
    let someone_waits = !waiting.is_empty();
    let turns =
        queue.windows(2).filter(|pair| in_turn(view, worker, &pair[0], &pair[1], someone_waits)).count();
    let one_peer_stalls = turns >= 2 || (turns == 1 && someone_waits);
    if peers.len() < 2 && !one_peer_stalls {
        return None;
    }
    let mut draft =
        Draft::new(Detector::HandshakeStall, Cause::HandshakeTimeout, Confidence::Suspected, worker.as_str());
    draft.worker(worker.as_str());
    for trouble in queue {
        draft.proofs(&trouble.proofs);
        trouble.ids.iter().for_each(|id| {
            draft.request(id);
        });
    }
    let behind = waited_behind(view, worker, queue, first, last);
    for (observation, leg) in &behind {
        draft.proof(observation);
        leg.request_id.iter().for_each(|id| {
            draft.request(id);
        });
    }
    for observation in &waiting {
        draft.proof(observation).requests_of(observation);
    }
    if behind.is_empty() {
        // That the requests came one after the other, which is no queue, is told when the last of them has ended.
        let heard = view.heard(view.witnesses(worker, &BTreeSet::new()), Some(last.plus(TOLD_WITHIN)));
        if !heard.is_settled() {
            return None;
        }
        if waiting.is_empty() {
            draft.unknown("whether a request to a healthy peer waited behind them");
        }
    } else {
        draft.at_least(Confidence::Confirmed);
    }
    let summary = format!(
        "Handshakes of {worker} queued behind {} that did not answer, about {} s in all; requests to healthy peers wait too.",
        if peers.len() == 1 { "a peer".to_owned() } else { format!("{} peers", peers.len()) },
        last.since(first) / SECOND + 5
    );
    Some(draft.finish(summary, words::advice(&Detector::HandshakeStall, &Cause::HandshakeTimeout)))
}

/// Whether a request reached the decode side only when the one before it had been answered: it stood in no queue.
fn came_after(view: &View<'_>, before: &unarrived::Trouble, trouble: &unarrived::Trouble) -> bool {
    let legs = view.router_legs();
    let span = |trouble: &unarrived::Trouble| {
        let stem = trouble.stem.as_ref()?;
        let (observation, leg) = legs.iter().find(|(_, leg)| {
            leg.leg == Some(Role::Decode)
                && leg.request_id.as_deref().is_some_and(|id| RequestStem::of(id) == *stem)
        })?;
        let end = observation.envelope.wall?;
        Some((end.plus(-leg.duration_ns?), end))
    };
    matches!((span(before), span(trouble)), (Some((_, ended)), Some((began, _))) if began >= ended)
}

/// When the handshake for a request gave up: the last statement that names it, for what names nobody may speak of another.
fn gave_up(trouble: &unarrived::Trouble) -> Option<WallTime> {
    let names_it =
        |proof: &&Observation| trouble.stem.as_ref().is_some_and(|stem| stems(proof).contains(stem));
    trouble.proofs.iter().filter(names_it).filter_map(|proof| proof.envelope.wall).max().or(trouble.last)
}

/// Whether a request was there before the one ahead of it gave up, and then took its own time to do so. Where only its
/// failure is told, that another one waits meanwhile stands for it.
fn in_turn(
    view: &View<'_>,
    worker: &WorkerId,
    ahead: &unarrived::Trouble,
    trouble: &unarrived::Trouble,
    someone_waits: bool,
) -> bool {
    let (Some(before), Some(after)) = (gave_up(ahead), gave_up(trouble)) else { return false };
    let began = trouble.stem.as_ref().and_then(|stem| began(view, worker, stem));
    let known = began.filter(|began| after.since(*began) >= TURN);
    after.since(before) >= TURN && known.map_or(someone_waits, |began| began < before)
}

/// When a worker first told of a request.
fn began(view: &View<'_>, worker: &WorkerId, stem: &RequestStem) -> Option<WallTime> {
    let told = view.request(stem);
    let own = told.iter().filter(|observation| observation.envelope.worker.as_ref() == Some(worker));
    own.filter_map(|observation| observation.envelope.wall).min()
}

/// What the worker last said of each request that waited for its KV as long as a queue lasted, and did not fail.
fn waiting_behind(
    view: &View<'_>,
    worker: &WorkerId,
    queue: &[unarrived::Trouble],
    first: WallTime,
    last: WallTime,
) -> Vec<Observation> {
    let queued: BTreeSet<&RequestStem> = queue.iter().filter_map(|trouble| trouble.stem.as_ref()).collect();
    let mut waited: BTreeMap<RequestStem, Observation> = BTreeMap::new();
    for observation in view.worker(worker).iter() {
        let Body::Transfer(transfer) = &observation.body else { continue };
        let (Some(Outcome::Waiting), Some(id)) = (&transfer.outcome, &transfer.request_id) else { continue };
        let during = observation.envelope.wall.is_some_and(|told| (first..=last).contains(&told));
        if during && !queued.contains(&RequestStem::of(id)) {
            waited.insert(RequestStem::of(id), observation.clone());
        }
    }
    waited
        .into_iter()
        .filter(|(stem, told)| {
            let began = began(view, worker, stem);
            began.zip(told.envelope.wall).is_some_and(|(began, told)| told.since(began) >= WAITED)
        })
        .map(|(_, told)| told)
        .collect()
}

/// Requests of this worker to other peers that began before the queue ended and lasted into it.
fn waited_behind(
    view: &View<'_>,
    worker: &WorkerId,
    queue: &[unarrived::Trouble],
    first: WallTime,
    last: WallTime,
) -> Vec<(Observation, RequestLeg)> {
    let queued: BTreeSet<&RequestStem> = queue.iter().filter_map(|trouble| trouble.stem.as_ref()).collect();
    let in_queue = |id: &str| queued.contains(&RequestStem::of(id));
    view.router_legs()
        .iter()
        .filter(|(observation, leg)| {
            let here = leg.leg == Some(Role::Decode)
                && view
                    .roster()
                    .by_endpoint(leg.endpoint.as_deref(), &Role::Decode, Some(&observation.envelope))
                    .is_some_and(|m| m.id == *worker);
            let (Some(end), Some(duration)) = (observation.envelope.wall, leg.duration_ns) else {
                return false;
            };
            let begin = end.plus(-duration);
            here && leg.kv_params_sent == Some(true)
                && leg.request_id.as_deref().is_some_and(|id| !in_queue(id))
                && duration >= WAITED
                && begin <= last
                && end >= first
        })
        .filter(|(_, leg)| {
            leg.request_id.as_deref().is_some_and(|id| {
                !view.request(&RequestStem::of(id)).iter().any(|o| matches!(o.body, Body::Handshake(_)))
            })
        })
        .map(|(observation, leg)| (observation.clone(), leg.clone()))
        .collect()
}
