//! `unexpected_revision`: a worker, or a request that it answered, runs another revision than its name is declared to mean.
//!
//! Only what operators declare is expected. A factor that is missing, provisional or of another algorithm than the declared one
//! is neither right nor wrong; where several revisions are allowed, it departs only when it departs from all of them. A time
//! of some seconds is no departure: clocks of operators and nodes agree no better, and a rollout takes its moment.

use super::cross_revision_hit::cause_of;
use super::draft::Draft;
use super::{Subject, words};
use crate::view::expected::Allowed;
use crate::view::{Member, View};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::{Comparison, Factor, FactorState, Factors, REPRESENTATION};
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::id::RequestStem;
use kvprov_model::observation::{Body, Observation, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Shorter than this is no departure, in nanoseconds.
const MOMENT: i64 = 5 * SECOND;
/// Characters of a digest that tell it apart.
const DIGITS: usize = 12;
/// Before every time: factors that are first stated later hold from the beginning.
const BEGINNING: WallTime = WallTime(i64::MIN);

/// A time during which a worker ran one thing and one thing was expected.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    /// `None`: from the beginning.
    from: Option<WallTime>,
    /// `None`: it lasts.
    until: Option<WallTime>,
}

/// In what a worker departs from everything that is allowed.
#[derive(Clone)]
struct Departure {
    cause: Cause,
    factor: Option<String>,
    confidence: Confidence,
    what: String,
    unknown: Option<&'static str>,
}

/// How a worker compares with one statement.
enum Verdict {
    Fits,
    Departs(Departure),
    Unknown,
}

/// Requests for a name that a worker took part in.
type Asked = Vec<Observation>;

/// The complete set of findings on a worker.
pub fn detect(view: &View<'_>, subject: &Subject) -> Vec<Finding> {
    let Subject::Worker(worker) = subject else { return Vec::new() };
    let declared = view.declared();
    if declared.is_empty() {
        return Vec::new();
    }
    let Some(member) = view.roster().get(worker) else { return Vec::new() };
    if matches!(member.role, Some(Role::Router | Role::Store)) {
        return Vec::new();
    }
    let names = declared.names(member);
    let asked = asked(view, member);
    let stretches = stretches(view, member);
    let mut findings = Vec::new();
    for name in names.iter().copied() {
        // What its own pod is declared to be says more of it than what its served name is.
        let is_base = name.is_none_or(|name| member.serves(name));
        if is_base && name.is_some() && names.contains(&None) {
            continue;
        }
        let serves = is_base || name.is_some_and(|name| member.has_adapter(name));
        // A request that names nothing is for the model that the worker serves.
        let unnamed = asked.get("").filter(|_| is_base);
        let requests: Asked =
            name.and_then(|name| asked.get(name)).into_iter().chain(unnamed).flatten().cloned().collect();
        if serves || !requests.is_empty() {
            findings.extend(of_name(view, member, name, &stretches, (serves, &requests)));
        }
    }
    findings
}

/// The findings on one name. `serves`: whether the worker itself goes by it, so that it needs no request to depart.
fn of_name(
    view: &View<'_>,
    member: &Member,
    name: Option<&str>,
    stretches: &[Stretch],
    (serves, requests): (bool, &Asked),
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut open: Option<(Draft, Departure)> = None;
    for stretch in stretches {
        let asked: Vec<&Observation> =
            requests.iter().filter(|leg| stretch.holds(leg.envelope.wall)).collect();
        let allowed = view.declared().in_force(member, name, stretch.from);
        let departure = departure(view, member, &allowed, stretch.from, name);
        let Some(departure) = departure.filter(|_| serves || !asked.is_empty()) else {
            findings.extend(open.take().map(|(draft, departure)| finish(draft, &departure, member, name)));
            continue;
        };
        if open.as_ref().is_some_and(|(_, before)| before.cause != departure.cause) {
            findings.extend(open.take().map(|(draft, departure)| finish(draft, &departure, member, name)));
        }
        let (draft, _) = open.get_or_insert_with(|| {
            let subject = format!("{} {}", member.id, name.unwrap_or("as declared"));
            let mut draft = Draft::new(
                Detector::UnexpectedRevision,
                departure.cause.clone(),
                departure.confidence,
                subject,
            );
            draft.worker(member.id.as_str());
            (draft, departure.clone())
        });
        draft.at_least(departure.confidence);
        if serves {
            draft.at(stretch.from.max(member.began()));
        }
        for one in &allowed {
            draft.context(&one.observation);
        }
        if let Some(statement) = statement(view, member, departure.factor.as_deref(), stretch.from) {
            draft.context(&statement);
        }
        for leg in asked {
            draft.proof(leg).requests_of(leg);
        }
        if let Some(unknown) = departure.unknown {
            draft.unknown(unknown);
        }
    }
    findings.extend(open.map(|(draft, departure)| finish(draft, &departure, member, name)));
    findings
}

