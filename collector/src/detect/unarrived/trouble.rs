//! Gathers failures of handshakes, transfers and loads, and folds them: one entry a request.

use crate::view::View;
use crate::view::request::{printed_ids, stems};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::finding::Cause;
use kvprov_model::id::{RequestStem, WorkerId};
use kvprov_model::observation::{Body, Consequence, LeaseState, Observation, Outcome, Role, SourceKind};
use std::collections::{BTreeMap, BTreeSet};

/// A statement without a request belongs to a request that failed this close to it on the same worker.
const NEIGHBOURHOOD: i64 = 120 * SECOND;
/// Producers keep unread KV this long at most; their defaults are eight and ten minutes.
const LONGEST_LEASE: i64 = 900 * SECOND;
/// A pull that is still waiting after this long hangs. Healthy pulls take seconds; engines give up after minutes.
const HANG: i64 = 30 * SECOND;

/// Statements kept as proof of one trouble: a burst of thousands beside thousands of requests must not multiply.
const MAX_PROOFS: usize = 16;

/// One request (or, where none is named, one peer) whose KV did not arrive.
#[derive(Debug, Clone)]
pub struct Trouble {
    /// The request; `None` when no source names it.
    pub stem: Option<RequestStem>,
    /// Every id under which it was printed.
    pub ids: BTreeSet<String>,
    /// Ids of the same request on the other side, where both sides name it differently.
    pub aliases: BTreeSet<String>,
    /// The most specific cause that a source states.
    pub cause: Cause,
    /// Engine id of the peer.
    pub remote_engine: Option<String>,
    /// What the engine says becomes of the request.
    pub consequence: Option<Consequence>,
    /// Tokens that the sources state.
    pub tokens: Option<i64>,
    /// Events that name no request.
    pub events: u64,
    /// First statement.
    pub first: Option<WallTime>,
    /// Last statement.
    pub last: Option<WallTime>,
    /// It is only known to wait.
    pub waiting: bool,
    /// A store, not a peer, did not deliver.
    pub from_store: bool,
    /// What proves it: the first statements of each source that told it.
    pub proofs: Vec<Observation>,
    /// Workers that told of it.
    pub workers: BTreeSet<String>,
}

impl Trouble {
    pub(super) fn new(stem: Option<RequestStem>) -> Self {
        Self {
            stem,
            ids: BTreeSet::new(),
            aliases: BTreeSet::new(),
            cause: Cause::Unknown,
            remote_engine: None,
            consequence: None,
            tokens: None,
            events: 0,
            first: None,
            last: None,
            waiting: false,
            from_store: false,
            proofs: Vec::new(),
            workers: BTreeSet::new(),
        }
    }

    pub(super) fn add(&mut self, observation: &Observation) {
        if let Some(wall) = observation.envelope.wall {
            self.first = Some(self.first.map_or(wall, |first| first.min(wall)));
            self.last = Some(self.last.map_or(wall, |last| last.max(wall)));
        }
        self.ids.extend(printed_ids(observation).into_iter().map(str::to_owned));
        self.workers.insert(observation.worker().to_owned());
        if self.proofs.len() < MAX_PROOFS {
            self.proofs.push(observation.clone());
        }
    }

    /// Adds the statement that decides what became of it, which is kept whatever was told before.
    pub(super) fn conclude(&mut self, observation: &Observation) {
        self.proofs.truncate(MAX_PROOFS - 1);
        self.add(observation);
    }

    /// Adds what shows the outcome; it proves, but does not prolong the failure.
    pub(super) fn answered(&mut self, observation: &Observation) {
        self.proofs.truncate(MAX_PROOFS - 1);
        self.proofs.push(observation.clone());
    }

    /// Takes a cause when it says more than the one held.
    pub(super) fn blame(&mut self, cause: &Cause) {
        if specificity(cause) > specificity(&self.cause) {
            self.cause = cause.clone();
        }
    }

