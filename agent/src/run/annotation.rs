//! What a worker's own pod is declared to run: the annotation `kvprov.io/revision` in a file of the downward API.
//!
//! The path is as the worker sees it. It is looked at when the worker is found and every half minute after that, since Kubernetes
//! writes it anew when somebody changes the annotation. A file that is not there, or that is not to be read, declares nothing;
//! what is no revision is told once and declares nothing either.

use crate::access::{ProcessAccess, ProcessId};
use crate::discover::{FoundWorker, NodeIdentity};
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::expected::{self, Expectation};
use kvprov_model::id::WorkerId;
use kvprov_model::observation::{Body, Expected, Observation, SourceKind};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often a file is looked at.
const EVERY: Duration = Duration::from_secs(30);
/// Largest file that is read, in bytes; Kubernetes allows less for all annotations of a pod.
const LARGEST: u64 = 512 << 10;

/// A worker whose annotation was looked at.
#[derive(Debug)]
struct Looked {
    at: Instant,
    /// What it declares; `None`: nothing.
    declared: Option<Expectation>,
    /// Whether anything was ever told of it: what is told next takes its place.
    was_told: bool,
}

/// The annotations of all workers.
#[derive(Debug)]
pub(crate) struct Annotations {
    path: Option<PathBuf>,
    looked: BTreeMap<WorkerId, Looked>,
}

// === impl Annotations ===

impl Annotations {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, looked: BTreeMap::new() }
    }

    /// What became another thing since the last look.
    pub(crate) fn look<'w>(
        &mut self,
        access: &dyn ProcessAccess,
        workers: impl Iterator<Item = &'w FoundWorker>,
        node: &NodeIdentity,
        now: WallTime,
    ) -> Vec<Observation> {
        let Some(path) = &self.path else { return Vec::new() };
        let (mut told, mut there) = (Vec::new(), BTreeSet::new());
        for worker in workers {
            there.insert(worker.id.clone());
            let before = self.looked.get(&worker.id);
            if before.is_some_and(|looked| looked.at.elapsed() < EVERY) {
                continue;
            }
            let was_told = before.is_some_and(|looked| looked.was_told);
            let before = before.and_then(|looked| looked.declared.clone());
            let read = read(access, worker, path.as_os_str().as_bytes());
            // What is wrong or gone leaves what was declared, unless the annotation itself was taken away.
            let declared = match read {
                Ok(declared) => declared,
                Err(()) => before.clone(),
            };
            let is_new = declared != before;
            if is_new {
                let since = was_told.then_some(now);
                told.push(observation(worker, node, &path.to_string_lossy(), declared.as_ref(), since));
            }
            self.looked.insert(
                worker.id.clone(),
                Looked { at: Instant::now(), declared, was_told: was_told || is_new },
            );
        }
        self.looked.retain(|worker, _| there.contains(worker));
        told
    }

    /// Nobody took what was told: everything is told again.
    pub(crate) fn untell(&mut self) {
        self.looked.clear();
    }
}

/// What the file says; `Ok(None)`: it has no such annotation, `Err`: that is not known.
fn read(access: &dyn ProcessAccess, worker: &FoundWorker, path: &[u8]) -> Result<Option<Expectation>, ()> {
    let process = worker.processes.first().map_or(worker.leader, |process| process.key);
    let process = ProcessId { pid: process.pid, started: process.start };
    let (file, _) = access.open_file_of(process, path).map_err(|error| {
        tracing::debug!(worker = %worker.id, %error, "the annotations of its pod are not read");
    })?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|_| ())?;
    match expected::annotation_in(&String::from_utf8_lossy(&bytes)) {
        None => Ok(None),
        Some(Ok(expectation)) => Ok(Some(expectation)),
        Some(Err(flaw)) => {
            tracing::warn!(worker = %worker.id, %flaw, "the annotation kvprov.io/revision of its pod is not used");
            Err(())
        }
    }
}

