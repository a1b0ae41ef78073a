//! The incident corpus: every directory with an `expected.toml` is a bundle.

use std::io;
use std::path::{Path, PathBuf};

/// Directory of the vendored corpus.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("incidents")
}

/// Bundles below `root`, in order of their paths.
pub fn bundles(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(root, &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(directory: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if directory.join("expected.toml").is_file() {
        found.push(directory.to_owned());
    }
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        }
    }
    Ok(())
}