    fn absorb(&mut self, other: &Self) {
        self.blame(&other.cause);
        for proof in &other.proofs {
            self.add(proof);
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last = self.last.max(other.last);
        self.remote_engine = self.remote_engine.take().or_else(|| other.remote_engine.clone());
        self.consequence = self.consequence.take().or_else(|| other.consequence.clone());
        self.tokens = self.tokens.or(other.tokens);
    }

    fn is_near(&self, other: &Self) -> bool {
        match (self.first, self.last, other.first, other.last) {
            (Some(a0), Some(a1), Some(b0), Some(b1)) => {
                b0 <= a1.plus(NEIGHBOURHOOD) && a0 <= b1.plus(NEIGHBOURHOOD)
            }
            _ => true,
        }
    }
}

/// A failure and its reason are printed this close to each other by one process.
const BREATH: i64 = 2 * SECOND;

/// How much a cause says: a mismatch that was compared beats a peer that is gone, which beats a silence, which beats
/// the bare fact of a failure.
fn specificity(cause: &Cause) -> u8 {
    match cause {
        Cause::CompatHashMismatch | Cause::EngineIdMismatch | Cause::LayoutMismatch => 8,
        Cause::ParamsInvalid | Cause::ParamsMissing => 7,
        Cause::PeerDied => 6,
        Cause::HandshakeTimeout | Cause::StoreUnreachable => 5,
        Cause::LoadMiss | Cause::LeaseExpired => 4,
        Cause::Aborted => 3,
        Cause::HandshakeFailed => 2,
        Cause::TransferFailed => 1,
        _ => 0,
    }
}

/// The failures of a worker, one a request. A prefill worker's half of a failure that the decode worker tells too
/// is left to the decode worker.
pub fn collect(view: &View<'_>, worker: &WorkerId) -> Vec<Trouble> {
    let observations = view.worker(worker);
    let mut by_stem: BTreeMap<RequestStem, Trouble> = BTreeMap::new();
    let mut nameless: Vec<Trouble> = Vec::new();
    let mut arrived: BTreeMap<RequestStem, Option<WallTime>> = BTreeMap::new();
    let mut ended: BTreeSet<RequestStem> = BTreeSet::new();
    for observation in observations.iter() {
        if ends_a_wait(observation) {
            ended.extend(stems(observation));
        }
        let Some(statement) = Statement::of(observation) else { continue };
        // One statement may name a request on both sides; the speaker's own id is the request.
        let named: Vec<RequestStem> = match &observation.body {
            Body::Transfer(t) if t.request_id.is_some() || !t.request_ids.is_empty() => {
                let own = t.request_id.iter().chain(&t.request_ids);
                let mut named: Vec<_> = own.map(|id| RequestStem::of(id)).collect();
                named.sort();
                named.dedup();
                named
            }
            _ => stems(observation),
        };
        if statement.arrived {
            arrived.extend(named.into_iter().map(|stem| (stem, observation.envelope.wall)));
            continue;
        }
        if named.is_empty() {
            let mut trouble = Trouble::new(None);
            trouble.events = 1;
            statement.tell(&mut trouble, observation);
            nameless.push(trouble);
        }
        for stem in named {
            let trouble = by_stem.entry(stem.clone()).or_insert_with(|| Trouble::new(Some(stem)));
            statement.tell(trouble, observation);
        }
    }
    by_stem.retain(|stem, trouble| {
        // A retry that arrived after the last failure heals it.
        let healed = arrived.get(stem).is_some_and(|at| match (at, trouble.last) {
            (Some(at), Some(last)) => *at >= last,
            _ => false,
        });
        !healed && (!trouble.waiting || (hangs(trouble) && !ended.contains(stem)))
    });
    let mut troubles: Vec<Trouble> = by_stem.into_values().collect();
    for trouble in fold_nameless(nameless) {
        let hosts: Vec<&mut Trouble> = troubles.iter_mut().filter(|host| takes(host, &trouble)).collect();
        if hosts.is_empty() {
            troubles.push(trouble);
        } else {
            hosts.into_iter().for_each(|host| host.absorb(&trouble));
        }
    }
    troubles.retain(|trouble| !told_by_decoder(view, worker, trouble));
    for trouble in &mut troubles {
        add_other_side(view, worker, trouble);
        add_own_lease(view, worker, trouble);
        add_unread_leases(view, worker, trouble);
        blame_dead_peer(view, trouble);
    }
    troubles
}

/// What one observation says of KV that did or did not arrive.
struct Statement {
    cause: Option<Cause>,
    remote_engine: Option<String>,
    consequence: Option<Consequence>,
    tokens: Option<i64>,
    waiting: bool,
    arrived: bool,
}

impl Statement {
    fn of(observation: &Observation) -> Option<Self> {
        match &observation.body {
            Body::Transfer(t) => {
                let outcome = t.outcome.as_ref()?;
                // A connection that broke says nothing by itself: engines close them for many reasons.
                let bare = t.request_id.is_none()
                    && t.request_ids.is_empty()
                    && t.cause.is_none()
                    && t.failure.is_none();
                if *outcome == Outcome::Started || (bare && observation.envelope.source == SourceKind::Kernel)
                {
                    return None;
                }
                Some(Self {
                    cause: t.cause.clone(),
                    remote_engine: t.remote_engine_id.clone(),
                    consequence: t.consequence.clone(),
                    tokens: t.tokens,
                    waiting: *outcome == Outcome::Waiting,
                    arrived: *outcome == Outcome::Succeeded,
                })
            }
            Body::Handshake(h) if h.outcome == Some(Outcome::Failed) => Some(Self {
                cause: h.cause.clone(),
                remote_engine: h.remote_engine_id.clone(),
                consequence: None,
                tokens: None,
                waiting: false,
                arrived: false,
            }),
            _ => None,
        }
    }

