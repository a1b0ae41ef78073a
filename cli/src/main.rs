//! The binary `kvprov`: wires agent, collector and packs, and speaks to people. It holds no logic of its own.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this binary is what speaks to a terminal")]

mod explain;
mod packs;
mod pipeline;
mod progress;
mod render;
mod replay;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Tells whether the KV cache a request decoded from was computed by the model that decoded it, and what it cost when
/// it was not there.
#[derive(Debug, Parser)]
#[command(name = "kvprov", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the pipeline over recorded input: bundle directories, log files, metrics snapshots, kernel records.
    Replay(replay::Arguments),
    /// Tells a finding or a request in words, with its evidence.
    Explain(explain::Arguments),
    /// Signature packs: what engines print and expose, as data.
    #[command(subcommand)]
    Packs(packs::Command),
}

/// Exit status when the input is unusable.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Packs(command) => packs::run(&command),
    };
    match result {
        Ok(status) => status,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kvprov: {error:#}");
            ExitCode::from(UNUSABLE)
        }
    }
}

/// A reader that has seen enough (`kvprov replay … | head`) is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}
