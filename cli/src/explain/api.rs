//! Asks a running collector.
//!
//! Reads only, and within bounds: some requests of some seconds each, answers of some megabytes.

use super::{FIRST_DIGITS, Known, REQUESTS, concerned};
use anyhow::{Context, bail};
use kvprov_collector::contract::Contract;
use kvprov_collector::lineage::record::Record;
use kvprov_collector::run::pages::WorkerEntry;
use kvprov_model::finding::Finding;
use reqwest::{Client, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long one answer may take; gathering the lineages of a large ledger takes some seconds.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Largest answer that is read.
const MAX_ANSWER: usize = 32 << 20;
/// Workers that are asked for.
const WORKERS: usize = 8;
/// How often it is asked for what may not have been gathered yet, and how long in between.
const TIMES: u32 = 4;
const BETWEEN: Duration = Duration::from_secs(1);

/// What a collector knows of a finding or a request.
pub(super) fn ask(api: &str, id: &str) -> anyhow::Result<Known> {
    let (runtime, asking) = begin(api)?;
    runtime.block_on(asking.all(id))
}

/// The contract between two workers of a collector.
pub(super) fn contract(api: &str, a: &str, b: &str) -> anyhow::Result<Contract> {
    let (runtime, asking) = begin(api)?;
    let query = [("a", a.to_owned()), ("b", b.to_owned())];
    match runtime.block_on(asking.get(&["contract"], &query))? {
        Some(answer) => read(answer),
        None => bail!(
            "the collector at {api} knows no worker, or more than one, as {a:?} or as {b:?}, and no file is called {b:?}; it lists \
             them at {api}/api/v1/workers"
        ),
    }
}

fn begin(api: &str) -> anyhow::Result<(Runtime, Asking)> {
    let base: Url =
        api.parse().with_context(|| format!("--api {api:?} is no address; write http://host:9470"))?;
    anyhow::ensure!(base.scheme() == "http", "--api {api:?}: only http:// is spoken; write http://host:9470");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("starting to ask the collector")?;
    let client = Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .context("starting to ask the collector")?;
    Ok((runtime, Asking { client, base, api: api.to_owned() }))
}

struct Asking {
    client: Client,
    base: Url,
    api: String,
}

// === impl Asking ===

impl Asking {
    async fn all(&self, id: &str) -> anyhow::Result<Known> {
        for time in 1.. {
            let known = self.once(id).await?;
            // Findings are stated at once, lineages are gathered every two seconds while somebody asks.
            let names_none = known.findings.iter().all(|finding| finding.requests.is_empty());
            let is_whole = !known.records.is_empty() || (names_none && !known.findings.is_empty());
            if is_whole || time == TIMES {
                return Ok(known);
            }
            tokio::time::sleep(BETWEEN).await;
        }
        Ok(Known::default())
    }

    async fn once(&self, id: &str) -> anyhow::Result<Known> {
        let mut known = Known::default();
        let is_finding = id.len() >= FIRST_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let by_id = if is_finding { self.get(&["findings", id], &[]).await? } else { None };
        let mut filters = vec![("request", id.to_owned())];
        if let Some(finding) = by_id {
            let finding: Finding = read(finding)?;
            filters = vec![("finding", finding.id.as_str().to_owned())];
            known.findings.push(finding);
        } else {
            let query = [("request", id.to_owned()), ("state", "any".to_owned())];
            known.findings = self.list("findings", &query).await?.0;
        }
        filters.push(("limit", REQUESTS.to_string()));
        let total;
        (known.records, total) = self.list::<Record>("lineages", &filters).await?;
        known.more_records = total.saturating_sub(known.records.len());
        for worker in concerned(&known.findings, &known.records).into_iter().take(WORKERS) {
            let found = self.list::<WorkerEntry>("workers", &[("worker", worker)]).await?;
            known.workers.extend(found.0);
        }
        Ok(known)
    }

    /// The entries of a list, and how many pass the filters.
    async fn list<T: DeserializeOwned>(
        &self,
        name: &str,
        query: &[(&str, String)],
    ) -> anyhow::Result<(Vec<T>, usize)> {
        let mut answer = self.get(&[name], query).await?.unwrap_or_default();
        let total = answer["total"].as_u64().unwrap_or(0) as usize;
        Ok((read(answer[name].take())?, total))
    }

    /// An answer; `None`: there is no such thing. One that is not there yet is asked for again.
    async fn get(&self, path: &[&str], query: &[(&str, String)]) -> anyhow::Result<Option<Value>> {
        let mut url = self.base.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(path);
        }
        url.query_pairs_mut().extend_pairs(query);
        let mut answer = self.fetch(url.clone()).await?;
        for _ in 1..TIMES {
            if answer.0 != StatusCode::SERVICE_UNAVAILABLE {
                break;
            }
            tokio::time::sleep(BETWEEN).await;
            answer = self.fetch(url.clone()).await?;
        }
        let (status, answer) = answer;
        match status {
            StatusCode::OK => Ok(Some(answer)),
            StatusCode::NOT_FOUND if answer["error"].is_object() => Ok(None),
            _ => {
                let word =
                    |name: &str| answer["error"][name].as_str().unwrap_or("no reason given").to_owned();
                bail!("the collector at {} cannot answer: {}; {}", self.api, word("what"), word("do"))
            }
        }
    }

    /// Status and body of one answer.
    async fn fetch(&self, url: Url) -> anyhow::Result<(StatusCode, Value)> {
        let sent = self.client.get(url).send().await;
        let mut response = match sent {
            Ok(response) => response,
            Err(error) => {
                let reason = reason(&error.without_url());
                bail!(
                    "nothing answers at {}: {reason}. Start a collector (kvprov up, kvprov collector), name another one with \
                     --api URL, read the data of a stopped one with --data DIR, or a recording with a PATH",
                    self.api
                );
            }
        };
        let status = response.status();
        let mut body = Vec::new();
        while let Some(chunk) =
            response.chunk().await.with_context(|| format!("reading from {}", self.api))?
        {
            anyhow::ensure!(
                body.len() + chunk.len() <= MAX_ANSWER,
                "the answer of {} is longer than {MAX_ANSWER} bytes; is it a kvprov collector?",
                self.api
            );
            body.extend_from_slice(&chunk);
        }
        let answer: Value = serde_json::from_slice(&body).with_context(|| {
            format!("{} answers {status} and no JSON; is it a kvprov collector?", self.api)
        })?;
        Ok((status, answer))
    }
}

fn read<T: DeserializeOwned>(value: Value) -> anyhow::Result<T> {
    serde_json::from_value(value).context("the collector answers in another form; is it of this version?")
}

/// An error with the cause that says what happened.
fn reason(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    last.to_string()
}
