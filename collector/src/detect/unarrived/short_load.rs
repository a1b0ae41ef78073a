//! Loads from a store that brought less than was promised, one entry a request, however many ranks told it.
//!
//! The promise is the lookup of the same request; where no lookup is printed, what the load line itself says was to
//! come, and then only beside the engine's own complaint about it: engines that load without a lookup print the same
//! line for a cold miss.

use crate::view::View;
use crate::view::request::stems;
use kvprov_model::clock::SECOND;
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, CacheUse, Observation, Tier};
use std::collections::BTreeMap;

/// A load without a request id belongs to the last lookup that still waits for one, within this time. Ranks tell one
/// load within it too.
const LOAD_AFTER_LOOKUP: i64 = 60 * SECOND;

/// A load that fell short.
pub struct ShortLoad<'o> {
    /// The promise; absent where the load line holds it.
    pub lookup: Option<&'o Observation>,
    /// The load.
    pub load: &'o Observation,
    /// The request, where the lookup names it.
    pub id: Option<&'o str>,
    /// Whether the load names the request too.
    pub by_id: bool,
    /// Tokens that were to come.
    due: i64,
    /// Tokens that did not come.
    pub missing: i64,
}

/// A lookup that promised tokens and waits for its load.
struct Lookup<'o> {
    observation: &'o Observation,
    id: &'o str,
    needed: i64,
}

/// The loads of one worker's observations that fell short.
pub fn collect(observations: &[Observation]) -> Vec<ShortLoad<'_>> {
    paired(observations, |_, _| {})
}

/// Every lookup that promised something, with the load that followed, however much that brought.
pub(super) fn loads(observations: &[Observation]) -> Vec<(&Observation, &Observation)> {
    let mut loads = Vec::new();
    paired(observations, |lookup, load| loads.push((lookup, load)));
    loads
}

/// Pairs lookups with loads; gives those that fell short.
fn paired<'o>(
    observations: &'o [Observation],
    mut pair: impl FnMut(&'o Observation, &'o Observation),
) -> Vec<ShortLoad<'o>> {
    let mut waiting: Vec<Lookup<'_>> = Vec::new();
    let mut short: Vec<ShortLoad<'_>> = Vec::new();
    for (observation, used) in in_order(observations) {
        if let Some(lookup) = promised(observation, used) {
            waiting.retain(|held| held.id != lookup.id);
            waiting.push(lookup);
        } else if let Some(retrieved) = used.retrieved {
            let (at, by_id) = match &used.request_id {
                Some(id) => {
                    (waiting.iter().position(|held| RequestStem::of(held.id) == RequestStem::of(id)), true)
                }
                None => (waiting.iter().rposition(|held| near(held.observation, observation)), false),
            };
            if let Some(at) = at {
                let lookup = waiting.remove(at);
                pair(lookup.observation, observation);
                let due = lookup.needed.min(used.asked.unwrap_or(i64::MAX));
                if retrieved < due {
                    short.push(ShortLoad {
                        lookup: Some(lookup.observation),
                        load: observation,
                        id: Some(lookup.id),
                        by_id,
                        due,
                        missing: due - retrieved,
                    });
                }
                continue;
            }
            let due = used.needed.unwrap_or(0);
            let told = short.iter().any(|held| held.due >= due && near(held.load, observation));
            if used.request_id.is_none() && retrieved < due && !told && complained(observations, observation)
            {
                short.push(ShortLoad {
                    lookup: None,
                    load: observation,
                    id: None,
                    by_id: false,
                    due,
                    missing: due - retrieved,
                });
            }
        }
    }
    short
}

/// Whether a worker told of a short load close to this statement.
pub fn tells(view: &View<'_>, worker: &WorkerId, statement: &Observation) -> bool {
    collect(&view.worker(worker))
        .iter()
        .any(|short| near(short.load, statement) || near(statement, short.load))
}

/// Whether a worker told by name of a load that fell short, close to this statement on that request or on none.
pub fn tells_by_name(view: &View<'_>, worker: &WorkerId, statement: &Observation) -> bool {
    let named = stems(statement);
    collect(&view.worker(worker)).iter().any(|short| {
        let is_of_it = named.is_empty() || short.id.is_some_and(|id| named.contains(&RequestStem::of(id)));
        short.by_id && is_of_it && (near(short.load, statement) || near(statement, short.load))
    })
}

/// The lookup of the only request that a failure names, where it ended soon after it with nothing to load.
pub fn found_nothing(view: &View<'_>, worker: &WorkerId, failure: &Observation) -> Option<Observation> {
    let named = stems(failure);
    let [request] = named.as_slice() else { return None };
    let observations = view.worker(worker);
    let is_of_it =
        |used: &CacheUse| used.request_id.as_deref().is_some_and(|id| RequestStem::of(id) == *request);
    let mut later = in_order(&observations);
    later.retain(|(observation, used)| is_of_it(used) && near(failure, observation));
    let is_empty = |used: &CacheUse| used.hit.or(used.retrieved).unwrap_or(0) <= 0;
    let (lookup, _) = later.iter().find(|(_, used)| used.hit == Some(0))?;
    later.iter().all(|(_, used)| is_empty(used)).then(|| (*lookup).clone())
}

