//! Judges a binary against many bundles.

use crate::binary::Binary;
use crate::bundle::Bundle;
use crate::judge::{Expected, Judgement, judge};
use crate::pool;
use std::path::{Path, PathBuf};

/// Least share of the bundles with a demand that have to pass, in percent. Bundles that demand nothing pass all.
pub const PASS_PERCENT: usize = 75;

/// The judgement on one bundle.
#[derive(Debug, Clone)]
pub struct Scored {
    /// Name of the bundle's directory.
    pub name: String,
    /// Whether it demands a finding.
    pub demands: bool,
    /// The judgement.
    pub judgement: Judgement,
}

/// Judges every bundle. An error is a bundle that cannot be read, never one that fails.
pub fn all(binary: &Binary, bundles: &[PathBuf]) -> Result<Vec<Scored>, String> {
    pool::map(bundles, |directory| one(binary, directory)).into_iter().collect()
}

/// Says why the corpus as a whole does not pass; empty when it does.
pub fn shortfall(scored: &[Scored]) -> Vec<String> {
    let mut reasons: Vec<String> = scored
        .iter()
        .filter(|scored| !scored.demands && !scored.judgement.passes())
        .map(|scored| {
            format!("{} demands nothing and fails: {}", scored.name, scored.judgement.reasons.join("; "))
        })
        .collect();
    let demanding: Vec<&Scored> = scored.iter().filter(|scored| scored.demands).collect();
    let passed = demanding.iter().filter(|scored| scored.judgement.passes()).count();
    if passed * 100 < demanding.len() * PASS_PERCENT {
        reasons.push(format!(
            "{passed} of {} bundles with a demand pass; at least {PASS_PERCENT} % have to",
            demanding.len()
        ));
    }
    reasons
}

fn one(binary: &Binary, directory: &Path) -> Result<Scored, String> {
    let reading =
        |error: &dyn std::fmt::Display| format!("reading the bundle {}: {error}", directory.display());
    let expected = Expected::load(&directory.join("expected.toml")).map_err(|error| error.to_string())?;
    let bundle = Bundle::load(directory).map_err(|error| reading(&error))?;
    let copy = bundle.write().map_err(|error| reading(&error))?;
    let judgement = match binary.replay(copy.path()) {
        Ok(replay) => judge(&expected, &replay.findings),
        Err(error) => Judgement::failed_run(&expected, error.to_string()),
    };
    Ok(Scored { name: bundle.name, demands: !expected.must.is_empty(), judgement })
}
