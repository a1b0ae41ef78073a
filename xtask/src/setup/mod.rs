//! Set-up of a fresh machine: what is missing is installed, with a line that says what and why.
//!
//! Nothing is installed that is there. The toolchain itself comes from rustup; `.ci/run` cares for a linker before
//! cargo can run at all.

mod kernel;

use crate::step;
use anyhow::{Context, Result};
use std::path::Path;
use std::process::Command;

/// `cargo xtask setup`: everything that any task calls.
pub(crate) fn task() -> Result<()> {
    let checks = checks()?;
    let kernel = kernel::run()?;
    if !tracefs() && !checks && !kernel.installed {
        println!("nothing to install: rustfmt and clippy are there, {}", kernel.found);
    }
    Ok(())
}

/// Makes sure that everything is there which the checks call.
pub(crate) fn run() -> Result<()> {
    checks()?;
    for_kernel_programs()
}

/// Makes sure that the kernel programs can be built, and attached where the user may.
pub(crate) fn for_kernel_programs() -> Result<()> {
    println!("    {}", kernel::run()?.found);
    tracefs();
    Ok(())
}

/// Mounts the file system of tracepoints, which a machine without systemd has not. Without the right to, kvprov says what
/// it cannot see.
fn tracefs() -> bool {
    const TRACEFS: &str = "/sys/kernel/tracing";
    if Path::new(TRACEFS).join("events").is_dir() {
        return false;
    }
    println!("    mounting tracefs on {TRACEFS}: kernel programs are attached to its tracepoints");
    if let Err(error) = step::command(Command::new("mount").args(["-t", "tracefs", "tracefs", TRACEFS])) {
        println!("    {error:#}; system calls will not be seen, everything else works");
    }
    true
}

/// What the checks call besides the kernel programs; `true` when something was installed.
fn checks() -> Result<bool> {
    let mut installed = component("rustfmt", "cargo-fmt", "the format check calls it")?;
    installed |= component("clippy", "cargo-clippy", "the lints call it")?;
    if std::env::var_os("KVPROV_DENY").is_some() && !step::is_installed("cargo-deny") {
        println!("    installing cargo-deny by cargo: KVPROV_DENY asks for its checks; this takes minutes");
        step::cargo(&["install", "--locked", "cargo-deny"])?;
        installed = true;
    }
    Ok(installed)
}

/// Installs a Debian package unless its program is there.
pub(crate) fn package(program: &str, package: &str, why: &str) -> Result<()> {
    if step::is_installed(program) {
        return Ok(());
    }
    println!("    installing {package} by apt: {why}");
    // Old package lists often do; if not, the installation says so.
    if let Err(error) = step::command(Command::new("apt-get").args(["update", "-qq"])) {
        println!("    {error:#}; going on with the lists that are there");
    }
    step::command(Command::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args([
        "install",
        "-y",
        "-qq",
        "--no-install-recommends",
        package,
    ]))
    .with_context(|| format!("installing {package}; as another user than root install it by hand"))
}

fn component(name: &str, program: &str, why: &str) -> Result<bool> {
    if step::is_installed(program) {
        return Ok(false);
    }
    println!("    installing {name} by rustup: {why}");
    step::command(Command::new("rustup").args(["component", "add", name]))?;
    Ok(true)
}
