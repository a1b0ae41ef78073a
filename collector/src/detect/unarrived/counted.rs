//! Transfers and reads of a store that failed and of which nothing but a counter tells.

use super::{Decided, Trouble, short_load};
use crate::view::{Interval, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::counter;
use kvprov_model::finding::Cause;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Role, SourceKind};

/// A failure that is told this close to an interval is one of those that were counted in it.
const NEIGHBOURHOOD: i64 = 120 * SECOND;
/// An engine prints what it counted in about so long.
const PRINTED_EVERY: i64 = 15 * SECOND;

/// The failures that a worker counted and nothing tells, as one trouble a kind.
pub(super) fn untold(
    view: &View<'_>,
    worker: &WorkerId,
    intervals: &[Interval],
    decided: &[Decided],
) -> Vec<Trouble> {
    let role = view.roster().get(worker).and_then(|member| member.role.as_ref());
    let decodes = |role: &Role| matches!(role, Role::Decode | Role::Both);
    // Both sides of a transfer may count it: where a worker that decodes is seen, that one tells.
    let told_there = role == Some(&Role::Prefill)
        && view.roster().members().any(|other| other.role.as_ref().is_some_and(decodes));
    let mut untold = Vec::new();
    if !told_there {
        let cause = Cause::TransferFailed;
        untold.extend(untold_of(counter::TRANSFERS_FAILED, &cause, role, intervals, decided));
    }
    let dark = without_short_loads(view, worker, intervals);
    if let Some(trouble) = untold_of(counter::STORE_FAILED_READS, &Cause::LoadMiss, role, &dark, decided) {
        untold.push(Trouble { from_store: true, ..trouble });
    }
    untold
}

/// The intervals in which no load is seen to fall short: what was counted beside one is told by it.
fn without_short_loads(view: &View<'_>, worker: &WorkerId, intervals: &[Interval]) -> Vec<Interval> {
    if !intervals.iter().any(|interval| interval.increase(counter::STORE_FAILED_READS) > 0.0) {
        return Vec::new();
    }
    let observations = view.worker(worker);
    let loads: Vec<Option<WallTime>> =
        short_load::collect(&observations).iter().map(|short| short.load.envelope.wall).collect();
    let tells = |interval: &Interval| loads.iter().any(|at| at.is_none() || interval.contains(*at));
    intervals.iter().filter(|interval| !tells(interval)).cloned().collect()
}

/// The failures that one counter tells.
fn untold_of(
    name: &str,
    cause: &Cause,
    role: Option<&Role>,
    intervals: &[Interval],
    decided: &[Decided],
) -> Option<Trouble> {
    // A page of counters and a line of the log show the same ones.
    let of = |log: bool| {
        let mut trouble = Trouble::new(None);
        trouble.cause = cause.clone();
        for interval in intervals {
            let failed = interval.increase(name);
            let is_log = interval.observation.envelope.source == SourceKind::Log;
            let is_increase = is_log || interval.since.is_some();
            // Prompt tokens that a decode worker computed itself meanwhile are told as such.
            if role == Some(&Role::Decode) && interval.increase(counter::PROMPT_LOCAL_COMPUTE) > 0.0 {
                continue;
            }
            if failed < 1.0
                || is_log != log
                || !is_increase
                || decided.iter().any(|one| is_told_by(interval, one))
            {
                continue;
            }
            trouble.events += failed as u64;
            trouble.add(&interval.observation);
        }
        trouble
    };
    [of(false), of(true)]
        .into_iter()
        .filter(|trouble| trouble.events > 0)
        .max_by_key(|trouble| trouble.events)
}

/// Whether a failure may be one of those that were counted in an interval.
fn is_told_by(interval: &Interval, one: &Decided) -> bool {
    let begin = interval.since.or(interval.until.map(|until| until.plus(-PRINTED_EVERY)));
    let (Some(begin), Some(end), Some(first), Some(last)) =
        (begin, interval.until, one.trouble.first, one.trouble.last)
    else {
        return true;
    };
    let near = |at: WallTime| at.plus(NEIGHBOURHOOD) >= begin && at <= end.plus(NEIGHBOURHOOD);
    near(first) || near(last) || (first <= begin && last >= end)
}
