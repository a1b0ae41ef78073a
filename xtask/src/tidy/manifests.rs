//! Rules on the manifests of our crates.

use crate::tree::SourceFile;
use anyhow::{Context, Result};
use toml::{Table, Value};

/// A `Cargo.toml` of ours.
pub(super) struct Manifest {
    /// Path from the root.
    pub(super) path: String,
    /// Name of the package.
    pub(super) name: String,
    /// Dependencies outside of tests and build scripts.
    pub(super) dependencies: Vec<String>,
    inherits_lints: bool,
}

/// The manifests of the packages in the tree. Workspaces of their own (`fuzz/`) are left out.
pub(super) fn read(files: &[SourceFile]) -> Result<Vec<Manifest>> {
    files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter_map(|file| parse(file).transpose())
        .collect()
}

/// Every crate inherits the lints of the workspace.
pub(super) fn lints(manifests: &[Manifest]) -> Vec<String> {
    manifests
        .iter()
        .filter(|manifest| !manifest.inherits_lints)
        .map(|manifest| {
            format!("{}: does not inherit the lints; add `[lints] workspace = true`", manifest.path)
        })
        .collect()
}

fn parse(file: &SourceFile) -> Result<Option<Manifest>> {
    let table: Table = file.text.parse().with_context(|| format!("parsing {}", file.path))?;
    let name = table.get("package").and_then(|package| package.get("name")).and_then(Value::as_str);
    let (Some(name), false) = (name, table.contains_key("workspace")) else { return Ok(None) };
    let dependencies = table
        .get("dependencies")
        .and_then(Value::as_table)
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default();
    let inherits = table.get("lints").and_then(|lints| lints.get("workspace")).and_then(Value::as_bool);
    Ok(Some(Manifest {
        path: file.path.clone(),
        name: name.to_owned(),
        dependencies,
        inherits_lints: inherits == Some(true),
    }))
}