    fn tell(&self, trouble: &mut Trouble, observation: &Observation) {
        if let Some(cause) = &self.cause {
            trouble.blame(cause);
        }
        let first_statement = trouble.proofs.is_empty();
        trouble.waiting = self.waiting && (first_statement || trouble.waiting);
        trouble.remote_engine = trouble.remote_engine.take().or_else(|| self.remote_engine.clone());
        trouble.consequence = trouble.consequence.take().or_else(|| self.consequence.clone());
        trouble.tokens = trouble.tokens.or(self.tokens);
        trouble.add(observation);
    }
}

/// Whether the engine says that it is done with receiving for a request, which it also says of a failed one.
fn ends_a_wait(observation: &Observation) -> bool {
    match &observation.body {
        Body::Transfer(transfer) => {
            transfer.outcome.is_none() && transfer.direction.as_deref() == Some("receive")
        }
        _ => false,
    }
}

fn hangs(trouble: &Trouble) -> bool {
    matches!((trouble.first, trouble.last), (Some(first), Some(last)) if last.since(first) >= HANG)
}

/// Ranks and retries tell one failure of one peer several times.
fn fold_nameless(nameless: Vec<Trouble>) -> Vec<Trouble> {
    let mut folded: Vec<Trouble> = Vec::new();
    for trouble in nameless {
        let same = folded.iter_mut().find(|held| {
            let same_peer = match (&held.remote_engine, &trouble.remote_engine) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            };
            let same_cause =
                held.cause == trouble.cause || specificity(&held.cause).min(specificity(&trouble.cause)) <= 2;
            same_peer && same_cause && held.is_near(&trouble)
        });
        match same {
            Some(held) => held.absorb(&trouble),
            None => folded.push(trouble),
        }
    }
    folded
}

/// Whether a request's failure is what a nameless statement speaks of.
fn takes(host: &Trouble, nameless: &Trouble) -> bool {
    if nameless.waiting || host.waiting {
        return false;
    }
    let engines_agree = match (&host.remote_engine, &nameless.remote_engine) {
        (Some(a), Some(b)) => Some(a == b),
        _ => None,
    };
    let causes_agree =
        host.cause == nameless.cause || specificity(&host.cause) <= 2 || specificity(&nameless.cause) <= 2;
    match engines_agree {
        Some(true) => host.is_near(nameless),
        Some(false) => false,
        None => causes_agree && host.is_near(nameless),
    }
}

