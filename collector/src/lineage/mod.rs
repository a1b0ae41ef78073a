//! Lineage: the revision of a request at four points, and whether they agree.
//!
//! A pure function of the view. A point that no source shows is unknown and makes the lineage unverified, never
//! consistent.

pub mod record;

use crate::detect::adapter_used::{self, Served, Used};
use crate::detect::unarrived::{self, Decided, Fate};
use crate::ledger::{IndexKey, IndexKind};
use crate::view::{Member, View};
use kvprov_model::clock::WallTime;
use kvprov_model::factor::Comparison;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::lineage::{Lineage, LineageStatus, Point, Points};
use kvprov_model::observation::{Body, Observation, RequestLeg, Role};
use std::collections::BTreeMap;

/// The lineage of every request that a source names, by the client's id; at most `limit` of them.
pub fn all(view: &View<'_>, limit: usize) -> Vec<Lineage> {
    let fates = fates(view);
    view.keys(IndexKind::Request)
        .into_iter()
        .filter_map(|key| match key {
            IndexKey::Request(stem) => of_request(view, &stem, fates.get(&stem)),
            _ => None,
        })
        .take(limit)
        .collect()
}

/// What became of every request whose KV did not arrive.
pub fn fates(view: &View<'_>) -> BTreeMap<RequestStem, Decided> {
    let mut fates: BTreeMap<RequestStem, Decided> = BTreeMap::new();
    for member in view.roster().members() {
        for decided in unarrived::of_worker(view, &member.id) {
            if let Some(stem) = decided.trouble.stem.clone() {
                fates.insert(stem, decided);
            }
        }
    }
    fates
}

/// The lineage of one request; `None` when no leg and no failure tells which worker decoded it.
pub fn of_request(view: &View<'_>, stem: &RequestStem, fate: Option<&Decided>) -> Option<Lineage> {
    let observations = view.request(stem);
    let legs: Vec<(&Observation, &RequestLeg)> = observations
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::RequestLeg(leg) => Some((observation, leg)),
            _ => None,
        })
        .collect();
    let decode = legs.iter().rev().find(|(_, leg)| matches!(leg.leg, Some(Role::Decode | Role::Both)));
    let prefill = legs.iter().find(|(_, leg)| leg.leg == Some(Role::Prefill));
    let decoder = decode
        .and_then(|(observation, leg)| {
            view.roster().by_endpoint(leg.endpoint.as_deref(), &Role::Decode, Some(&observation.envelope))
        })
        .or_else(|| fate.and_then(|fate| speaker(view, fate)));
    if decoder.is_none() && decode.is_none() {
        return None;
    }
    let at = decode.or(prefill).and_then(|(observation, _)| observation.envelope.wall);
    let named = decode.and_then(|(_, leg)| leg.adapter.as_deref().or(leg.model.as_deref()));
    let prefiller = decode
        .and_then(|(_, leg)| leg.remote_engine_id.as_deref())
        .or_else(|| prefill.and_then(|(_, leg)| leg.remote_engine_id.as_deref()))
        .and_then(|engine| view.roster().by_engine_id(engine))
        .or_else(|| {
            prefill.and_then(|(observation, leg)| {
                view.roster().by_endpoint(
                    leg.endpoint.as_deref(),
                    &Role::Prefill,
                    Some(&observation.envelope),
                )
            })
        });

    let used = match (named, prefiller, decoder) {
        (Some(name), ..) => Used::Adapter(name.to_owned()),
        (None, Some(prefiller), Some(decoder)) => {
            adapter_used::seen(view, decoder, prefiller, stem, &mut Served::default())
        }
        (None, ..) => Used::Unknown,
    };
    let adapter = match &used {
        Used::Adapter(name) => Some(name.as_str()),
        Used::Nothing | Used::Unknown => None,
    };

    let mut points = Points::default();
    points.request.model = legs.iter().find_map(|(_, leg)| leg.model.clone());
    points.request.unknown =
        points.request.model.is_none().then(|| "no source shows the model asked for".to_owned());
    points.prefill = worker_point(prefiller, at, adapter, "no source joins the request to a prefill worker");
    points.decode = worker_point(decoder, at, adapter, "no source shows the worker that decoded");

    let transferred = decode.is_some_and(|(_, leg)| leg.kv_params_sent == Some(true)) && fate.is_none();
    points.artifact = match fate.map(|fate| fate.fate) {
        Some(Fate::Recomputed) => outcome(&points.decode, "recomputed"),
        Some(Fate::Failed) => outcome(&Point::default(), "failed"),
        Some(Fate::Unknown) => {
            Point { unknown: Some("what became of the request".to_owned()), ..Point::default() }
        }
        None if transferred => outcome(&points.prefill, "transfer"),
        None if prefiller.is_none() || decode.is_some() => outcome(&points.decode, "local"),
        None => Point { unknown: Some("no source shows whether KV moved".to_owned()), ..Point::default() },
    };
    let made_by = match points.artifact.outcome.as_deref() {
        Some("transfer") => prefiller,
        Some("recomputed" | "local") => decoder,
        _ => None,
    };
    let status = match (made_by, decoder) {
        (Some(made_by), Some(decoder)) => {
            match made_by.factors_at(at, adapter).compare_revision(&decoder.factors_at(at, adapter)) {
                Comparison::Different => LineageStatus::Divergent,
                Comparison::Equal if used == Used::Unknown && may_differ(made_by, decoder, at) => {
                    LineageStatus::Unverified
                }
                Comparison::Equal => LineageStatus::Consistent,
                Comparison::Unknown => LineageStatus::Unverified,
            }
        }
        _ => LineageStatus::Unverified,
    };
    Some(Lineage { request: stem.as_str().to_owned(), status, points })
}

/// Whether one of two workers serves an adapter that the other does not have in the same content.
fn may_differ(made_by: &Member, decoder: &Member, at: Option<WallTime>) -> bool {
    if made_by.id == decoder.id || !made_by.has_adapters() && !decoder.has_adapters() {
        return false;
    }
    let (made, used) = adapter_used::if_any(made_by, decoder, at);
    made.compare(&used, "adapter") != Comparison::Equal
}

fn speaker<'v>(view: &'v View<'_>, fate: &Decided) -> Option<&'v Member> {
    fate.trouble
        .workers
        .iter()
        .filter_map(|worker| view.roster().get(&WorkerId::from(worker.as_str())))
        .find(|member| !matches!(member.role, Some(Role::Prefill | Role::Router)))
}

fn worker_point(
    member: Option<&Member>,
    at: Option<WallTime>,
    adapter: Option<&str>,
    otherwise: &str,
) -> Point {
    let Some(member) = member else {
        return Point { unknown: Some(otherwise.to_owned()), ..Point::default() };
    };
    let factors = member.factors_at(at, adapter);
    let weights = factors.0.get("weights").map(|factor| format!("{}:{}", factor.algorithm, factor.value));
    Point {
        worker: Some(member.id.as_str().to_owned()),
        model: member.fact(kvprov_model::fact::MODEL_NAME).map(str::to_owned),
        revision: factors.revision_id(),
        unknown: weights.is_none().then(|| "the digest of its weights".to_owned()),
        weights,
        outcome: None,
    }
}

fn outcome(of: &Point, outcome: &str) -> Point {
    Point { worker: None, model: None, outcome: Some(outcome.to_owned()), ..of.clone() }
}
