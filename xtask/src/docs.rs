//! `cargo xtask docs`: the generated pages of docs/. `cargo xtask test` fails when one is stale.

use crate::tree;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// Generated pages: path from the root, and the text that belongs there.
fn pages() -> Vec<(&'static str, String)> {
    vec![("docs/observations.md", kvprov_model::observation::reference::markdown())]
}

/// Writes every page.
pub(crate) fn write() -> Result<()> {
    for (path, text) in pages() {
        let file = at(path);
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("making the directory of {path}"))?;
        }
        std::fs::write(&file, text).with_context(|| format!("writing {path}"))?;
        println!("wrote {path}");
    }
    Ok(())
}

/// Fails when a page is not what would be written.
pub(crate) fn check() -> Result<()> {
    for (path, text) in pages() {
        let found = std::fs::read_to_string(at(path))
            .with_context(|| format!("reading {path}; `cargo xtask docs` writes it"))?;
        if found != text {
            bail!("{path} is stale: run `cargo xtask docs` and commit the page");
        }
    }
    Ok(())
}

fn at(path: &str) -> PathBuf {
    tree::root().join(path)
}
