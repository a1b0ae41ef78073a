//! The contract between two workers: which factors are equal, differ or are not known, whether KV may be shared under it, and
//! which comparison of the engines themselves would notice what differs.
//!
//! Fails closed: what is not known forbids, and the reason says so. A pure function of what the API and a replay give
//! alike; what engines compare is data of the packs.

use crate::run::pages::{FactorEntry, WorkerEntry};
use kvprov_model::fact;
use kvprov_model::factor::{Comparison, Factor, FactorState, REPRESENTATION, SEMANTIC};
use kvprov_packs::{Guard, GuardState, Packs, Version};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Semantic factors that every model has: one that nobody saw is unknown. The others are compared where either side has them.
const ALWAYS: [&str; 3] = ["weights", "tokenizer", "config"];
/// Factors of the representation that tell how bytes are read: a difference forbids, unless a guard of both sides converts it.
const BYTES: [&str; 10] = [
    "engine",
    "engine_version",
    fact::DTYPE,
    fact::KV_CACHE_DTYPE,
    fact::KV_LAYOUT,
    fact::ATTENTION_BACKEND,
    fact::BLOCK_SIZE,
    fact::TP_SIZE,
    fact::PP_SIZE,
    fact::CP_SIZE,
];
/// Of these, what has to be known. The others are left out of settings where they are the engine's own choice.
const BYTES_KNOWN: [&str; 4] = ["engine", "engine_version", fact::KV_CACHE_DTYPE, fact::BLOCK_SIZE];
/// What a key of a store is named by in the list of guards.
const KEYS: &str = "store-keys";

/// How one factor compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Both are fully known and the same.
    Equal,
    /// Both are fully known and not the same.
    Different,
    /// One is missing or incomplete.
    Unknown,
}

/// One factor of both workers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its name.
    pub factor: String,
    /// The adapter that has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adapter: Option<String>,
    /// The first worker's, as `algorithm:value`; a setting stands alone.
    pub a: Option<String>,
    /// The second worker's.
    pub b: Option<String>,
    /// How they compare.
    pub verdict: Verdict,
    /// Why that is not known, or what follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What the engines compare by themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardRow {
    /// Its name in the packs; `store-keys` for the names of stored artifacts.
    pub id: String,
    /// What it is.
    pub guard: String,
    /// Whether both have it and neither has it switched off.
    pub on: bool,
    /// Why not, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub off: Option<String>,
    /// Differences that it notices.
    pub notices: Vec<String>,
    /// Differences that are no part of it.
    pub misses: Vec<String>,
    /// What it compares and is not known here.
    pub unknown: Vec<String>,
    /// What becomes of the KV where it notices something.
    pub outcome: String,
}

/// The contract.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contract {
    /// The first worker.
    pub a: String,
    /// The second worker.
    pub b: String,
    /// Whether KV of the base model may be shared.
    pub may_share: bool,
    /// Why not, each in a sentence; empty where it may.
    pub reasons: Vec<String>,
    /// The semantic factors: the revision.
    pub semantic: Vec<Row>,
    /// Adapters, each by itself: KV of its requests may be shared only where it is equal and the base may be.
    pub adapters: Vec<Row>,
    /// How KV is laid out, cut and named.
    pub representation: Vec<Row>,
    /// What the engines compare by themselves.
    pub guards: Vec<GuardRow>,
}

/// The worker that a text names: by its id or, where that is of one worker alone, its pod (`pod` or `namespace/pod`), an
/// engine id or a process id.
pub fn find<'w>(workers: &'w [WorkerEntry], text: &str) -> Option<&'w WorkerEntry> {
    if let Some(exact) = workers.iter().find(|worker| worker.id == text) {
        return Some(exact);
    }
    let is_pod = |worker: &WorkerEntry| match text.split_once('/') {
        Some((namespace, pod)) => {
            worker.namespace.as_deref() == Some(namespace) && worker.pod.as_deref() == Some(pod)
        }
        None => worker.pod.as_deref() == Some(text),
    };
    let named = |worker: &&WorkerEntry| {
        is_pod(worker) || worker.engine_ids.contains(text) || worker.pids.contains(text)
    };
    let mut like_it = workers.iter().filter(named);
    match (like_it.next(), like_it.next()) {
        (Some(only), None) => Some(only),
        _ => None,
    }
}

