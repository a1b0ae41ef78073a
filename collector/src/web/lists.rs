//! The lists of the API: JSON objects with one array, entries as in replay's output.

use super::error::ApiError;
use super::query::{Part, Query};
use super::{Given, State};
use crate::lineage::record::{self, Record};
use crate::run::requests::status_word;
use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use kvprov_model::clock::WallTime;
use kvprov_model::finding::{Detector, Finding, FindingState};
use kvprov_model::id::RequestStem;
use kvprov_model::lineage::Lineage;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

const CONFIDENCES: &[&str] = &["confirmed", "suspected", "risk"];
const STATES: &[&str] = &["opened", "changed", "superseded", "resolved", "standing", "ended", "any"];
const STATUSES: &[&str] = &["consistent", "divergent", "unverified"];
/// Digits of an id that may stand for all of it.
const FIRST_DIGITS: usize = 4;
/// How long a reader waits for the first survey.
const SURVEY: Duration = Duration::from_secs(5);

/// An answer, or why there is none.
pub(super) type Answer = Result<Response, ApiError>;

/// `{"<name>":[…],"total":…,"next":…}`.
pub(super) fn list<T: Serialize>(name: &str, entries: &[T], part: &Part) -> Answer {
    let value = |result: Result<Value, serde_json::Error>| {
        result.map_err(|error| {
            ApiError::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                error.to_string(),
                name.to_owned(),
                "report it; the ledger is not harmed",
            )
        })
    };
    let mut object = Map::new();
    object.insert(name.to_owned(), value(serde_json::to_value(entries))?);
    object.insert("total".to_owned(), Value::from(part.total));
    object.insert("next".to_owned(), part.next.clone().map_or(Value::Null, Value::from));
    Ok(Json(Value::Object(object)).into_response())
}

/// Findings that stand and, when asked for by `state`, that ended.
pub(super) async fn findings(state: State, given: Given) -> Answer {
    let filters = &["detector", "confidence", "state", "worker", "request", "since"];
    let query = Query::read("/api/v1/findings", given.0, filters)?;
    let detector = query.word("detector", Detector::ALL)?;
    let confidence = query.word("confidence", CONFIDENCES)?;
    let wanted = query.word("state", STATES)?.unwrap_or("standing");
    let (worker, since) = (query.filter("worker"), query.time("since")?);
    let stem = query.filter("request").map(RequestStem::of);
    let names = |finding: &Finding, stem: &RequestStem| {
        finding.requests.iter().any(|id| RequestStem::of(id) == *stem)
    };
    let seen = state.board.seen();
    let is_state = |finding: &Finding| match wanted {
        "any" | "standing" | "ended" => true,
        word => word == state_word(finding.state),
    };
    let standing = seen.findings.iter().filter(|_| !matches!(wanted, "ended" | "superseded" | "resolved"));
    let ended = seen.totals.ended.iter().rev();
    let ended = ended.filter(|_| matches!(wanted, "any" | "ended" | "superseded" | "resolved"));
    let entries = standing.chain(ended).filter(|finding| {
        is_state(finding)
            && detector.is_none_or(|word| finding.detector.as_str() == word)
            && confidence.is_none_or(|word| confidence_word(finding) == word)
            && worker.is_none_or(|name| finding.workers.iter().any(|held| held == name))
            && stem.as_ref().is_none_or(|stem| names(finding, stem))
            && since.is_none_or(|since| finding.last_seen.is_none_or(|last| last >= since))
    });
    let (entries, part) = query.part(entries);
    list("findings", &entries, &part)
}

/// One finding by its id, or by the first digits of it where they are of no other.
pub(super) async fn finding(state: State, Path(id): Path<String>) -> Answer {
    let seen = state.board.seen();
    let all = || seen.findings.iter().chain(seen.totals.ended.iter());
    let begins = |finding: &&Finding| id.len() >= FIRST_DIGITS && finding.id.as_str().starts_with(&id);
    let only = match (all().find(begins), all().filter(begins).nth(1)) {
        (Some(only), None) => Some(only),
        _ => None,
    };
    match all().find(|finding| finding.id.as_str() == id).or(only) {
        Some(finding) => Ok(Json(finding).into_response()),
        None => Err(ApiError::new(
            StatusCode::NOT_FOUND,
            "there is no such finding; it may have ended long ago, or go on under the id of its true beginning",
            format!("/api/v1/findings/{}", super::query::encoded(&id.chars().take(64).collect::<String>())),
            "list them: /api/v1/findings?state=any",
        )),
    }
}

