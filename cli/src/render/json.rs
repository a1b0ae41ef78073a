//! The JSON object of a replay.

use crate::pipeline::Outcome;
use kvprov_collector::lineage::record::Record;
use kvprov_model::finding::Finding;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;

#[derive(Serialize)]
struct Replay<'o> {
    findings: &'o [Finding],
    lineages: &'o [Record],
    lines: Lines,
    loss: &'o BTreeMap<String, u64>,
    problems: Vec<String>,
}

#[derive(Serialize)]
struct Lines {
    total: u64,
    matched: u64,
    ignored: u64,
    unparsed: u64,
}

pub(super) fn replay(out: &mut impl Write, outcome: &Outcome) -> anyhow::Result<()> {
    let report = &outcome.report;
    let replay = Replay {
        findings: &outcome.findings,
        lineages: &outcome.lineages,
        lines: Lines {
            total: report.lines.total,
            matched: report.lines.matched,
            ignored: report.lines.ignored,
            unparsed: report.lines.unparsed,
        },
        loss: &report.loss,
        problems: report.problems.iter().map(ToString::to_string).collect(),
    };
    serde_json::to_writer(&mut *out, &replay)?;
    writeln!(out)?;
    Ok(())
}