/// Compares two workers.
pub fn compare(a: &WorkerEntry, b: &WorkerEntry, packs: &Packs) -> Contract {
    let semantic = semantic(a, b);
    let representation: Vec<Row> =
        REPRESENTATION.iter().filter_map(|name| representation(a, b, name)).collect();
    let guards = guards(a, b, packs);
    let reasons = reasons(a, b, &semantic, &representation, &converted(a, b, packs));
    let differing: BTreeSet<&str> = semantic
        .iter()
        .chain(&representation)
        .filter(|row| row.verdict == Verdict::Different)
        .map(|row| row.factor.as_str())
        .collect();
    Contract {
        a: a.id.clone(),
        b: b.id.clone(),
        may_share: reasons.is_empty(),
        reasons,
        guards: guards.into_iter().map(|guard| guard.row(a, b, &differing)).collect(),
        adapters: adapters(a, b),
        semantic,
        representation,
    }
}

/// The factors of a revision. An adapter is part of a request's revision, not of the worker's.
fn semantic(a: &WorkerEntry, b: &WorkerEntry) -> Vec<Row> {
    let of = |entry: &WorkerEntry, name: &str| {
        entry.factors.iter().find(|one| one.factor == name && one.adapter.is_none()).cloned()
    };
    let names = SEMANTIC.iter().copied().filter(|name| *name != "adapter");
    names
        .filter_map(|name| {
            let (of_a, of_b) = (of(a, name), of(b, name));
            let matters = ALWAYS.contains(&name) || of_a.is_some() || of_b.is_some();
            matters.then(|| row(name, None, of_a.as_ref(), of_b.as_ref(), [a, b]))
        })
        .collect()
}

fn adapters(a: &WorkerEntry, b: &WorkerEntry) -> Vec<Row> {
    let of = |entry: &WorkerEntry| -> BTreeMap<String, FactorEntry> {
        let named = entry.factors.iter().filter_map(|one| Some((one.adapter.clone()?, one.clone())));
        named.collect()
    };
    let (of_a, of_b) = (of(a), of(b));
    let names: BTreeSet<&String> = of_a.keys().chain(of_b.keys()).collect();
    let mut rows = Vec::new();
    for name in names {
        rows.push(row("adapter", Some(name), of_a.get(name), of_b.get(name), [a, b]));
    }
    rows
}

fn row(
    factor: &str,
    adapter: Option<&str>,
    a: Option<&FactorEntry>,
    b: Option<&FactorEntry>,
    workers: [&WorkerEntry; 2],
) -> Row {
    let read = |entry: &FactorEntry| Factor {
        algorithm: entry.algorithm.clone(),
        value: entry.value.clone(),
        state: FactorState::from(entry.state.as_str()),
        layout: entry.layout.clone(),
        meaning: entry.meaning.clone(),
    };
    let verdict = match (a, b) {
        (Some(a), Some(b)) => Verdict::from(read(a).compare(&read(b))),
        _ => Verdict::Unknown,
    };
    let note = (verdict == Verdict::Unknown).then(|| unknown((factor, adapter), a, b, workers));
    let shown = |entry: &FactorEntry| match entry.state.as_str() {
        "full" => format!("{}:{}", entry.algorithm, entry.value),
        state => format!("{}:{} ({state})", entry.algorithm, entry.value),
    };
    Row {
        factor: factor.to_owned(),
        adapter: adapter.map(str::to_owned),
        a: a.map(shown),
        b: b.map(shown),
        verdict,
        note,
    }
}

/// Why two factors of one name (and adapter) cannot be compared.
fn unknown(
    of: (&str, Option<&str>),
    a: Option<&FactorEntry>,
    b: Option<&FactorEntry>,
    workers: [&WorkerEntry; 2],
) -> String {
    let missing = || [a, b].into_iter().zip(workers).filter(|(entry, _)| entry.is_none());
    let told: Vec<String> = missing()
        .filter_map(|(_, worker)| {
            let reason =
                worker.unknown.iter().find(|one| (one.factor.as_str(), one.adapter.as_deref()) == of)?;
            Some(format!("that of {} is not known: {}", worker.id, reason.reason))
        })
        .collect();
    if !told.is_empty() {
        return told.join("; ");
    }
    let missing: Vec<&str> = missing().map(|(_, worker)| worker.id.as_str()).collect();
    if !missing.is_empty() {
        return format!("no source shows that of {}", missing.join(" and "));
    }
    let workers = workers.map(|worker| worker.id.as_str());
    let partial: Vec<&str> = [a, b]
        .iter()
        .zip(workers)
        .filter(|(entry, _)| entry.is_some_and(|entry| entry.state != FactorState::Full.as_str()))
        .map(|(_, worker)| worker)
        .collect();
    if partial.is_empty() {
        "the two values were made in different ways".to_owned()
    } else {
        format!("only a part of that of {} is known", partial.join(" and "))
    }
}

