//! What became of a request whose KV did not arrive.
//!
//! The outcome decides, not the policy: local compute and an answer is a recompute even under policy `fail`. Only
//! where no source shows the outcome does the policy say what is likely, and then nothing is confirmed.

use super::meanwhile::Meanwhile;
use super::short_load::Promise;
use super::unanswered::{self, Asked};
use super::{Trouble, counted, short_load};
use crate::view::request::stems;
use crate::view::{Interval, View};
use kvprov_model::clock::SECOND;
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Consequence, KvLoad, Observation, RequestLeg, Role, Tier};
use kvprov_model::{counter, fact};

/// A scheduler reports what it did with failed loads at most this long after the failure was printed.
const REPORT_DELAY: i64 = 300 * SECOND;

/// Within this time after a failure some source tells what became of the request. Until every node has delivered it,
/// nothing is concluded from silence.
const SETTLE: i64 = 30 * SECOND;

/// An engine that ends this soon after a failure took the request with it.
const DEATH_DELAY: i64 = 30 * SECOND;

/// What became of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The worker computed the prompt itself.
    Recomputed,
    /// The request failed, hung or was aborted.
    Failed,
    /// No source shows it and the policy is not known.
    Unknown,
}

/// A trouble with its fate.
#[derive(Debug, Clone)]
pub struct Decided {
    /// The request and its failure.
    pub trouble: Trouble,
    /// What became of it.
    pub fate: Fate,
    /// Whether a source shows the fate; otherwise the policy suggests it.
    pub proven: bool,
    /// Whether it may be stated yet: what rests on the absence of an outcome waits for the watermarks.
    pub settled: bool,
    /// Tokens of the prompt, where the input determines them.
    pub tokens: Option<i64>,
    /// Distinct requests, where no id tells them apart.
    pub requests: u64,
    /// What is not known.
    pub unknown: Option<String>,
}

