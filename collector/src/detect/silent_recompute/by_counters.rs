//! Prompt tokens computed on a decode worker that nothing else explains.
//!
//! The worst recomputes print nothing. On a worker that only decodes, local prompt compute above its version's
//! baseline is a recompute unless the router sent the request there alone, the request had been preempted, or the
//! prompt is shorter than a block. What the routing was is often not known: then it is suspected at most.

use super::draft_for;
use crate::detect::draft::Draft;
use crate::detect::unarrived::Decided;
use crate::view::{Interval, View};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::Role;
use kvprov_model::{counter, fact};
use std::collections::{BTreeMap, BTreeSet};

/// What explains an interval is told within this time after it.
const SETTLE: i64 = 15 * kvprov_model::clock::SECOND;

/// Adds the unexplained prompt compute of a decode worker.
pub(super) fn add(
    view: &View<'_>,
    worker: &WorkerId,
    decided: &[Decided],
    drafts: &mut BTreeMap<Cause, Draft>,
) {
    let Some(member) = view.roster().get(worker) else { return };
    if member.role != Some(Role::Decode) {
        return;
    }
    let baseline = member.number(fact::LOCAL_COMPUTE_BASELINE).unwrap_or(1.0);
    let block = member.number(fact::BLOCK_SIZE).unwrap_or(16.0);
    let size = |of: &str| member.number(of).unwrap_or(1.0).max(1.0);
    let ranks = size(fact::TP_SIZE) * size(fact::PP_SIZE);
    let explained = Explained::by_routers(view, worker);
    let nobody = BTreeSet::new();
    let mut early = Early::default();
    for interval in view.intervals(worker).iter() {
        let computed = interval.increase(counter::PROMPT_LOCAL_COMPUTE);
        let answered = interval.increase(counter::REQUESTS_ANSWERED);
        if early.waits(interval, computed, answered, block) {
            continue;
        }
        let interval = &early.joined(interval);
        let above = computed + early.take() - baseline * answered;
        // A failure or a routing decision that explains the tokens may be told a little later than they are counted.
        let until = interval.until.map(|until| until.plus(SETTLE));
        let heard = view.heard(view.witnesses(worker, &nobody), until);
        if !heard.is_settled()
            || above < 1.0
            || answered < 1.0
            || interval.increase(counter::PREEMPTIONS) > 0.0
        {
            continue;
        }
        // Failures told one by one are stated with their own cause; their tokens are not always known.
        let near_trouble = decided.iter().any(|one| {
            interval.contains(one.trouble.last)
                || interval.contains(one.trouble.first)
                || one.trouble.last.is_none()
        });
        let told = drafts.values().any(|draft| !draft.is_empty());
        if near_trouble || (told && explained.covers(interval, answered)) {
            continue;
        }
        // Prompts that transfers brought were not computed here. Every rank counts its own.
        let brought = interval.increase(counter::TRANSFERS_SUCCEEDED) / ranks;
        let here = if brought < answered { answered - brought } else { answered };
        let unexplained = explained.remaining(interval, above, answered, here);
        if unexplained / answered < block || unexplained < 1.0 {
            continue;
        }
        let cause = if interval.increase(counter::TRANSFERS_FAILED) > 0.0 {
            Cause::TransferFailed
        } else if interval.increase(counter::STORE_FAILED_READS) > 0.0 {
            Cause::LoadMiss
        } else {
            Cause::ParamsMissing
        };
        let draft = draft_for(drafts, &cause, worker);
        let prompts = prompts_of(interval, unexplained, above, answered);
        draft.proof(&interval.observation).tokens(unexplained).events(prompts);
        draft.at(interval.since);
        if view.roster().routers().any(|router| view.has_loss(&router.id)) {
            draft.unknown("what the router's lost lines said");
        }
        if let Some(silence) = heard.unknown() {
            draft.unknown(silence);
        }
        draft.unknown("the routing: whether these requests were meant for the decode worker alone");
    }
}

/// How many of the answered prompts the tokens make, by the average prompt; all of them where the page does not tell that
/// some came from elsewhere.
fn prompts_of(interval: &Interval, unexplained: f64, above: f64, answered: f64) -> u64 {
    let brought =
        interval.increase(counter::PROMPT_EXTERNAL) + interval.increase(counter::PROMPT_LOCAL_CACHE);
    let share = unexplained / (above + brought);
    (answered * share.min(1.0)).round().clamp(1.0, answered) as u64
}

/// Prompts that were computed in intervals before the one in which they were answered.
#[derive(Default)]
struct Early {
    tokens: f64,
    since: Option<WallTime>,
}

