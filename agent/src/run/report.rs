//! What the agent says to people while it runs.

use crate::discover::Change;

/// One thing to say.
#[derive(Debug, Clone)]
pub enum Report {
    /// Something about a worker.
    Worker(Change),
    /// A log is followed, or the bytes that the kernel saw are read in its place.
    Output {
        /// The worker.
        worker: String,
        /// What is read, in words.
        what: String,
    },
    /// Something that cannot be seen, and why.
    Blind(String),
}
