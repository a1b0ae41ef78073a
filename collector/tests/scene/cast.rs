//! The workers of a scene: what arguments, files and declarations say of them.

use super::Scene;
use kvprov_model::fact;
use kvprov_model::factor::FactorState;
use kvprov_model::observation::{Body, Factor, Role, SourceKind, Worker, WorkerGone};

/// A worker in the making. Each call states one thing; nothing dates them unless the call does.
pub struct Cast<'s> {
    scene: &'s mut Scene,
    name: String,
}

// === impl Cast ===

impl<'s> Cast<'s> {
    pub(super) fn new(scene: &'s mut Scene, name: &str) -> Self {
        let cast = Self { scene, name: name.to_owned() };
        cast.state(Worker::default())
    }

    fn tell(self, time: Option<&str>, body: Body) -> Self {
        let moment = match time {
            Some(time) => self.scene.at(time),
            None => self.scene.undated(),
        };
        moment.on(&self.name).seen_by(SourceKind::Config).tell(body);
        self
    }

    fn state(self, worker: Worker) -> Self {
        self.tell(None, Body::Worker(worker))
    }

    fn role(self, role: Role) -> Self {
        let watched_by = if role == Role::Router { vec![] } else { vec!["log".to_owned()] };
        self.state(Worker { role: Some(role), watched_by, ..Worker::default() })
    }

    /// It computes prompts for others.
    pub fn prefill(self) -> Self {
        self.role(Role::Prefill)
    }

    /// It decodes from KV of others.
    pub fn decode(self) -> Self {
        self.role(Role::Decode)
    }

    /// It does both.
    pub fn both(self) -> Self {
        self.role(Role::Both)
    }

    /// It routes.
    pub fn router(self) -> Self {
        self.role(Role::Router)
    }

    /// It is a store.
    pub fn store(self) -> Self {
        self.role(Role::Store)
    }

    /// It runs on another node.
    pub fn node(self, node: &str) -> Self {
        self.scene.nodes.insert(self.name.clone(), node.to_owned());
        self.scene.rehome(&self.name, node);
        self
    }

    /// Peers know it by this id.
    pub fn engine_id(self, id: &str) -> Self {
        self.state(Worker { engine_ids: vec![id.to_owned()], ..Worker::default() })
    }

    /// A fact by its name in `model::fact`, in place of what the scene said of it before.
    pub fn fact(self, name: &str, value: &str) -> Self {
        self.scene.forget(&self.name, name);
        self.state(Worker { facts: [(name.to_owned(), value.to_owned())].into(), ..Worker::default() })
    }

    /// A fact and where it comes from.
    pub fn fact_from(self, name: &str, value: &str, origin: &str) -> Self {
        let facts = [(name.to_owned(), value.to_owned())].into();
        let fact_origins = [(name.to_owned(), origin.to_owned())].into();
        self.state(Worker { facts, fact_origins, ..Worker::default() })
    }

    /// It is this engine in this version.
    pub fn runs(self, engine: &str, version: &str) -> Self {
        let (engine, engine_version) = (Some(engine.to_owned()), Some(version.to_owned()));
        self.state(Worker { engine, engine_version, ..Worker::default() })
    }

    /// What it does when KV does not arrive.
    pub fn policy(self, policy: &str) -> Self {
        self.fact(fact::LOAD_FAILURE_POLICY, policy)
    }

    /// It reads and writes this store.
    pub fn uses(self, store: &str) -> Self {
        self.fact(fact::STORE, store)
    }

    /// The content digest of its weights.
    pub fn weights(self, digest: &str) -> Self {
        self.factor("weights", &format!("sha256:{digest}"))
    }

    /// The content digest of its weights from a time on.
    pub fn weights_from(self, time: &str, digest: &str) -> Self {
        let body = factor("weights", None, &format!("sha256:{digest}"), FactorState::Full);
        self.tell(Some(time), body)
    }

    /// A factor, as `algorithm:value`.
    pub fn factor(self, name: &str, text: &str) -> Self {
        self.tell(None, factor(name, None, text, FactorState::Full))
    }

    /// A factor of which only a part is known.
    pub fn provisional(self, name: &str, text: &str) -> Self {
        self.tell(None, factor(name, None, text, FactorState::Provisional))
    }

    /// The content digest of an adapter by name.
    pub fn adapter(self, name: &str, digest: &str) -> Self {
        self.tell(None, factor("adapter", Some(name), &format!("sha256:{digest}"), FactorState::Full))
    }

    /// The kernel saw its processes load content: weights, or what is in an adapter's directory.
    pub fn loaded(self, time: &str, of: &str, digest: &str) -> Self {
        let (name, adapter) = loaded_from(of);
        self.opened(time, factor(name, adapter, &format!("sha256:{digest}"), FactorState::Full))
    }

    /// The kernel saw its processes open other content, of which nothing is known, or not yet.
    pub fn opened_unknown(self, time: &str, of: &str) -> Self {
        let (name, adapter) = loaded_from(of);
        let body = Factor {
            factor: Some(name.to_owned()),
            adapter: adapter.map(str::to_owned),
            algorithm: Some("sha256".to_owned()),
            state: Some(FactorState::Provisional),
            ..Factor::default()
        };
        self.opened(time, Body::Factor(body))
    }

    /// The kernel saw its processes open content that could not be read.
    pub fn opened_in_vain(self, time: &str, of: &str, reason: &str) -> Self {
        let (name, adapter) = loaded_from(of);
        let body = Factor {
            factor: Some(name.to_owned()),
            adapter: adapter.map(str::to_owned),
            state: Some(FactorState::Unknown),
            reason: Some(reason.to_owned()),
            ..Factor::default()
        };
        self.opened(time, Body::Factor(body))
    }

    /// The kernel saw its processes open content of which there is a sample.
    pub fn sampled(self, time: &str, of: &str, sample: &str) -> Self {
        let (name, adapter) = loaded_from(of);
        self.opened(time, factor(name, adapter, &format!("samples-v1:{sample}"), FactorState::Provisional))
    }

    fn opened(self, time: &str, body: Body) -> Self {
        self.scene.at(time).on(&self.name).seen_by(SourceKind::Kernel).tell(body);
        self
    }

    /// Its end was seen.
    pub fn gone(self, time: &str) -> Self {
        self.tell(Some(time), Body::WorkerGone(WorkerGone { exit_signal: Some(9), exit_status: None }))
    }
}

/// A directory is an adapter's; anything else is a factor.
fn loaded_from(of: &str) -> (&str, Option<&str>) {
    if of.starts_with('/') { ("adapter", Some(of)) } else { (of, None) }
}

fn factor(name: &str, adapter: Option<&str>, text: &str, state: FactorState) -> Body {
    let factor = kvprov_model::factor::Factor::full(text);
    Body::Factor(Factor {
        factor: Some(name.to_owned()),
        adapter: adapter.map(str::to_owned),
        algorithm: Some(factor.algorithm),
        value: Some(factor.value),
        state: Some(state),
        layout: factor.layout,
        meaning: factor.meaning,
        ..Factor::default()
    })
}
