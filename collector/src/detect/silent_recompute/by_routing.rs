//! A request that was prefilled elsewhere and reached the decode side without transfer parameters.
//!
//! A router that sent no prefill leg chose decode alone: that is quiet. A client that left explains the rest.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::finding::{Cause, Confidence};
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Observation, RequestLeg, Role};
use kvprov_model::{counter, fact};
use std::collections::BTreeMap;

/// Adds the requests of a decode worker whose parameters the router lost.
pub(super) fn add(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    let routed = view.router_legs();
    let mut by_request: BTreeMap<RequestStem, Vec<(&Observation, &RequestLeg)>> = BTreeMap::new();
    for (observation, leg) in routed.iter() {
        if let Some(id) = &leg.request_id {
            by_request.entry(RequestStem::of(id)).or_default().push((observation, leg));
        }
    }
    for legs in by_request.values() {
        let gone = legs.iter().any(|(_, leg)| leg.client_gone == Some(true));
        let prefilled = legs
            .iter()
            .find(|(_, leg)| leg.leg == Some(Role::Prefill) && leg.kv_params_received == Some(true));
        let decoded = legs.iter().rev().find(|(_, leg)| leg.leg == Some(Role::Decode));
        let (Some((prefill, prefill_leg)), Some((decode, leg))) = (prefilled, decoded) else { continue };
        let here = view
            .roster()
            .by_endpoint(leg.endpoint.as_deref(), &Role::Decode, Some(&decode.envelope))
            .is_some_and(|member| member.id == *worker);
        let answered = leg.status.is_some_and(|status| (200..300).contains(&status));
        if gone || !here || !answered || leg.kv_params_sent != Some(false) {
            continue;
        }
        let prompt = leg.prompt_tokens.unwrap_or(0) - leg.cached_tokens.unwrap_or(0);
        let block = view.roster().get(worker).and_then(|m| m.number(fact::BLOCK_SIZE)).unwrap_or(1.0);
        if leg.prompt_tokens.is_some() && (prompt as f64) < block {
            continue;
        }
        let draft = draft_for(drafts, &Cause::ParamsMissing, worker);
        draft.proof(prefill).proof(decode).requests_of(decode);
        for id in prefill_leg.remote_request_id.iter().chain(&prefill_leg.request_id) {
            draft.request(id);
        }
        draft.tokens(prompt as f64);
        let computed: f64 =
            view.intervals(worker).iter().map(|i| i.increase(counter::PROMPT_LOCAL_COMPUTE)).sum();
        if computed >= prompt as f64 && computed > 0.0 {
            draft.at_least(Confidence::Confirmed);
        } else {
            draft.unknown("whether the decode worker held the prompt in its own cache");
        }
    }
}

/// Adds what a router counted: requests for which prefill gave nothing to hand on. Where its log told of them, those are these.
pub(super) fn add_counted(view: &View<'_>, worker: &WorkerId, drafts: &mut BTreeMap<Cause, Draft>) {
    if drafts.get(&Cause::ParamsMissing).is_some_and(|draft| !draft.is_empty()) {
        return;
    }
    for interval in view.intervals(worker).iter() {
        let lost = interval.increase(counter::ROUTED_WITHOUT_PARAMS);
        if lost < 1.0 {
            continue;
        }
        let draft = draft_for(drafts, &Cause::ParamsMissing, worker);
        draft.proof(&interval.observation).events(lost as u64).at(interval.since);
        draft.unknown("which requests they were, and whether the decode side answered them");
    }
}
