//! What is wrong with an input: said to people as what, where and what to do. Reading goes on after a problem.

use std::fmt;
use std::path::PathBuf;

/// One thing that is wrong with an input.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// Where: a file with its line, a path.
    pub place: String,
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub what_to_do: String,
}

/// No input could be used at all.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Nothing was named.
    #[error("reading a bundle: no path was given; name a bundle directory, or log, metrics or record files")]
    NoPaths,
    /// Nothing of what was named holds anything to read.
    #[error("reading {}: nothing to read in it{}", paths_text(.paths), problems_text(.problems))]
    NothingUsable {
        /// What was named.
        paths: Vec<PathBuf>,
        /// Why each of it cannot be used.
        problems: Vec<Problem>,
    },
}

fn paths_text(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn problems_text(problems: &[Problem]) -> String {
    if problems.is_empty() {
        return "; name a directory with incident.toml, or log, metrics or record files".to_owned();
    }
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

// === impl Problem ===

impl Problem {
    /// A problem.
    pub fn new(place: impl Into<String>, what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into(), what_to_do: what_to_do.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.place, self.what, self.what_to_do)
    }
}
