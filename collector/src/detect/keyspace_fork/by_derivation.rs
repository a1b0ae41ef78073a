//! Printed key derivations: the same tokens on two engines gave two keys.

use super::finish;
use crate::detect::draft::Draft;
use crate::detect::keyspace_fork::by_blocks::differs;
use crate::view::View;
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{Body, KeyDerivation, Observation};
use std::collections::BTreeMap;

/// The complete set of findings on the fleet.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let fleet = view.fleet();
    let derivations: Vec<(&Observation, &KeyDerivation)> = fleet
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::KeyDerivation(derivation) => Some((observation, derivation)),
            _ => None,
        })
        .collect();
    let mut drafts: BTreeMap<(String, Cause), Draft> = BTreeMap::new();
    for (index, (a, left)) in derivations.iter().enumerate() {
        for (b, right) in derivations.iter().skip(index + 1).filter(|(b, _)| b.worker() != a.worker()) {
            let Some(cause) = disagree(view, (a, left), (b, right)) else { continue };
            let mut pair = [a.worker(), b.worker()];
            pair.sort_unstable();
            let draft = drafts.entry((pair.join(", "), cause.clone())).or_insert_with(|| {
                let mut draft =
                    Draft::new(Detector::KeyspaceFork, cause, Confidence::Suspected, pair.join(", "));
                draft.worker(pair[0]).worker(pair[1]);
                draft.unknown("whether all tokens are equal: only the first ones are printed");
                draft
            });
            draft.proof(a).proof(b);
        }
    }
    drafts
        .into_iter()
        .map(|((_, cause), draft)| {
            finish(draft, &cause, "as the keys show that both print for the same tokens")
        })
        .collect()
}

fn disagree(
    view: &View<'_>,
    a: (&Observation, &KeyDerivation),
    b: (&Observation, &KeyDerivation),
) -> Option<Cause> {
    let (left, right) = (a.1, b.1);
    let first_equal =
        left.first_token_digest.is_some() && left.first_token_digest == right.first_token_digest;
    if let (Some(x), Some(y)) = (&left.token_form, &right.token_form) {
        if x != y && first_equal {
            return Some(Cause::TokenForm);
        }
    }
    let same_input = left.tokens_digest.is_some()
        && left.tokens_digest == right.tokens_digest
        && left.parent == right.parent
        && left.tokens == right.tokens;
    if !same_input || left.result.is_none() || right.result.is_none() || left.result == right.result {
        return None;
    }
    let members = (
        view.roster().get(a.0.envelope.worker.as_ref()?)?,
        view.roster().get(b.0.envelope.worker.as_ref()?)?,
    );
    let cause = [(fact::HASH_ALGORITHM, Cause::HashAlgorithm), (fact::HASH_SEED, Cause::HashSeed)]
        .into_iter()
        .find(|(name, _)| differs(members.0, members.1, name))
        .map_or(Cause::Unknown, |(_, cause)| cause);
    Some(cause)
}
