//! What is there. The order in which compilers and linkers are looked for is that of `loader/build.rs`.

use super::install;
use super::plan::PACKAGES;
use crate::{step, tree};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the sources of the library are, below what `rustc --print sysroot` says.
const SOURCES: &str = "lib/rustlib/src/rust/library/core/src/lib.rs";

/// A compiler with sources.
#[derive(Debug, Clone)]
pub(super) struct Compiler {
    pub(super) path: PathBuf,
    /// Major version of the LLVM that it writes for.
    pub(super) llvm: u32,
}

/// What is there.
#[derive(Debug, Clone, Default)]
pub(super) struct Facts {
    /// A compiler with sources.
    pub(super) compiler: Option<Compiler>,
    /// A bpf-linker that starts.
    pub(super) linker: Option<PathBuf>,
    /// The library of Debian's LLVM 22.
    pub(super) llvm: Option<PathBuf>,
    /// apt has the packages. Not looked at when nothing is missing.
    pub(super) debian: bool,
    /// rustup is on the PATH.
    pub(super) rustup: bool,
    /// This is root.
    pub(super) root: bool,
    /// sudo works without a question.
    pub(super) sudo: bool,
}

// === impl Facts ===

impl Facts {
    /// Looks. With `again`, the lists of packages are as new as they get.
    pub(super) fn gather(again: bool) -> Self {
        let mut facts = Self {
            compiler: compiler(),
            linker: linker(),
            llvm: install::llvm_library(),
            rustup: step::is_installed("rustup"),
            root: std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0),
            ..Self::default()
        };
        if facts.compiler.is_some() && facts.linker.is_some() {
            return facts;
        }
        facts.sudo = !facts.root && succeeds(Command::new("sudo").args(["-n", "true"]));
        facts.debian = step::is_installed("apt-get") && packages_are_known(&facts, again);
        facts
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.compiler {
            Some(compiler) => write!(out, "{} with its sources", compiler.path.display())?,
            None => write!(out, "no compiler with sources")?,
        }
        match &self.linker {
            Some(linker) => write!(out, " and {} build the kernel programs", linker.display()),
            None => write!(out, " and no bpf-linker"),
        }
    }
}

fn packages_are_known(facts: &Facts, again: bool) -> bool {
    let knows = |package: &&str| succeeds(Command::new("apt-cache").args(["show", package]));
    let unknown = || PACKAGES.iter().filter(|package| !knows(package)).copied().collect::<Vec<_>>();
    let missing = unknown();
    if missing.is_empty() || again {
        return missing.is_empty();
    }
    if !facts.root && !facts.sudo {
        // The lists cannot be refreshed; a Debian has the packages.
        return Path::new("/etc/debian_version").exists() && is_debian();
    }
    println!("    refreshing the lists of apt: they do not know {}", missing.join(" "));
    if let Err(error) = install::as_root(facts, "apt-get", &["update", "-qq"]) {
        println!("    {error:#}; going on with the lists that are there");
    }
    unknown().is_empty()
}

/// Debian itself: those derived from it have other packages.
fn is_debian() -> bool {
    std::fs::read_to_string("/etc/os-release").is_ok_and(|text| text.lines().any(|line| line == "ID=debian"))
}

fn compiler() -> Option<Compiler> {
    let mut candidates: Vec<PathBuf> =
        std::env::var_os("KVPROV_BPF_RUSTC").into_iter().map(PathBuf::from).collect();
    for toolchain in ["nightly", "stable"] {
        let which = printed(Command::new("rustup").args(["which", "--toolchain", toolchain, "rustc"]));
        candidates.extend(which.map(|path| PathBuf::from(path.trim())));
    }
    candidates.push("/usr/bin/rustc".into());
    candidates.into_iter().find_map(|path| {
        let ask =
            |arguments: &[&str]| printed(Command::new(&path).args(arguments).env_remove("RUSTUP_TOOLCHAIN"));
        let sysroot = ask(&["--print", "sysroot"])?;
        if !Path::new(sysroot.trim()).join(SOURCES).exists() {
            return None;
        }
        let version = ask(&["-vV"])?;
        Some(Compiler { llvm: llvm_of(&version)?, path })
    })
}

/// The major version in `LLVM version: 22.1.8`.
fn llvm_of(version: &str) -> Option<u32> {
    let number = version.lines().find_map(|line| line.strip_prefix("LLVM version: "))?;
    number.split('.').next()?.parse().ok()
}

fn linker() -> Option<PathBuf> {
    let named = std::env::var_os("KVPROV_BPF_LINKER").map(PathBuf::from);
    let own = tree::root().join("target/tools/bin/bpf-linker").canonicalize().ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path =
        std::env::split_paths(&path).map(|directory| directory.join("bpf-linker")).find(|it| it.is_file());
    // It does not start when the library that it was linked with is gone.
    let starts = |path: &PathBuf| succeeds(Command::new(path).arg("--version"));
    [named, own, on_path].into_iter().flatten().find(starts)
}

fn printed(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_of_llvm_is_read() {
        assert_eq!(llvm_of("rustc 1.96.0\nrelease: 1.96.0\nLLVM version: 22.1.8\n"), Some(22));
        assert_eq!(llvm_of("rustc 1.96.0\n"), None);
    }
}
