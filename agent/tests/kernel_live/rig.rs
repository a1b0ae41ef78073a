//! A reader of the ring over processes and names that are made up.

use crate::ring::{Bytes, FIRST_TIME};
use kvprov_agent::kernel::live::{FakeProcesses, LiveKernel, LiveOptions, Notice, Now};
use kvprov_agent::kernel::{ArtifactName, FileRole, ModelFile, Names};
use kvprov_agent_common::FileIdentity;
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Artifact, Body, Observation};
use std::sync::{Arc, Mutex};

/// Stores in `/kv` and `/w/kv`: `*.bin` are keys, `*.tmp` temporary; models in `/models`.
pub(crate) struct Lab;

impl Names for Lab {
    fn role(&self, path: &str) -> FileRole {
        for store in ["/kv", "/w/kv", "/mnt/kv"] {
            let Some(key) = path.strip_prefix(store).and_then(|rest| rest.strip_prefix('/')) else {
                continue;
            };
            return match key.rsplit_once('.') {
                Some((_, "bin")) => FileRole::Artifact(ArtifactName {
                    store_dir: store.to_owned(),
                    key: key.to_owned(),
                    grammar: "lab".to_owned(),
                    ..ArtifactName::default()
                }),
                Some((_, "tmp")) => FileRole::Temporary,
                _ => FileRole::Other,
            };
        }
        if path.starts_with("/models/") {
            return FileRole::Model(ModelFile { factor: "weights".to_owned(), digest: None, evidence: None });
        }
        FileRole::Other
    }
}

pub(crate) const ROOT: &str = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n";
pub(crate) const WITH_NFS: &str =
    "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 0:50 / /kv rw - nfs4 nas:/export rw\n";
pub(crate) const NFS: u32 = 50;
pub(crate) const NOW: Now = Now { monotonic: FIRST_TIME, wall: 1_800_000_000_000_000_000 };

pub(crate) struct Rig {
    pub(crate) live: LiveKernel<'static>,
    pub(crate) processes: Arc<Mutex<FakeProcesses>>,
    pub(crate) position: u64,
    pub(crate) observations: Vec<Observation>,
    pub(crate) notices: Vec<String>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut fake = FakeProcesses::default();
        for pid in [7, 8] {
            fake.mountinfo.insert(pid, ROOT.into());
            fake.cwd.insert(pid, b"/w".to_vec());
        }
        let processes = Arc::new(Mutex::new(fake));
        let options = LiveOptions { node: NodeId("n1".to_owned()), ring: "boot ring".to_owned() };
        let mut live = LiveKernel::new(options, &Lab, Box::new(Arc::clone(&processes)), NOW);
        live.add_process(&WorkerId("w".to_owned()), 7, 5);
        Self { live, processes, position: 0, observations: Vec::new(), notices: Vec::new() }
    }

    pub(crate) fn take(&mut self, record: &Bytes) {
        let notices = &mut self.notices;
        self.live.event(self.position, record.as_slice(), &mut |notice| {
            notices.push(match notice {
                Notice::Exec(event, worker) => format!("exec {} {}", event.pid, worker.is_some()),
                Notice::Fork(event, worker) => format!("fork {} {worker}", event.pid),
                Notice::Exit(event, code, worker) => format!("exit {} {code} {worker}", event.pid),
                Notice::Output(piece, worker) => {
                    format!("output {} {} {worker}", piece.fd, String::from_utf8_lossy(piece.bytes))
                }
                Notice::Model(open, worker) => {
                    format!("model {} {} {worker}", open.path, open.identity.inode)
                }
                Notice::BlindSpot { pid, way, worker } => format!("blind {pid} {way} {worker}"),
            });
        });
        self.position += 100;
    }

    pub(crate) fn all(&mut self, records: &[Bytes]) {
        for record in records {
            self.take(record);
        }
    }

    pub(crate) fn commit(&mut self) {
        let observations = &mut self.observations;
        self.live.commit(self.position, &mut |observation| observations.push(observation));
    }

    pub(crate) fn tick(&mut self, time: u64) {
        let now = Now { monotonic: time, wall: NOW.wall + (time - FIRST_TIME) as i64 };
        let observations = &mut self.observations;
        self.live.tick(now, &mut |observation| observations.push(observation));
    }

    pub(crate) fn artifacts(&self) -> Vec<Artifact> {
        let artifact = |observation: &Observation| match &observation.body {
            Body::Artifact(artifact) => Some(artifact.clone()),
            _ => None,
        };
        self.observations.iter().filter_map(artifact).collect()
    }

    /// Actions with bytes and key.
    pub(crate) fn told(&mut self) -> Vec<String> {
        self.commit();
        let words = |artifact: Artifact| {
            let bytes = artifact.bytes.map(|bytes| format!(" {bytes}")).unwrap_or_default();
            format!("{}{bytes} {}", artifact.action.unwrap(), artifact.key.unwrap())
        };
        self.artifacts().into_iter().map(words).collect()
    }

    pub(crate) fn losses(&mut self) -> Vec<String> {
        self.live.take_losses().iter().map(|(reason, count)| format!("{count} {reason}")).collect()
    }
}

pub(crate) const A: FileIdentity = FileIdentity { device: 8 << 20 | 1, open_file: 1, inode: 11 };
