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
    let mut drafts: BTreeMap<(String, Cause), Draft> = BTreeMap::new();
    for group in comparable(&fleet) {
        for ((a, left), (b, right)) in pairs(&group) {
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

type Derived<'o> = (&'o Observation, &'o KeyDerivation);

/// What makes derivations comparable: a digest of tokens and, for whole inputs, the hash before and the token count.
type Input<'o> = (&'o str, Option<&'o str>, Option<i64>);

/// Derivations that may disagree: of the same input or beginning with the same token, the first of each worker and
/// token form. Debug logs print thousands; what one worker repeats says nothing new.
fn comparable(fleet: &[Observation]) -> Vec<Vec<Derived<'_>>> {
    let mut groups: BTreeMap<Input<'_>, BTreeMap<[&str; 2], Derived<'_>>> = BTreeMap::new();
    for observation in fleet {
        let Body::KeyDerivation(derivation) = &observation.body else { continue };
        let form = derivation.token_form.as_deref().unwrap_or_default();
        let whole = derivation
            .tokens_digest
            .as_deref()
            .map(|digest| (digest, derivation.parent.as_deref(), derivation.tokens));
        let first = derivation.first_token_digest.as_deref().map(|digest| (digest, None, None));
        for input in [whole, first].into_iter().flatten() {
            let of_worker = groups.entry(input).or_default();
            of_worker.entry([observation.worker(), form]).or_insert((observation, derivation));
        }
    }
    groups.into_values().map(|group| group.into_values().collect()).collect()
}

/// Pairs of derivations of two workers.
fn pairs<'g, 'o>(group: &'g [Derived<'o>]) -> impl Iterator<Item = (Derived<'o>, Derived<'o>)> + 'g {
    group.iter().enumerate().flat_map(move |(index, a)| {
        let others = group.iter().skip(index + 1).filter(|b| b.0.worker() != a.0.worker());
        others.map(move |b| (*a, *b))
    })
}

fn disagree(
    view: &View<'_>,
    a: (&Observation, &KeyDerivation),
    b: (&Observation, &KeyDerivation),
) -> Option<Cause> {
    let (left, right) = (a.1, b.1);
    let first_equal =
        left.first_token_digest.is_some() && left.first_token_digest == right.first_token_digest;
    if let (Some(x), Some(y)) = (&left.token_form, &right.token_form)
        && x != y
        && first_equal
    {
        return Some(Cause::TokenForm);
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
