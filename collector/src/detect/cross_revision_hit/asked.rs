//! Which adapter a worker was asked for when it touched a store, where its log tells of every request what it asks for.
//!
//! An artifact names no request. Of requests that came shortly before, all of one adapter, any one is as good as the other;
//! where they ask for several adapters, or for none, nothing is known.

use crate::view::View;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, RequestLeg};
use std::collections::BTreeMap;

/// Who touches a store now was asked within this time; both are read from one clock.
const SHORTLY: i64 = 10 * SECOND;

/// Requests in the order of time: what each asks for, if that is told, and the line.
type Requests = Vec<(WallTime, Option<String>, Observation)>;

/// What was read of workers already.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<WorkerId, Requests>);

impl Asked {
    /// The adapter that all requests of a worker shortly before a time asked for, with the last of them.
    pub(super) fn adapter(
        &mut self,
        view: &View<'_>,
        worker: &WorkerId,
        at: Option<WallTime>,
    ) -> Option<(&str, &Observation)> {
        let at = at?;
        let requests = self.0.entry(worker.clone()).or_insert_with(|| requests(view, worker));
        let end = requests.partition_point(|(wall, ..)| *wall <= at);
        let begin = requests.partition_point(|(wall, ..)| *wall < at.plus(-SHORTLY));
        let shortly = requests.get(begin..end)?;
        let (_, adapter, last) = shortly.last()?;
        let is_one = shortly.iter().all(|(_, other, _)| other == adapter);
        adapter.as_deref().filter(|_| is_one).map(|adapter| (adapter, last))
    }
}

fn requests(view: &View<'_>, worker: &WorkerId) -> Requests {
    let observations = view.worker(worker);
    let legs = observations.iter().filter_map(|observation| match &observation.body {
        Body::RequestLeg(leg) if is_asked(leg) => {
            Some((observation.envelope.wall?, leg.adapter.clone(), observation.clone()))
        }
        _ => None,
    });
    let mut requests: Requests = legs.collect();
    requests.sort_by_key(|(wall, _, observation)| (*wall, observation.envelope.id));
    requests
}

/// Whether it is a request that the worker itself tells of; an answer that names nobody says nothing of what was asked.
fn is_asked(leg: &RequestLeg) -> bool {
    leg.request_id.is_some() && leg.leg.is_none()
}
