//! `cargo xtask score`: judges an executable against bundles with an `expected.toml`, and prints precision and recall.

use crate::{step, tree};
use anyhow::{Context, Error, Result, bail};
use kvprov_tests::binary::Binary;
use kvprov_tests::corpus;
use kvprov_tests::judge::Judgement;
use kvprov_tests::score::Scored;
use kvprov_tests::verdict::DETECTORS;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

/// What to judge.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Executable; without it kvprov is built.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Seconds per bundle.
    #[arg(long, default_value_t = 20)]
    timeout: u64,
    /// Directories with bundles; without one the corpus of the tree.
    directories: Vec<PathBuf>,
}

/// Judges, prints, and fails when any bundle fails.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let path = match &arguments.bin {
        Some(path) => path.clone(),
        None => build_binary()?,
    };
    let binary = Binary::at(path, Duration::from_secs(arguments.timeout));
    let directories =
        if arguments.directories.is_empty() { vec![corpus::root()] } else { arguments.directories.clone() };
    let scored = score(&binary, &directories)?;
    print(&scored);
    let failed = scored.iter().filter(|scored| !scored.judgement.passes()).count();
    if failed > 0 {
        bail!("{failed} of {} bundles fail", scored.len());
    }
    Ok(())
}

/// Judges the corpus of the tree; fails when a quiet bundle fails or too few of the others pass.
pub(crate) fn of_corpus(binary: &Path) -> Result<()> {
    let binary = Binary::at(binary.to_owned(), Duration::from_secs(60));
    let scored = score(&binary, &[corpus::root()])?;
    print(&scored);
    let reasons = kvprov_tests::score::shortfall(&scored);
    if !reasons.is_empty() {
        bail!("{}", reasons.join("\n"));
    }
    Ok(())
}

/// Builds `kvprov` and says where it is.
pub(crate) fn build_binary() -> Result<PathBuf> {
    build(&["--package", "kvprov"])
}

/// Builds `kvprov` among the selected packages, and says where it is.
pub(crate) fn build(selected: &[&str]) -> Result<PathBuf> {
    let output = step::cargo_command()
        .args(["build", "--quiet", "--message-format", "json-render-diagnostics"])
        .args(selected)
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("building kvprov")?;
    if !output.status.success() {
        bail!("building kvprov failed; cargo's words above say why");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message.pointer("/target/name").is_some_and(|name| name == "kvprov"))
        // The tests of its own modules are an executable of the same name.
        .filter(|message| message.pointer("/profile/test").is_some_and(|is_test| is_test == false))
        .find_map(|message| message.get("executable")?.as_str().map(PathBuf::from))
        .context("building kvprov: cargo names no executable")
}

fn score(binary: &Binary, directories: &[PathBuf]) -> Result<Vec<Scored>> {
    let mut bundles = Vec::new();
    for directory in directories {
        let found = corpus::bundles(directory)
            .with_context(|| format!("looking for bundles in {}", directory.display()))?;
        if found.is_empty() {
            bail!("no bundle under {}: a bundle is a directory with an expected.toml", directory.display());
        }
        bundles.extend(found);
    }
    kvprov_tests::score::all(binary, &bundles).map_err(Error::msg)
}

fn print(scored: &[Scored]) {
    for scored in scored.iter().filter(|scored| !scored.judgement.passes()) {
        println!("FAIL {}: {}", scored.name, scored.judgement.reasons.join("; "));
    }
    println!("\n{:<20}{:>5}{:>5}{:>5}{:>11}{:>8}", "detector", "TP", "FP", "FN", "precision", "recall");
    for detector in DETECTORS {
        let count = |of: fn(&Judgement) -> &Vec<String>| {
            scored.iter().flat_map(|scored| of(&scored.judgement)).filter(|name| *name == detector).count()
        };
        let (met, wrong, missed) = (count(|j| &j.met), count(|j| &j.false_positives), count(|j| &j.missed));
        if met + wrong + missed > 0 {
            println!(
                "{detector:<20}{met:>5}{wrong:>5}{missed:>5}{:>11}{:>8}",
                ratio(met, met + wrong),
                ratio(met, met + missed)
            );
        }
    }
    let passed = scored.iter().filter(|scored| scored.judgement.passes()).count();
    println!("score: {passed} passed, {} failed", scored.len() - passed);
}

fn ratio(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.3}", part as f64 / whole as f64) }
}
