//! One step of a task: a named command or check whose time is printed.

use anyhow::{Context, Result, bail};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Runs a check under a name, and says how long it took.
pub(crate) fn check(name: &str, work: impl FnOnce() -> Result<()>) -> Result<()> {
    println!("==> {name}");
    let start = Instant::now();
    work().with_context(|| name.to_owned())?;
    println!("    {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Runs a command at the root of the tree; its output goes to the terminal.
pub(crate) fn command(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    let status = command
        .current_dir(crate::tree::root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting `{shown}`"))?;
    if !status.success() {
        bail!("`{shown}` failed ({status}); its output above says why");
    }
    Ok(())
}

/// Runs cargo at the root of the tree.
pub(crate) fn cargo(arguments: &[&str]) -> Result<()> {
    command(cargo_command().args(arguments))
}

/// The cargo that runs this task.
pub(crate) fn cargo_command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Whether a program is on PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
}

fn shown(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
