//! An engine used KV of its own caches that it had computed before its weights or an adapter changed.
//!
//! A change opens a window in every tier that held KV; a reset of that tier closes it. Hits inside the window are
//! suspected: whether one block is old cannot be seen from outside. A reset that really emptied the tier, a prefix
//! cache that is off, and adapters that get a new key at each load stay quiet.

use super::finish;
use super::renewed::renewed;
use crate::detect::draft::Draft;
use crate::view::{Interval, Member, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::Comparison;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::{ObservationId, WorkerId};
use kvprov_model::observation::{AdminCall, AdminClass, Body, Observation, Outcome, Role, SourceKind, Tier};
use kvprov_model::{counter, fact};
use std::collections::{BTreeMap, BTreeSet};

/// A reset belongs to the update that follows it within this time, or that it follows within the other.
const RESET_BEFORE_UPDATE: i64 = 60 * SECOND;
const RESET_AFTER_UPDATE: i64 = 600 * SECOND;

/// The ranks of an engine tell the outcome of one reset within this time.
const ONE_RESET: i64 = 10 * SECOND;

/// An engine that starts says who it is within this time, on a clock that may print whole seconds.
const START: i64 = 600 * SECOND;
const START_SLACK: i64 = 2 * SECOND;
/// Loading an adapter takes no longer than this.
const LOADING: i64 = 10 * SECOND;

/// Something that made KV of a worker stale.
struct Change {
    cause: Cause,
    at: Option<WallTime>,
    /// Set when the time is only known as an interval: the change lies before its end.
    since: Option<WallTime>,
    proof: Observation,
    /// The worker's process ended too, so that only what outlives it is concerned.
    restarted: bool,
    what: String,
}

/// The complete set of findings on a worker.
pub(super) fn detect(view: &View<'_>, worker: &WorkerId) -> Vec<Finding> {
    let Some(member) = view.roster().get(worker) else { return Vec::new() };
    let changes = changes(view, member);
    let mut drafts: BTreeMap<Cause, (Draft, String, BTreeSet<&'static str>)> = BTreeMap::new();
    // Hits after two changes are hits after either: they are counted once.
    let mut counted: BTreeSet<(Cause, &'static str, ObservationId)> = BTreeSet::new();
    for change in &changes {
        for (tier, found) in hits_after(view, member, change) {
            let mut hits = 0.0;
            let mut proofs = Vec::new();
            for (tokens, proof) in found {
                if counted.insert((change.cause.clone(), tier, proof.envelope.id)) {
                    hits += tokens;
                    proofs.push(proof);
                }
            }
            if proofs.is_empty() {
                continue;
            }
            let entry = drafts.entry(change.cause.clone()).or_insert_with(|| {
                let mut draft = Draft::new(
                    Detector::CrossRevisionHit,
                    change.cause.clone(),
                    Confidence::Suspected,
                    worker.as_str(),
                );
                draft.worker(worker.as_str());
                draft.unknown("whether a block that was hit is older than the change");
                (draft, change.what.clone(), BTreeSet::new())
            });
            entry.0.proof(&change.proof).proofs(&proofs).tokens(hits).events(1);
            entry.2.insert(tier);
        }
    }
    if let Some((cause, draft, what)) = by_other_adapter(view, member) {
        drafts.entry(cause).or_insert_with(|| (draft, what, BTreeSet::from(["store"])));
    }
    drafts
        .into_iter()
        .map(|(cause, (draft, what, tiers))| {
            let tiers = tiers.into_iter().collect::<Vec<_>>().join(" and ");
            let summary = match draft.token_count() {
                0 => {
                    format!("{worker} kept the KV of its {tiers} cache after {what}: the reset was refused.")
                }
                tokens => {
                    format!(
                        "{worker} reused about {tokens} tokens of KV from its {tiers} cache after {what}."
                    )
                }
            };
            finish(draft, &cause, summary)
        })
        .collect()
}

fn changes(view: &View<'_>, member: &Member) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut loaded: BTreeMap<String, Option<String>> = BTreeMap::new();
    let observations = view.worker(&member.id);
    for observation in observations.iter() {
        match &observation.body {
            Body::AdminCall(call) if call.outcome != Some(Outcome::Failed) => {
                let change = match call.class {
                    Some(AdminClass::WeightsUpdate) => {
                        Some((Cause::Weights, "its weights were updated".to_owned()))
                    }
                    Some(AdminClass::LoraLoad) => {
                        let at = latest(&observations, observation);
                        reload(member, call, &mut loaded).filter(|_| !is_same_content(member, call, at))
                    }
                    _ => None,
                };
                if let Some((cause, what)) = change {
                    changes.push(Change {
                        cause,
                        at: latest(&observations, observation),
                        since: None,
                        proof: observation.clone(),
                        restarted: false,
                        what,
                    });
                }
            }
            Body::Counters(counters) => {
                let updates = counters.values.get(counter::WEIGHT_UPDATES).copied().unwrap_or(0.0);
                if updates > 0.0 {
                    changes.push(Change {
                        cause: Cause::Weights,
                        at: observation.envelope.wall,
                        since: counters.since_wall_ns.map(WallTime),
                        proof: observation.clone(),
                        restarted: false,
                        what: format!("{updates:.0} updates of its weights"),
                    });
                }
            }
            _ => {}
        }
    }
    // An epoch that began without a call: the worker restarted with, or was seen to open, other content.
    let told: Vec<Option<WallTime>> = changes.iter().map(|change| change.at).collect();
    for (at, factor) in member.changes() {
        let near = told.iter().flatten().any(|call| call.since(at).abs() <= 120 * SECOND);
        let proof = observations.iter().find(|o| {
            o.envelope.wall == Some(at)
                && matches!(&o.body, Body::Factor(body) if body.factor.as_deref() == Some(factor.as_str()))
        });
        let Some(proof) = proof else { continue };
        // An adapter that is declared by name may have come from another path, under a key of its own.
        let by_name = matches!(&proof.body, Body::Factor(body)
            if factor == "adapter" && !body.adapter.as_deref().is_some_and(|adapter| adapter.contains('/')));
        let restarted = by_name || restarted(&observations, proof, at);
        if near && (factor != "weights" || !restarted) {
            continue;
        }
        changes.push(Change {
            cause: super::cause_of(&factor),
            at: Some(at),
            since: None,
            proof: proof.clone(),
            restarted,
            what: format!("its {factor} changed"),
        });
    }
    changes
}

/// Whether the files of an adapter are known to have had the same content before and after a call that loaded it.
fn is_same_content(member: &Member, call: &AdminCall, at: Option<WallTime>) -> bool {
    let (Some(name), Some(at)) = (call.names.first(), at) else { return false };
    let known = |time: WallTime| member.adapter_stated_at(name, time);
    // The files are opened before the call is told. What was overwritten before it was read is not known to be the same.
    match (known(at.plus(-LOADING)), known(at_latest(at))) {
        (Some(before), Some(after)) => {
            before.is_content_digest() && before.compare(after) == Comparison::Equal
        }
        _ => false,
    }
}

/// Whether a worker's processes began anew when a factor of it changed. A live worker is one run of one process, whose
/// files the kernel saw opened; of what is declared, the log tells: an engine that starts says so.
fn restarted(observations: &[Observation], proof: &Observation, changed: WallTime) -> bool {
    let logs = || observations.iter().filter(|o| o.envelope.source == SourceKind::Log);
    if proof.envelope.source == SourceKind::Kernel {
        return false;
    }
    let starts = |o: &&Observation| {
        let near = |at: WallTime| (-START_SLACK..=START).contains(&at.since(changed));
        matches!(o.body, Body::Worker(_)) && o.envelope.wall.is_some_and(near)
    };
    logs().next().is_none() || logs().any(|o| starts(&o))
}

/// When something happened at the latest: its own time or, for a line without a clock, that of the next line of its
/// stream that has one.
fn latest(observations: &[Observation], observation: &Observation) -> Option<WallTime> {
    let here = &observation.envelope;
    here.wall.or_else(|| {
        observations
            .iter()
            .filter(|o| o.envelope.stream == here.stream && o.envelope.position > here.position)
            .filter_map(|o| Some((o.envelope.position, o.envelope.wall?)))
            .min()
            .map(|(_, wall)| wall)
    })
}

/// Whether a load of an adapter puts other content under a key that holds the old one's KV.
fn reload(
    member: &Member,
    call: &AdminCall,
    loaded: &mut BTreeMap<String, Option<String>>,
) -> Option<(Cause, String)> {
    let name = call.names.first()?;
    let path = call.paths.first().cloned();
    let before = loaded.insert(name.clone(), path.clone());
    let what = format!("adapter {name} was loaded again");
    if call.keeps_old_blocks == Some(true) {
        return Some((Cause::Adapter, what));
    }
    let before = before?;
    let same_key = match member.fact(fact::ADAPTER_KEY) {
        Some("name") => true,
        Some("name_and_path") => before == path,
        _ => false,
    };
    same_key.then_some((Cause::Adapter, what))
}

/// Tokens that were hit, and what shows it.
type Hits = Vec<(f64, Observation)>;

/// Hits in the tiers that a change left as they were.
fn hits_after(view: &View<'_>, member: &Member, change: &Change) -> Vec<(&'static str, Hits)> {
    let mut found = Vec::new();
    let intervals = view.intervals(&member.id);
    let began = change.since.or(change.at);
    let device_off = member.fact(fact::PREFIX_CACHING) == Some("false");
    if !change.restarted && !device_off {
        let names = [counter::PREFIX_HITS, counter::CACHED_DEVICE];
        let mut hits = counted(view, member, &intervals, change, began, &names, &[Tier::Device]);
        if hits.is_empty() {
            hits.extend(logged(view, member, change));
        }
        if hits.is_empty() {
            hits.extend(refused_reset(view, member, change).map(|refusal| (0.0, refusal)));
        }
        found.push(("prefix", hits));
    }
    let offloads = member.fact(fact::OFFLOAD_TIER).is_some_and(|tier| tier != "none");
    if offloads && !change.restarted {
        let names = [counter::PROMPT_EXTERNAL, counter::EXTERNAL_PROMISED];
        let hits = counted(view, member, &intervals, change, began, &names, &[Tier::Offload]);
        found.push(("offload", hits));
    }
    found.push(("store", loaded_from_store(view, member, change).unwrap_or_default()));
    found.retain(|(_, hits)| !hits.is_empty());
    found
}

/// A reset of the prefix cache that was refused around an update of the weights and never made up for: what was running
/// goes on over its old KV, and what was cached is found again.
fn refused_reset(view: &View<'_>, member: &Member, change: &Change) -> Option<Observation> {
    let changed = change.at.filter(|_| change.cause == Cause::Weights)?;
    let observations = view.worker(&member.id);
    let refused = observations.iter().find(|observation| {
        let near = observation
            .envelope
            .wall
            .is_some_and(|at| (-RESET_BEFORE_UPDATE..=RESET_AFTER_UPDATE).contains(&at.since(changed)));
        near && reset_of(observation, &[Tier::Device])
            .is_some_and(|call| call.outcome == Some(Outcome::Failed))
    })?;
    let since = refused.envelope.wall.min(Some(changed));
    emptied(view, &member.id, since, &[Tier::Device]).is_none().then(|| refused.clone())
}

/// Hits that counters show after a change and before the tier was emptied, where the tier held something before.
fn counted(
    view: &View<'_>,
    member: &Member,
    intervals: &[Interval],
    change: &Change,
    began: Option<WallTime>,
    names: &[&str],
    tiers: &[Tier],
) -> Hits {
    let told = emptied(view, &member.id, began, tiers);
    let seen = || renewed(&view.worker(&member.id), change.at);
    let seen = tiers.contains(&Tier::Device).then(seen).flatten();
    let closed = told.into_iter().chain(seen).min();
    let answered = answered_after(view, member, change, closed);
    // Of the answers of an interval, those that the log does not tell behind the change were given before it.
    let answered_before = |interval: &Interval| {
        let after = answered.iter().filter(|o| o.envelope.wall <= interval.until).count() as f64;
        after > 0.0 && interval.increase(counter::REQUESTS_ANSWERED) > after
    };
    let held_something = intervals.iter().any(|interval| {
        interval.until < change.at.map(at_latest)
            && (interval.total(counter::PROMPT_TOTAL).unwrap_or(0.0) > 0.0
                || interval.increase(counter::PROMPT_TOTAL) > 0.0
                || interval.total(counter::PREFIX_QUERIES).unwrap_or(0.0) > 0.0)
    }) || change.since.is_some()
        || intervals.iter().any(|interval| touches(interval, began) && answered_before(interval));
    if !held_something {
        return Hits::new();
    }
    let mut hits = Hits::new();
    for interval in intervals {
        let count = names.iter().map(|name| interval.increase(name)).fold(0.0, f64::max);
        if interval.until < change.at || count <= 0.0 {
            continue;
        }
        let served = answered.iter().find(|o| touches(interval, began) && o.envelope.wall <= interval.until);
        if !mostly_within(interval, began, closed) && served.is_none() {
            continue;
        }
        hits.push((count, interval.observation.clone()));
        hits.extend(served.map(|answer| (0.0, answer.clone())));
    }
    hits
}

/// The first prompts that an engine's log tells after an update of its weights, where they hit its own cache: nothing was
/// computed in between that could have put there what was hit. Whoever logs prompts logs a reset too, so a reset that is
/// not told did not happen; one that is told a little earlier belongs to the update.
fn logged(view: &View<'_>, member: &Member, change: &Change) -> Option<(f64, Observation)> {
    let changed = change.at.filter(|_| change.cause == Cause::Weights && change.since.is_none())?;
    let observations = view.worker(&member.id);
    let prompts = || {
        observations.iter().filter_map(|observation| match &observation.body {
            Body::CacheUse(used)
                if used.tier == Some(Tier::Device)
                    && used.computed.is_some()
                    && observation.envelope.source == SourceKind::Log =>
            {
                Some((observation, used))
            }
            _ => None,
        })
    };
    let held_something = prompts()
        .any(|(observation, used)| observation.envelope.wall < Some(changed) && used.computed > Some(0));
    // A clock of whole seconds leaves open what of one second came first: only a later second is behind the change.
    let (first, used) = prompts()
        .filter(|(observation, _)| observation.envelope.wall > Some(changed))
        .min_by_key(|(observation, _)| (observation.envelope.wall, observation.envelope.position))?;
    let hit = used.hit.filter(|hit| *hit > 0)?;
    let reset = emptied(view, &member.id, Some(changed.plus(-RESET_BEFORE_UPDATE)), &[Tier::Device]);
    let is_emptied = reset.is_some_and(|at| Some(at) <= first.envelope.wall);
    (held_something && !is_emptied).then(|| (hit as f64, first.clone()))
}

/// Answers that an engine's log tells behind the line of a change, before its cache was emptied.
fn answered_after(
    view: &View<'_>,
    member: &Member,
    change: &Change,
    closed: Option<WallTime>,
) -> Vec<Observation> {
    let line = &change.proof.envelope;
    view.worker(&member.id)
        .iter()
        .filter(|observation| {
            let at = &observation.envelope;
            is_bare_answer(&observation.body)
                && at.stream == line.stream
                && at.position > line.position
                && closed.is_none_or(|closed| at.wall <= Some(closed))
        })
        .cloned()
        .collect()
}

/// An answer of which nothing is known but that it was given.
fn is_bare_answer(body: &Body) -> bool {
    matches!(body, Body::RequestLeg(leg) if leg.request_id.is_none() && leg.leg.is_none() && leg.status == Some(200))
}

/// Whether an interval began before a change and ended after it.
fn touches(interval: &Interval, began: Option<WallTime>) -> bool {
    let (Some(since), Some(until), Some(began)) = (interval.since, interval.until, began) else {
        return false;
    };
    (since..=until).contains(&began)
}

/// The latest moment that a stamp may mean: a clock that prints whole seconds leaves the rest of the second open.
fn at_latest(time: WallTime) -> WallTime {
    if time.0 % SECOND == 0 { time.plus(SECOND) } else { time }
}

/// Whether at least half of an interval lies between the change and the reset. What was hit in an interval that the
/// window only touches was most likely hit outside of it.
fn mostly_within(interval: &Interval, began: Option<WallTime>, closed: Option<WallTime>) -> bool {
    let (Some(until), Some(began)) = (interval.until, began) else { return false };
    let Some(since) = interval.since else { return closed.is_none() && until > began };
    let end = closed.map_or(until, |closed| at_latest(closed).min(until));
    let inside = end.since(began.max(since));
    inside > 0 && inside >= until.since(since) / 2
}

/// When a tier was emptied for the first time after a change.
fn emptied(view: &View<'_>, worker: &WorkerId, after: Option<WallTime>, tiers: &[Tier]) -> Option<WallTime> {
    let observations = view.worker(worker);
    let reset = |observation: &'_ Observation, outcome: &Outcome| {
        reset_of(observation, tiers).is_some_and(|call| call.outcome.as_ref() == Some(outcome))
    };
    let cleared = |observation: &Observation| {
        matches!(&observation.body, Body::Block(block)
            if block.action == Some(kvprov_model::observation::BlockAction::Cleared)
                && tiers.contains(&Tier::Device))
    };
    let refused_by_another = |done: &Observation, at: WallTime| {
        let Some(process) = process_of(done) else { return false };
        observations.iter().filter(|other| reset(other, &Outcome::Failed)).any(|other| {
            let other_process = process_of(other).filter(|other| *other != process);
            let near = other.envelope.wall.is_some_and(|wall| wall.since(at).abs() <= ONE_RESET);
            let made_up = |refused: &str| {
                observations.iter().any(|later| {
                    reset(later, &Outcome::Succeeded)
                        && process_of(later) == Some(refused)
                        && later.envelope.wall >= other.envelope.wall
                })
            };
            near && other_process.is_some_and(|refused| !made_up(refused))
        })
    };
    observations
        .iter()
        .filter(|observation| reset(observation, &Outcome::Succeeded) || cleared(observation))
        .filter_map(|observation| Some((observation, observation.envelope.wall?)))
        .find(|(observation, at)| Some(*at) >= after && !refused_by_another(observation, *at))
        .map(|(_, at)| at)
}

/// The reset of a tier that an observation tells.
fn reset_of<'o>(observation: &'o Observation, tiers: &[Tier]) -> Option<&'o AdminCall> {
    let Body::AdminCall(call) = &observation.body else { return None };
    let concerns = call.tiers.iter().any(|name| tiers.iter().any(|tier| tier.as_str() == name));
    (call.class == Some(AdminClass::CacheReset) && concerns).then_some(call)
}