/// A factor of the representation; `None` where neither side shows it.
fn representation(a: &WorkerEntry, b: &WorkerEntry, name: &str) -> Option<Row> {
    let (of_a, of_b) = (setting(a, name), setting(b, name));
    let shows = of_a.is_some() || of_b.is_some();
    if !shows && name == fact::DTYPE {
        let note = "neither side sets it: both follow their checkpoint".to_owned();
        return Some(Row {
            factor: name.to_owned(),
            adapter: None,
            a: None,
            b: None,
            verdict: Verdict::Unknown,
            note: Some(note),
        });
    }
    if !shows && !BYTES_KNOWN.contains(&name) {
        return None;
    }
    let verdict = match (of_a, of_b) {
        // Each process that chooses at random is another.
        (Some("random"), Some("random")) if name == fact::HASH_SEED => Verdict::Different,
        (Some(a), Some(b)) if a == b => Verdict::Equal,
        (Some(_), Some(_)) => Verdict::Different,
        _ => Verdict::Unknown,
    };
    let names_keys =
        [fact::HASH_ALGORITHM, fact::HASH_SEED, fact::TOKEN_FORM, fact::ADAPTER_KEY, fact::KEY_TAG];
    let note = match verdict {
        Verdict::Different if names_keys.contains(&name) => Some(
            "equal content gets other keys: in a store or an index neither finds what the other has"
                .to_owned(),
        ),
        Verdict::Unknown => {
            let missing = [(of_a, &a.id), (of_b, &b.id)];
            let missing: Vec<&str> =
                missing.iter().filter(|(value, _)| value.is_none()).map(|(_, id)| id.as_str()).collect();
            Some(format!("no source shows that of {}", missing.join(" and ")))
        }
        _ => None,
    };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Some(Row { factor: name.to_owned(), adapter: None, a: owned(of_a), b: owned(of_b), verdict, note })
}

/// What a worker is or is set to.
fn setting<'w>(entry: &'w WorkerEntry, name: &str) -> Option<&'w str> {
    let known = |text: &'w str| (text != crate::run::totals::UNKNOWN).then_some(text);
    match name {
        "engine" => known(&entry.engine),
        "engine_version" => known(&entry.engine_version),
        name => entry.facts.get(name).map(String::as_str),
    }
}

/// Everything that forbids to share.
fn reasons(
    a: &WorkerEntry,
    b: &WorkerEntry,
    semantic: &[Row],
    representation: &[Row],
    converted: &BTreeSet<String>,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for row in semantic {
        match (row.verdict, &row.note) {
            (Verdict::Equal, _) => {}
            (Verdict::Different, _) => reasons.push(format!("{} differs", row.factor)),
            (Verdict::Unknown, note) => {
                let note = note.as_deref().unwrap_or("it was not seen");
                reasons.push(format!("{} cannot be compared: {note}", row.factor));
            }
        }
    }
    for row in representation.iter().filter(|row| BYTES.contains(&row.factor.as_str())) {
        let name = row.factor.as_str();
        match row.verdict {
            Verdict::Different if !converted.contains(name) => {
                reasons.push(format!("{name} differs, and nothing shows that the engines convert it"));
            }
            // What neither side sets follows from the checkpoint, which is compared above.
            Verdict::Unknown if row.a.is_none() && row.b.is_none() && name == fact::DTYPE => {}
            // One side says outright what the other leaves to its checkpoint or its device.
            Verdict::Unknown if !converted.contains(name) => {
                let note = row.note.as_deref().unwrap_or("it was not seen");
                reasons.push(format!("{name} cannot be compared: {note}"));
            }
            _ => {}
        }
    }
    for entry in [a, b] {
        if entry.facts.get(fact::DYNAMIC_KV_SCALES).is_some_and(|value| value == "true") {
            reasons.push(format!("{} computes the scales of its KV while serving", entry.id));
        }
    }
    reasons
}

/// A guard that at least one side has.
struct Held<'p> {
    guard: &'p Guard,
    a: Option<GuardState>,
    b: Option<GuardState>,
}

enum Compared<'p> {
    /// Of the engines' packs.
    Guard(Held<'p>),
    /// The keys of the store that both use.
    Keys { covers: Vec<String>, off: Option<String> },
}

