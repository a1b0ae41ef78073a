//! The contract between two workers of a recording.

use crate::pipeline::Outcome;
use anyhow::Context;
use kvprov_collector::contract::{self, Contract};
use kvprov_collector::run::pages::WorkerEntry;
use kvprov_packs::Packs;
use std::path::Path;

/// Workers that an error names.
const NAMED: usize = 20;

/// Compares two workers of what was read.
pub(super) fn of(outcome: &Outcome, a: &str, b: &str, packs: Option<&Path>) -> anyhow::Result<Contract> {
    let overridden = packs.map(crate::packs::with_overrides).transpose()?;
    let packs = overridden.as_ref().unwrap_or_else(|| Packs::builtin());
    Ok(contract::compare(named(outcome, a)?, named(outcome, b)?, packs))
}

fn named<'o>(outcome: &'o Outcome, text: &str) -> anyhow::Result<&'o WorkerEntry> {
    contract::find(&outcome.workers, text).with_context(|| {
        let ids: Vec<&str> = outcome.workers.iter().take(NAMED).map(|worker| worker.id.as_str()).collect();
        format!(
            "no worker, or more than one, is known as {text:?}, and no file has that name; there are {}",
            ids.join(", ")
        )
    })
}
