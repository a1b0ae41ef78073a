//! What to install next, given what is there. Pure, so that tests can state a machine.

use super::facts::Facts;
use anyhow::{Result, bail};

/// Packages with a compiler and the sources of its library.
const COMPILER: [&str; 2] = ["rustc-web", "rust-web-src"];
/// The package with the library that bpf-linker links.
const LLVM: &str = "libllvm22";
/// All of them.
pub(super) const PACKAGES: [&str; 3] = [COMPILER[0], COMPILER[1], LLVM];
/// Newest output of a compiler that this library reads.
const LLVM_MAJOR: u32 = 22;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Debian packages.
    Packages(Vec<&'static str>),
    /// The nightly toolchain of rustup with the sources.
    Nightly,
    /// bpf-linker, linked against Debian's LLVM.
    LinkerOfDebian,
    /// bpf-linker as its authors built it, with an LLVM inside.
    LinkerBuilt,
}

/// The next thing to do; `None` when all is there.
///
/// # Errors
/// When this machine offers no way, or only root can go it: what to type then.
pub(super) fn next(facts: &Facts) -> Result<Option<Step>> {
    let mut packages = Vec::new();
    if facts.compiler.is_none() {
        if facts.debian {
            packages.extend(COMPILER);
        } else if facts.rustup {
            return Ok(Some(Step::Nightly));
        } else {
            bail!(
                "the kernel programs need a rustc that comes with the sources of its library, and there is neither \
                 rustup nor a Debian that has one; install rustup (https://rustup.rs), or name one in KVPROV_BPF_RUSTC"
            );
        }
    }
    // A compiler that writes for a newer LLVM than Debian has needs a linker that reads it.
    let newer = facts.compiler.as_ref().is_some_and(|compiler| compiler.llvm > LLVM_MAJOR);
    let of_debian = facts.linker.is_none() && !newer && (facts.debian || facts.llvm.is_some());
    if of_debian && facts.llvm.is_none() {
        packages.push(LLVM);
    }
    if !packages.is_empty() {
        if facts.root || facts.sudo {
            return Ok(Some(Step::Packages(packages)));
        }
        bail!(
            "the kernel programs need packages that only root may install. Type:\n    sudo apt-get update && sudo \
             apt-get install -y --no-install-recommends {}\nand try again",
            packages.join(" ")
        );
    }
    Ok(match facts.linker {
        Some(_) => None,
        None if of_debian => Some(Step::LinkerOfDebian),
        None => Some(Step::LinkerBuilt),
    })
}

#[cfg(test)]
mod tests {
    use super::super::facts::Compiler;
    use super::*;

    fn fresh_debian() -> Facts {
        Facts { debian: true, root: true, rustup: true, ..Facts::default() }
    }

    fn compiler(llvm: u32) -> Option<Compiler> {
        Some(Compiler { path: "/usr/bin/rustc".into(), llvm })
    }

    #[test]
    fn a_fresh_debian_gets_all_packages_at_once_and_then_the_linker() {
        let mut facts = fresh_debian();
        let all = Step::Packages(vec!["rustc-web", "rust-web-src", "libllvm22"]);
        assert_eq!(next(&facts).unwrap(), Some(all));
        facts.compiler = compiler(22);
        facts.llvm = Some("/usr/lib/libLLVM.so.22.1".into());
        assert_eq!(next(&facts).unwrap(), Some(Step::LinkerOfDebian));
        facts.linker = Some("target/tools/bin/bpf-linker".into());
        assert_eq!(next(&facts).unwrap(), None);
    }

    #[test]
    fn what_is_there_is_not_installed_again() {
        let facts = Facts { compiler: compiler(22), ..fresh_debian() };
        assert_eq!(next(&facts).unwrap(), Some(Step::Packages(vec!["libllvm22"])));
        let facts = Facts { linker: Some("bpf-linker".into()), ..fresh_debian() };
        assert_eq!(next(&facts).unwrap(), Some(Step::Packages(vec!["rustc-web", "rust-web-src"])));
    }

    #[test]
    fn elsewhere_rustup_and_a_built_linker_serve() {
        let mut facts = Facts { rustup: true, ..Facts::default() };
        assert_eq!(next(&facts).unwrap(), Some(Step::Nightly));
        facts.compiler = compiler(23);
        assert_eq!(next(&facts).unwrap(), Some(Step::LinkerBuilt));
    }

    #[test]
    fn a_compiler_newer_than_the_llvm_of_debian_gets_a_linker_that_reads_it() {
        let facts = Facts { compiler: compiler(23), ..fresh_debian() };
        assert_eq!(next(&facts).unwrap(), Some(Step::LinkerBuilt));
    }

    #[test]
    fn who_is_not_root_is_told_what_to_type() {
        let facts = Facts { root: false, ..fresh_debian() };
        let message = next(&facts).unwrap_err().to_string();
        assert!(
            message
                .contains("sudo apt-get install -y --no-install-recommends rustc-web rust-web-src libllvm22")
        );
        let facts = Facts { sudo: true, ..facts };
        assert!(matches!(next(&facts).unwrap(), Some(Step::Packages(_))));
    }

    #[test]
    fn without_root_nothing_is_asked_when_the_packages_are_there() {
        let facts = Facts {
            root: false,
            compiler: compiler(22),
            llvm: Some("/usr/lib/libLLVM.so.22.1".into()),
            ..fresh_debian()
        };
        assert_eq!(next(&facts).unwrap(), Some(Step::LinkerOfDebian));
    }

    #[test]
    fn with_neither_rustup_nor_debian_there_is_no_way() {
        let message = next(&Facts::default()).unwrap_err().to_string();
        assert!(message.contains("https://rustup.rs") && message.contains("KVPROV_BPF_RUSTC"));
    }
}
