//! `cargo xtask tidy`: rules of the tree that no compiler knows.
//!
//! A rule is a function from the tree to its violations; each says what is wrong, where, and what to do. The
//! invariants of `docs/ARCHITECTURE.md` name the rule that holds them.

mod dependencies;
mod engine_text;
mod manifests;
mod rooms;
mod text;

use crate::tree::{self, SourceFile};
use anyhow::{Result, bail};

/// Checks all rules.
pub(crate) fn run() -> Result<()> {
    let sources = tree::files(&["rs"])?;
    let prose = tree::files(&["rs", "toml", "md", "yaml", "yml", "sh"])?;
    let manifests = manifests::read(&prose)?;
    let mut violations = Vec::new();
    violations.extend(rooms::imports(&sources));
    violations.extend(rooms::dependencies(&manifests));
    violations.extend(manifests::lints(&manifests));
    violations.extend(text::length(&sources));
    violations.extend(text::module_docs(&sources));
    violations.extend(text::unfinished(&sources));
    violations.extend(text::unsafe_code(&sources));
    violations.extend(text::machine_paths(&prose));
    violations.extend(engine_text::outside_packs(&sources, &prose));
    violations.extend(dependencies::licences_and_duplicates()?);
    if violations.is_empty() {
        return Ok(());
    }
    for violation in &violations {
        println!("{violation}");
    }
    bail!("{} violations of the rules of the tree, listed above", violations.len());
}

/// A place in a file, for people.
fn at(file: &SourceFile, line: usize) -> String {
    format!("{}:{}", file.path, line + 1)
}
