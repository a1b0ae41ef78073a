//! Which adapter a request used, where nothing says it: from what the workers that had it are seen to run meanwhile.

use crate::view::{Member, View};
use kvprov_model::clock::WallTime;
use kvprov_model::fact;
use kvprov_model::factor::Factors;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Role, SourceKind};
use std::collections::{BTreeMap, BTreeSet};

/// What a request used beside the base model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Used {
    /// This adapter.
    Adapter(String),
    /// No adapter ran while it was answered.
    Nothing,
    /// Nothing tells.
    Unknown,
}

/// Stands for an adapter whose name is not known: only a worker's single adapter answers to it.
const ANY_ADAPTER: &str = "?";

/// The factors of two workers under the adapter that a request used if it used one: the only one that both serve under one
/// name, or the single one of each.
pub fn if_any(made_by: &Member, decoder: &Member, at: Option<WallTime>) -> (Factors, Factors) {
    let shared = made_by.only_adapter().filter(|name| decoder.only_adapter() == Some(name));
    let adapter = Some(shared.unwrap_or(ANY_ADAPTER));
    (made_by.factors_at(at, adapter), decoder.factors_at(at, adapter))
}

/// What was read of workers already.
#[derive(Debug, Default)]
pub struct Served {
    /// The legs of requests, as far as their begin and end are known.
    legs: BTreeMap<WorkerId, Vec<(RequestStem, WallTime, WallTime)>>,
    /// What the workers say themselves of their requests.
    told: BTreeMap<WorkerId, BTreeMap<RequestStem, Used>>,
}

/// The adapter that a request used, from what either side is seen to run while it has the request alone. Of several at
/// once, any may be the one that uses it.
pub fn seen(
    view: &View<'_>,
    decoder: &Member,
    prefiller: &Member,
    request: &RequestStem,
    served: &mut Served,
) -> Used {
    // Most pairs have no adapters at all.
    if !decoder.has_adapters() && !prefiller.has_adapters() {
        return Used::Nothing;
    }
    if let Some(used) = [decoder, prefiller].into_iter().find_map(|side| told(view, side, request, served)) {
        return used;
    }
    match ran_alone(view, &Role::Decode, decoder, request, served) {
        // A prompt that is computed for others is done within one step, and an engine tells what runs after a step: that
        // nothing ran proves nothing here.
        Used::Unknown => match ran_alone(view, &Role::Prefill, prefiller, request, served) {
            Used::Nothing => Used::Unknown,
            other => other,
        },
        known => known,
    }
}

/// What a worker that takes a request says of it.
fn told(view: &View<'_>, member: &Member, request: &RequestStem, served: &mut Served) -> Option<Used> {
    let requests = served.told.entry(member.id.clone()).or_insert_with(|| {
        let observations = view.worker(&member.id);
        let legs = observations.iter().filter_map(|observation| match &observation.body {
            Body::RequestLeg(leg) => Some(leg),
            _ => None,
        });
        let used = legs.filter_map(|leg| {
            let stem = RequestStem::of(leg.request_id.as_deref()?);
            match &leg.adapter {
                Some(name) => Some((stem, Used::Adapter(name.clone()))),
                None => (leg.without_adapter == Some(true)).then_some((stem, Used::Nothing)),
            }
        });
        used.collect()
    });
    requests.get(request).cloned()
}

/// The only adapter that a worker ran during its leg of a request, where no other leg lay in that time.
fn ran_alone(
    view: &View<'_>,
    role: &Role,
    member: &Member,
    request: &RequestStem,
    served: &mut Served,
) -> Used {
    let here = served.legs.entry(member.id.clone()).or_insert_with(|| served_by(view, role, member));
    let Some((_, begin, end)) = here.iter().find(|(one, ..)| one == request) else { return Used::Unknown };
    let is_alone = here.iter().all(|(one, began, ended)| one == request || ended <= begin || began >= end);
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let (mut ran_later, mut was_read_later) = (false, false);
    for observation in view.worker(&member.id).iter() {
        let Some(at) = observation.envelope.wall else { continue };
        let Body::Worker(worker) = &observation.body else {
            // A page of metrics shows when each adapter ran last.
            let is_page = matches!(observation.body, Body::Counters(_));
            was_read_later |= is_page && observation.envelope.source == SourceKind::Metrics && at >= *end;
            continue;
        };
        let names = worker.facts.get(fact::ADAPTERS_RUNNING).map_or("", String::as_str);
        let mut names = names.split(',').map(str::trim).filter(|name| !name.is_empty()).peekable();
        ran_later |= at > *end && names.peek().is_some();
        if at >= *begin && at <= *end {
            seen.extend(names.map(str::to_owned));
        }
    }
    match seen.pop_first() {
        Some(only) if seen.is_empty() && is_alone => Used::Adapter(only),
        None if was_read_later && !ran_later => Used::Nothing,
        _ => Used::Unknown,
    }
}

/// The legs of a role that a worker served.
fn served_by(view: &View<'_>, role: &Role, member: &Member) -> Vec<(RequestStem, WallTime, WallTime)> {
    let legs = view.router_legs();
    let here = legs.iter().filter(|(_, leg)| leg.leg.as_ref() == Some(role)).filter(|(observation, leg)| {
        let at = view.roster().by_endpoint(leg.endpoint.as_deref(), role, Some(&observation.envelope));
        at.is_some_and(|at| at.id == member.id)
    });
    let times = here.filter_map(|(observation, leg)| {
        let end = observation.envelope.wall?;
        Some((RequestStem::of(leg.request_id.as_deref()?), end.plus(-leg.duration_ns?), end))
    });
    times.collect()
}