/// Decides the fate of each trouble of a worker, and adds what the scheduler reports without any other trace.
pub fn decide(view: &View<'_>, worker: &WorkerId, troubles: Vec<Trouble>) -> Vec<Decided> {
    let policy = Policy::of(view, worker);
    let intervals = view.intervals(worker);
    let mut reports = Reports::of(&view.worker(worker));
    let mut decided: Vec<Decided> = Vec::new();
    let mut open: Vec<Trouble> = Vec::new();
    // What did not come and was found elsewhere: nobody was answered late or not at all.
    let mut elsewhere: Vec<Decided> = Vec::new();
    for mut trouble in troubles {
        let leg = trouble.stem.as_ref().and_then(|stem| decode_leg(view, stem));
        let tokens = leg.as_ref().and_then(|(_, leg)| leg.prompt_tokens);
        let failed = reports.failed(trouble.stem.as_ref());
        if let Some(report) = failed {
            trouble.conclude(&report.observation);
            let tokens = report.tokens_or(tokens);
            decided.push(Decided::proven(trouble, Fate::Failed, tokens));
            continue;
        }
        match leg.as_ref().and_then(|(_, leg)| leg.status) {
            // It waited long and then was answered: a slow pull, for nothing failed.
            Some(status) if trouble.waiting && (200..300).contains(&status) => {}
            Some(status) if (200..300).contains(&status) => {
                if let Some((observation, _)) = &leg {
                    trouble.answered(observation);
                }
                // The scheduler's own word on this request, if it gave one, is used up.
                if let Some(report) = reports.take_recomputed(&trouble) {
                    trouble.conclude(&report.observation);
                }
                decided.push(Decided::proven(trouble, Fate::Recomputed, tokens));
            }
            Some(status) if status >= 500 => {
                if let Some((observation, _)) = &leg {
                    trouble.answered(observation);
                }
                decided.push(Decided::proven(trouble, Fate::Failed, tokens));
            }
            _ => open.push(trouble),
        }
    }
    open.sort_by_key(|trouble| (trouble.first, trouble.stem.clone()));
    let mut meanwhile = Meanwhile::of(view, worker, &intervals);
    for mut trouble in open {
        if let Some(report) = reports.take_failed(&trouble) {
            let requests = report.requests();
            let tokens = report.tokens_or(None);
            trouble.conclude(&report.observation);
            decided.push(Decided { requests, ..Decided::proven(trouble, Fate::Failed, tokens) });
            continue;
        }
        if trouble.consequence == Some(Consequence::RequestFailed) && trouble.cause == Cause::Aborted {
            // A client that went away leaves the same words.
            decided.push(Decided::likely(trouble, Fate::Failed, "who aborted it, the client or a worker"));
            continue;
        }
        if trouble.consequence == Some(Consequence::RequestFailed) {
            let mut one = Decided::proven(trouble, Fate::Failed, None);
            one.tokens = one.trouble.tokens;
            decided.push(one);
            continue;
        }
        if trouble.waiting {
            decided.push(Decided::likely(trouble, Fate::Failed, "whether the request ended at all"));
            continue;
        }
        if let Some(report) = reports.take_recomputed(&trouble) {
            let tokens = report.tokens_or(None);
            trouble.conclude(&report.observation);
            decided.push(Decided::proven(trouble, Fate::Recomputed, tokens));
            continue;
        }
        // A pull that never began can only end one way.
        if (policy != Policy::Fail || trouble.cause == Cause::ParamsInvalid)
            && let Some(interval) = meanwhile.computed(&intervals, &trouble)
        {
            trouble.answered(&interval.observation);
            decided.push(Decided::proven(trouble, Fate::Recomputed, None));
            continue;
        }
        if let Some(span) = policy.ends_by_itself(&meanwhile, &intervals, &trouble) {
            let unknown = "what the client got; nothing was computed in its place";
            let list = if all_answered(span) { &mut elsewhere } else { &mut decided };
            list.push(Decided::likely(trouble, Fate::Failed, unknown));
            continue;
        }
        if policy != Policy::Fail && is_of_short_load(view, worker, &trouble) {
            continue;
        }
        decided.push(policy.suggest_on(view, worker, trouble));
    }
    meanwhile.weigh(&intervals, &mut decided);
    decided.extend(reports.rest(view, worker, &policy, &decided));
    decided.retain_mut(|one| one.was_promised(view, worker) && one.was_asked(view, worker));
    let told = decided.len();
    decided.append(&mut elsewhere);
    let untold = counted::untold(view, worker, &intervals, &decided);
    decided.truncate(told);
    for trouble in untold {
        if policy.ends_by_itself(&meanwhile, &intervals, &trouble).is_some_and(all_answered) {
            continue;
        }
        let requests = trouble.events;
        decided.push(Decided { requests, ..policy.suggest_on(view, worker, trouble) });
    }
    for one in decided.iter_mut().filter(|one| !one.proven && one.trouble.last.is_some()) {
        let until = one.trouble.last.map(|last| last.plus(SETTLE));
        let heard = view.heard(view.witnesses(worker, &one.trouble.workers), until);
        one.settled = heard.is_settled();
        if let Some(silence) = heard.unknown() {
            one.unknown = Some(match one.unknown.take() {
                Some(unknown) => format!("{unknown}; {silence}"),
                None => silence,
            });
        }
    }
    decided
}

/// Whether no request is counted that ended without an answer.
fn all_answered(span: &[Interval]) -> bool {
    let ended = [counter::REQUESTS_FAILED, counter::REQUESTS_ABORTED];
    span.iter().all(|interval| ended.iter().all(|name| interval.increase(name) == 0.0))
}

/// Whether a failure that names neither request nor peer is that of a load that is seen to fall short, which tells it.
fn is_of_short_load(view: &View<'_>, worker: &WorkerId, trouble: &Trouble) -> bool {
    let is_nameless = trouble.ids.is_empty() && trouble.remote_engine.is_none();
    let says_little = matches!(trouble.cause, Cause::TransferFailed | Cause::Unknown);
    is_nameless
        && says_little
        && trouble.consequence.is_none()
        && trouble.proofs.iter().any(|proof| short_load::tells(view, worker, proof))
}

