//! A lineage with what a reader wants beside it: when the request ran, how it is known, what it took, where it stands in a
//! trace.
//!
//! A pure function of the view, as the lineage is. Times are of the nodes that tell them; they are never compared here.

use crate::otlp::context::Context;
use crate::view::View;
use crate::view::request::printed_ids;
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::RequestStem;
use kvprov_model::lineage::Lineage;
use kvprov_model::observation::{Body, Observation, RequestLeg, Role, SourceKind};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Ids by which one request is known that are kept.
const IDS: usize = 32;

/// A lineage and what belongs to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The lineage.
    #[serde(flatten)]
    pub lineage: Lineage,
    /// Every id by which the request is known, as printed.
    #[serde(default)]
    pub ids: BTreeSet<String>,
    /// First time at which something was said of it, on its node's clock.
    #[serde(default)]
    pub first_seen: Option<String>,
    /// Last time.
    #[serde(default)]
    pub last_seen: Option<String>,
    /// HTTP status of the answer, where a router tells it.
    #[serde(default)]
    pub http_status: Option<i64>,
    /// Tokens of the prompt.
    #[serde(default)]
    pub prompt_tokens: Option<i64>,
    /// Tokens of the prompt that the decode side took from a cache.
    #[serde(default)]
    pub cached_tokens: Option<i64>,
    /// Tokens of the answer.
    #[serde(default)]
    pub completion_tokens: Option<i64>,
    /// The span of the engine or the router that the request is told under, as W3C trace context.
    #[serde(default)]
    pub traceparent: Option<String>,
    /// Findings that name the request; filled in where it is shown.
    #[serde(default)]
    pub findings: Vec<String>,
}

#[cfg(test)]
impl Record {
    /// A lineage beside which nothing is known.
    pub(crate) fn bare(lineage: Lineage) -> Self {
        Self {
            lineage,
            ids: BTreeSet::new(),
            first_seen: None,
            last_seen: None,
            http_status: None,
            prompt_tokens: None,
            cached_tokens: None,
            completion_tokens: None,
            traceparent: None,
            findings: Vec::new(),
        }
    }
}

/// The record of a lineage.
pub fn of(view: &View<'_>, stem: &RequestStem, lineage: Lineage) -> Record {
    let observations = view.request(stem);
    let legs: Vec<(&Observation, &RequestLeg)> = legs(&observations).collect();
    // The side that decodes tells of the whole request; the side that computes the prompt is asked for one token.
    let decode = legs.iter().rev().find(|(_, leg)| matches!(leg.leg, Some(Role::Decode | Role::Both)));
    let of_decode = |field: fn(&RequestLeg) -> Option<i64>| decode.and_then(|(_, leg)| field(leg));
    let greatest =
        |field: fn(&RequestLeg) -> Option<i64>| legs.iter().filter_map(|(_, leg)| field(leg)).max();
    let times = || observations.iter().filter(|o| is_of_node(o)).filter_map(|o| o.envelope.wall);
    Record {
        lineage,
        ids: ids(&observations, stem),
        first_seen: times().min().map(WallTime::to_rfc3339),
        last_seen: times().max().map(WallTime::to_rfc3339),
        http_status: of_decode(|leg| leg.status),
        prompt_tokens: of_decode(|leg| leg.prompt_tokens).or_else(|| greatest(|leg| leg.prompt_tokens)),
        cached_tokens: of_decode(|leg| leg.cached_tokens),
        completion_tokens: of_decode(|leg| leg.completion_tokens)
            .or_else(|| greatest(|leg| leg.completion_tokens)),
        traceparent: parent(&observations).map(|parent| parent.to_string()),
        findings: Vec::new(),
    }
}

/// Fills in the findings that name each request.
pub fn name_findings(records: &mut [Record], findings: &[Finding]) {
    let places: BTreeMap<String, usize> =
        records.iter().enumerate().map(|(place, record)| (record.lineage.request.clone(), place)).collect();
    for finding in findings {
        let id = finding.id.as_str();
        for request in &finding.requests {
            let place = places.get(RequestStem::of(request).as_str()).copied();
            if let Some(record) = place.and_then(|place| records.get_mut(place))
                && record.findings.last().is_none_or(|last| last != id)
            {
                record.findings.push(id.to_owned());
            }
        }
    }
}

/// The legs among observations.
pub(crate) fn legs(
    observations: &[Observation],
) -> impl DoubleEndedIterator<Item = (&Observation, &RequestLeg)> {
    observations.iter().filter_map(|observation| match &observation.body {
        Body::RequestLeg(leg) => Some((observation, leg)),
        _ => None,
    })
}

/// Whether an observation is dated by the clock of a node that an agent speaks for.
pub(crate) fn is_of_node(observation: &Observation) -> bool {
    observation.envelope.source != SourceKind::Traces
}

/// The ids of a request as printed, without those of others in the same statement.
pub(crate) fn ids(observations: &[Observation], stem: &RequestStem) -> BTreeSet<String> {
    let printed = observations.iter().flat_map(printed_ids);
    printed.filter(|id| RequestStem::of(id) == *stem).map(str::to_owned).take(IDS).collect()
}

/// The span that a request is told under: what a router passed on, else the span of the engine that gave the longest
/// answer, which is the one that decoded. The same whatever came first.
pub(crate) fn parent(observations: &[Observation]) -> Option<Context> {
    let parents = legs(observations).filter_map(|(observation, leg)| {
        let parent = Context::parse(leg.traceparent.as_deref()?)?;
        let told = match observation.envelope.source {
            SourceKind::Traces => (0, leg.completion_tokens.unwrap_or(0), leg.duration_ns.unwrap_or(0)),
            _ => (1, i64::from(leg.leg == Some(Role::Router)), 0),
        };
        Some((told, parent))
    });
    parents.max().map(|(_, parent)| parent)
}