fn observation(
    worker: &FoundWorker,
    node: &NodeIdentity,
    stream: &str,
    declared: Option<&Expectation>,
    since: Option<WallTime>,
) -> Observation {
    let source = SourceContext {
        node: node.node.clone(),
        worker: Some(worker.id.clone()),
        stream: stream.to_owned(),
        instance: format!("annotation {}", worker.id),
        generation: 0,
    };
    let body = declared.map(Expectation::body).unwrap_or_default();
    let body = Expected { list_wall_ns: since.map(|since| since.0), ..body };
    // The same annotation has the same id at every look, also of a restarted agent.
    let digest = Sha256::digest(format!("{body:?}").as_bytes());
    let mut offset = [0; 8];
    offset.copy_from_slice(&digest[..8]);
    let place = Place { position: declared.map_or(0, |one| one.line), offset: u64::from_le_bytes(offset) };
    let says = declared.map_or_else(|| "nothing is declared".to_owned(), Expectation::says);
    source.observe(SourceKind::Config, place, 0, None, Some(says), Body::Expected(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::fake::{Fake, FakeProcess};
    use crate::discover::ProcessKey;
    use kvprov_model::id::NodeId;

    const FILE: &str = "/etc/podinfo/annotations";
    const ONE: &str = "kvprov.io/revision=\"rev:0123456789ab\"\n";
    const TWO: &str = "build=\"7\"\nkvprov.io/revision=\"rev:0123456789ab,rev:ba9876543210\"\n";

    fn node() -> NodeIdentity {
        NodeIdentity {
            node: NodeId::from("n"),
            boot_id: "b".to_owned(),
            machine_id: None,
            booted: None,
            ticks_per_second: 100,
        }
    }

    fn worker() -> FoundWorker {
        let leader = ProcessKey { pid: 7, start: 1 };
        FoundWorker {
            id: WorkerId::from("vllm-7"),
            engine: "vllm".to_owned(),
            engine_version: None,
            role: None,
            leader,
            leader_lives: true,
            started: None,
            processes: Vec::new(),
            settings: BTreeMap::new(),
            facts: BTreeMap::new(),
            fact_origins: BTreeMap::new(),
            cgroup: String::new(),
            container: None,
            pod: None,
            names: crate::containers::ContainerNames::default(),
            unread: BTreeMap::new(),
        }
    }

    /// What is told of the worker when its file holds some text, half a minute after what was told before.
    fn told(annotations: &mut Annotations, text: Option<&str>) -> Vec<Expected> {
        let process = FakeProcess::new(7, 1);
        let access = Fake::new([match text {
            Some(text) => process.file(FILE, text),
            None => process,
        }]);
        for looked in annotations.looked.values_mut() {
            looked.at = looked.at.checked_sub(EVERY).unwrap();
        }
        let told = annotations.look(&access, [worker()].iter(), &node(), WallTime(9));
        let bodies = told.into_iter().map(|observation| observation.body);
        bodies.filter_map(|body| if let Body::Expected(body) = body { Some(body) } else { None }).collect()
    }

    fn annotations() -> Annotations {
        Annotations::new(Some(PathBuf::from(FILE)))
    }

    #[test]
    fn an_annotation_is_told_once_and_its_change_from_that_time_on() {
        let mut annotations = annotations();
        let first = told(&mut annotations, Some(ONE));
        assert_eq!((first[0].revisions.len(), first[0].list_wall_ns), (1, None));
        assert!(told(&mut annotations, Some(ONE)).is_empty());
        let second = told(&mut annotations, Some(TWO));
        assert_eq!((second[0].revisions.len(), second[0].list_wall_ns), (2, Some(9)));
    }

    #[test]
    fn an_annotation_that_was_taken_away_declares_nothing_any_more() {
        let mut annotations = annotations();
        told(&mut annotations, Some(ONE));
        let gone = told(&mut annotations, Some("build=\"7\"\n"));
        assert_eq!(gone, [Expected { list_wall_ns: Some(9), ..Expected::default() }]);
        assert_eq!(told(&mut annotations, Some(ONE))[0].list_wall_ns, Some(9), "it counts again from now on");
    }

    #[test]
    fn a_pod_without_the_file_or_the_annotation_declares_nothing() {
        for text in [None, Some(""), Some("build=\"7\"\n")] {
            assert!(told(&mut annotations(), text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn what_is_wrong_or_cannot_be_read_leaves_what_was_declared() {
        let mut annotations = annotations();
        told(&mut annotations, Some(ONE));
        assert!(told(&mut annotations, Some("kvprov.io/revision=\"v2\"\n")).is_empty());
        assert!(told(&mut annotations, None).is_empty());
        assert!(told(&mut annotations, Some(ONE)).is_empty());
    }

    #[test]
    fn nothing_is_read_unless_a_file_is_named() {
        assert!(told(&mut Annotations::new(None), Some(ONE)).is_empty());
    }
}
