//! What is told of one request: its record, when its points were, under which span, and why it is told at all.
//!
//! A pure function of the view, the standing findings and the clocks of nodes. `None`, nothing to tell, is the usual case.

use super::ids;
use crate::lineage::record::{self, Record};
use crate::otlp::context::Context;
use crate::view::{Heard, View};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Finding;
use kvprov_model::id::{NodeId, RequestStem};
use kvprov_model::lineage::LineageStatus;
use kvprov_model::observation::{Body, Observation, Role};
use std::collections::BTreeMap;

/// Longest time that one statement may span: more is a mistake of a clock.
const LONGEST: i64 = 24 * 3_600 * kvprov_model::clock::SECOND;
/// Clocks nearer to the collector's than this are left as they are: the way of an observation takes a part of it.
const SKEW: i64 = kvprov_model::clock::SECOND;

/// Why a request is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// Two points ran different revisions.
    Divergent,
    /// Its KV did not arrive and it failed.
    Failed,
    /// Its KV did not arrive and the prompt was computed again.
    Recomputed,
    /// A finding names it.
    Finding,
    /// It falls into the sample.
    Sample,
}

/// A stretch of time, corrected where its node's clock is known to be off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Begin, in nanoseconds since the Unix epoch.
    pub(super) start: i64,
    /// End; not before the begin.
    pub(super) end: i64,
    /// The node that tells it.
    pub(super) node: NodeId,
    /// What the times were corrected by.
    pub(super) ahead: i64,
}

/// What is told.
#[derive(Debug, Clone)]
pub(super) struct Story<'f> {
    pub(super) stem: RequestStem,
    pub(super) record: Record,
    pub(super) why: Why,
    pub(super) parent: Option<Context>,
    /// The request as a whole.
    pub(super) whole: Stretch,
    pub(super) prefill: Option<Stretch>,
    pub(super) artifact: Option<Stretch>,
    pub(super) decode: Option<Stretch>,
    pub(super) findings: Vec<&'f Finding>,
}

/// Why nothing is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Silence {
    /// Nothing is amiss, and it is not in the sample.
    Usual,
    /// Nothing dates it.
    Undated,
}

/// By how much the clocks of nodes are ahead of the collector's, in nanoseconds.
pub(super) type Ahead = BTreeMap<NodeId, i64>;

// === impl Why ===

impl Why {
    /// The word in spans and metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Divergent => "divergent",
            Self::Failed => "failed",
            Self::Recomputed => "recomputed",
            Self::Finding => "finding",
            Self::Sample => "sample",
        }
    }

    fn of(record: &Record, findings: &[&Finding], stem: &RequestStem, sample: f64) -> Option<Self> {
        let outcome = record.lineage.points.artifact.outcome.as_deref();
        match (record.lineage.status, outcome) {
            (LineageStatus::Divergent, _) => Some(Self::Divergent),
            (_, Some("failed")) => Some(Self::Failed),
            (_, Some("recomputed")) => Some(Self::Recomputed),
            _ if !findings.is_empty() => Some(Self::Finding),
            _ => ids::is_sampled(stem, sample).then_some(Self::Sample),
        }
    }
}

/// Whether every node that spoke of a request has been heard past what it said by `settling` nanoseconds.
pub(super) fn is_settled(view: &View<'_>, stem: &RequestStem, settling: i64) -> bool {
    let mut last: BTreeMap<NodeId, (&str, WallTime)> = BTreeMap::new();
    let observations = view.request(stem);
    for observation in observations.iter().filter(|observation| record::is_of_node(observation)) {
        if let Some(wall) = observation.envelope.wall {
            let held = last.entry(observation.envelope.node.clone()).or_insert((observation.worker(), wall));
            if wall >= held.1 {
                *held = (observation.worker(), wall);
            }
        }
    }
    last.values().all(|(worker, wall)| {
        let member = view.roster().get(&kvprov_model::id::WorkerId::from(*worker));
        // Of a worker that nobody introduced no node is known to wait for.
        member.is_none_or(|member| view.heard([member], Some(wall.plus(settling))) != Heard::Waiting)
    })
}

/// What is told of a request.
pub(super) fn of<'f>(
    view: &View<'_>,
    stem: &RequestStem,
    record: &Record,
    findings: Vec<&'f Finding>,
    sample: f64,
    ahead: &Ahead,
) -> Result<Story<'f>, Silence> {
    let why = Why::of(record, &findings, stem, sample).ok_or(Silence::Usual)?;
    let observations = view.request(stem);
    let leg = |roles: &[Role]| {
        let mut of_role = record::legs(&observations)
            .filter(|(observation, leg)| {
                record::is_of_node(observation) && leg.leg.as_ref().is_some_and(|role| roles.contains(role))
            })
            .map(|(observation, _)| observation);
        of_role.next_back().and_then(|observation| stretch([observation], ahead))
    };
    let prefill = leg(&[Role::Prefill]);
    let decode = leg(&[Role::Decode, Role::Both]);
    let moves = |observation: &&Observation| {
        matches!(observation.body, Body::Transfer(_) | Body::Handshake(_) | Body::KvLoad(_))
    };
    let artifact = stretch(observations.iter().filter(moves), ahead);
    let of_nodes = || stretch(observations.iter().filter(|o| record::is_of_node(o)), ahead);
    // An engine's own span dates a request as well as nothing else does.
    let whole = of_nodes().or_else(|| stretch(observations.iter(), ahead)).ok_or(Silence::Undated)?;
    Ok(Story {
        stem: stem.clone(),
        record: record.clone(),
        why,
        parent: record.traceparent.as_deref().and_then(Context::parse),
        whole,
        prefill,
        artifact,
        decode,
        findings,
    })
}

/// From the earliest begin to the latest end of some statements; the node is the one of the latest.
fn stretch<'o>(observations: impl IntoIterator<Item = &'o Observation>, ahead: &Ahead) -> Option<Stretch> {
    let mut whole: Option<Stretch> = None;
    for observation in observations {
        let Some(wall) = observation.envelope.wall else { continue };
        let node = &observation.envelope.node;
        let off = ahead.get(node).copied().filter(|off| off.saturating_abs() > SKEW).unwrap_or(0);
        let end = wall.plus(off.saturating_neg()).0.max(0);
        let start = end.saturating_sub(duration(&observation.body)).max(0);
        match &mut whole {
            None => whole = Some(Stretch { start, end, node: node.clone(), ahead: off }),
            Some(held) => {
                held.start = held.start.min(start);
                if end > held.end {
                    (held.end, held.node, held.ahead) = (end, node.clone(), off);
                }
            }
        }
    }
    whole
}

fn duration(body: &Body) -> i64 {
    let told = match body {
        Body::RequestLeg(leg) => leg.duration_ns,
        Body::Transfer(transfer) => transfer.duration_ns,
        Body::Handshake(handshake) => handshake.duration_ns,
        _ => None,
    };
    told.filter(|duration| (0..=LONGEST).contains(duration)).unwrap_or(0)
}
