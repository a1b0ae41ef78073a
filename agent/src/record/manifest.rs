//! `incident.toml` of a recording, as its workers become known.

use kvprov_model::clock::WallTime;
use kvprov_model::factor::{self, FactorState};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Factor, Worker, WorkerGone};
use std::collections::BTreeMap;
use toml::{Table, Value};

/// From when, of which adapter, which factor, and what it is.
type Epoch = (Option<WallTime>, Option<String>, String, factor::Factor);

/// What is known of one worker.
#[derive(Debug, Default)]
struct Described {
    node: String,
    body: Worker,
    /// In order of time.
    epochs: Vec<Epoch>,
    gone: Option<(Option<WallTime>, WorkerGone)>,
}

/// The manifest.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    workers: BTreeMap<WorkerId, Described>,
    /// Worker, kind, file and the time of its first page, where it holds pages.
    sources: Vec<(WorkerId, &'static str, String, Option<WallTime>)>,
}

// === impl Manifest ===

impl Manifest {
    pub(super) fn worker(&mut self, worker: &WorkerId, node: &NodeId, body: &Worker) {
        let described = self.workers.entry(worker.clone()).or_default();
        described.node = node.as_str().to_owned();
        let known = &mut described.body;
        known.engine = body.engine.clone().or_else(|| known.engine.take());
        known.engine_version = body.engine_version.clone().or_else(|| known.engine_version.take());
        known.role = body.role.clone().or_else(|| known.role.take());
        known.settings.extend(body.settings.clone());
        let newer = |known: &mut Option<String>, new: &Option<String>| {
            if new.is_some() {
                known.clone_from(new);
            }
        };
        newer(&mut known.pod, &body.pod);
        newer(&mut known.namespace, &body.namespace);
        newer(&mut known.container, &body.container);
        newer(&mut known.image, &body.image);
        newer(&mut known.image_digest, &body.image_digest);
    }

    pub(super) fn factor(&mut self, worker: &WorkerId, wall: Option<WallTime>, factor: &Factor) {
        // A bundle declares what is known for sure; the rest is learnt again from the records, or stays unknown.
        let (Some(name), Some(algorithm), Some(value), Some(FactorState::Full)) =
            (&factor.factor, &factor.algorithm, &factor.value, &factor.state)
        else {
            return;
        };
        let known = factor::Factor {
            algorithm: algorithm.clone(),
            value: value.clone(),
            state: FactorState::Full,
            layout: factor.layout.clone(),
            meaning: factor.meaning.clone(),
        };
        let epochs = &mut self.workers.entry(worker.clone()).or_default().epochs;
        // What becomes known of a value later is of the same statement.
        let same = epochs.iter_mut().find(|(at, adapter, factor_name, held)| {
            (at, adapter, factor_name) == (&wall, &factor.adapter, name) && held.join(&known).is_some()
        });
        match same {
            Some((.., held)) => *held = held.join(&known).unwrap_or(known),
            None => epochs.push((wall, factor.adapter.clone(), name.clone(), known)),
        }
    }

    pub(super) fn gone(&mut self, worker: &WorkerId, wall: Option<WallTime>, gone: &WorkerGone) {
        self.workers.entry(worker.clone()).or_default().gone = Some((wall, gone.clone()));
    }

    pub(super) fn source(
        &mut self,
        worker: &WorkerId,
        kind: &'static str,
        file: String,
        at: Option<WallTime>,
    ) {
        self.workers.entry(worker.clone()).or_default();
        self.sources.push((worker.clone(), kind, file, at));
    }

    pub(super) fn to_toml(&self) -> String {
        let workers = self.workers.iter().map(|(id, worker)| Value::Table(worker.to_table(id))).collect();
        let sources = self
            .sources
            .iter()
            .map(|(worker, kind, file, at)| {
                let mut table = Table::new();
                table.insert("worker".to_owned(), Value::String(worker.as_str().to_owned()));
                table.insert("kind".to_owned(), Value::String((*kind).to_owned()));
                table.insert("file".to_owned(), Value::String(file.clone()));
                if let Some(at) = at {
                    table.insert("at".to_owned(), Value::String(at.to_rfc3339_nanos()));
                }
                Value::Table(table)
            })
            .collect();
        let mut root = Table::new();
        root.insert("worker".to_owned(), Value::Array(workers));
        root.insert("source".to_owned(), Value::Array(sources));
        root.to_string()
    }
}

// === impl Described ===

impl Described {
    fn to_table(&self, id: &WorkerId) -> Table {
        let mut table = Table::new();
        let mut text = |name: &str, value: Option<&str>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                table.insert(name.to_owned(), Value::String(value.to_owned()));
            }
        };
        text("name", Some(id.as_str()));
        text("node", Some(&self.node));
        text("engine", self.body.engine.as_deref());
        text("engine_version", self.body.engine_version.as_deref());
        text("role", self.body.role.as_ref().map(|role| role.as_str()));
        text("pod", self.body.pod.as_deref());
        text("namespace", self.body.namespace.as_deref());
        text("container", self.body.container.as_deref());
        text("image", self.body.image.as_deref());
        text("image_digest", self.body.image_digest.as_deref());
        if let Some((wall, gone)) = &self.gone {
            text("exited", wall.map(WallTime::to_rfc3339_nanos).as_deref());
            for (name, number) in [("exit_signal", gone.exit_signal), ("exit_status", gone.exit_status)] {
                if let Some(number) = number {
                    table.insert(name.to_owned(), Value::Integer(number));
                }
            }
        }
        if !self.body.settings.is_empty() {
            let settings = self.body.settings.iter();
            let settings =
                settings.map(|(name, value)| (name.clone(), Value::String(value.clone()))).collect();
            table.insert("settings".to_owned(), Value::Table(settings));
        }
        if !self.epochs.is_empty() {
            table.insert("epoch".to_owned(), Value::Array(self.epochs.iter().map(epoch).collect()));
        }
        table
    }
}

fn epoch((from, adapter, factor, value): &Epoch) -> Value {
    let value = Value::String(value.to_text());
    let mut revision = Table::new();
    match adapter {
        Some(adapter) => {
            revision
                .insert("adapters".to_owned(), Value::Table(Table::from_iter([(adapter.clone(), value)])));
        }
        None => drop(revision.insert(factor.clone(), value)),
    }
    let mut table = Table::new();
    if let Some(from) = from {
        table.insert("from".to_owned(), Value::String(from.to_rfc3339_nanos()));
    }
    table.insert("revision".to_owned(), Value::Table(revision));
    Value::Table(table)
}
