//! What kvprov saw: the artifact observations of a ledger.

use super::{Deed, Deeds};
use kvprov_collector::ledger::{EmbeddedLedger, IndexKind, Ledger, LedgerError, Limits};
use kvprov_model::observation::{ArtifactAction, Body};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

/// Reads every deed from a ledger that nobody else has open.
pub fn read(directory: &Path) -> Result<Deeds, LedgerError> {
    let ledger = EmbeddedLedger::open(directory, Limits::unbounded())?;
    let mut deeds = Deeds::new();
    let mut counted = BTreeSet::new();
    for key in ledger.keys(IndexKind::Store)? {
        ledger.visit(&key, &mut |observation| {
            if let Body::Artifact(artifact) = &observation.body
                && let (Some(pid), Some(name), Some(action)) = (artifact.pid, &artifact.key, &artifact.action)
                && let Some(deed) = deed(action)
                && counted.insert(observation.envelope.id)
            {
                *deeds.entry((pid, deed, name.clone())).or_default() += 1;
            }
            ControlFlow::Continue(())
        })?;
    }
    Ok(deeds)
}

fn deed(action: &ArtifactAction) -> Option<Deed> {
    match action {
        ArtifactAction::Written => Some(Deed::Wrote),
        ArtifactAction::Read | ArtifactAction::Partial => Some(Deed::Read),
        ArtifactAction::Removed | ArtifactAction::Cleared => Some(Deed::Removed),
        _ => None,
    }
}
