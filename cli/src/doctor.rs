//! `kvprov doctor`: what this node can and cannot observe, and what to change.

use kvprov_loader::abilities::{self, State};
use kvprov_loader::privileges::{CAPABILITIES, Held, Status};
use std::io::{self, Write};
use std::process::ExitCode;

/// Exit status when something is missing, or kernel programs see less than they could.
const MISSING: u8 = 1;

/// Prints every ability, then every capability with its reason.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let found = abilities::own()?;
    for ability in &found {
        let mark = match ability.state {
            State::Good => "ok     ",
            State::Limited => "limited",
            State::Missing => "MISSING",
        };
        writeln!(out, "{mark}  {:<18} {}", ability.name, ability.found)?;
        if ability.state != State::Good {
            writeln!(out, "         {:<18} costs: {}", "", ability.cost)?;
            writeln!(out, "         {:<18} do: {}", "", ability.advice)?;
        }
    }
    let kernel = abilities::kernel_version();
    let held = Held::of(Status::own()?.effective, kernel);
    writeln!(
        out,
        "\nCapabilities (the parent keeps these and drops the rest; agent and collector hold none):"
    )?;
    for (need, is_held) in &held.needs {
        let mark = if *is_held { "ok     " } else { "MISSING" };
        writeln!(out, "{mark}  {:<22} {}: {}", need.name(), need.feature, need.reason)?;
    }
    let other = CAPABILITIES.iter().filter(|need| !need.applies_to(kernel));
    for need in other {
        writeln!(out, "         {:<22} not on this kernel: {}", need.name(), need.feature)?;
    }
    let is_whole = found.iter().all(|ability| ability.state != State::Missing)
        && abilities::all_kernel_programs(&found).is_ok()
        && held.missing().next().is_none();
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(MISSING) })
}
