//! What can be wrong with a pack, with file and line.

use std::fmt;

/// One error of one pack file. Prints as `file:line: where: what; what to do`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub struct PackError {
    /// The file, relative to the folder of packs' parent.
    pub file: String,
    /// The line, counted from 1; 0 for the file as a whole.
    pub line: usize,
    /// What is concerned: `template vllm-…`; may be empty.
    pub subject: String,
    /// What is wrong and what to do.
    pub problem: String,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.subject.is_empty() {
            write!(f, ": {}", self.subject)?;
        }
        write!(f, ": {}", self.problem)
    }
}
