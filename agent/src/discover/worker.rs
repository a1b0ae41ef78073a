//! What discovery tells of a worker, and the observations that follow.

use super::container::Container;
use super::node::NodeIdentity;
use super::system::{Output, ProcessKey};
use crate::containers::ContainerNames;
use crate::source::{Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Observation, Role, SourceKind, Worker, WorkerGone};
use kvprov_model::value::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io;

/// Name of the source in observations.
const STREAM: &str = "discovery";

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exit {
    /// The signal that ended it.
    pub signal: Option<i64>,
    /// Its own status.
    pub status: Option<i64>,
}

/// What changed among the workers of this node.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// A worker that was not there before.
    Found(FoundWorker),
    /// A worker of which something else is known now: processes, version, outputs.
    Changed(FoundWorker),
    /// No process of the worker is left.
    Gone {
        /// The worker.
        worker: WorkerId,
        /// How its leader ended, where the kernel told.
        exit: Option<Exit>,
        /// When: as the kernel told, else when it was missed.
        at: WallTime,
    },
}

/// A process of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundProcess {
    /// The process.
    pub key: ProcessKey,
    /// Its parent.
    pub parent: u32,
    /// Name of its main thread.
    pub thread_name: String,
    /// The `[[process]]` entry of the packs that it fits; `None` for helpers.
    pub signature: Option<String>,
    /// Its number in its innermost name space, where that is another.
    pub inner_pid: Option<u32>,
    /// What descriptors 1 and 2 are.
    pub output: [Output; 2],
}

/// A worker: one engine instance and its tree of processes.
#[derive(Debug, Clone, PartialEq)]
pub struct FoundWorker {
    /// Its name.
    pub id: WorkerId,
    /// The engine.
    pub engine: String,
    /// The version, where package metadata told.
    pub engine_version: Option<String>,
    /// What it is for, where arguments told.
    pub role: Option<Role>,
    /// The process that the others come from. It may be over while others live.
    pub leader: ProcessKey,
    /// Whether the leader lives.
    pub leader_lives: bool,
    /// When the leader started.
    pub started: Option<WallTime>,
    /// Living processes, the leader first, then by number.
    pub processes: Vec<FoundProcess>,
    /// Settings that some fact reads.
    pub settings: BTreeMap<String, String>,
    /// Facts by name.
    pub facts: BTreeMap<String, String>,
    /// Where they come from.
    pub fact_origins: BTreeMap<String, String>,
    /// Path of its cgroup.
    pub cgroup: String,
    /// The container around it.
    pub container: Option<Container>,
    /// Name of the Kubernetes pod, or its uid where the name does not show.
    pub pod: Option<String>,
    /// What the container runtime says of the container.
    pub names: ContainerNames,
    /// What could not be read, and why.
    pub unread: BTreeMap<&'static str, io::ErrorKind>,
}

// === impl FoundWorker ===

impl FoundWorker {
    /// The observation's body.
    pub fn body(&self) -> Worker {
        Worker {
            engine: Some(self.engine.clone()),
            engine_version: self.engine_version.clone(),
            role: self.role.clone(),
            settings: self.settings.clone(),
            facts: self.facts.clone(),
            fact_origins: self.fact_origins.clone(),
            pids: self.processes.iter().map(|process| process.key.pid.to_string()).collect(),
            pod: self.names.pod.clone().or_else(|| self.pod.clone()),
            namespace: self.names.namespace.clone(),
            container: self.names.container.clone(),
            image: self.names.image.clone(),
            image_digest: self.names.image_digest.clone(),
            ..Worker::default()
        }
    }

    /// Distinct regular files that its processes write their output to.
    pub fn output_files(&self) -> Vec<&Output> {
        let all = self.processes.iter().flat_map(|process| &process.output);
        let mut files: Vec<&Output> = all.filter(|output| matches!(output, Output::File { .. })).collect();
        files.sort();
        files.dedup();
        files
    }
}

// === impl Change ===

impl Change {
    /// The worker that is spoken of.
    pub fn worker(&self) -> &WorkerId {
        match self {
            Self::Found(worker) | Self::Changed(worker) => &worker.id,
            Self::Gone { worker, .. } => worker,
        }
    }

    /// Tells the observation. The same state of the same worker has the same id at every look, also of a restarted agent.
    pub fn observe(&self, node: &NodeIdentity, now: WallTime, sink: Sink<'_>) {
        let mut observation = match self {
            // What arguments and environment say holds since the start.
            Self::Found(worker) => told(node, worker, worker.started.or(Some(now))),
            Self::Changed(worker) => told(node, worker, Some(now)),
            Self::Gone { worker, exit, at } => {
                let exit = exit.unwrap_or_default();
                let says = match exit.signal {
                    Some(signal) => format!("worker {worker} ended by signal {signal}"),
                    None => format!("worker {worker} ended"),
                };
                let body =
                    Body::WorkerGone(WorkerGone { exit_signal: exit.signal, exit_status: exit.status });
                observed(node, worker, 0, Some(*at), says, body)
            }
        };
        observation.envelope.boot_id = Some(node.boot_id.clone());
        sink(observation);
    }
}

fn told(node: &NodeIdentity, worker: &FoundWorker, at: Option<WallTime>) -> Observation {
    let version = worker.engine_version.as_deref().unwrap_or("of unknown version");
    let says = format!(
        "worker {}: {} {version}, {} processes, {} settings",
        worker.id,
        worker.engine,
        worker.processes.len(),
        worker.settings.len()
    );
    let body = worker.body();
    let digest = Sha256::digest(format!("{body:?}").as_bytes());
    let mut offset = [0; 8];
    offset.copy_from_slice(&digest[..8]);
    let mut told = observed(node, &worker.id, u64::from_le_bytes(offset), at, says, Body::Worker(body));
    let mut add = |name: &str, value: &Option<String>| {
        if let Some(value) = value {
            told.resource.insert(name.to_owned(), Value::Str(value.clone()));
        }
    };
    if let Some(container) = &worker.container {
        add("container.id", &Some(container.id.clone()));
        add("k8s.pod.uid", &container.pod_uid);
    }
    told
}

fn observed(
    node: &NodeIdentity,
    worker: &WorkerId,
    offset: u64,
    at: Option<WallTime>,
    says: String,
    body: Body,
) -> Observation {
    let source = SourceContext {
        node: node.node.clone(),
        worker: Some(worker.clone()),
        stream: STREAM.to_owned(),
        instance: format!("{STREAM} {worker}"),
        generation: u64::from(matches!(body, Body::WorkerGone(_))),
    };
    source.observe(SourceKind::Config, Place { position: 0, offset }, 0, at, Some(says), body)
}