/// Workers.
pub(super) async fn workers(state: State, given: Given) -> Answer {
    let filters = &["worker", "node", "pool", "role", "engine", "namespace", "pod", "image_digest"];
    let query = Query::read("/api/v1/workers", given.0, filters)?;
    let seen = state.board.seen();
    // What is not known passes only where nothing is asked for.
    let known = |text: &Option<String>| text.clone().unwrap_or_default();
    let entries = seen.workers.iter().filter(|worker| {
        query.passes("worker", &worker.id)
            && query.passes("node", &worker.node)
            && query.passes("pool", &worker.pool)
            && query.passes("role", &worker.role)
            && query.passes("engine", &worker.engine)
            && query.passes("namespace", &known(&worker.namespace))
            && query.passes("pod", &known(&worker.pod))
            && query.passes("image_digest", &known(&worker.image_digest))
    });
    let (entries, part) = query.part(entries);
    list("workers", &entries, &part)
}

/// Lineages of requests, with the findings that stand and name them.
pub(super) async fn lineages(state: State, given: Given) -> Answer {
    let filters = &["request", "status", "worker", "finding", "since", "until"];
    let query = Query::read("/api/v1/lineages", given.0, filters)?;
    let status = query.word("status", STATUSES)?;
    let (worker, stem) = (query.filter("worker"), query.filter("request").map(RequestStem::of));
    let (since, until) = (query.time("since")?, query.time("until")?);
    let survey = survey(&state, "/api/v1/lineages").await?;
    let seen = state.board.seen();
    let of_finding = query.filter("finding").map(|id| {
        let all = seen.findings.iter().chain(seen.totals.ended.iter());
        let named = all.filter(|finding| finding.id.as_str() == id).flat_map(|finding| &finding.requests);
        named.map(|id| RequestStem::of(id).0).collect::<BTreeSet<_>>()
    });
    let time = |text: &Option<String>| text.as_deref().and_then(WallTime::parse_rfc3339);
    let entries = survey.lineages.iter().filter(|record| {
        let lineage = &record.lineage;
        stem.as_ref().is_none_or(|stem| stem.as_str() == lineage.request)
            && status.is_none_or(|word| status_word(lineage.status) == word)
            && worker.is_none_or(|name| concerns(lineage, name))
            && of_finding.as_ref().is_none_or(|named| named.contains(&lineage.request))
            && since.is_none_or(|since| time(&record.last_seen).is_none_or(|last| last >= since))
            && until.is_none_or(|until| time(&record.first_seen).is_none_or(|first| first <= until))
    });
    let (entries, part) = query.part(entries);
    let mut entries: Vec<Record> = entries.into_iter().map(|record| record.as_ref().clone()).collect();
    record::name_findings(&mut entries, &seen.findings);
    list("lineages", &entries, &part)
}

/// Stores.
pub(super) async fn stores(state: State, given: Given) -> Answer {
    let query = Query::read("/api/v1/stores", given.0, &["store", "worker"])?;
    let survey = survey(&state, "/api/v1/stores").await?;
    let entries = survey.stores.iter().filter(|store| {
        query.passes("store", &store.id)
            && query.filter("worker").is_none_or(|name| store.workers.contains(name))
    });
    let (entries, part) = query.part(entries);
    list("stores", &entries, &part)
}

/// Keyspaces.
pub(super) async fn keyspaces(state: State, given: Given) -> Answer {
    let query = Query::read("/api/v1/keyspaces", given.0, &["store", "worker"])?;
    let survey = survey(&state, "/api/v1/keyspaces").await?;
    let entries = survey.keyspaces.iter().filter(|space| {
        let actors = [&space.writers, &space.readers, &space.missed_by];
        query.passes("store", &space.store)
            && query.filter("worker").is_none_or(|name| actors.iter().any(|names| names.contains(name)))
    });
    let (entries, part) = query.part(entries);
    list("keyspaces", &entries, &part)
}

/// What takes long to gather; waits for the first one.
pub(super) async fn survey(state: &State, place: &str) -> Result<Arc<crate::run::pages::Survey>, ApiError> {
    let survey = state.board.survey(SURVEY).await;
    survey.ok_or_else(|| ApiError::later("the collector has not gathered this yet", place))
}

/// The word of a state.
pub(super) fn state_word(state: FindingState) -> &'static str {
    match state {
        FindingState::Opened => "opened",
        FindingState::Changed => "changed",
        FindingState::Superseded => "superseded",
        FindingState::Resolved => "resolved",
    }
}

/// The word of a finding's confidence.
pub(super) fn confidence_word(finding: &Finding) -> &'static str {
    use kvprov_model::finding::Confidence;
    match finding.confidence {
        Confidence::Confirmed => "confirmed",
        Confidence::Suspected => "suspected",
        Confidence::Risk => "risk",
    }
}

fn concerns(lineage: &Lineage, worker: &str) -> bool {
    let points = &lineage.points;
    [&points.request, &points.prefill, &points.artifact, &points.decode]
        .iter()
        .any(|point| point.worker.as_deref() == Some(worker))
}