/// Whether another worker that is not a prefill worker tells the same failure.
fn told_by_decoder(view: &View<'_>, worker: &WorkerId, trouble: &Trouble) -> bool {
    let role = |id: &str| view.roster().get(&WorkerId::from(id)).and_then(|member| member.role.clone());
    if role(worker.as_str()) != Some(Role::Prefill) {
        return false;
    }
    if trouble.stem.is_none() && trouble.ids.is_empty() {
        return decoders_tell(view, trouble);
    }
    let decodes = |o: &Observation| role(o.worker()) != Some(Role::Prefill);
    others(view, worker, trouble).iter().any(decodes) || still_waits(view, trouble, decodes)
}

/// Whether a request is told to wait on the side that decodes, and nothing tells of an end.
fn still_waits(view: &View<'_>, trouble: &Trouble, decodes: impl Fn(&Observation) -> bool) -> bool {
    let Some(stem) = &trouble.stem else { return false };
    let request = view.request(stem);
    let answered = request.iter().any(|observation| {
        matches!(&observation.body, Body::RequestLeg(leg)
            if matches!(leg.leg, Some(Role::Decode | Role::Both)) && leg.status.is_some())
    });
    let said = || request.iter().filter(|observation| decodes(observation)).filter_map(Statement::of);
    !answered && said().any(|statement| statement.waiting) && !said().any(|statement| statement.arrived)
}

/// Whether a decode worker tells in the same breath of KV that did not come: a failure of a prefill worker that names
/// nobody is the other half of that.
fn decoders_tell(view: &View<'_>, trouble: &Trouble) -> bool {
    let (Some(first), Some(last)) = (trouble.first, trouble.last) else { return false };
    let near = |observation: &Observation| {
        let span = first.plus(-BREATH)..=last.plus(BREATH);
        observation.envelope.wall.is_some_and(|wall| span.contains(&wall))
    };
    let tells = |observation: &Observation| match &observation.body {
        Body::KvLoad(_) => true,
        _ => Statement::of(observation).is_some_and(|said| !said.arrived && !said.waiting),
    };
    view.roster().members().filter(|member| member.role == Some(Role::Decode)).any(|member| {
        view.worker(&member.id).iter().any(|observation| near(observation) && tells(observation))
    })
}

/// Failures of the same request or transfer that other workers tell.
fn others(view: &View<'_>, worker: &WorkerId, trouble: &Trouble) -> Vec<Observation> {
    let mut found = Vec::new();
    let mut look = |observations: &[Observation]| {
        found.extend(
            observations
                .iter()
                .filter(|o| o.envelope.worker.as_ref() != Some(worker))
                .filter(|o| Statement::of(o).is_some_and(|s| !s.arrived && !s.waiting))
                .cloned(),
        );
    };
    if let Some(stem) = &trouble.stem {
        look(&view.request(stem));
    }
    for proof in &trouble.proofs {
        if let Body::Transfer(transfer) = &proof.body
            && let Some(join) = &transfer.transfer_id
        {
            look(&view.select(crate::ledger::IndexKey::Transfer(join.clone())));
        }
    }
    found
}

fn add_other_side(view: &View<'_>, worker: &WorkerId, trouble: &mut Trouble) {
    for observation in others(view, worker, trouble) {
        if let Some(statement) = Statement::of(&observation)
            && let Some(cause) = &statement.cause
        {
            trouble.blame(cause);
        }
        let own = trouble.ids.clone();
        trouble.add(&observation);
        if let Some(stem) = &trouble.stem {
            let is_alias = |id: &String| !own.contains(id) && RequestStem::of(id) != *stem;
            let (aliases, ids) = std::mem::take(&mut trouble.ids).into_iter().partition(is_alias);
            trouble.ids = ids;
            trouble.aliases.extend::<BTreeSet<String>>(aliases);
        }
        for reason in reasons_beside(view, &observation) {
            if let Some(cause) = Statement::of(&reason).and_then(|statement| statement.cause) {
                trouble.blame(&cause);
            }
            trouble.add(&reason);
        }
    }
}

