//! The pipeline over recorded input: bundle → observations → ledger → findings and lineages.

use crate::progress::Meter;
use anyhow::Context;
use kvprov_agent::bundle::{Bundle, Report};
use kvprov_collector::evaluate::{all_subjects, evaluate};
use kvprov_collector::ledger::{EmbeddedLedger, Ledger, Limits, MemoryLedger};
use kvprov_collector::lineage::{
    self,
    record::{self, Record},
};
use kvprov_collector::run::pages::{self, WorkerEntry};
use kvprov_collector::view::{Progress, View};
use kvprov_model::finding::Finding;
use kvprov_model::id::RequestStem;
use kvprov_model::observation::Observation;
use kvprov_packs::Packs;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Observations merged at once.
const BATCH: usize = 512;
/// Observations that one view decodes at once: some hundred megabytes.
const MAX_VIEW: usize = 200_000;
/// Lineages that one result lists.
const MAX_LINEAGES: usize = 10_000;

/// What to read and with what.
#[derive(Debug, clap::Args)]
pub(crate) struct Input {
    /// Bundles (directories with an optional incident.toml) or single files. Left out: only what --data holds.
    #[arg(value_name = "PATH", required_unless_present = "data")]
    paths: Vec<PathBuf>,
    /// Keeps the ledger in this directory, and adds to what is there.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Signature packs that take the place of built-in files of the same name.
    #[arg(long, value_name = "DIR")]
    packs: Option<PathBuf>,
}

impl Input {
    /// What another command names.
    pub(crate) fn new(paths: Vec<PathBuf>, data: Option<PathBuf>, packs: Option<PathBuf>) -> Self {
        Self { paths, data, packs }
    }
}

/// What came of it.
pub(crate) struct Outcome {
    /// Findings, surest first.
    pub(crate) findings: Vec<Finding>,
    /// Lineages of requests.
    pub(crate) lineages: Vec<Record>,
    /// Lines and losses of the input.
    pub(crate) report: Report,
    /// Workers in the ledger.
    pub(crate) workers: Vec<WorkerEntry>,
    /// Observations that the ledger took.
    pub(crate) observations: u64,
}

/// Runs the pipeline.
pub(crate) fn run(input: &Input) -> anyhow::Result<Outcome> {
    let overridden = match &input.packs {
        Some(directory) => Some(crate::packs::with_overrides(directory)?),
        None => None,
    };
    let packs = overridden.as_ref().unwrap_or_else(|| Packs::builtin());
    let data = input.data.as_deref().map(ledger_below);
    if let (Some(directory), true) = (&data, input.paths.is_empty()) {
        // Reading alone must not make a ledger where a name was mistyped.
        anyhow::ensure!(
            EmbeddedLedger::is_there(directory),
            "no ledger in {}; give the directory that a replay with --data made, or a PATH to read",
            directory.display()
        );
    }
    let mut ledger: Box<dyn Ledger> = match &data {
        Some(directory) => Box::new(EmbeddedLedger::open(directory, limits())?),
        None => Box::new(MemoryLedger::new(limits())),
    };
    let mut taken =
        Taken { ledger: ledger.as_mut(), batch: Vec::with_capacity(BATCH), observations: 0, failed: None };
    let mut report = if input.paths.is_empty() {
        Report::default()
    } else {
        let bundle = Bundle::open(&input.paths).context("nothing to replay")?;
        let mut meter = Meter::new();
        let mut show = |done, total| meter.show(done, total);
        let mut take = |observation| taken.take(observation);
        let report = bundle.read(packs, packs.matcher(), &mut take, &mut show);
        meter.clear();
        report
    };
    let observations = taken.finish()?;
    let subjects = all_subjects(ledger.as_ref())?;
    evaluate(ledger.as_mut(), &subjects, Progress::Ended)?;
    let mut findings: Vec<Finding> = ledger.all_findings()?.into_values().flatten().collect();
    findings.sort_by(Finding::in_lists);
    let view = View::new(ledger.as_ref(), Progress::Ended)?;
    let lineages = lineage::all(&view, MAX_LINEAGES).into_iter();
    let mut lineages: Vec<Record> =
        lineages.map(|one| record::of(&view, &RequestStem(one.request.clone()), one)).collect();
    record::name_findings(&mut lineages, &findings);
    let workers = pages::workers(&view, &BTreeMap::new());
    if view.cut() > 0 {
        report
            .loss
            .insert("view: observations beyond what one view holds, the oldest".to_owned(), view.cut());
    }
    view.finish()?;
    Ok(Outcome { findings, lineages, report, workers, observations })
}

/// The ledger in a directory: its own, or that of a collector whose data directory it is.
fn ledger_below(directory: &Path) -> PathBuf {
    let of_collector = directory.join("ledger");
    if EmbeddedLedger::is_there(&of_collector) { of_collector } else { directory.to_owned() }
}

/// A recording is finite and kept whole; only what one view decodes at once is bounded, and counted where it is cut.
fn limits() -> Limits {
    Limits { selection: MAX_VIEW, ..Limits::unbounded() }
}

/// Merges observations in batches; remembers the first failure, for a reader cannot stop.
struct Taken<'l> {
    ledger: &'l mut dyn Ledger,
    batch: Vec<Observation>,
    observations: u64,
    failed: Option<anyhow::Error>,
}

impl Taken<'_> {
    fn take(&mut self, observation: Observation) {
        self.batch.push(observation);
        if self.batch.len() >= BATCH {
            self.merge();
        }
    }

    fn merge(&mut self) {
        if self.failed.is_none() {
            match self.ledger.merge(&self.batch) {
                Ok(merged) => self.observations += merged.added,
                Err(error) => self.failed = Some(error.into()),
            }
        }
        self.batch.clear();
    }

    fn finish(mut self) -> anyhow::Result<u64> {
        self.merge();
        match self.failed {
            Some(error) => Err(error),
            None => Ok(self.observations),
        }
    }
}