/// What the worker does when KV does not arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Policy {
    Recompute,
    Fail,
    Abort,
    Unknown,
}

impl Policy {
    fn of(view: &View<'_>, worker: &WorkerId) -> Self {
        match view.roster().get(worker).and_then(|member| member.fact(fact::LOAD_FAILURE_POLICY)) {
            Some("recompute") => Self::Recompute,
            Some("fail") => Self::Fail,
            Some("abort") => Self::Abort,
            _ => Self::Unknown,
        }
    }

    /// The intervals that show that no prompt was computed in the place of KV that did not come.
    fn ends_by_itself<'i>(
        self,
        meanwhile: &Meanwhile,
        intervals: &'i [Interval],
        trouble: &Trouble,
    ) -> Option<&'i [Interval]> {
        let is_open = self != Self::Fail && trouble.consequence.is_none();
        is_open.then(|| meanwhile.nothing_computed(intervals, trouble)).flatten()
    }

    /// What is likely of a request that no source concludes: an engine that ended over it answered nobody.
    fn suggest_on(self, view: &View<'_>, worker: &WorkerId, trouble: Trouble) -> Decided {
        let gone = view.roster().get(worker).and_then(|member| member.gone);
        match (trouble.last, gone) {
            (Some(last), Some(gone))
                if trouble.consequence.is_none() && (-SECOND..=DEATH_DELAY).contains(&gone.since(last)) =>
            {
                Decided::likely(
                    trouble,
                    Fate::Failed,
                    "whether the client was answered before the engine ended",
                )
            }
            _ => self.suggest(trouble),
        }
    }

    fn suggest(self, trouble: Trouble) -> Decided {
        // A line that says what becomes of the request binds this request, whatever the setting.
        match trouble.consequence {
            Some(Consequence::Recomputed) => {
                return Decided::likely(trouble, Fate::Recomputed, "whether the client got an answer");
            }
            Some(Consequence::RequestFailed) => return Decided::proven(trouble, Fate::Failed, None),
            _ => {}
        }
        match self {
            // These can only end one way in every release: the engine never starts a transfer.
            _ if trouble.cause == Cause::ParamsInvalid || trouble.cause == Cause::StoreUnreachable => {
                Decided::likely(trouble, Fate::Recomputed, "whether the client got an answer")
            }
            Self::Recompute => Decided::likely(trouble, Fate::Recomputed, "whether the client got an answer"),
            Self::Fail => Decided::likely(trouble, Fate::Failed, "what the client got"),
            Self::Abort => Decided::likely(trouble, Fate::Failed, "what the client got"),
            // A cache in front of the engine is left out by most releases when it falls short; the policy is younger.
            Self::Unknown if trouble.from_store && trouble.cause == Cause::LoadMiss => Decided::likely(
                trouble,
                Fate::Recomputed,
                "the policy for failed loads (kv_load_failure_policy) and what the client got; the request may have failed",
            ),
            Self::Unknown => Decided::likely(
                trouble,
                Fate::Unknown,
                "the policy for failed loads (kv_load_failure_policy) and what the client got; the prompt may have been recomputed",
            ),
        }
    }
}

impl Decided {
    /// Whether a store that did not answer kept anybody waiting; where that is one request, it is named.
    fn was_asked(&mut self, view: &View<'_>, worker: &WorkerId) -> bool {
        let trouble = &mut self.trouble;
        let is_nameless = trouble.stem.is_none() && trouble.ids.is_empty();
        if self.proven || !is_nameless || trouble.cause != Cause::StoreUnreachable {
            return true;
        }
        match unanswered::asked(view, worker, trouble) {
            Asked::Nobody => false,
            Asked::One(lookup, id) => {
                trouble.stem = Some(RequestStem::of(&id));
                trouble.ids.insert(id);
                trouble.answered(&lookup);
                true
            }
            Asked::Untold => true,
        }
    }

