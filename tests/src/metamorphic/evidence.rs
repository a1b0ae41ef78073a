//! A finding stands on its evidence: without the lines that prove it, it weakens or goes.
//!
//! Evidence may name one line of several that say the same (ranks, retries). So its lines are deleted again and again
//! until the finding weakens; one that outlives [`ROUNDS`] such deletions did not stand on what it showed.

use crate::bundle::{Bundle, text};
use crate::verdict::Found;
use std::collections::{BTreeMap, BTreeSet};

/// Deletions after which a finding must have weakened.
pub const ROUNDS: usize = 8;

/// What became of a finding whose evidence was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weakened {
    /// It is gone, less sure, or about less.
    Yes,
    /// It says the same as before.
    No,
}

/// The bundle without the lines on which the finding stands; `None` where it stands on no line that could be deleted
/// alone (settings, a snapshot of metrics).
pub fn without_evidence(bundle: &Bundle, found: &Found) -> Option<Bundle> {
    let kinds: BTreeMap<&str, &str> =
        bundle.sources().filter_map(|source| Some((text(source, "file")?, text(source, "kind")?))).collect();
    let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for proof in &found.evidence {
        let kind = kinds.get(proof.source.as_str())?;
        if proof.line == 0 || *kind == "metrics" {
            return None;
        }
        lines.entry(&proof.source).or_default().insert(proof.line);
    }
    if lines.is_empty() {
        return None;
    }
    let mut edited = bundle.clone();
    for (file, lines) in lines {
        let bytes = edited.files.get_mut(file)?;
        let kept: Vec<&[u8]> = bytes
            .split_inclusive(|byte| *byte == b'\n')
            .enumerate()
            .filter(|(index, _)| !lines.contains(&(index + 1)))
            .map(|(_, line)| line)
            .collect();
        *bytes = kept.concat();
    }
    Some(edited)
}

impl Weakened {
    /// Compares a finding with those after the deletion. Findings of the same detector are its successors.
    pub fn between(before: &Found, after: &[Found]) -> Self {
        let as_strong = |found: &&Found| {
            found.detector == before.detector
                && found.confidence >= before.confidence
                && found.cause == before.cause
                && found.count >= before.count
                && found.tokens >= before.tokens
                && found.requests.is_superset(&before.requests)
                && found.workers == before.workers
        };
        if after.iter().any(|found| as_strong(&found)) { Self::No } else { Self::Yes }
    }

    /// The finding after the deletion that is as strong, to delete its evidence in turn.
    pub fn successor<'f>(before: &Found, after: &'f [Found]) -> Option<&'f Found> {
        after.iter().find(|found| Self::between(before, std::slice::from_ref(*found)) == Self::No)
    }
}
