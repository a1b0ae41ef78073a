//! Installs one thing, and says what and why.

use super::facts::Facts;
use super::plan::Step;
use crate::{step, tree};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The linker, with the release that the kernel programs were built and tested with.
const LINKER: &str = "bpf-linker@0.13.0";
/// How apt is called: without questions, progress and packages that nothing needs.
const APT: [&str; 6] = ["install", "-y", "-qq", "-o", "Dpkg::Use-Pty=0", "--no-install-recommends"];
/// Where Debian puts the library of LLVM 22.
const LLVM: [&str; 2] =
    ["/usr/lib/x86_64-linux-gnu/libLLVM.so.22.1", "/usr/lib/aarch64-linux-gnu/libLLVM.so.22.1"];

/// Does one step.
pub(super) fn step(step: &Step, facts: &Facts) -> Result<()> {
    match step {
        Step::Packages(packages) => {
            println!(
                "    installing {} by apt: a compiler with the sources of its library, and the LLVM of the linker, \
                 build the kernel programs",
                packages.join(" ")
            );
            let arguments = [APT.as_slice(), packages.as_slice()].concat();
            if let Err(error) = as_root(facts, "apt-get", &arguments) {
                println!("    {error:#}; once more with new lists: old ones name packages that are gone");
                as_root(facts, "apt-get", &["update", "-qq"])?;
                as_root(facts, "apt-get", &arguments)
                    .with_context(|| format!("installing {}", packages.join(" ")))?;
            }
            Ok(())
        }
        Step::Nightly => {
            println!(
                "    installing the nightly toolchain by rustup, with sources: it builds the kernel programs"
            );
            let arguments =
                ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"];
            step::command(Command::new("rustup").args(arguments))
        }
        Step::LinkerOfDebian => linker_of_debian(facts),
        Step::LinkerBuilt => linker_built(),
    }
}

/// The library, if it is installed.
pub(super) fn llvm_library() -> Option<PathBuf> {
    LLVM.into_iter().map(PathBuf::from).find(|path| path.exists())
}

/// Runs a command as root, by sudo where this is somebody else.
pub(super) fn as_root(facts: &Facts, program: &str, arguments: &[&str]) -> Result<()> {
    let mut command = if facts.root {
        Command::new(program)
    } else {
        let mut command = Command::new("sudo");
        command.args(["-n", "DEBIAN_FRONTEND=noninteractive", program]);
        command
    };
    step::command(command.env("DEBIAN_FRONTEND", "noninteractive").args(arguments))
}

/// Below the tree, also where cargo builds elsewhere: the build of the kernel programs looks here.
fn tools() -> Result<PathBuf> {
    let tools = tree::root().join("target/tools");
    std::fs::create_dir_all(&tools).with_context(|| format!("making {}", tools.display()))?;
    tools.canonicalize().with_context(|| format!("finding {}", tools.display()))
}

fn linker_of_debian(facts: &Facts) -> Result<()> {
    let tools = tools()?;
    println!(
        "    building bpf-linker into {} by cargo: it links the kernel programs; this takes minutes",
        tools.display()
    );
    let library = facts.llvm.as_deref().context("the library of LLVM 22 is gone")?;
    let prefix = tools.join("llvm");
    offer(library, &prefix.join("lib/libLLVM.so"))?;
    let build = tools.join("build");
    let mut cargo = step::cargo_command();
    cargo.args(["install", "--locked", "--force", "--quiet", LINKER]);
    cargo.args(["--no-default-features", "--features", "llvm-22", "--root"]).arg(&tools);
    cargo.arg("--target-dir").arg(&build);
    // Else it takes another LLVM that it finds, and fails to link.
    let result = step::command(cargo.env("LLVM_PREFIX", &prefix));
    // Two hundred megabytes that nobody needs again.
    if let Err(error) = std::fs::remove_dir_all(&build) {
        println!("    {}: {error}; it can be removed", build.display());
    }
    result
}

/// Makes the library findable under the name that linking asks for; only its runtime name is in the package.
fn offer(library: &Path, name: &Path) -> Result<()> {
    let directory = name.parent().context("a name without a directory")?;
    std::fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    match std::fs::remove_file(name) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("replacing {}", name.display()));
        }
        _ => {}
    }
    std::os::unix::fs::symlink(library, name).with_context(|| format!("linking {}", name.display()))
}

fn linker_built() -> Result<()> {
    let tools = tools()?;
    if !step::is_installed("cargo-binstall") && !tools.join("bin/cargo-binstall").exists() {
        println!(
            "    building cargo-binstall by cargo: it fetches bpf-linker as its authors built it; this takes minutes"
        );
        let mut cargo = step::cargo_command();
        let build = tools.join("build");
        cargo.args(["install", "--locked", "--quiet", "cargo-binstall", "--root"]).arg(&tools);
        let result = step::command(cargo.arg("--target-dir").arg(&build));
        if let Err(error) = std::fs::remove_dir_all(&build) {
            println!("    {}: {error}; it can be removed", build.display());
        }
        result.with_context(by_hand)?;
    }
    println!(
        "    fetching bpf-linker into {} by cargo-binstall: it links the kernel programs",
        tools.display()
    );
    let own = tools.join("bin/cargo-binstall");
    let program = if own.exists() { own } else { "cargo-binstall".into() };
    let mut command = Command::new(program);
    command.args(["--no-confirm", "--disable-telemetry", "--root"]).arg(&tools).arg(LINKER);
    step::command(&mut command).with_context(by_hand)
}

fn by_hand() -> String {
    format!(
        "installing {LINKER}; put a built one on the PATH (https://github.com/aya-rs/bpf-linker/releases)"
    )
}
