//! Developer tasks, one file a subcommand: `cargo xtask --help`.
//!
//! Nothing here is part of the product. A task does its own set-up and says what it does; what it checks in the tree
//! is a rule of `tidy`, so that the rule has a name and a reason.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a developer tool speaks to a terminal")]

mod bench;
mod docs;
mod fuzz;
mod lab;
mod score;
mod setup;
mod step;
mod test;
mod tidy;
mod tree;
mod up;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Developer tasks of kvprov.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install what the tasks call, where it is missing: lints, and the toolchain of the kernel programs.
    Setup,
    /// Everything that CI checks, with its set-up.
    Test(test::Arguments),
    /// Write the generated pages of docs/.
    Docs,
    /// Check the rules of the tree that no compiler knows.
    Tidy,
    /// Judge an executable against bundles with an expected.toml.
    Score(score::Arguments),
    /// Measure what kvprov costs, beside ripgrep, grep, bpftrace and nothing in the same run.
    Bench(bench::Arguments),
    /// Run kvprov beside store rigs and compare what it finds with what happened.
    Lab(lab::Arguments),
    /// Build kvprov and run it on this machine.
    Up(up::Arguments),
    /// Feed a parser with mutated input until it breaks or the time is over.
    Fuzz(fuzz::Arguments),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup => setup::task(),
        Task::Test(arguments) => test::run(&arguments),
        Task::Docs => docs::write(),
        Task::Tidy => tidy::run(),
        Task::Score(arguments) => score::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::Lab(arguments) => lab::run(&arguments),
        Task::Up(arguments) => up::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
