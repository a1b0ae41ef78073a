//! `cargo xtask bench`: what kvprov costs, each figure beside its goal.
//!
//! Goals are ratios and shares, measured against something else in the same run on the same machine, so that they mean
//! something where the numbers do not. Every part can run alone.
#![allow(clippy::disallowed_methods, reason = "what is measured takes its time")]

mod figure;
mod hicache;
mod identity;
mod kernel;
mod ledger;
mod logs;
mod memory;
mod pairs;
mod reader;
mod store;

use crate::{score, step, tree};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Parts to run; without one all of them.
    parts: Vec<Part>,
    /// Directory of the store rigs; without it what needs them is left out.
    #[arg(long)]
    rigs: Option<PathBuf>,
    /// Directory of the rig of prefill/decode pairs; without it what needs it is left out.
    #[arg(long)]
    pairs: Option<PathBuf>,
    /// The rigs' own directory of environments and packages (`KVPROV_LAB`).
    #[arg(long)]
    lab: Option<PathBuf>,
    /// Executable that runs beside the store; without it kvprov is built.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// Turns of what is measured in turns; without it each part's own.
    #[arg(long)]
    rounds: Option<usize>,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// The log reader beside ripgrep and grep.
    Logs,
    /// Merging observations, beside decoding them.
    Ledger,
    /// The kernel programs beside bpftrace; needs root.
    Kernel,
    /// From a record of the kernel programs to an observation.
    Reader,
    /// Hashing model files beside sha256sum and openssl.
    Identity,
    /// A real store with and without the agent, and what the agent uses meanwhile; needs root and the rigs.
    Hicache,
    /// Memory of `kvprov up`; needs root.
    Memory,
    /// A real prefill/decode pair with and without kvprov; needs root and the rig.
    Pairs,
}

const ALL: [Part; 8] = [
    Part::Logs,
    Part::Ledger,
    Part::Kernel,
    Part::Reader,
    Part::Identity,
    Part::Memory,
    Part::Hicache,
    Part::Pairs,
];

/// Measures and prints.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let parts = if arguments.parts.is_empty() { &ALL[..] } else { &arguments.parts };
    let mut figures = Vec::new();
    for part in parts {
        println!("\n==> {part:?}");
        let measured = match part {
            Part::Logs => logs::run()?,
            Part::Ledger => ledger::run()?,
            Part::Kernel => kernel::run(arguments.rounds)?,
            Part::Reader => reader::run()?,
            Part::Identity => identity::run()?,
            Part::Hicache => match arguments.place()? {
                Some(place) => hicache::run(&place, arguments.rounds)?,
                None if arguments.parts.is_empty() => {
                    println!("    left out: it needs --rigs");
                    continue;
                }
                None => bail!("hicache needs --rigs"),
            },
            Part::Pairs => match &arguments.pairs {
                Some(rig) => pairs::run(&arguments.pair(rig)?, arguments.rounds)?,
                None if arguments.parts.is_empty() => {
                    println!("    left out: it needs --pairs");
                    continue;
                }
                None => bail!("pairs needs --pairs"),
            },
            Part::Memory => memory::run(&arguments.binary()?, arguments.place()?.as_ref())?,
        };
        figures.extend(measured);
    }
    println!("\n{}", figure::table(&figures));
    Ok(())
}

// === impl Arguments ===

impl Arguments {
    fn binary(&self) -> Result<PathBuf> {
        Ok(std::path::absolute(match &self.bin {
            Some(binary) => binary.clone(),
            None => score::build_binary()?,
        })?)
    }

    fn lab(&self) -> Result<PathBuf> {
        let lab = self.lab.clone().or_else(|| std::env::var_os("KVPROV_LAB").map(PathBuf::from));
        let lab = lab.context("the rigs need --lab, the directory that their set-up made")?;
        Ok(std::path::absolute(lab)?)
    }

    fn pair(&self, rig: &Path) -> Result<pairs::Place> {
        Ok(pairs::Place { rig: std::path::absolute(rig)?, lab: self.lab()?, binary: self.binary()? })
    }

    fn place(&self) -> Result<Option<store::Place>> {
        let Some(rigs) = &self.rigs else { return Ok(None) };
        Ok(Some(store::Place { rigs: std::path::absolute(rigs)?, lab: self.lab()?, binary: self.binary()? }))
    }
}

/// Runs a bench of a crate and takes what it prints. `KVPROV_BENCH_LOG` names the log to read.
fn bench((package, name): (&str, &str), log: Option<&Path>, arguments: &[&str]) -> Result<Vec<u8>> {
    let mut command = step::cargo_command();
    command.args(["bench", "--quiet", "--package", package, "--bench", name, "--"]).args(arguments);
    command.current_dir(tree::root());
    if let Some(log) = log {
        command.env("KVPROV_BENCH_LOG", log);
    }
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("running the bench {name}"))?;
    if !output.status.success() {
        bail!("the bench {name} of {package} failed; its words above say why");
    }
    Ok(output.stdout)
}