    /// Whether a read of a store that names no request may have been promised to somebody; the only one that waited for it is
    /// taken.
    fn was_promised(&mut self, view: &View<'_>, worker: &WorkerId) -> bool {
        let trouble = &mut self.trouble;
        let is_nameless = trouble.stem.is_none() && trouble.ids.is_empty();
        if self.proven || !is_nameless || !trouble.from_store || trouble.cause != Cause::LoadMiss {
            return true;
        }
        let mut promises =
            trouble.proofs.iter().map(|failure| short_load::promise_before(view, worker, failure));
        match promises.next() {
            Some(Promise::Nothing) => promises.any(|promise| !matches!(promise, Promise::Nothing)),
            Some(Promise::One(lookup, id)) => {
                drop(promises);
                trouble.stem = Some(RequestStem::of(&id));
                trouble.ids.insert(id);
                trouble.answered(&lookup);
                true
            }
            Some(Promise::Untold) | None => true,
        }
    }

    fn proven(trouble: Trouble, fate: Fate, tokens: Option<i64>) -> Self {
        Self { trouble, fate, proven: true, settled: true, tokens, requests: 1, unknown: None }
    }

    fn likely(trouble: Trouble, fate: Fate, unknown: &str) -> Self {
        let tokens = trouble.tokens;
        let unknown = Some(unknown.to_owned());
        Self { trouble, fate, proven: false, settled: true, tokens, requests: 1, unknown }
    }
}

/// The leg of a request on the side that decodes, as a router told it.
fn decode_leg(view: &View<'_>, stem: &RequestStem) -> Option<(Observation, RequestLeg)> {
    view.request(stem).iter().rev().find_map(|observation| match &observation.body {
        Body::RequestLeg(leg) if matches!(leg.leg, Some(Role::Decode | Role::Both)) => {
            Some((observation.clone(), leg.clone()))
        }
        _ => None,
    })
}

/// One statement of a scheduler or a cache on loads that failed.
struct Report {
    observation: Observation,
    load: KvLoad,
    /// The requests that it names.
    stems: Vec<RequestStem>,
    used: bool,
    /// Its tokens, which are those of all its requests together, are counted.
    counted: bool,
}

impl Report {
    /// Tokens of the next of its requests: the first stands for all; `own` where it states none.
    fn tokens_or(&mut self, own: Option<i64>) -> Option<i64> {
        let Some(tokens) = self.load.tokens else { return own };
        (!std::mem::replace(&mut self.counted, true)).then_some(tokens)
    }

    /// Whether a scheduler that counts requests without naming them, and says what became of them, said it after this
    /// miss: the request that the miss names is one of those that it counts.
    fn is_counted_by(&self, one: &Decided) -> bool {
        let is_told_after = match (self.observation.envelope.wall, one.trouble.last) {
            (Some(missed), Some(told)) => told >= missed.plus(-SECOND) && told.since(missed) <= REPORT_DELAY,
            _ => true,
        };
        is_told_after
            && one.proven
            && one.trouble.stem.is_none()
            && one.trouble.ids.is_empty()
            && one.requests > 0
    }

    /// Requests that it speaks of.
    fn requests(&self) -> u64 {
        let named = self.load.request_ids.len().max(1) as i64;
        self.load.requests.unwrap_or(named).max(1) as u64
    }

    /// Whether it was said soon after a failure.
    fn is_behind(&self, trouble: &Trouble) -> bool {
        match (trouble.first, self.observation.envelope.wall) {
            (Some(first), Some(told)) => {
                told >= first.plus(-SECOND) && told.since(trouble.last.unwrap_or(first)) <= REPORT_DELAY
            }
            _ => true,
        }
    }

    /// How far the statement on what became of a request is from this miss, which names none: it follows the miss.
    fn distance(&self, trouble: &Trouble) -> (bool, i64) {
        match (self.observation.envelope.wall, trouble.last) {
            (Some(missed), Some(told)) => (told < missed.plus(-SECOND), told.since(missed).saturating_abs()),
            _ => (false, 0),
        }
    }