fn finish(draft: Draft, departure: &Departure, member: &Member, name: Option<&str>) -> Finding {
    let name = name.map_or_else(|| "its pod".to_owned(), |name| format!("{name:?}"));
    let summary =
        format!("{} runs another revision than {name} is declared to mean: {}.", member.id, departure.what);
    draft.finish(summary, words::advice(&Detector::UnexpectedRevision, &departure.cause))
}

/// The life of a worker as far as it has been heard, cut where it or what is expected of it changed.
fn stretches(view: &View<'_>, member: &Member) -> Vec<Stretch> {
    let mut cuts: BTreeSet<WallTime> = view.declared().turns(member);
    cuts.extend(member.changes().into_iter().map(|(time, _)| time));
    let starts: Vec<Option<WallTime>> = std::iter::once(None).chain(cuts.into_iter().map(Some)).collect();
    let ends = starts.iter().skip(1).copied().chain([None]);
    let all = starts
        .iter()
        .zip(ends)
        .map(|(from, until)| Stretch { from: *from, until: until.into_iter().chain(member.gone).min() });
    all.filter(|stretch| stretch.was_lived(view, member)).collect()
}

// === impl Stretch ===

impl Stretch {
    fn holds(&self, time: Option<WallTime>) -> bool {
        time.is_none_or(|time| {
            self.from.is_none_or(|from| time >= from) && self.until.is_none_or(|until| time <= until)
        })
    }

    /// Whether the worker ran in it for more than a moment, and has been heard for so long.
    fn was_lived(&self, view: &View<'_>, member: &Member) -> bool {
        let Some(begin) = self.from.max(member.began()) else { return true };
        let enough = begin.plus(MOMENT);
        if self.until.is_some_and(|until| until < enough) {
            return false;
        }
        // While more may come: when the node has been heard so far, it is looked at again.
        view.heard([member], Some(enough)).is_settled()
            && view.watermark(&member.node).is_some_and(|mark| mark >= begin)
    }
}

/// In what a worker departs from everything that is allowed; `None` where it fits, where that is not known, and where
/// nothing is declared.
fn departure(
    view: &View<'_>,
    member: &Member,
    allowed: &[&Allowed],
    at: Option<WallTime>,
    name: Option<&str>,
) -> Option<Departure> {
    let at = Some(at.unwrap_or(BEGINNING));
    let factors = member.factors_at(at, name);
    let mut first = None;
    for one in allowed {
        let by_factors = (!one.factors.is_empty()).then(|| by_factors(member, one, &factors));
        let by_revision = one.revisions.iter().map(|revision| by_revision(view, revision, &factors, name));
        for verdict in by_factors.into_iter().chain(by_revision) {
            match verdict {
                Verdict::Fits | Verdict::Unknown => return None,
                Verdict::Departs(departure) => {
                    first.get_or_insert(departure);
                }
            }
        }
    }
    first
}

/// Against declared factors: only those are compared.
fn by_factors(member: &Member, allowed: &Allowed, factors: &Factors) -> Verdict {
    let mut is_known = true;
    for (name, wanted) in &allowed.factors {
        let has = match factors.0.get(name) {
            Some(factor) => Some((departs(factor, wanted), factor.value.clone())),
            None if REPRESENTATION.contains(&name.as_str()) => member.representation(name).map(|value| {
                let equal = value == wanted.value;
                (if equal { Comparison::Equal } else { Comparison::Different }, value.to_owned())
            }),
            None => None,
        };
        match has {
            Some((Comparison::Different, value)) => {
                return Verdict::Departs(differs(name, &value, &wanted.value));
            }
            Some((Comparison::Equal, _)) => {}
            Some((Comparison::Unknown, _)) | None => is_known = false,
        }
    }
    if is_known { Verdict::Fits } else { Verdict::Unknown }
}

