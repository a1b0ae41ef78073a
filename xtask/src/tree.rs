//! The source tree: where it is, and its files.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// Directories that hold no source of ours.
const SKIPPED: [&str; 5] = ["target", ".git", "corpus", "artifacts", "incidents"];

/// Root of the workspace.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// A file of the tree.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    /// Its text.
    pub(crate) text: String,
}

/// Files of ours with one of these extensions; recorded incidents and build output are left out.
pub(crate) fn files(extensions: &[&str]) -> Result<Vec<SourceFile>> {
    let mut found = Vec::new();
    collect(&root(), "", extensions, &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn collect(directory: &Path, prefix: &str, extensions: &[&str], found: &mut Vec<SourceFile>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("listing {}", directory.display()))?;
    for entry in entries {
        let entry = entry.with_context(|| format!("listing {}", directory.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if entry.file_type().with_context(|| format!("looking at {}", path.display()))?.is_dir() {
            if !SKIPPED.contains(&name.as_str()) {
                collect(&path, &format!("{prefix}{name}/"), extensions, found)?;
            }
        } else if extensions.iter().any(|extension| name.ends_with(&format!(".{extension}"))) {
            let text =
                std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            found.push(SourceFile { path: format!("{prefix}{name}"), text });
        }
    }
    Ok(())
}

impl SourceFile {
    /// Whether the whole file is test code.
    pub(crate) fn is_test(&self) -> bool {
        self.path.starts_with("tests/")
            || self.path.starts_with("fuzz/")
            || self.path.split('/').any(|part| matches!(part, "tests" | "tests.rs" | "benches"))
            || self.path.ends_with("_tests.rs")
    }

    /// Lines before the test module that are no comments, with their index: what runs in production.
    pub(crate) fn code_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let before = self.text.split("#[cfg(test)]").next().unwrap_or_default();
        before.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}
