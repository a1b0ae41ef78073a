//! Processes of one engine that say they begin their hashes at different values: what its ranks store under one key, its
//! scheduler looks up under another. A risk, for hashes of engines with one value in all their keys differ by design.

use super::finish;
use crate::detect::draft::Draft;
use crate::view::View;
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::fact;
use kvprov_model::finding::{Cause, Confidence, Detector, Finding};
use kvprov_model::observation::{Body, Observation, Tier};

/// The processes of an engine start together; one that is started anew needs longer.
const TOGETHER: i64 = 10 * SECOND;

/// The complete set of findings on the fleet.
pub(super) fn detect(view: &View<'_>) -> Vec<Finding> {
    let printed = view.roster().members().filter(|member| member.fact(fact::HASH_SEED).is_some_and(is_value));
    printed
        .map(|member| &member.id)
        .filter_map(|worker| {
            let observations = view.worker(worker);
            let said = apart(&observations)?;
            if observations.iter().any(found_something) {
                return None;
            }
            let cause = Cause::HashSeed;
            let mut draft =
                Draft::new(Detector::KeyspaceFork, cause.clone(), Confidence::Risk, worker.as_str());
            draft.worker(worker.as_str()).proofs(said);
            draft.unknown("whether equal content was looked up under both");
            Some(finish(draft, &cause, "as its own processes say at their start"))
        })
        .collect()
}

/// Two statements of processes that started together and disagree.
fn apart(observations: &[Observation]) -> Option<[&Observation; 2]> {
    let mut said: Vec<(WallTime, &str, &Observation)> = observations
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::Worker(worker) => {
                let seed = worker.facts.get(fact::HASH_SEED).filter(|seed| is_value(seed.as_str()))?;
                Some((observation.envelope.wall?, seed.as_str(), observation))
            }
            _ => None,
        })
        .collect();
    said.sort_by_key(|(at, seed, observation)| (*at, *seed, observation.envelope.id));
    said.windows(2).find_map(|pair| match pair {
        [(before, one, a), (after, other, b)] => {
            (one != other && after.since(*before) <= TOGETHER).then_some([*a, *b])
        }
        _ => None,
    })
}

/// Whether it is what hashes begin with, not the kind of choice.
fn is_value(seed: &str) -> bool {
    seed != "random" && seed != "0"
}

/// Whether a lookup beyond the engine's own memory found something: then both sides agree.
fn found_something(observation: &Observation) -> bool {
    matches!(&observation.body, Body::CacheUse(used) if used.tier != Some(Tier::Device) && used.hit > Some(0))
}
