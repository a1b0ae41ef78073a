//! What workers run, beside each other: `/api/v1/rollout` and `/api/v1/contract`.

use super::error::ApiError;
use super::lists::{Answer, list, survey};
use super::query::{Query, encoded};
use super::{Given, State};
use crate::contract;
use crate::run::pages::WorkerEntry;
use crate::run::rollout;
use axum::Json;
use axum::http::StatusCode;
use axum::response::IntoResponse;

/// Letters of a worker's name that an error repeats.
const NAME: usize = 200;

/// Which share of workers and requests has which revision.
pub(super) async fn rollout(state: State, given: Given) -> Answer {
    let query = Query::read("/api/v1/rollout", given.0, &["model", "role"])?;
    let survey = survey(&state, "/api/v1/rollout").await?;
    let entries = rollout::of(&state.board.seen().workers, &survey.lineages);
    let entries = entries
        .into_iter()
        .filter(|entry| query.passes("model", &entry.model) && query.passes("role", &entry.role));
    let (entries, part) = query.part(entries);
    list("rollout", &entries, &part)
}

/// The contract between two workers.
pub(super) async fn contract(state: State, given: Given) -> Answer {
    let query = Query::read("/api/v1/contract", given.0, &["a", "b"])?;
    let seen = state.board.seen();
    let (a, b) = (named(&query, &seen.workers, "a")?, named(&query, &seen.workers, "b")?);
    Ok(Json(contract::compare(a, b, state.packs)).into_response())
}

fn named<'w>(
    query: &Query,
    workers: &'w [WorkerEntry],
    parameter: &str,
) -> Result<&'w WorkerEntry, ApiError> {
    let Some(text) = query.filter(parameter) else {
        let advice = "ask as /api/v1/contract?a=WORKER&b=WORKER with ids from /api/v1/workers";
        return Err(ApiError::parameter(parameter, "no worker is named", advice));
    };
    contract::find(workers, text).ok_or_else(|| {
        ApiError::new(
            StatusCode::NOT_FOUND,
            format!(
                "no worker, or more than one, is known as {:?}",
                text.chars().take(NAME).collect::<String>()
            ),
            format!("/api/v1/contract?{parameter}={}", encoded(&text.chars().take(NAME).collect::<String>())),
            "list them: /api/v1/workers",
        )
    })
}
