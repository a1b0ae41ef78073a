//! Paths that a pattern names.

use super::files::Files;
use glob::{MatchOptions, Pattern};
use std::path::{Component, Path, PathBuf};

/// A `*` stops at a slash and leaves out hidden names.
const OPTIONS: MatchOptions =
    MatchOptions { case_sensitive: true, require_literal_separator: true, require_literal_leading_dot: true };

/// Files that fit, at most `limit`; the shorter names first, so that a live file comes before its rotations.
pub(super) fn expand(files: &dyn Files, pattern: &Path, limit: usize) -> Vec<PathBuf> {
    let mut found = vec![PathBuf::new()];
    for component in pattern.components() {
        let Component::Normal(name) = component else {
            found.iter_mut().for_each(|path| path.push(component));
            continue;
        };
        let name = name.to_string_lossy();
        if !name.contains(['*', '?', '[']) {
            found.iter_mut().for_each(|path| path.push(&*name));
            continue;
        }
        let Ok(pattern) = Pattern::new(&name) else { return Vec::new() };
        let mut next = Vec::new();
        for directory in &found {
            for name in files.list(directory).unwrap_or_default() {
                if pattern.matches_with(&name.to_string_lossy(), OPTIONS) {
                    next.push(directory.join(name));
                }
                if next.len() >= limit {
                    break;
                }
            }
        }
        found = next;
    }
    found.retain(|path| files.stat(path).is_ok_and(|stat| stat.is_regular));
    found.sort_by(|a, b| a.as_os_str().len().cmp(&b.as_os_str().len()).then_with(|| a.cmp(b)));
    found
}
