//! A decode worker pulled KV that a prefill worker of another revision had computed.

use super::{commit, difference, element_type, finish};
use crate::detect::adapter_used::{self, Served, Used};
use crate::detect::draft::Draft;
use crate::detect::unarrived;
use crate::view::{Member, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::{Comparison, Factors};
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Observation, Outcome, RequestLeg, Role};
use kvprov_model::{counter, fact};
use std::collections::{BTreeMap, BTreeSet};

/// How long after a transfer was counted the ids of its request may be told.
const TOLD_WITHIN: i64 = 2 * SECOND;

/// A request that went over a pair.
struct Crossing<'v> {
    request: String,
    prefiller: &'v Member,
    at: Option<WallTime>,
    /// When its prompt was computed, where the prefill worker or a router tells it.
    computed: Option<WallTime>,
    adapter: Option<String>,
    proofs: Vec<Observation>,
    ids: BTreeSet<String>,
    tokens: Option<i64>,
    /// The engine itself says that the KV came.
    came: bool,
}

/// The complete set of findings on a decode worker.
pub(super) fn detect(view: &View<'_>, worker: &WorkerId) -> Vec<Finding> {
    let Some(decoder) = view.roster().get(worker) else { return Vec::new() };
    if matches!(decoder.role, Some(Role::Router | Role::Store)) {
        return Vec::new();
    }
    let failed: BTreeSet<RequestStem> =
        unarrived::trouble::collect(view, worker).into_iter().filter_map(|trouble| trouble.stem).collect();
    let mut drafts: BTreeMap<(Cause, WorkerId), (Draft, String)> = BTreeMap::new();
    let crossings = crossings(view, decoder);
    let arrived = arrivals(view, worker);
    let mut served = Served::default();
    for crossing in crossings.iter().filter(|c| !failed.contains(&RequestStem::of(&c.request))) {
        let used = match &crossing.adapter {
            Some(name) => Used::Adapter(name.clone()),
            None => {
                let request = RequestStem::of(&crossing.request);
                adapter_used::seen(view, decoder, crossing.prefiller, &request, &mut served)
            }
        };
        let Some((cause, mut confidence, what)) = mismatch(crossing, decoder, &used) else {
            continue;
        };
        let arrived = arrived || crossing.came;
        if !arrived {
            confidence = confidence.min(Confidence::Suspected);
        }
        let key = (cause.clone(), crossing.prefiller.id.clone());
        let (draft, _) = drafts.entry(key).or_insert_with(|| {
            let subject = format!("{} -> {worker}", crossing.prefiller.id);
            let mut draft = Draft::new(Detector::CrossRevisionHit, cause, confidence, subject);
            draft.worker(worker.as_str()).worker(crossing.prefiller.id.as_str());
            (draft, what)
        });
        draft.at_least(confidence).proofs(&crossing.proofs).request(&crossing.request);
        crossing.ids.iter().for_each(|id| {
            draft.request(id);
        });
        draft.tokens(crossing.tokens.unwrap_or(0) as f64);
        if !arrived {
            draft.unknown("whether the transfer brought the KV: no source shows an arrival");
        }
    }
    if crossings.is_empty() {
        let unjoined = unjoined(view, decoder, arrived).or_else(|| answered(view, decoder));
        drafts.extend(unjoined);
    }
    drafts
        .into_iter()
        .map(|((cause, prefiller), (draft, what))| {
            let requests = if draft.count() == 1 {
                "one request".to_owned()
            } else {
                format!("{} requests", draft.count())
            };
            let summary = format!(
                "{worker} decoded {requests} from KV that {prefiller} computed under another model: {what}."
            );
            finish(draft, &cause, summary)
        })
        .collect()
}

/// Whether any transfer is known to have brought KV to this worker.
fn arrivals(view: &View<'_>, worker: &WorkerId) -> bool {
    view.worker(worker).iter().any(|observation| match &observation.body {
        Body::Counters(counters) => [counter::TRANSFERS_SUCCEEDED, counter::PROMPT_EXTERNAL]
            .iter()
            .any(|name| counters.values.get(*name).or(counters.totals.get(*name)).is_some_and(|v| *v > 0.0)),
        Body::Transfer(transfer) => {
            transfer.outcome == Some(Outcome::Succeeded)
                || transfer.bytes_seen.is_some_and(|bytes| bytes > 65_536)
        }
        _ => false,
    })
}