/// What another worker says of nobody's request in the same breath as of this one: why it failed.
fn reasons_beside(view: &View<'_>, observation: &Observation) -> Vec<Observation> {
    let envelope = &observation.envelope;
    let (Some(worker), Some(at)) = (&envelope.worker, envelope.wall) else { return Vec::new() };
    let is_reason = |other: &&Observation| {
        let names_somebody = match &other.body {
            Body::Transfer(transfer) => transfer.transfer_id.is_some(),
            _ => false,
        };
        let near = other.envelope.wall.is_some_and(|wall| wall.since(at).abs() <= BREATH);
        near && !names_somebody
            && stems(other).is_empty()
            && Statement::of(other).is_some_and(|said| {
                let says_why = said.cause.as_ref().is_some_and(|cause| specificity(cause) > 2);
                says_why && !said.arrived && !said.waiting
            })
    };
    view.worker(worker).iter().filter(is_reason).cloned().collect()
}

/// What the other side calls the request whose KV it held in vain.
fn add_own_lease(view: &View<'_>, worker: &WorkerId, trouble: &mut Trouble) {
    let Some(stem) = &trouble.stem else { return };
    for observation in view.request(stem).iter().filter(|o| o.envelope.worker.as_ref() != Some(worker)) {
        let Body::Lease(lease) = &observation.body else { continue };
        let is_near = match (observation.envelope.wall, trouble.first, trouble.last) {
            (Some(ended), Some(first), Some(last)) => {
                ended.plus(LONGEST_LEASE) >= first && last.plus(LONGEST_LEASE) >= ended
            }
            _ => false,
        };
        let is_unread = lease.state == Some(LeaseState::Expired) && lease.readers == Some(0);
        if is_near && is_unread && trouble.proofs.len() < MAX_PROOFS {
            trouble.ids.extend(printed_ids(observation).into_iter().map(str::to_owned));
            trouble.answered(observation);
        }
    }
}

/// A peer that could not be reached names no request; the leases that end unread at the only prefill worker do.
fn add_unread_leases(view: &View<'_>, worker: &WorkerId, trouble: &mut Trouble) {
    let mut prefillers = view.roster().prefillers();
    let (Some(only), None) = (prefillers.next(), prefillers.next()) else { return };
    let role = view.roster().get(worker).and_then(|member| member.role.clone());
    let never_connected = specificity(&trouble.cause) != specificity(&Cause::TransferFailed);
    if !trouble.ids.is_empty() || trouble.waiting || role != Some(Role::Decode) || !never_connected {
        return;
    }
    let (Some(first), Some(last)) = (trouble.first, trouble.last) else { return };
    for observation in view.worker(&only.id).iter() {
        let Body::Lease(lease) = &observation.body else { continue };
        let unread = lease.state == Some(LeaseState::Expired) && lease.readers.unwrap_or(0) == 0;
        let Some(ended) = observation.envelope.wall else { continue };
        if !unread || ended < first || ended.since(last) > LONGEST_LEASE {
            continue;
        }
        let explained = stems(observation).iter().any(|stem| {
            view.request(stem).iter().any(|o| match &o.body {
                Body::Transfer(_) | Body::Handshake(_) | Body::KvLoad(_) => true,
                Body::RequestLeg(leg) => leg.client_gone == Some(true) || leg.leg == Some(Role::Decode),
                _ => false,
            })
        });
        if !explained {
            trouble.ids.extend(printed_ids(observation).into_iter().map(str::to_owned));
            trouble.workers.insert(only.id.as_str().to_owned());
            trouble.proofs.push(observation.clone());
        }
    }
}

/// A peer whose process was seen to end before the failure explains a silence or a bare failure.
fn blame_dead_peer(view: &View<'_>, trouble: &mut Trouble) {
    let peer = match &trouble.remote_engine {
        Some(engine) => view.roster().by_engine_id(engine),
        None => {
            let mut prefillers = view.roster().prefillers();
            match (prefillers.next(), prefillers.next()) {
                (Some(only), None) => Some(only),
                _ => None,
            }
        }
    };
    let (Some(gone), Some(last)) = (peer.and_then(|peer| peer.gone), trouble.last) else { return };
    if gone <= last.plus(SECOND) {
        trouble.blame(&Cause::PeerDied);
    }
}
