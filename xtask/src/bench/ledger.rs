//! Merging observations, beside bare decoding of the same bytes: `collector/benches/ledger_ingest.rs` measures.

use super::bench;
use super::figure::{Figure, Goal};
use anyhow::Result;

/// Cost of merging to that of decoding.
const GOAL: f64 = 4.0;

/// Measures.
pub(super) fn run() -> Result<Vec<Figure>> {
    let printed = bench(("kvprov-collector", "ledger_ingest"), None, &[])?;
    let printed = String::from_utf8_lossy(&printed);
    println!("{printed}");
    let ratio = printed
        .lines()
        .find(|line| line.starts_with("ledger ingest: "))
        .and_then(|line| line.split_once(", ratio ")?.1.split(' ').next()?.parse().ok());
    Ok(vec![Figure::new(
        "ledger: ingest to bare decoding",
        ratio.unwrap_or(f64::NAN),
        "x",
        Goal::AtMost(GOAL),
    )])
}
