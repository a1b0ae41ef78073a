//! What a message says, to compare it with what its rebuilt form says.

use kvprov_model::observation::Body;
use kvprov_packs::Match;
use std::collections::BTreeMap;

/// All that the reader takes from a match.
#[derive(Debug, PartialEq)]
pub(super) struct Kept {
    template: String,
    body: Option<Body>,
    says: String,
    facts: BTreeMap<String, String>,
    settings: BTreeMap<String, String>,
    is_meaningless: bool,
}

// === impl Kept ===

impl Kept {
    pub(super) fn of(found: &Match<'_>) -> Self {
        Self {
            template: found.template.id.clone(),
            body: found.body(),
            says: found.says(),
            facts: found.facts(),
            settings: found.settings(),
            is_meaningless: found.is_meaningless(),
        }
    }
}
