//! The kernel programs beside bpftrace: `loader/examples/kernel_cost.rs` measures, this reads its figures.

use super::figure::{Figure, Goal};
use crate::{setup, step, tree};
use anyhow::{Context, Result, bail};
use std::process::Stdio;

/// Measures in so many turns.
pub(super) fn run(rounds: Option<usize>) -> Result<Vec<Figure>> {
    setup::for_kernel_programs()?;
    setup::package("bpftrace", "bpftrace", "the kernel programs are compared with it")?;
    let mut command = step::cargo_command();
    command.args(["run", "--quiet", "--release", "--package", "kvprov-loader", "--features", "attach"]);
    command.args(["--example", "kernel_cost", "--"]).args(rounds.map(|rounds| rounds.to_string()));
    let output = command
        .current_dir(tree::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("running the example kernel_cost")?;
    if !output.status.success() {
        bail!("the example kernel_cost failed; its words above say why (it needs root)");
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let (figures, words): (Vec<&str>, Vec<&str>) =
        printed.lines().partition(|line| line.starts_with("figure\t"));
    println!("{}", words.join("\n"));
    figures.into_iter().map(|line| figure(line).with_context(|| format!("reading {line:?}"))).collect()
}

fn figure(line: &str) -> Option<Figure> {
    let mut parts = line.split('\t').skip(1);
    let (name, value, goal) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Figure::new(name, value.parse().ok()?, "x", Goal::AtMost(goal.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_example_is_a_figure_and_others_are_not() {
        let read = figure("figure\tworker: write\t0.512\t0.8");
        assert_eq!(read, Some(Figure::new("worker: write", 0.512, "x", Goal::AtMost(0.8))));
        assert_eq!(figure("figure\tworker: write\tmuch\t0.8"), None);
    }
}
