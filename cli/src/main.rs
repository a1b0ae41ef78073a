//! The binary `kvprov`: wires agent, collector and packs, and speaks to people. It holds no logic of its own.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "this binary is what speaks to a terminal")]

mod config;
mod demo;
mod doctor;
mod explain;
mod live;
mod packs;
mod pipeline;
mod progress;
mod render;
mod replay;

use clap::{Parser, Subcommand};
use live::arguments::Common;
use live::parent::{self, Children};
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
    /// Agent and collector on this machine, with an embedded ledger: says what it found and where to look.
    Up(Up),
    /// The agent: finds engines on this node, follows what they show, sends it to a collector.
    Agent(Common),
    /// The collector: receives what agents send, concludes, serves findings.
    Collector(Common),
    /// Keeps what the agent sees as a bundle for `replay`.
    Record(Record),
    /// What this node can and cannot observe, and what to change.
    Doctor,
    #[command(name = live::demo::COMMAND, hide = true)]
    DemoChild(Common),
    /// Runs the pipeline over recorded input: bundle directories, log files, metrics snapshots, kernel records.
    Replay(replay::Arguments),
    /// Tells a finding or a request in words, with its evidence.
    Explain(explain::Arguments),
    /// Signature packs: what engines print and expose, as data.
    #[command(subcommand)]
    Packs(packs::Command),
}

#[derive(Debug, clap::Args)]
struct Up {
    #[command(flatten)]
    common: Common,
    /// Runs engine doubles through four faults and shows how they are found.
    #[arg(long)]
    demo: bool,
}

#[derive(Debug, clap::Args)]
struct Record {
    /// A new or empty directory.
    #[arg(long, value_name = "DIR")]
    out: std::path::PathBuf,
    #[command(flatten)]
    common: Common,
}

/// Exit status when the input is unusable.
const UNUSABLE: u8 = 2;

fn main() -> ExitCode {
    if let Some(result) = demo::run_if_double() {
        return result.map_or(ExitCode::from(UNUSABLE), |()| ExitCode::SUCCESS);
    }
    let arguments = Arguments::parse();
    let result = match arguments.command {
        Command::Up(mut up) => {
            up.common.person = true;
            parent::run(&up.common, if up.demo { Children::Demo } else { Children::Both })
        }
        Command::Agent(common) if common.child => live::agent::run_child(&common),
        Command::Agent(common) => parent::run(&common, Children::Agent),
        Command::Collector(common) => live::collector::run(&common),
        Command::Record(record) => {
            let mut common = record.common;
            common.record = Some(record.out);
            common.no_ship = true;
            common.person = true;
            parent::run(&common, Children::Agent)
        }
        Command::Doctor => doctor::run(),
        Command::DemoChild(common) => live::demo::run(&common),
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
