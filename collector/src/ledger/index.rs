//! Under which keys an observation is found, and which subjects it concerns.
//!
//! Pure: the keys are a function of the observation alone, so that every replica builds the same index.

use kvprov_model::fact;
use kvprov_model::id::{RequestStem, StoreId, WorkerId};
use kvprov_model::observation::{Body, Observation};
use std::borrow::Cow;

/// Keys that one observation may have; a hostile list of request ids is cut here, and counted.
pub const MAX_KEYS_PER_OBSERVATION: usize = 512;

/// What observations can be asked for by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexKey {
    /// Everything that speaks of one worker.
    Worker(WorkerId),
    /// Everything that names one request, on any leg.
    Request(RequestStem),
    /// Everything that names one join key of connectors that have one: transfer id, bootstrap room.
    Transfer(String),
    /// Everything that names one store, and the workers that are configured to use it.
    Store(StoreId),
    /// Everything that names one engine id, on either side.
    Engine(String),
    /// Who there is and how well it is seen: workers, their ends, factors, what names are declared to mean, where adapters are,
    /// clocks, loss, signs of life.
    Roster,
    /// What compares workers: key derivations, KV events, admin calls, stores that state a disagreement.
    Fleet,
}

/// The kind of an [`IndexKey`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IndexKind {
    /// [`IndexKey::Worker`].
    Worker,
    /// [`IndexKey::Request`].
    Request,
    /// [`IndexKey::Transfer`].
    Transfer,
    /// [`IndexKey::Store`].
    Store,
    /// [`IndexKey::Engine`].
    Engine,
    /// [`IndexKey::Roster`].
    Roster,
    /// [`IndexKey::Fleet`].
    Fleet,
}

/// What detectors run on.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// One worker and the requests it took part in.
    Worker(WorkerId),
    /// One store.
    Store(StoreId),
    /// All workers compared with each other.
    Fleet,
}

/// The keys of an observation, each once, in a stable order; and how many were left out.
pub fn index_keys(observation: &Observation) -> (Vec<IndexKey>, u64) {
    let (mut keys, mut cut) = (Vec::with_capacity(4), 0);
    each_key(observation, &mut |kind, name| {
        let key = kind.key(&name);
        if !keys.contains(&key) {
            // The first keys are the ones that matter most.
            if keys.len() < MAX_KEYS_PER_OBSERVATION {
                keys.push(key);
            } else {
                cut += 1;
            }
        }
    });
    (keys, cut)
}

/// Hands kind and name of every key to `sink`, some of them repeatedly and without a limit on their number.
pub(super) fn each_key<'o>(observation: &'o Observation, sink: &mut dyn FnMut(IndexKind, Cow<'o, str>)) {
    let mut keys = Keys { sink };
    if let Some(worker) = &observation.envelope.worker {
        keys.push(IndexKind::Worker, worker.as_str());
    }
    match &observation.body {
        Body::Worker(body) => {
            keys.push(IndexKind::Roster, "");
            keys.named(IndexKind::Store, body.facts.get(fact::STORE));
            keys.named(IndexKind::Engine, &body.engine_ids);
        }
        Body::Factor(_)
        | Body::WorkerGone(_)
        | Body::Expected(_)
        | Body::Clock(_)
        | Body::Loss(_)
        | Body::Alive(_) => keys.push(IndexKind::Roster, ""),
        Body::RequestLeg(body) => {
            keys.requests([&body.request_id, &body.reply_id, &body.remote_request_id]);
            keys.named(IndexKind::Transfer, &body.transfer_id);
            keys.named(IndexKind::Engine, &body.remote_engine_id);
        }
        Body::AdminCall(body) => {
            keys.push(IndexKind::Fleet, "");
            // Where an adapter of a name is.
            if !body.paths.is_empty() {
                keys.push(IndexKind::Roster, "");
            }
        }
        Body::KeyDerivation(_) | Body::Block(_) => keys.push(IndexKind::Fleet, ""),
        Body::Handshake(body) => {
            keys.named(IndexKind::Engine, &body.local_engine_id);
            keys.named(IndexKind::Engine, &body.remote_engine_id);
            keys.named(IndexKind::Engine, &body.answered_engine_id);
            keys.requests([&body.request_ids]);
        }
        Body::Transfer(body) => {
            keys.requests([&body.request_id, &body.remote_request_id]);
            keys.named(IndexKind::Transfer, &body.transfer_id);
            keys.named(IndexKind::Engine, &body.local_engine_id);
            keys.named(IndexKind::Engine, &body.remote_engine_id);
            keys.requests([&body.request_ids]);
        }
        Body::Lease(body) => keys.requests([&body.request_id]),
        Body::KvLoad(body) => keys.requests([&body.request_ids]),
        Body::CacheUse(body) => keys.requests([&body.request_id]),
        Body::Artifact(body) => keys.named(IndexKind::Store, &body.store),
        Body::Store(body) => {
            keys.named(IndexKind::Store, &body.store);
            if !body.disagreement.is_empty() {
                keys.push(IndexKind::Fleet, "");
            }
        }
        Body::Counters(_) | Body::Trouble(_) | Body::Unknown { .. } => {}
    }
}