    /// Whether a trouble is of one of the requests that it names.
    fn names_one_of(&self, trouble: &Trouble) -> bool {
        trouble.ids.iter().any(|id| self.stems.contains(&RequestStem::of(id)))
    }
}

struct Reports(Vec<Report>);

impl Reports {
    fn of(observations: &[Observation]) -> Self {
        let reports = observations.iter().filter_map(|observation| match &observation.body {
            Body::KvLoad(load) => {
                let stems = stems(observation);
                Some(Report {
                    observation: observation.clone(),
                    load: load.clone(),
                    stems,
                    used: false,
                    counted: false,
                })
            }
            _ => None,
        });
        Self(reports.collect())
    }

    /// The statement that this request failed.
    fn failed(&mut self, stem: Option<&RequestStem>) -> Option<&mut Report> {
        let stem = stem?;
        let report = self.0.iter_mut().find(|report| {
            report.load.consequence == Some(Consequence::RequestFailed) && report.stems.contains(stem)
        })?;
        report.used = true;
        Some(report)
    }

    /// The statement on requests that failed, whichever they are, behind a failure that names none: why they did.
    fn take_failed(&mut self, trouble: &Trouble) -> Option<&mut Report> {
        let is_nameless = trouble.stem.is_none() && trouble.ids.is_empty();
        let report = self.0.iter_mut().filter(|_| is_nameless && !trouble.waiting).find(|report| {
            let says_how_many = report.load.requests.is_some() || !report.load.request_ids.is_empty();
            !report.used
                && says_how_many
                && report.load.cause.is_none()
                && report.load.consequence == Some(Consequence::RequestFailed)
                && report.is_behind(trouble)
        })?;
        report.used = true;
        Some(report)
    }

    /// The statement that a number of requests were computed again, nearest after the failure.
    fn take_recomputed(&mut self, trouble: &Trouble) -> Option<&mut Report> {
        let report = self.0.iter_mut().find(|report| {
            let names_it = report.stems.is_empty()
                || trouble.stem.as_ref().is_some_and(|stem| report.stems.contains(stem));
            !report.used
                && report.is_behind(trouble)
                && names_it
                && report.load.consequence == Some(Consequence::Recomputed)
                && report.load.requests.is_some()
        })?;
        // One statement may cover several requests; it is used up when all of them were found.
        let left = report.load.requests.unwrap_or(1) - 1;
        report.used = left <= 0;
        report.load.requests = Some(left.max(1));
        Some(report)
    }

