//! `cargo xtask up`: builds kvprov and runs it on this machine.
//!
//! While the binary has no live capture, the incident of the README is replayed instead, which needs no engine and no
//! privilege.

use crate::{score, setup, step, tree};
use anyhow::{Context, Result};
use std::path::Path;
use std::process::{Command, Stdio};

/// The incident that the README shows.
const README_INCIDENT: &str = "tests/incidents/evidence/vllm/v09";

/// What to pass on.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of `kvprov up`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds and runs.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    step::check("set-up", setup::for_kernel_programs)?;
    let binary = score::build_binary()?;
    if has_live_capture(&binary)? {
        return step::command(Command::new(&binary).arg("up").args(&arguments.rest));
    }
    println!(
        "This version has no live capture; it replays recorded incidents. Replaying {README_INCIDENT}:\n"
    );
    step::command(Command::new(&binary).args(["replay", README_INCIDENT]))
}

fn has_live_capture(binary: &Path) -> Result<bool> {
    let output = Command::new(binary)
        .args(["up", "--help"])
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", binary.display()))?;
    // A binary that takes no arguments at all succeeds without a word.
    Ok(output.status.success() && !output.stdout.is_empty())
}
