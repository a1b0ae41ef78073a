//! `cargo xtask test`: everything that CI checks, with its set-up.
//!
//! Cheap checks come first, so that a slip is told in seconds. All of them run on every machine that has rustup.

use crate::{docs, lab, score, setup, step, tidy};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Also run the tests that take minutes (every bundle in a hundred orders).
    #[arg(long)]
    long: bool,
}

/// Runs all checks.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    step::check("set-up", setup::run)?;
    step::check("format", || step::cargo(&["fmt", "--all", "--check"]))?;
    step::check("tidy", tidy::run)?;
    step::check("docs are fresh", docs::check)?;
    if step::is_installed("cargo-deny") {
        // The advisory database lives on a host that CI may not reach; licences, bans and sources need no network.
        step::check("dependencies", || {
            step::cargo(&["deny", "--offline", "check", "licenses", "bans", "sources"])
        })?;
    }
    step::check("lints", || {
        step::cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "--deny", "warnings"])
    })?;
    let mut binary = PathBuf::new();
    step::check("build", || {
        // With the tests, which need the same packages: built by itself it would compile most of them once more, with
        // other features.
        binary = score::build(&["--workspace", "--bins", "--tests", "--examples"])?;
        Ok(())
    })?;
    step::check("tests", || tests(&binary, arguments.long))?;
    // By themselves: each of its processes attaches kernel programs once, and some have to have one thread.
    step::check("kernel tests", || {
        step::cargo(&["test", "--quiet", "--workspace", "--test", "kernel", "--test", "processes"])
    })?;
    if arguments.long {
        step::check("kills", || lab::kill::in_short(&binary))?;
    }
    step::check("score", || score::of_corpus(&binary))
}

fn tests(binary: &Path, long: bool) -> Result<()> {
    // Named, so that no test asks cargo for it again.
    let with_binary = |command: &mut Command| {
        command.env("KVPROV_BIN", binary);
    };
    let mut run = step::cargo_command();
    with_binary(&mut run);
    if step::is_installed("cargo-nextest") {
        run.args([
            "nextest",
            "run",
            "--workspace",
            "--filterset",
            // The step "score" judges the corpus and prints it.
            "not binary(kernel) & not binary(processes) & not test(quiet_bundles_stay_quiet)",
        ]);
        run.args(["--no-fail-fast", "--status-level", "slow"]);
        if long {
            run.args(["--run-ignored", "all"]);
        }
        step::command(&mut run)?;
        // nextest runs no examples in documentation.
        let mut docs = step::cargo_command();
        with_binary(&mut docs);
        return step::command(docs.args(["test", "--quiet", "--workspace", "--doc"]));
    }
    run.args(["test", "--workspace", "--no-fail-fast"]);
    if long {
        run.args(["--", "--include-ignored"]);
    }
    step::command(&mut run)
}
