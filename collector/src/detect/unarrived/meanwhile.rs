//! What a decode worker computed itself around a failure, as its counters show.

use super::Trouble;
use super::outcome::{Decided, Fate};
use crate::view::{Interval, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::counter;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::Role;
use std::collections::BTreeMap;

/// A prompt that is computed anew gives its first token within this time.
const RECOMPUTED_WITHIN: i64 = 30 * SECOND;

/// Prompt tokens and answers of each interval that are not claimed yet: by requests that a router sent to this worker
/// alone, or by failures that they prove to have ended as recompute.
pub(super) struct Meanwhile(Vec<Unclaimed>);

#[derive(Clone, Copy)]
struct Unclaimed {
    computed: f64,
    answered: f64,
}

// === impl Meanwhile ===

impl Meanwhile {
    /// Reads a worker's intervals. A worker that also prefills for itself shows nothing by them; nor does an interval
    /// with preemptions.
    pub(super) fn of(view: &View<'_>, worker: &WorkerId, intervals: &[Interval]) -> Self {
        let role = view.roster().get(worker).and_then(|member| member.role.clone());
        if role != Some(Role::Decode) {
            return Self(Vec::new());
        }
        let unclaimed = |interval: &Interval| match interval.increase(counter::PREEMPTIONS) {
            0.0 => Unclaimed {
                computed: interval.increase(counter::PROMPT_LOCAL_COMPUTE),
                answered: interval.increase(counter::REQUESTS_ANSWERED),
            },
            _ => Unclaimed { computed: 0.0, answered: 0.0 },
        };
        let mut meanwhile = Self(intervals.iter().map(unclaimed).collect());
        for (observation, leg) in view.router_legs().iter() {
            let alone = leg.leg == Some(Role::Decode)
                && leg.kv_params_sent == Some(false)
                && leg.status.is_some_and(|status| (200..300).contains(&status));
            let end = observation.envelope.wall;
            let at = intervals.partition_point(|interval| interval.until < end);
            if !alone || !intervals.get(at).is_some_and(|interval| interval.contains(end)) {
                continue;
            }
            let here = view.roster().by_endpoint(
                leg.endpoint.as_deref(),
                &Role::Decode,
                Some(&observation.envelope),
            );
            if here.is_some_and(|member| member.id == *worker) {
                meanwhile.0[at].computed -= leg.prompt_tokens.unwrap_or(0) as f64;
                meanwhile.0[at].answered -= 1.0;
            }
        }
        meanwhile
    }

    /// The interval around a failure in which prompt tokens were computed and an answer given that nothing else
    /// claims; the answer is claimed by it.
    pub(super) fn computed<'i>(
        &mut self,
        intervals: &'i [Interval],
        trouble: &Trouble,
    ) -> Option<&'i Interval> {
        if self.0.is_empty() {
            return None;
        }
        let at = intervals.iter().position(|interval| interval.contains(trouble.last))?;
        // A recompute of a long prompt may end in the interval after the failure.
        (at..self.0.len()).take(2).find_map(|index| {
            let left = &mut self.0[index];
            if left.answered < 1.0 || left.computed <= left.answered {
                return None;
            }
            left.answered -= 1.0;
            Some(&intervals[index])
        })
    }

    /// The intervals around a failure, where they show that no prompt was computed for long enough behind it while others
    /// were answered. Prompt tokens are counted at the first token of the answer, so that a recompute would be among them.
    pub(super) fn nothing_computed<'i>(
        &self,
        intervals: &'i [Interval],
        trouble: &Trouble,
    ) -> Option<&'i [Interval]> {
        if self.0.is_empty() {
            return None;
        }
        let covers = |time: Option<WallTime>| intervals.iter().position(|interval| interval.contains(time));
        let begin = covers(trouble.first)?;
        let end = covers(trouble.last.map(|last| last.plus(RECOMPUTED_WITHIN)))?;
        let span = intervals.get(begin..=end)?;
        let shows_nothing = |(interval, own): (&Interval, &Unclaimed)| {
            interval.has(counter::PROMPT_LOCAL_COMPUTE)
                && interval.increase(counter::PREEMPTIONS) == 0.0
                && interval.increase(counter::PROMPT_LOCAL_COMPUTE) <= own.answered
        };
        let answered: f64 = span.iter().map(|interval| interval.increase(counter::REQUESTS_ANSWERED)).sum();
        (answered >= 1.0 && span.iter().zip(&self.0[begin..]).all(shows_nothing)).then_some(span)
    }

    /// Gives what an interval shows as computed to the failures that it proves to have ended as recompute, where nothing
    /// tells the tokens of any of them: to the first, for all of them together.
    pub(super) fn weigh(&self, intervals: &[Interval], decided: &mut [Decided]) {
        let mut of_interval: BTreeMap<usize, Vec<&mut Decided>> = BTreeMap::new();
        for one in decided.iter_mut().filter(|one| one.proven && one.fate == Fate::Recomputed) {
            let at = intervals.iter().position(|interval| interval.contains(one.trouble.last));
            let Some(at) = at.filter(|at| *at < self.0.len()) else { continue };
            let is_later = self.0[at].computed < 1.0 && at + 1 < self.0.len();
            of_interval.entry(at + usize::from(is_later)).or_default().push(one);
        }
        for (at, mut together) in of_interval {
            let is_told = together.iter().any(|one| one.tokens.is_some());
            if self.0[at].computed >= 1.0 && !is_told {
                together[0].tokens = Some(self.0[at].computed as i64);
            }
        }
    }
}