/// Every request that a router or the engines' own ids join over this worker and a prefill worker.
fn crossings<'v>(view: &'v View<'_>, decoder: &'v Member) -> Vec<Crossing<'v>> {
    let mut crossings: BTreeMap<RequestStem, Crossing<'v>> = BTreeMap::new();
    for (observation, leg) in view.router_legs().iter() {
        let decodes = leg.leg == Some(Role::Decode)
            && view
                .roster()
                .by_endpoint(leg.endpoint.as_deref(), &Role::Decode, Some(&observation.envelope))
                .is_some_and(|m| m.id == decoder.id);
        let answered = leg.status.is_some_and(|status| (200..300).contains(&status));
        if !decodes || !answered || leg.kv_params_sent != Some(true) {
            continue;
        }
        let Some(prefiller) = leg.remote_engine_id.as_deref().and_then(|id| view.roster().by_engine_id(id))
        else {
            continue;
        };
        let Some(request) = leg.request_id.clone() else { continue };
        add(&mut crossings, request, prefiller, observation, leg);
    }
    let mut pulls: BTreeMap<RequestStem, (&Member, &Observation)> = BTreeMap::new();
    let observations = view.worker(&decoder.id);
    for observation in observations.iter() {
        let Body::Transfer(transfer) = &observation.body else { continue };
        let from = transfer.remote_engine_id.as_deref().and_then(|id| view.roster().by_engine_id(id));
        let ended = match (&transfer.outcome, transfer.direction.as_deref()) {
            (Some(Outcome::Succeeded), _) => true,
            // Said of loads that failed too, which are told apart by their failures.
            (None, Some("receive")) => transfer.cause.is_none() && transfer.failure.is_none(),
            _ => false,
        };
        for request in transfer.request_id.iter().chain(&transfer.request_ids) {
            let stem = RequestStem::of(request);
            let started = pulls.get(&stem).copied();
            match (from.or(started.map(|(from, _)| from)), ended) {
                (Some(from), true) => {
                    let crossing =
                        add(&mut crossings, request.clone(), from, observation, &RequestLeg::default());
                    crossing.came = true;
                    crossing.proofs.extend(started.map(|(_, pull)| pull.clone()));
                }
                (Some(from), false) if transfer.outcome == Some(Outcome::Started) => {
                    pulls.insert(stem, (from, observation));
                }
                _ => {}
            }
        }
    }
    crossings.retain(|_, crossing| crossing.prefiller.id != decoder.id);
    date(view, &mut crossings);
    crossings.into_values().collect()
}

/// Finds when the prompts were computed: KV keeps the revision of that time, whatever the prefill worker has become
/// before it was pulled.
fn date(view: &View<'_>, crossings: &mut BTreeMap<RequestStem, Crossing<'_>>) {
    let mut changed: BTreeMap<RequestStem, &mut Crossing<'_>> = crossings
        .iter_mut()
        .filter(|(_, crossing)| !crossing.prefiller.changes().is_empty())
        .map(|(stem, crossing)| (stem.clone(), crossing))
        .collect();
    let prefillers: BTreeSet<WorkerId> = changed.values().map(|c| c.prefiller.id.clone()).collect();
    let mut note = |prefiller: Option<&WorkerId>, leg: &RequestLeg, at: Option<WallTime>| {
        let stem = leg.request_id.as_deref().map(RequestStem::of);
        let Some(crossing) = stem.and_then(|stem| changed.get_mut(&stem)) else { return };
        if prefiller.is_none_or(|id| crossing.prefiller.id == *id) && at <= crossing.at {
            crossing.computed = crossing.computed.max(at);
        }
    };
    for (observation, leg) in view.router_legs().iter() {
        if leg.leg == Some(Role::Prefill) {
            note(None, leg, observation.envelope.wall);
        }
    }
    for prefiller in &prefillers {
        for observation in view.worker(prefiller).iter() {
            if let Body::RequestLeg(leg) = &observation.body {
                note(Some(prefiller), leg, observation.envelope.wall);
            }
        }
    }
}

fn add<'c, 'v>(
    crossings: &'c mut BTreeMap<RequestStem, Crossing<'v>>,
    request: String,
    prefiller: &'v Member,
    observation: &Observation,
    leg: &RequestLeg,
) -> &'c mut Crossing<'v> {
    let crossing = crossings.entry(RequestStem::of(&request)).or_insert_with(|| Crossing {
        request,
        prefiller,
        at: observation.envelope.wall,
        computed: None,
        adapter: None,
        proofs: Vec::new(),
        ids: BTreeSet::new(),
        tokens: None,
        came: false,
    });
    crossing.proofs.push(observation.clone());
    crossing.ids.extend(leg.remote_request_id.iter().cloned());
    crossing.tokens = crossing.tokens.or(leg.prompt_tokens);
    if crossing.adapter.is_none() {
        crossing.adapter = leg.adapter.clone().or_else(|| leg.model.clone());
    }
    crossing
}

