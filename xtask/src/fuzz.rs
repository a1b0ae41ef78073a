//! `cargo xtask fuzz`: feeds parsers with mutated input until one breaks or the time is over.
//!
//! The targets stand in `fuzz/`, a workspace of its own, since libFuzzer needs another compiler mode. cargo-fuzz drives
//! it and is installed when missing; the stable compiler is told to take its flags. What they guard also runs in every
//! `cargo test`: the smoke test of `tests/` feeds the corpus and random mutations through the same entry points.

use crate::{setup, step, tree};
use anyhow::{Context, Result, bail};

/// Seconds per target, and which.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Seconds per target.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Targets; without one all of fuzz/targets.
    targets: Vec<String>,
}

/// Fuzzes.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    setup::package("c++", "g++", "the runtime of libFuzzer is C++")?;
    if !step::is_installed("cargo-fuzz") {
        println!("    installing cargo-fuzz by cargo: it builds and drives the fuzz targets");
        step::cargo(&["install", "--locked", "cargo-fuzz"])?;
    }
    let known = targets()?;
    if let Some(unknown) = arguments.targets.iter().find(|name| !known.contains(name)) {
        bail!("no fuzz target {unknown:?}; there are {known:?}");
    }
    for target in if arguments.targets.is_empty() { &known } else { &arguments.targets } {
        step::check(&format!("fuzz {target}"), || fuzz(target, arguments.seconds))?;
    }
    Ok(())
}

fn fuzz(target: &str, seconds: u64) -> Result<()> {
    let corpus = tree::root().join("fuzz/corpus").join(target);
    std::fs::create_dir_all(&corpus).with_context(|| format!("making {}", corpus.display()))?;
    let seeds = tree::root().join("fuzz/seeds").join(target);
    let mut command = step::cargo_command();
    command.env("RUSTC_BOOTSTRAP", "1").args(["fuzz", "run", "--fuzz-dir", "fuzz", target]).arg(&corpus);
    if seeds.is_dir() {
        command.arg(&seeds);
    }
    command.args(["--", &format!("-max_total_time={seconds}"), "-rss_limit_mb=2048", "-timeout=10"]);
    step::command(&mut command)
}

fn targets() -> Result<Vec<String>> {
    let directory = tree::root().join("fuzz/targets");
    let entries = std::fs::read_dir(&directory).context("listing fuzz/targets")?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.path().file_stem().map(|name| name.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}
