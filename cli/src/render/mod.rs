//! Results as people and programs read them.

mod contract;
mod json;
mod style;
mod text;

use crate::explain::Known;
use crate::pipeline::Outcome;
use clap::ValueEnum;
use kvprov_collector::contract::Contract;
use std::io::{BufWriter, Write};

/// How to print a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object.
    Json,
}

/// Prints the result of a replay.
pub(crate) fn replay(outcome: &Outcome, format: Format) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    match format {
        Format::Text => text::replay(&mut out, outcome, style::Style::of_stdout())?,
        Format::Json => json::replay(&mut out, outcome)?,
    }
    out.flush()?;
    Ok(())
}

/// Prints what is known of a finding or a request at length.
pub(crate) fn explanation(known: &Known) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    text::explanation(&mut out, known, style::Style::of_stdout())?;
    out.flush()?;
    Ok(())
}

/// Prints the contract between two workers.
pub(crate) fn contract(contract: &Contract) -> anyhow::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    contract::write(&mut out, contract, style::Style::of_stdout())?;
    out.flush()?;
    Ok(())
}