/// What lookups shortly before a failure that names no request promised.
pub enum Promise {
    /// There were lookups, none ever found anything, and nothing was loaded.
    Nothing,
    /// One request alone waited for what it was promised, and got it at no time: its lookup and its id.
    One(Box<Observation>, String),
    /// More than one, none, or what it was is not told.
    Untold,
}

/// What lookups promised before a failure.
pub fn promise_before(view: &View<'_>, worker: &WorkerId, failure: &Observation) -> Promise {
    let observations = view.worker(worker);
    let Some(failed) = failure.envelope.wall else { return Promise::Untold };
    let mut open: BTreeMap<RequestStem, (&Observation, &str, i64)> = BTreeMap::new();
    let (mut lookups, mut is_served, mut is_promised) = (0_usize, false, false);
    for (observation, used) in in_order(&observations) {
        let (Some(told), Some(id)) = (observation.envelope.wall, used.request_id.as_deref()) else {
            continue;
        };
        let stem = RequestStem::of(id);
        if let Some(retrieved) = used.retrieved {
            // What comes after the failure was not what failed.
            let is_kept = open.get(&stem).is_some_and(|(.., needed)| told > failed && retrieved < *needed);
            is_served |= told <= failed;
            if !is_kept {
                open.remove(&stem);
            }
            continue;
        }
        let Some(needed) = used.needed.or(used.hit).or(used.keys).filter(|_| told <= failed) else {
            continue;
        };
        lookups += usize::from(failed.since(told) <= LOAD_AFTER_LOOKUP);
        if needed > 0 {
            is_promised = true;
            open.insert(stem, (observation, id, needed));
        }
    }
    let mut waiting = open.into_values();
    match (waiting.next(), waiting.next()) {
        (Some((lookup, id, _)), None) if near(lookup, failure) => {
            Promise::One(Box::new(lookup.clone()), id.to_owned())
        }
        (None, _) if lookups > 0 && !is_served && !is_promised => Promise::Nothing,
        _ => Promise::Untold,
    }
}

/// Tokens that did not come, as a load without a name beside a complaint that names its request tells them.
pub fn missing_beside(view: &View<'_>, worker: &WorkerId, complaint: &Observation) -> Option<i64> {
    view.worker(worker).iter().find_map(|observation| match &observation.body {
        Body::CacheUse(used) if used.request_id.is_none() && near(complaint, observation) => {
            let missing = used.needed? - used.retrieved?;
            (missing > 0).then_some(missing)
        }
        _ => None,
    })
}

/// Lookups and loads in the order in which they happened. Within one stream that is its own order; two streams that
/// print one second are told apart by what must come first.
pub(super) fn in_order(observations: &[Observation]) -> Vec<(&Observation, &CacheUse)> {
    let mut uses: Vec<(&Observation, &CacheUse)> = observations
        .iter()
        .filter_map(|observation| match &observation.body {
            Body::CacheUse(used) => Some((observation, used)),
            _ => None,
        })
        .collect();
    let one_stream = uses.windows(2).all(|pair| pair[0].0.envelope.stream == pair[1].0.envelope.stream);
    if !one_stream {
        uses.sort_by_key(|(observation, used)| {
            let dated = observation.envelope.wall.is_some();
            (observation.envelope.wall, dated && used.retrieved.is_some())
        });
    }
    uses
}

fn promised<'o>(observation: &'o Observation, used: &'o CacheUse) -> Option<Lookup<'o>> {
    let needed = used.needed.or(used.hit)?;
    let (Some(id), None, true) = (&used.request_id, used.retrieved, needed > 0) else { return None };
    (used.hit.unwrap_or(needed) > 0).then_some(Lookup { observation, id, needed })
}

/// Whether the engine itself says beside a load that too little came.
fn complained(observations: &[Observation], load: &Observation) -> bool {
    observations.iter().any(|observation| match &observation.body {
        Body::KvLoad(said) => {
            said.cause == Some(Cause::LoadMiss)
                && said.tier == Some(Tier::Storage)
                && said.request_ids.is_empty()
                && (near(load, observation) || near(observation, load))
        }
        _ => false,
    })
}

fn near(lookup: &Observation, load: &Observation) -> bool {
    match (lookup.envelope.wall, load.envelope.wall) {
        (Some(a), Some(b)) => (-SECOND..=LOAD_AFTER_LOOKUP).contains(&b.since(a)),
        _ => lookup.envelope.stream == load.envelope.stream,
    }
}