    /// What remains: statements without any other trace. Several of one moment are one event.
    fn rest(self, view: &View<'_>, worker: &WorkerId, policy: &Policy, decided: &[Decided]) -> Vec<Decided> {
        let routes = view.roster().get(worker).and_then(|member| member.role.clone()) == Some(Role::Router);
        let mut rest: Vec<Decided> = Vec::new();
        let (mut full, bare): (Vec<Report>, Vec<Report>) = self
            .0
            .into_iter()
            .filter(|report| !report.used)
            .partition(|report| report.load.requests.is_some() || !report.load.request_ids.is_empty());
        // What became of a request is said after the miss, and decides it.
        full.sort_by_key(|report| report.load.consequence.is_none());
        for report in full.into_iter().chain(bare) {
            if report.load.consequence.is_none()
                && let Some(held) = rest.iter_mut().find(|one| report.names_one_of(&one.trouble))
            {
                held.trouble.blame(report.load.cause.as_ref().unwrap_or(&Cause::Unknown));
                held.trouble.add(&report.observation);
                continue;
            }
            if report.load.consequence.is_none()
                && report.stems.len() == 1
                && let Some(place) = rest.iter().position(|one| report.is_counted_by(one))
            {
                let held = &mut rest[place];
                held.trouble.blame(report.load.cause.as_ref().unwrap_or(&Cause::Unknown));
                let mut own = Decided { requests: 1, tokens: held.tokens.take(), ..held.clone() };
                own.trouble.stem = report.stems.first().cloned();
                own.trouble.add(&report.observation);
                held.requests -= 1;
                if held.requests == 0 {
                    rest.remove(place);
                }
                rest.push(own);
                continue;
            }
            let load = &report.load;
            let is_bare = load.requests.is_none() && load.request_ids.is_empty();
            let cause = load.cause.clone().unwrap_or(match load.tier {
                Some(Tier::Storage | Tier::Offload) => Cause::LoadMiss,
                _ => Cause::Unknown,
            });
            // A statement without requests, next to one that has them, speaks of the same loads.
            let near = |one: &Decided| {
                let times = (one.trouble.last, report.observation.envelope.wall);
                matches!(times, (Some(a), Some(b)) if a.since(b).abs() <= REPORT_DELAY)
                    || times.0.is_none()
                    || times.1.is_none()
            };
            let told_elsewhere = is_bare
                && decided.iter().any(|one| {
                    near(one)
                        && (one.trouble.cause == cause
                            || cause == Cause::Unknown
                            || cause == Cause::TransferFailed
                            || one.proven)
                });
            // A bare complaint beside a load that is seen to fall short is told with that load.
            let told_by_load = is_bare
                && matches!(cause, Cause::LoadMiss | Cause::TransferFailed | Cause::Unknown)
                && *policy != Policy::Fail
                && short_load::tells(view, worker, &report.observation);
            if told_elsewhere || told_by_load {
                continue;
            }
            if is_bare
                && let Some(held) =
                    rest.iter_mut().filter(|one| near(one)).min_by_key(|one| report.distance(&one.trouble))
            {
                held.trouble.blame(&cause);
                held.trouble.add(&report.observation);
                continue;
            }
            // An engine that fails a request for this says so; the load itself tells what it fell short of.
            let told_by_name = *policy == Policy::Fail
                && load.consequence.is_none()
                && cause == Cause::LoadMiss
                && short_load::tells_by_name(view, worker, &report.observation);
            if told_by_name {
                continue;
            }
            let mut trouble = Trouble::new(
                load.request_ids
                    .first()
                    .filter(|_| load.request_ids.len() == 1)
                    .map(|id| RequestStem::of(id)),
            );
            let cause_of_load = cause.clone();
            trouble.cause = cause;
            trouble.tokens = load.tokens.filter(|_| !report.counted);
            trouble.consequence = load.consequence.clone();
            trouble.from_store = load.tier == Some(Tier::Storage);
            trouble.add(&report.observation);
            let requests = report.requests();
            let beside = || match (&cause_of_load, load.tier.as_ref(), load.request_ids.len()) {
                // A load that is seen to fall short tells its tokens itself.
                (Cause::LoadMiss, Some(Tier::Storage), 1)
                    if !short_load::tells(view, worker, &report.observation) =>
                {
                    short_load::missing_beside(view, worker, &report.observation)
                }
                _ => None,
            };
            let tokens = load.tokens.filter(|_| !report.counted).or_else(beside);
            let of_peer = load.tier == Some(Tier::Peer) && load.consequence.is_none();
            let found_nothing =
                short_load::found_nothing(view, worker, &report.observation).filter(|_| of_peer);
            if let Some(lookup) = &found_nothing {
                trouble.answered(lookup);
            }
            let mut one = match (&load.consequence, is_bare || routes) {
                (Some(Consequence::Recomputed), false) => Decided::proven(trouble, Fate::Recomputed, tokens),
                (Some(Consequence::RequestFailed), false) => Decided::proven(trouble, Fate::Failed, tokens),
                // What a lookup did not find is computed, whatever becomes of loads that fail.
                _ if found_nothing.is_some() => {
                    Decided::likely(trouble, Fate::Recomputed, "whether the client got an answer")
                }
                // An engine that aborts where a peer fails computes what a store does not give.
                _ if *policy == Policy::Abort && matches!(load.tier, Some(Tier::Storage | Tier::Offload)) => {
                    Decided::likely(trouble, Fate::Recomputed, "whether the client got an answer")
                }
                _ => policy.suggest_on(view, worker, trouble),
            };
            one.requests = requests;
            one.tokens = tokens;
            rest.push(one);
        }
        rest
    }
}