struct Keys<'s, 'o> {
    sink: &'s mut dyn FnMut(IndexKind, Cow<'o, str>),
}

// === impl IndexKey ===

impl IndexKey {
    /// The kind of this key.
    pub fn kind(&self) -> IndexKind {
        match self {
            Self::Worker(_) => IndexKind::Worker,
            Self::Request(_) => IndexKind::Request,
            Self::Transfer(_) => IndexKind::Transfer,
            Self::Store(_) => IndexKind::Store,
            Self::Engine(_) => IndexKind::Engine,
            Self::Roster => IndexKind::Roster,
            Self::Fleet => IndexKind::Fleet,
        }
    }

    /// The name within its kind; empty for the kinds that have one key.
    pub fn name(&self) -> &str {
        match self {
            Self::Worker(id) => id.as_str(),
            Self::Request(stem) => stem.as_str(),
            Self::Transfer(id) | Self::Engine(id) => id,
            Self::Store(id) => id.as_str(),
            Self::Roster | Self::Fleet => "",
        }
    }
}

// === impl IndexKind ===

impl IndexKind {
    /// The key of this kind with a name; the inverse of [`IndexKey::name`].
    pub fn key(self, name: &str) -> IndexKey {
        match self {
            Self::Worker => IndexKey::Worker(WorkerId::from(name)),
            Self::Request => IndexKey::Request(RequestStem(name.to_owned())),
            Self::Transfer => IndexKey::Transfer(name.to_owned()),
            Self::Store => IndexKey::Store(StoreId::from(name)),
            Self::Engine => IndexKey::Engine(name.to_owned()),
            Self::Roster => IndexKey::Roster,
            Self::Fleet => IndexKey::Fleet,
        }
    }

    /// The tag on disk. Never reused for another meaning.
    pub(super) fn tag(self) -> u8 {
        match self {
            Self::Worker => 1,
            Self::Request => 2,
            Self::Transfer => 3,
            Self::Store => 4,
            Self::Engine => 5,
            Self::Roster => 6,
            Self::Fleet => 7,
        }
    }
}

// === impl Keys ===

impl<'o> Keys<'_, 'o> {
    fn push(&mut self, kind: IndexKind, name: &'o str) {
        (self.sink)(kind, Cow::Borrowed(name));
    }

    fn requests<I>(&mut self, fields: impl IntoIterator<Item = &'o I>)
    where
        &'o I: IntoIterator<Item = &'o String>,
        I: 'o,
    {
        for id in fields.into_iter().flatten().filter(|id| !id.is_empty()) {
            (self.sink)(IndexKind::Request, Cow::Owned(RequestStem::of(id).0));
        }
    }

    fn named(&mut self, kind: IndexKind, names: impl IntoIterator<Item = &'o String>) {
        for name in names.into_iter().filter(|name| !name.is_empty()) {
            self.push(kind, name);
        }
    }
}