impl Early {
    /// Whether an interval computed prompts and answered nobody: what it computed is judged with the next answer.
    /// Where a preemption explains them they are forgotten.
    fn waits(&mut self, interval: &Interval, computed: f64, answered: f64, block: f64) -> bool {
        if interval.increase(counter::PREEMPTIONS) > 0.0 {
            *self = Self::default();
        } else if answered < 1.0 && computed >= block {
            self.tokens += computed;
            self.since = self.since.or(interval.since);
            return true;
        }
        false
    }

    /// The interval from the begin of what waits.
    fn joined(&self, interval: &Interval) -> Interval {
        interval.beginning(self.since)
    }

    /// The tokens that wait, which wait no longer.
    fn take(&mut self) -> f64 {
        std::mem::take(self).tokens
    }
}

/// What routers say of the requests that they sent to a decode worker alone.
struct Explained {
    /// Begins and ends of decode-only legs to this worker, and their prompt tokens.
    decode_only: Vec<(Option<WallTime>, Option<WallTime>, f64)>,
    /// Ends of all legs to this worker.
    legs: Vec<Option<WallTime>>,
    /// Decisions of routers for decode alone, by interval.
    decisions: Vec<Interval>,
    /// When decisions were told one by one that say nothing of the prompt.
    told: Vec<Option<WallTime>>,
    /// Prompts up to this many tokens are meant for the decode worker.
    limit: f64,
}

impl Explained {
    fn by_routers(view: &View<'_>, worker: &WorkerId) -> Self {
        let legs = view.router_legs();
        let prefilled: BTreeSet<RequestStem> = legs
            .iter()
            .filter(|(_, leg)| leg.leg == Some(Role::Prefill))
            .filter_map(|(_, leg)| leg.request_id.as_deref().map(RequestStem::of))
            .collect();
        let mut explained = Self {
            decode_only: Vec::new(),
            legs: Vec::new(),
            decisions: Vec::new(),
            told: Vec::new(),
            limit: 0.0,
        };
        for (observation, leg) in legs.iter() {
            let says_itself = observation.envelope.worker.as_ref() == Some(worker);
            let is_sent = || {
                view.roster()
                    .by_endpoint(leg.endpoint.as_deref(), &Role::Decode, Some(&observation.envelope))
                    .is_some_and(|m| m.id == *worker)
            };
            let here = leg.leg == Some(Role::Decode) && (says_itself || is_sent());
            // A decision for decode alone is told before its answer, without one.
            let decision = leg.status.is_none() && leg.kv_params_sent == Some(false);
            if !here || !(decision || leg.status.is_some_and(|status| (200..300).contains(&status))) {
                continue;
            }
            if !decision {
                explained.legs.push(observation.envelope.wall);
            } else if leg.prompt_tokens.is_none() {
                explained.told.push(observation.envelope.wall);
                continue;
            }
            let alone = leg.request_id.as_deref().is_some_and(|id| !prefilled.contains(&RequestStem::of(id)));
            if alone && leg.kv_params_sent != Some(true) {
                let end = observation.envelope.wall;
                let begin = end.map(|end| end.plus(-leg.duration_ns.unwrap_or(0)));
                explained.decode_only.push((begin, end, leg.prompt_tokens.unwrap_or(0) as f64));
            }
        }
        for router in view.roster().routers() {
            explained.limit = explained.limit.max(router.number(fact::LOCAL_PREFILL_LIMIT).unwrap_or(0.0));
            explained.decisions.extend(
                view.intervals(&router.id)
                    .iter()
                    .filter(|interval| interval.has(counter::ROUTED_DECODE_ONLY))
                    .cloned(),
            );
        }
        explained
    }

    /// Whether the routers told every answer of the interval.
    fn covers(&self, interval: &Interval, answered: f64) -> bool {
        self.legs.iter().filter(|end| interval.contains(**end)).count() as f64 >= answered
    }

    /// The tokens of an interval that remain unexplained, of so many answered prompts and those of them that no transfer
    /// brought. A limit explains short prompts where nobody counts decisions.
    fn remaining(&self, interval: &Interval, above: f64, answered: f64, here: f64) -> f64 {
        let mut counted = self
            .decisions
            .iter()
            .filter(|d| d.contains(interval.until) || interval.contains(d.until))
            .peekable();
        let told = self.told.iter().filter(|at| interval.contains(**at)).count() as f64;
        if counted.peek().is_none() && told == 0.0 && above / answered <= self.limit {
            return 0.0;
        }
        let by_legs: f64 = self
            .decode_only
            .iter()
            // Computed early in a leg that may end in a later interval.
            .filter(|(begin, end, _)| interval.overlaps(*begin, *end))
            .map(|(.., tokens)| tokens)
            .sum();
        // Who counts its decisions may tell them too.
        let decided = counted.map(|d| d.increase(counter::ROUTED_DECODE_ONLY)).sum::<f64>().max(told);
        let by_decisions = above * (decided / here).min(1.0);
        (above - by_legs - by_decisions).max(0.0)
    }
}