/// The rank that speaks of its own cache.
fn process_of(observation: &Observation) -> Option<&str> {
    match &observation.body {
        Body::AdminCall(call) => call.process.as_deref(),
        _ => None,
    }
}

/// A load from a store whose content must be older than the change: nothing was computed in between that could have
/// stored it.
fn loaded_from_store(view: &View<'_>, member: &Member, change: &Change) -> Option<Hits> {
    let observations = view.worker(&member.id);
    let emptied = emptied(view, &member.id, change.at, &[Tier::Storage]);
    let first = observations.iter().find(|observation| {
        observation.envelope.wall > change.at
            && matches!(&observation.body, Body::CacheUse(used)
                if used.tier == Some(Tier::Storage) && used.retrieved.or(used.hit).unwrap_or(0) > 0)
    })?;
    if emptied.is_some_and(|at| Some(at) <= first.envelope.wall) {
        return None;
    }
    let answered_between = observations.iter().any(|observation| {
        let between =
            observation.envelope.wall > change.at && observation.envelope.wall < first.envelope.wall;
        between
            && match &observation.body {
                Body::Counters(counters) => {
                    counters.values.get(counter::REQUESTS_ANSWERED).is_some_and(|answered| *answered > 0.0)
                }
                Body::RequestLeg(leg) => leg.status.is_some() && !is_bare_answer(&observation.body),
                Body::CacheUse(used) => used.stored.unwrap_or(0) > 0,
                _ => false,
            }
    });
    let wrote_before = observations.iter().any(|observation| {
        observation.envelope.wall < change.at
            && matches!(
                &observation.body,
                Body::Counters(_)
                    | Body::RequestLeg(_)
                    | Body::CacheUse(_)
                    | Body::Artifact(_)
                    | Body::Worker(_)
            )
    });
    if answered_between || !wrote_before {
        return None;
    }
    let mut hits = Hits::new();
    for observation in observations.iter().filter(|o| o.envelope.wall >= first.envelope.wall) {
        if let Body::CacheUse(used) = &observation.body
            && used.tier == Some(Tier::Storage)
            && used.retrieved.or(used.hit).unwrap_or(0) > 0
        {
            hits.push((used.retrieved.unwrap_or(0) as f64, observation.clone()));
        }
    }
    Some(hits)
}