/// In what the two sides differ: a semantic factor or, where bytes are read without conversion, their type.
fn mismatch(crossing: &Crossing<'_>, decoder: &Member, used: &Used) -> Option<(Cause, Confidence, String)> {
    let (prefiller, at) = (crossing.prefiller, crossing.at);
    let adapter = match used {
        Used::Adapter(name) => Some(name.as_str()),
        Used::Nothing | Used::Unknown => None,
    };
    let made = prefiller.factors_at(crossing.computed.or(at), adapter);
    let with = decoder.factors_at(at, adapter);
    if let Some(difference) = difference(&made, &with) {
        return Some(difference);
    }
    // Both serve one adapter name with other contents, and no source shows whether the request used it.
    if matches!(used, Used::Unknown) {
        let (made, used) = adapter_used::if_any(prefiller, decoder, at);
        if let Some((cause, _, what)) = difference(&made, &used) {
            return Some((cause, Confidence::Suspected, format!("{what}, if the request used the adapter")));
        }
    }
    if made.compare(&with, "weights") == Comparison::Unknown
        && let Some(known) = commit(prefiller, decoder, (&made, &with))
    {
        return Some(known);
    }
    // KV of another element type that was transferred all the same was read as something it is not.
    element_type(prefiller, decoder)
}

/// Answers of a decode worker that computes no prompt in any case, while the only prefill worker had other weights: what it
/// answered came from there. They are told behind a change of its own.
fn answered(view: &View<'_>, decoder: &Member) -> Option<((Cause, WorkerId), (Draft, String))> {
    let mut prefillers = view.roster().prefillers().filter(|p| p.id != decoder.id);
    let (Some(prefiller), None) = (prefillers.next(), prefillers.next()) else { return None };
    let never_prefills = decoder.fact(fact::LOAD_FAILURE_POLICY) == Some("abort");
    if !never_prefills || decoder.role != Some(Role::Decode) {
        return None;
    }
    let mut found: Option<((Cause, WorkerId), (Draft, String))> = None;
    for observation in view.worker(&decoder.id).iter() {
        let Body::RequestLeg(leg) = &observation.body else { continue };
        let at = observation.envelope.wall;
        let is_answer = leg.status == Some(200) && leg.request_id.is_none() && leg.leg.is_none();
        if !is_answer || at.is_none() {
            continue;
        }
        let (made, used) = (prefiller.factors_at(at, None), decoder.factors_at(at, None));
        let Some((cause, _, what)) = difference(&made, &used) else { continue };
        let (_, (draft, _)) = found.get_or_insert_with(|| {
            let subject = format!("{} -> {}", prefiller.id, decoder.id);
            let mut draft =
                Draft::new(Detector::CrossRevisionHit, cause.clone(), Confidence::Suspected, subject);
            draft.worker(decoder.id.as_str()).worker(prefiller.id.as_str());
            draft.unknown("which requests: no id joins the two sides");
            ((cause, prefiller.id.clone()), (draft, what))
        });
        draft.proof(observation).events(1);
    }
    found
}

/// Transfers that succeeded without any id that joins them to a prefill worker: with only one that could have
/// computed them, it is suspected.
fn unjoined(
    view: &View<'_>,
    decoder: &Member,
    arrived: bool,
) -> Option<((Cause, WorkerId), (Draft, String))> {
    let mut prefillers = view.roster().prefillers().filter(|p| p.id != decoder.id);
    let (Some(prefiller), None) = (prefillers.next(), prefillers.next()) else { return None };
    if !arrived || decoder.role != Some(Role::Decode) {
        return None;
    }
    let at = view.watermark(&decoder.node);
    if !prefiller.changes().is_empty() || !decoder.changes().is_empty() {
        return None;
    }
    let revisions: (Factors, Factors) = (prefiller.factors_at(at, None), decoder.factors_at(at, None));
    // What arrived of another element type was read as something it is not, whatever the revisions.
    let (cause, _, what) = match revisions.0.compare_revision(&revisions.1) {
        Comparison::Different => difference(&revisions.0, &revisions.1)?,
        _ if revisions.0.compare(&revisions.1, "weights") == Comparison::Unknown
            && commit(prefiller, decoder, (&revisions.0, &revisions.1)).is_some() =>
        {
            commit(prefiller, decoder, (&revisions.0, &revisions.1))?
        }
        _ => element_type(prefiller, decoder)?,
    };
    let subject = format!("{} -> {}", prefiller.id, decoder.id);
    let mut draft = Draft::new(Detector::CrossRevisionHit, cause.clone(), Confidence::Suspected, subject);
    draft.worker(decoder.id.as_str()).worker(prefiller.id.as_str());
    let mut first = None;
    for interval in view.intervals(&decoder.id).iter() {
        let transfers = interval.increase(counter::TRANSFERS_SUCCEEDED);
        let tokens = interval.increase(counter::PROMPT_EXTERNAL);
        if transfers > 0.0 || tokens > 0.0 {
            draft.proof(&interval.observation).events(transfers as u64).tokens(tokens);
            first = first.or(interval.observation.envelope.wall);
        }
    }
    // Counters are read at once; what a router and the engines say of the same requests may still be on its way.
    let told = first.map(|first| first.plus(TOLD_WITHIN));
    if first.is_some() && !view.heard(view.witnesses(&decoder.id, &BTreeSet::new()), told).is_settled() {
        return None;
    }
    draft.unknown("which requests: no id joins the two sides");
    (!draft.is_empty()).then_some(((cause, prefiller.id.clone()), (draft, what)))
}