/// Compares a factor with a declared one. Who declares a digest alone means these files, however others with the same tensors
/// are laid out.
fn departs(has: &Factor, wanted: &Factor) -> Comparison {
    let is_of_files = wanted.layout.is_none() && wanted.meaning.is_none();
    let is_known = has.state == FactorState::Full && has.algorithm == wanted.algorithm;
    if is_of_files && is_known && has.value != wanted.value {
        Comparison::Different
    } else {
        has.compare(wanted)
    }
}

/// Against a revision id. An id tells no factors: what differs is known from a worker that runs that revision.
fn by_revision(view: &View<'_>, revision: &str, factors: &Factors, name: Option<&str>) -> Verdict {
    let own = factors.revision_id();
    if own.as_deref() == Some(revision) {
        return Verdict::Fits;
    }
    if let Some(meant) = bearer(view, revision, name) {
        let Some(factor) = meant.first_difference(factors) else { return Verdict::Unknown };
        let value = |of: &Factors| of.0.get(factor).map_or(String::new(), |factor| factor.value.clone());
        return Verdict::Departs(differs(factor, &value(factors), &value(&meant)));
    }
    match own {
        Some(own) => Verdict::Departs(Departure {
            cause: Cause::Unknown,
            factor: None,
            confidence: Confidence::Suspected,
            what: format!("{own} instead of {revision}"),
            unknown: Some("which factor differs: no worker of the declared revision was seen"),
        }),
        None => Verdict::Unknown,
    }
}

fn differs(factor: &str, is: &str, wanted: &str) -> Departure {
    let short = |value: &str| value.chars().take(DIGITS).collect::<String>();
    let cause = if REPRESENTATION.contains(&factor) { Cause::Representation } else { cause_of(factor) };
    Departure {
        cause,
        factor: Some(factor.to_owned()),
        confidence: Confidence::Confirmed,
        what: format!("{factor} {} instead of {}", short(is), short(wanted)),
        unknown: None,
    }
}

/// The factors of a revision, from any worker that runs it or did.
fn bearer(view: &View<'_>, revision: &str, name: Option<&str>) -> Option<Factors> {
    view.roster().members().find_map(|member| {
        let times = std::iter::once(BEGINNING).chain(member.changes().into_iter().map(|(time, _)| time));
        let mut all = times.map(|time| member.factors_at(Some(time), name));
        all.find(|factors| factors.revision_id().as_deref() == Some(revision))
    })
}

/// What tells the factor that a worker has, or of all of them its weights.
fn statement(
    view: &View<'_>,
    member: &Member,
    factor: Option<&str>,
    at: Option<WallTime>,
) -> Option<Observation> {
    let wanted = factor.unwrap_or("weights");
    let observations = view.worker(&member.id);
    let mut told = observations.iter().filter(|observation| match &observation.body {
        Body::Factor(body) => body.factor.as_deref() == Some(wanted) && body.value.is_some(),
        Body::Worker(body) => body.facts.contains_key(wanted),
        _ => false,
    });
    let first = told.clone().next();
    told.rfind(|observation| observation.envelope.wall <= at).or(first).cloned()
}

/// Requests that a worker answered, by the name that they asked for; under an empty name where no source shows it.
fn asked(view: &View<'_>, member: &Member) -> BTreeMap<String, Asked> {
    let mut asked: BTreeMap<String, Asked> = BTreeMap::new();
    let mut first: BTreeMap<RequestStem, String> = BTreeMap::new();
    let legs = view.router_legs();
    for (_, leg) in legs.iter() {
        if let (Some(id), Some(model)) = (&leg.request_id, leg.adapter.as_ref().or(leg.model.as_ref())) {
            first.entry(RequestStem::of(id)).or_insert_with(|| model.clone());
        }
    }
    for (observation, leg) in legs.iter() {
        let (Some(role), Some(id)) = (&leg.leg, &leg.request_id) else { continue };
        let answered = leg.status.is_none_or(|status| (200..300).contains(&status));
        if !answered || !matches!(role, Role::Prefill | Role::Decode | Role::Both) {
            continue;
        }
        let by = view.roster().by_endpoint(leg.endpoint.as_deref(), role, Some(&observation.envelope));
        let name = leg.adapter.as_ref().or(leg.model.as_ref()).or_else(|| first.get(&RequestStem::of(id)));
        if by.is_some_and(|by| by.id == member.id) {
            let name = name.cloned().unwrap_or_default();
            asked.entry(name).or_default().push(observation.clone());
        }
    }
    asked
}
