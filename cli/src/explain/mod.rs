//! `kvprov explain`: one finding, one request, or the contract between two workers in words, from a running collector, from the
//! data of a stopped one, or from a recording.

mod api;
mod contract;

use crate::pipeline::{self, Input, Outcome};
use crate::render;
use anyhow::bail;
use kvprov_collector::lineage::record::Record;
use kvprov_collector::run::pages::WorkerEntry;
use kvprov_model::finding::Finding;
use kvprov_model::id::RequestStem;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

/// The collector that is asked when none is named.
const API: &str = "http://127.0.0.1:9470";
/// Requests told at length with a finding.
const REQUESTS: usize = 5;
/// Digits of a finding's id that may stand for all of it.
const FIRST_DIGITS: usize = 4;

/// Arguments of `kvprov explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of a finding (or its first digits), of a request as the client or an engine prints it, or of a worker.
    id: String,
    /// A second worker, to compare with the first; and bundles or single files to read, in place of asking a running collector.
    #[arg(value_name = "WORKER|PATH")]
    rest: Vec<PathBuf>,
    /// Reads the ledger of a stopped collector, or of a replay with --data, in this directory.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Signature packs that take the place of built-in files of the same name, for PATH.
    #[arg(long, value_name = "DIR")]
    packs: Option<PathBuf>,
    /// The running collector to ask; left out: http://127.0.0.1:9470.
    #[arg(long, value_name = "URL", conflicts_with = "data")]
    api: Option<String>,
}

/// What is known of what was asked for.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Findings with this id, or that name this request.
    pub(crate) findings: Vec<Finding>,
    /// The request, or the first ones that the finding names.
    pub(crate) records: Vec<Record>,
    /// Requests of the finding beyond these.
    pub(crate) more_records: usize,
    /// Workers that took part.
    pub(crate) workers: Vec<WorkerEntry>,
    /// What was lost of the input, where that is known as a whole.
    pub(crate) loss: BTreeMap<String, u64>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let id = arguments.id.trim();
    let (other, paths) = arguments.other_and_paths();
    anyhow::ensure!(
        arguments.api.is_none() || paths.is_empty(),
        "--api asks a running collector and {} is a recording; give one of them",
        paths.first().map(|path| path.display().to_string()).unwrap_or_default()
    );
    let api = arguments.api.as_deref().unwrap_or(API);
    let live = paths.is_empty() && arguments.data.is_none();
    let recorded = || {
        let input = Input::new(paths.to_vec(), arguments.data.clone(), arguments.packs.clone());
        pipeline::run(&input)
    };
    if let Some(other) = other {
        let compared = if live {
            api::contract(api, id, &other)?
        } else {
            contract::of(&recorded()?, id, &other, arguments.packs.as_deref())?
        };
        render::contract(&compared)?;
        return Ok(ExitCode::SUCCESS);
    }
    let known = if live { api::ask(api, id)? } else { read(recorded()?, id) };
    if known.findings.is_empty() && known.records.is_empty() {
        if live {
            bail!(
                "the collector at {api} knows no finding and no request as {id:?}; it lists them at \
                 {api}/api/v1/findings?state=any and {api}/api/v1/lineages. A request of some seconds ago may not have been \
                 looked at yet, and one that is older than what the collector holds is gone. Two workers are compared with \
                 kvprov explain WORKER WORKER"
            );
        }
        bail!(
            "no finding and no request is known as {id:?} in this input; `kvprov replay` lists the findings with their ids"
        );
    }
    render::explanation(&known)?;
    Ok(ExitCode::SUCCESS)
}

// === impl Arguments ===

impl Arguments {
    /// The second worker, where one is named, and the recording. What is there as a file is no worker.
    fn other_and_paths(&self) -> (Option<String>, &[PathBuf]) {
        match self.rest.split_first() {
            Some((first, paths)) if !first.exists() => {
                (Some(first.to_string_lossy().trim().to_owned()), paths)
            }
            _ => (None, self.rest.as_slice()),
        }
    }
}

/// What a recording knows of a finding or a request.
fn read(outcome: Outcome, id: &str) -> Known {
    let stem = RequestStem::of(id);
    let by_id = |finding: &Finding| id.len() >= FIRST_DIGITS && finding.id.as_str().starts_with(id);
    let names = |finding: &Finding| finding.requests.iter().any(|request| RequestStem::of(request) == stem);
    let findings: Vec<Finding> =
        outcome.findings.into_iter().filter(|finding| by_id(finding) || names(finding)).collect();
    let of_finding = |record: &Record| {
        findings
            .iter()
            .any(|finding| by_id(finding) && record.findings.iter().any(|id| id == finding.id.as_str()))
    };
    let mut records: Vec<Record> = outcome
        .lineages
        .into_iter()
        .filter(|record| record.lineage.request == stem.as_str() || of_finding(record))
        .collect();
    let more_records = records.len().saturating_sub(REQUESTS);
    records.truncate(REQUESTS);
    let concerned = concerned(&findings, &records);
    Known {
        workers: outcome.workers.into_iter().filter(|worker| concerned.contains(&worker.id)).collect(),
        findings,
        records,
        more_records,
        loss: outcome.report.loss,
        problems: outcome.report.problems.iter().map(ToString::to_string).collect(),
    }
}

/// Workers that findings and requests name.
fn concerned(findings: &[Finding], records: &[Record]) -> BTreeSet<String> {
    let of_findings = findings.iter().flat_map(|finding| finding.workers.iter().cloned());
    let of_records = records.iter().flat_map(|record| {
        let points = &record.lineage.points;
        [&points.prefill, &points.decode].into_iter().filter_map(|point| point.worker.clone())
    });
    of_findings.chain(of_records).collect()
}
