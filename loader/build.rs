//! Builds the kernel programs of `agent-ebpf/`, where the feature `attach` asks for them.
//!
//! They need a compiler that comes with the sources of its library, and bpf-linker. Whatever compiler builds the rest,
//! the first of these that has them builds the programs: `$KVPROV_BPF_RUSTC`, rustup's nightly, rustup's stable,
//! `/usr/bin/rustc`. The linker: `$KVPROV_BPF_LINKER`, `target/tools/bin/bpf-linker`, `bpf-linker` of the PATH.

#![allow(clippy::print_stdout, reason = "cargo reads what a build script prints")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    for variable in ["KVPROV_BPF_RUSTC", "KVPROV_BPF_LINKER"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_ATTACH").is_none() {
        return;
    }
    if let Err(message) = build() {
        for line in message.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn build() -> Result<(), String> {
    let variable = |name: &str| env::var(name).map_err(|error| format!("cargo did not set {name}: {error}"));
    let root = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("..");
    let out = PathBuf::from(variable("OUT_DIR")?);
    let programs = root.join("agent-ebpf");
    for watched in ["agent-ebpf/src", "agent-ebpf/Cargo.toml", "agent-ebpf/Cargo.lock", "agent-common/src"] {
        println!("cargo::rerun-if-changed={}", root.join(watched).display());
    }
    let rustc = compiler()?;
    let linker = linker(&root)?;
    let architecture = variable("CARGO_CFG_TARGET_ARCH")?;
    let target = out.join("kernel-programs");
    let flags = format!("--cfg=bpf_target_arch=\"{architecture}\"\x1f-Cdebuginfo=2\x1f-Clink-arg=--btf");
    let output = Command::new(variable("CARGO")?)
        .current_dir(&programs)
        .args(["build", "--locked", "--release", "--bins", "-Z", "build-std=core"])
        .args(["--target", "bpfel-unknown-none", "--target-dir"])
        .arg(&target)
        .env("RUSTC", &rustc)
        // Lets a stable compiler build its own library.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker)
        .env("CARGO_ENCODED_RUSTFLAGS", flags)
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .map_err(|error| format!("starting cargo for the kernel programs: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "building the kernel programs with {} and {} failed:\n{}",
            rustc.display(),
            linker.display(),
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    let built = target.join("bpfel-unknown-none/release/kvprov-kernel");
    std::fs::copy(&built, out.join("kvprov-kernel"))
        .map(|_| ())
        .map_err(|error| format!("copying {}: {error}", built.display()))
}

/// The first compiler with the sources of its library.
fn compiler() -> Result<PathBuf, String> {
    let mut candidates: Vec<PathBuf> =
        env::var_os("KVPROV_BPF_RUSTC").into_iter().map(PathBuf::from).collect();
    for toolchain in ["nightly", "stable"] {
        candidates.extend(
            printed(Command::new("rustup").args(["which", "--toolchain", toolchain, "rustc"]))
                .map(PathBuf::from),
        );
    }
    candidates.push(PathBuf::from("/usr/bin/rustc"));
    let tried = candidates.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    candidates.into_iter().find(|rustc| has_library_sources(rustc)).ok_or_else(|| {
        format!(
            "the kernel programs need a rustc that comes with the sources of its library; tried {tried}.\n\
             Run `cargo xtask setup`, or name one in KVPROV_BPF_RUSTC."
        )
    })
}

fn has_library_sources(rustc: &Path) -> bool {
    printed(Command::new(rustc).args(["--print", "sysroot"]).env_remove("RUSTUP_TOOLCHAIN")).is_some_and(
        |sysroot| Path::new(&sysroot).join("lib/rustlib/src/rust/library/core/src/lib.rs").exists(),
    )
}

fn linker(root: &Path) -> Result<PathBuf, String> {
    if let Some(named) = env::var_os("KVPROV_BPF_LINKER") {
        return Ok(named.into());
    }
    let own = root.join("target/tools/bin/bpf-linker");
    if own.exists() {
        // The programs are built in another directory.
        return own.canonicalize().map_err(|error| format!("finding {}: {error}", own.display()));
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .map(|directory| directory.join("bpf-linker"))
        .find(|program| program.exists())
        .ok_or_else(|| {
            format!(
                "the kernel programs need bpf-linker; it is neither {} nor in the PATH.\n\
                 Run `cargo xtask setup`, or name one in KVPROV_BPF_LINKER.",
                own.display()
            )
        })
}

/// What a command prints, if it succeeds.
fn printed(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
