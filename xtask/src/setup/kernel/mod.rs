//! What builds the kernel programs: a compiler that comes with the sources of its library, and bpf-linker.
//!
//! The programs run on no target that rustup has a library for, so that theirs is built from its sources. On Debian both
//! come from packages (a newer rustc than the distribution's own, made for the web, and LLVM 22); elsewhere from rustup
//! and as a built linker. The linker is put into `target/tools` of this tree, wherever other build output goes.
//!
//! One thing is installed after the other, and what is there is looked at anew each time: so a second run finds
//! everything, and an interrupted one is taken up where it ended.

mod facts;
mod install;
mod plan;

use anyhow::{Result, bail};
use facts::Facts;

/// How it ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Whether anything had to be installed.
    pub(crate) installed: bool,
    /// What is there, in words.
    pub(crate) found: String,
}

/// Installs what is missing.
pub(crate) fn run() -> Result<Outcome> {
    let mut done = Vec::new();
    loop {
        let facts = Facts::gather(!done.is_empty());
        let Some(step) = plan::next(&facts)? else {
            return Ok(Outcome { installed: !done.is_empty(), found: facts.to_string() });
        };
        if done.contains(&step) {
            bail!("{step:?} was done and did not help; there is {facts}");
        }
        install::step(&step, &facts)?;
        done.push(step);
    }
}
