//! What a bundle declares of its workers, as observations.

use crate::bundle::spec::{InputKind, WorkerSpec};
use crate::source::{Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::factor;
use kvprov_model::observation::{Body, Factor, SourceKind, Worker, WorkerGone};
use kvprov_packs::{Packs, Version};
use std::collections::BTreeMap;

/// What is known of a worker's identity: declared, then learnt from its logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub engine: Option<String>,
    pub engine_version: Option<String>,
    pub settings: BTreeMap<String, String>,
}

// === impl Identity ===

impl Identity {
    pub(crate) fn declared(worker: &WorkerSpec) -> Self {
        Self {
            engine: worker.engine.clone(),
            engine_version: worker.engine_version.clone(),
            settings: worker.settings.clone(),
        }
    }

    pub(crate) fn version(&self) -> Option<Version> {
        self.engine_version.as_deref().and_then(Version::parse)
    }

    /// Adds what a source says; what is known already stands, because a declaration is the better witness.
    pub(crate) fn learn(&mut self, said: &Worker) {
        self.engine = self.engine.take().or_else(|| said.engine.clone());
        self.engine_version = self.engine_version.take().or_else(|| said.engine_version.clone());
        for (key, value) in &said.settings {
            self.settings.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }

    /// Engine, version, settings and the facts that follow from them.
    pub(crate) fn body(&self, packs: &Packs) -> Worker {
        let resolved = packs.facts(self.engine.as_deref(), self.version().as_ref(), &self.settings);
        Worker {
            engine: self.engine.clone(),
            engine_version: self.engine_version.clone(),
            // What no fact reads may hold anything: a prompt, a template, a secret. It is not kept.
            settings: known(&self.settings, packs),
            facts: resolved.facts,
            fact_origins: resolved.origins,
            ..Worker::default()
        }
    }
}

/// Tells a worker's declaration. `source` is the manifest as a source of this worker.
pub(crate) fn tell(
    worker: &WorkerSpec,
    kinds: &[InputKind],
    packs: &Packs,
    source: &SourceContext,
    sink: Sink<'_>,
) {
    let body = Worker {
        role: worker.role.clone(),
        watched_by: kinds.iter().map(|kind| kind.as_str().to_owned()).collect(),
        pod: worker.pod.clone(),
        namespace: worker.namespace.clone(),
        container: worker.container.clone(),
        image: worker.image.clone(),
        image_digest: worker.image_digest.clone(),
        ..Identity::declared(worker).body(packs)
    };
    let place = |line: u64| Place { position: line, offset: line };
    let mut index = 0;
    let mut emit = |line: u64, wall: Option<WallTime>, says: String, body: Body| {
        let observation = source.observe(SourceKind::Config, place(line), index, wall, Some(says), body);
        index += 1;
        sink(observation);
    };
    let engine = worker.engine.as_deref().unwrap_or("unknown engine");
    let version = worker.engine_version.as_deref().unwrap_or("of unknown version");
    let says = format!("worker {}: {engine} {version}, {} settings", worker.name, worker.settings.len());
    emit(worker.line, None, says, Body::Worker(body));
    for revision in &worker.revisions {
        for declared in &revision.factors {
            let value = factor::Factor::full(&declared.text);
            let of = declared
                .adapter
                .as_deref()
                .map(|adapter| format!(" of adapter {adapter}"))
                .unwrap_or_default();
            let says = format!("{}{of} is {}:{}", declared.factor, value.algorithm, value.value);
            let body = Body::Factor(Factor {
                factor: Some(declared.factor.clone()),
                adapter: declared.adapter.clone(),
                algorithm: Some(value.algorithm),
                value: Some(value.value),
                state: Some(value.state),
                origin: Some("declaration".to_owned()),
                layout: value.layout,
                meaning: value.meaning,
                reason: None,
            });
            emit(revision.line, revision.from, says, body);
        }
    }
    if let Some(end) = worker.end {
        let says = match end.signal {
            Some(signal) => format!("worker {} ended by signal {signal}", worker.name),
            None => format!("worker {} ended", worker.name),
        };
        let body = Body::WorkerGone(WorkerGone { exit_signal: end.signal, exit_status: end.status });
        emit(end.line, end.at, says, body);
    }
}

/// The settings that some fact reads.
fn known(settings: &BTreeMap<String, String>, packs: &Packs) -> BTreeMap<String, String> {
    settings
        .iter()
        .filter(|(key, _)| packs.is_known_setting(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