/// The first request of an adapter hit chunks in a store that only another adapter can have stored there.
fn by_other_adapter(view: &View<'_>, member: &Member) -> Option<(Cause, Draft, String)> {
    if member.role == Some(Role::Decode) {
        return None;
    }
    let intervals = view.intervals(&member.id);
    let fresh = intervals.first()?.total(counter::PROMPT_TOTAL) == Some(0.0);
    let observations = view.worker(&member.id);
    let mut requests: Vec<(&Observation, String)> = observations
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::RequestLeg(leg) if !is_bare_answer(&observation.body) => {
                Some((observation, leg.adapter.clone().unwrap_or_default()))
            }
            Body::CacheUse(used) if used.adapter.is_some() => {
                Some((observation, used.adapter.clone().unwrap_or_default()))
            }
            _ => None,
        })
        .filter(|(observation, _)| observation.envelope.wall.is_some())
        .collect();
    requests.sort_by_key(|(observation, _)| observation.envelope.wall);
    if !fresh {
        return None;
    }
    for interval in intervals.iter().filter(|i| i.increase(counter::PROMPT_EXTERNAL) > 0.0) {
        let inside: Vec<&(&Observation, String)> = requests
            .iter()
            .filter(|(o, _)| o.envelope.wall > interval.since && o.envelope.wall <= interval.until)
            .collect();
        let [(observation, adapter)] = inside[..] else { continue };
        let earlier: Vec<&(&Observation, String)> =
            requests.iter().filter(|(o, _)| o.envelope.wall <= interval.since).collect();
        let known_before = earlier.iter().any(|(_, name)| name == adapter);
        let Some((other, other_name)) = earlier.iter().rev().find(|(_, name)| name != adapter) else {
            continue;
        };
        if adapter.is_empty() || known_before {
            continue;
        }
        let digest = |name: &str| member.adapter_at(name, observation.envelope.wall).cloned();
        if let (Some(a), Some(b)) = (digest(adapter), digest(other_name))
            && a.compare(&b) == Comparison::Equal
        {
            continue;
        }
        let mut draft =
            Draft::new(Detector::CrossRevisionHit, Cause::Adapter, Confidence::Suspected, member.id.as_str());
        draft.worker(member.id.as_str()).proof(other).proof(observation).proof(&interval.observation);
        draft.requests_of(observation).tokens(interval.increase(counter::PROMPT_EXTERNAL));
        draft.unknown("who stored the chunks");
        let what = format!(
            "adapter {adapter} was asked for the first time, although only {other_name} had stored KV"
        );
        return Some((Cause::Adapter, draft, what));
    }
    None
}