fn held<'p>(a: &WorkerEntry, b: &WorkerEntry, packs: &'p Packs) -> Vec<Held<'p>> {
    let of = |entry: &WorkerEntry| {
        packs.guards(&entry.engine, Version::parse(&entry.engine_version).as_ref(), &entry.facts)
    };
    let mut held: BTreeMap<&str, Held<'p>> = BTreeMap::new();
    for (guard, state) in of(a) {
        held.insert(&guard.id, Held { guard, a: Some(state), b: None });
    }
    for (guard, state) in of(b) {
        held.entry(&guard.id).or_insert(Held { guard, a: None, b: None }).b = Some(state);
    }
    held.into_values().collect()
}

/// Factors in which the two may differ, because a guard that both have on converts them.
fn converted(a: &WorkerEntry, b: &WorkerEntry, packs: &Packs) -> BTreeSet<String> {
    let on = held(a, b, packs).into_iter();
    let on = on.filter(|held| held.a == Some(GuardState::On) && held.b == Some(GuardState::On));
    on.flat_map(|held| held.guard.converts.iter().cloned()).collect()
}

fn guards<'p>(a: &WorkerEntry, b: &WorkerEntry, packs: &'p Packs) -> Vec<Compared<'p>> {
    let mut guards: Vec<Compared<'p>> = held(a, b, packs).into_iter().map(Compared::Guard).collect();
    let factors = |entry: &WorkerEntry| -> Option<BTreeSet<String>> {
        let listed = entry.facts.get(fact::KEY_FACTORS)?;
        Some(listed.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect())
    };
    if let (Some(of_a), Some(of_b)) = (factors(a), factors(b)) {
        let stores = (a.facts.get(fact::STORE), b.facts.get(fact::STORE));
        let off = match stores {
            (Some(a), Some(b)) if a == b => None,
            (Some(_), Some(_)) => Some("they are set to use different stores".to_owned()),
            _ => Some("no setting shows that both use one store".to_owned()),
        };
        guards.push(Compared::Keys { covers: of_a.intersection(&of_b).cloned().collect(), off });
    }
    guards
}

// === impl Compared ===

impl Compared<'_> {
    /// `differing`: the factors that are known to differ.
    fn row(self, a: &WorkerEntry, b: &WorkerEntry, differing: &BTreeSet<&str>) -> GuardRow {
        let (id, guard, covers, outcome, off) = match self {
            Self::Guard(held) => {
                let word = |state: Option<GuardState>, id: &str| match state {
                    Some(GuardState::On) => None,
                    Some(GuardState::Off) => Some(format!("it is switched off on {id}")),
                    None => Some(format!("{id} does not have it, as far as version and settings are known")),
                };
                let off: Vec<String> =
                    [word(held.a, &a.id), word(held.b, &b.id)].into_iter().flatten().collect();
                let guard = held.guard;
                let off = (!off.is_empty()).then(|| off.join("; "));
                (guard.id.clone(), guard.name.clone(), guard.covers.clone(), guard.outcome.clone(), off)
            }
            Self::Keys { covers, off } => {
                let outcome =
                    "the other side's key is another one: nothing is found, and nothing wrong is read";
                (
                    KEYS.to_owned(),
                    "names of artifacts in the store".to_owned(),
                    covers,
                    outcome.to_owned(),
                    off,
                )
            }
        };
        let (mut notices, mut unknown) = (Vec::new(), Vec::new());
        for name in &covers {
            match (setting(a, name), setting(b, name)) {
                (Some("random"), Some("random")) if name == fact::HASH_SEED => notices.push(name.clone()),
                (Some(of_a), Some(of_b)) if of_a != of_b => notices.push(name.clone()),
                (Some(_), Some(_)) | (None, None) => {}
                _ => unknown.push(name.clone()),
            }
        }
        let misses = differing.iter().filter(|name| !covers.iter().any(|covered| covered == *name));
        GuardRow {
            id,
            guard,
            on: off.is_none(),
            off,
            misses: misses.map(|name| (*name).to_owned()).collect(),
            notices,
            unknown,
            outcome,
        }
    }
}

impl From<Comparison> for Verdict {
    fn from(comparison: Comparison) -> Self {
        match comparison {
            Comparison::Equal => Self::Equal,
            Comparison::Different => Self::Different,
            Comparison::Unknown => Self::Unknown,
        }
    }
}
