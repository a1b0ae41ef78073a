//! `kvprov explain`: one finding or one request in words.

use crate::pipeline::{self, Input};
use crate::render;
use anyhow::bail;
use kvprov_model::id::RequestStem;
use std::process::ExitCode;

/// Arguments of `kvprov explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Id of a finding (or its first digits), or of a request as the client or an engine prints it.
    id: String,
    #[command(flatten)]
    input: Input,
}

/// Runs it.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let result = pipeline::run(&arguments.input)?;
    let id = arguments.id.trim();
    let stem = RequestStem::of(id);
    let findings: Vec<_> = result
        .findings
        .iter()
        .filter(|finding| {
            (id.len() >= 4 && finding.id.as_str().starts_with(id))
                || finding.requests.iter().any(|request| request == id || RequestStem::of(request) == stem)
        })
        .collect();
    let lineages: Vec<_> =
        result.lineages.iter().filter(|lineage| lineage.request == stem.as_str()).collect();
    if findings.is_empty() && lineages.is_empty() {
        bail!(
            "no finding and no request is known as {id:?} in this input; `kvprov replay` lists the findings with their ids"
        );
    }
    render::explanation(&findings, &lineages, &result)?;
    Ok(ExitCode::SUCCESS)
}
