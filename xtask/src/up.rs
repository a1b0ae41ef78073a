//! `cargo xtask up`: builds kvprov and runs it on this machine, with the set-up that the kernel programs need.

use crate::{score, setup, step};
use anyhow::Result;
use std::process::Command;

/// What to pass on.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Arguments of `kvprov up`: `--demo` shows it without engines.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<String>,
}

/// Builds and runs.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    step::check("set-up", setup::for_kernel_programs)?;
    println!("==> building kvprov; the first time takes minutes");
    let binary = score::build_binary()?;
    step::command(Command::new(&binary).arg("up").args(&arguments.rest))
}
