//! Files in a folder, opened by workers as the kernel would tell it, and what is told of them.

use kvprov_agent::identity::{FileOpener, Identities, IdentityOptions, OwnFiles, TensorDigests};
use kvprov_agent::kernel::ModelFile;
use kvprov_agent::kernel::live::ModelOpen;
use kvprov_agent_common::{FileIdentity, FileState};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::factor::{Comparison, FactorState};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Factor, Observation};
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Counting(pub(crate) Arc<AtomicUsize>);

impl FileOpener for Counting {
    fn open_file_of(&mut self, pid: u32, path: &[u8]) -> std::io::Result<std::fs::File> {
        self.0.fetch_add(1, Ordering::Relaxed);
        OwnFiles.open_file_of(pid, path)
    }
}

pub(crate) struct Rig {
    pub(crate) identities: Identities,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) opens: Arc<AtomicUsize>,
    pub(crate) seconds: i64,
    pub(crate) position: u64,
    pub(crate) found: Vec<Observation>,
}

pub(crate) fn options(folder: &Path) -> IdentityOptions {
    IdentityOptions {
        node: NodeId("n".to_owned()),
        ring: "r".to_owned(),
        boot: "b".to_owned(),
        cache: Some(folder.join("digests.jsonl")),
        rate: 0,
        threads: 1,
        tensors: TensorDigests::Auto,
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// With other options.
    pub(crate) fn with(change: impl FnOnce(&mut IdentityOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let opens = Arc::new(AtomicUsize::new(0));
        let mut options = options(folder.path());
        change(&mut options);
        let identities = Identities::new(options, Box::new(Counting(Arc::clone(&opens)))).unwrap();
        Self { identities, folder, opens, seconds: 1000, position: 0, found: Vec::new() }
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// The open of a file as it is now.
    pub(crate) fn open_of(&mut self, factor: &str, path: &Path) -> ModelOpen {
        let now = std::fs::metadata(path).unwrap();
        self.position += 10;
        ModelOpen {
            pid: std::process::id(),
            path: path.to_str().unwrap().into(),
            file: ModelFile { factor: factor.to_owned(), digest: None, evidence: None },
            identity: FileIdentity {
                device: rustix::fs::major(now.dev()) << 20 | rustix::fs::minor(now.dev()),
                open_file: 1,
                inode: now.ino(),
            },
            state: FileState {
                size: now.size(),
                modified: now.mtime() * SECOND + now.mtime_nsec(),
                changed: now.ctime() * SECOND + now.ctime_nsec(),
            },
            wall: WallTime(self.seconds * SECOND),
            position: self.position,
        }
    }

    pub(crate) fn take(&mut self, open: &ModelOpen) {
        self.take_of("w", open);
    }

    pub(crate) fn take_of(&mut self, worker: &str, open: &ModelOpen) {
        self.identities.opened(&WorkerId(worker.to_owned()), open);
    }

    /// A worker opens a file as it is now.
    pub(crate) fn open_as(&mut self, worker: &str, factor: &str, path: &Path) {
        let open = self.open_of(factor, path);
        self.take_of(worker, &open);
    }

    pub(crate) fn open(&mut self, factor: &str, path: &Path) {
        let open = self.open_of(factor, path);
        self.take(&open);
    }

    pub(crate) fn wait(&mut self, seconds: i64) {
        self.seconds += seconds;
        let mut idle = 0;
        for _ in 0..2000 {
            self.poll();
            // What is read may show that more is to be read.
            idle = if self.identities.waiting() == 0 { idle + 1 } else { 0 };
            if idle == 3 {
                break;
            }
            pause();
        }
    }

    pub(crate) fn poll(&mut self) {
        let found = &mut self.found;
        self.identities.poll(WallTime(self.seconds * SECOND), &mut |observation| found.push(observation));
    }

    /// Looks until something is so.
    pub(crate) fn until(&mut self, what: impl Fn(&Self) -> bool) {
        for tries in 0.. {
            self.poll();
            if what(self) {
                return;
            }
            assert!(tries < 4000, "it never became so: {:?}", self.says());
            pause();
        }
    }

    pub(crate) fn factors(&self) -> Vec<&Factor> {
        let factor = |observation| match observation {
            &Observation { body: Body::Factor(ref factor), .. } => Some(factor),
            _ => None,
        };
        self.found.iter().filter_map(factor).collect()
    }

    pub(crate) fn full(&self) -> Vec<String> {
        let full = self.factors().into_iter().filter(|factor| factor.state == Some(FactorState::Full));
        full.filter_map(|factor| factor.value.clone()).collect()
    }

    /// Full values of one factor.
    pub(crate) fn full_of(&self, name: &str) -> Vec<String> {
        let all = self.factors().into_iter().filter(|factor| factor.factor.as_deref() == Some(name));
        let full = all.filter(|factor| factor.state == Some(FactorState::Full));
        full.filter_map(|factor| factor.value.clone()).collect()
    }

    /// What a worker's factor is, as it was told last.
    pub(crate) fn last_of(&self, worker: &str, name: &str) -> Option<kvprov_model::factor::Factor> {
        let of = |observation: &&Observation| match &observation.body {
            Body::Factor(factor) => factor.factor.as_deref() == Some(name) && observation.worker() == worker,
            _ => false,
        };
        let Body::Factor(last) = &self.found.iter().rev().find(of)?.body else { return None };
        Some(kvprov_model::factor::Factor {
            algorithm: last.algorithm.clone()?,
            value: last.value.clone()?,
            state: last.state.clone()?,
            layout: last.layout.clone(),
            meaning: last.meaning.clone(),
        })
    }

    /// How the factors of two workers compare.
    pub(crate) fn compared(&self, a: &str, b: &str, name: &str) -> Option<Comparison> {
        Some(self.last_of(a, name)?.compare(&self.last_of(b, name)?))
    }

    /// Why the last factor told is not known.
    pub(crate) fn reason(&self) -> Option<String> {
        self.factors().last()?.reason.clone()
    }

    pub(crate) fn says(&self) -> Vec<&str> {
        self.found.iter().filter_map(|observation| observation.envelope.says.as_deref()).collect()
    }
}

pub(crate) fn sha256(content: &[u8]) -> String {
    kvprov_model::id::hex(&Sha256::digest(content))
}

/// A file of tensors of bytes.
pub(crate) fn safetensors(tensors: &[(&str, &[u8])]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, bytes) in tensors {
        let begin = end;
        end += bytes.len();
        let entry = serde_json::json!({"dtype": "U8", "shape": [bytes.len()], "data_offsets": [begin, end]});
        header.insert((*name).to_owned(), entry);
    }
    let header = serde_json::to_vec(&header).unwrap();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(&header);
    tensors.iter().for_each(|(_, bytes)| file.extend_from_slice(bytes));
    file
}

fn pause() {
    let (_kept, never) = std::sync::mpsc::channel::<()>();
    let _ = never.recv_timeout(std::time::Duration::from_millis(5));
}
