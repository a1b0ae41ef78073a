//! A worker in a container, from its control group over the loader and the runtime to what is observed of it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]
#![allow(clippy::disallowed_methods, reason = "nothing signals that an answer came")]

#[path = "../../loader/src/containers/tests/fake_cri.rs"]
mod fake_cri;

use fake_cri::{Container, FakeCri, Says, digest};
use kvprov_agent::access::Access;
use kvprov_agent::containers::{Asker, Complaint, Wanted};
use kvprov_agent::discover::{Change, Discovery, LiveProcesses, NodeIdentity, Output, Processes, Stat};
use kvprov_loader::client::Client;
use kvprov_loader::containers::Runtimes;
use kvprov_loader::server::{NoKernel, Server};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Worker};
use kvprov_packs::Packs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const NOW: WallTime = WallTime(1_800_000_000_000_000_000);
const UID: &str = "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b";

fn id() -> String {
    "9f".repeat(32)
}

/// This machine, on which one process is in a pod.
struct InPod {
    real: LiveProcesses,
    pid: u32,
}

impl Processes for InPod {
    fn pids(&self) -> io::Result<Vec<u32>> {
        Ok(vec![self.pid])
    }

    fn stat(&self, pid: u32) -> io::Result<Stat> {
        self.real.stat(pid)
    }

    fn arguments(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.real.arguments(pid)
    }

    fn environment(&self, pid: u32) -> io::Result<Vec<u8>> {
        self.real.environment(pid)
    }

    fn mapped_files(&self, pid: u32) -> io::Result<Vec<String>> {
        self.real.mapped_files(pid)
    }

    fn cgroup(&self, _: u32) -> io::Result<String> {
        Ok(format!("0::/kubepods/burstable/pod{UID}/{}\n", id()))
    }

    fn executable(&self, pid: u32) -> io::Result<PathBuf> {
        self.real.executable(pid)
    }

    fn directory(&self, pid: u32) -> io::Result<PathBuf> {
        self.real.directory(pid)
    }

    fn namespace_pids(&self, pid: u32) -> io::Result<Vec<u32>> {
        self.real.namespace_pids(pid)
    }

    fn output(&self, _: u32, _: u32) -> Output {
        Output::Nowhere
    }

    fn list(&self, pid: u32, directory: &Path) -> io::Result<Vec<String>> {
        self.real.list(pid, directory)
    }

    fn read(&self, pid: u32, path: &Path, limit: usize) -> io::Result<Vec<u8>> {
        self.real.read(pid, path, limit)
    }
}

/// An engine in a pod, an agent that looks at it, and a loader that asks a runtime.
struct Room {
    engine: Child,
    system: InPod,
    discovery: Discovery<'static>,
    asker: Asker,
}

impl Room {
    fn new(runtimes: Runtimes) -> Self {
        let mut command = Command::new("/bin/sh");
        command.arg0("mooncake_master").args(["-c", "read line", "--rpc_port=50999"]);
        command.env("HOSTNAME", "a-host").env_remove("POD_NAME");
        let engine = command.stdin(Stdio::piped()).spawn().unwrap();
        let pid = engine.id();
        let begun = Instant::now();
        while !std::fs::read(format!("/proc/{pid}/cmdline")).unwrap().starts_with(b"mooncake_master") {
            assert!(begun.elapsed() < Duration::from_secs(10), "it shows no arguments");
            std::thread::sleep(Duration::from_millis(1));
        }
        let server = Server::new(Box::new(NoKernel::default())).unwrap().asking(runtimes);
        let (ours, theirs) = kvprov_loader::channel::pair().unwrap();
        std::thread::spawn(move || server.serve(ours));
        let access = Arc::new(Access::new(Some(Arc::new(Client::new(theirs).unwrap()))));
        Self {
            engine,
            system: InPod { real: LiveProcesses::open().unwrap(), pid },
            discovery: Discovery::new(Packs::builtin(), NodeIdentity::read(None).unwrap(), None),
            asker: Asker::start(access).unwrap(),
        }
    }

    /// What a look at the processes tells of the worker.
    fn look(&mut self) -> Option<Worker> {
        told(&self.discovery.scan(&self.system, NOW).unwrap())
    }

    /// What is told once the container was asked for, and what a person is told.
    fn ask(&mut self) -> (Option<Worker>, Vec<Complaint>) {
        let containers = self.discovery.workers().filter_map(|worker| worker.container.as_ref());
        self.asker.want(containers.filter_map(Wanted::of), Instant::now());
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < Duration::from_secs(20), "no answer");
            let (answers, complaints) = self.asker.told(Instant::now());
            let Some((container, names)) = answers.into_iter().next() else {
                std::thread::sleep(Duration::from_millis(5));
                continue;
            };
            return (told(&self.discovery.learn(container.as_str(), &names.names)), complaints);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.engine.kill();
        let _ = self.engine.wait();
    }
}

fn told(changes: &[Change]) -> Option<Worker> {
    let node = NodeIdentity::read(None).unwrap();
    let mut bodies = Vec::new();
    for change in changes {
        change.observe(&node, NOW, &mut |observation| {
            if let Body::Worker(body) = observation.body {
                bodies.push(body);
            }
        });
    }
    assert!(bodies.len() < 2, "{bodies:?}");
    bodies.pop()
}

#[test]
fn a_worker_is_told_at_once_and_its_names_when_they_come() {
    let directory = tempfile::tempdir().unwrap();
    let runtime =
        FakeCri::start(&directory.path().join("cri.sock"), Says::Container(Container::engine(&id())));
    let mut room = Room::new(Runtimes::at(&runtime.path));
    let first = room.look().unwrap();
    assert_eq!(
        (first.pod.as_deref(), first.namespace),
        (Some("a-host"), None),
        "a guess from its environment"
    );
    let (named, complaints) = room.ask();
    let named = named.unwrap();
    assert_eq!((named.pod.as_deref(), named.namespace.as_deref()), (Some("decode-0"), Some("serving")));
    assert_eq!(named.container.as_deref(), Some("engine"));
    assert_eq!(named.image.as_deref(), Some("docker.io/vllm/vllm-openai:v0.32"));
    assert_eq!(named.image_digest, Some(digest()));
    assert_eq!(named.settings, first.settings, "the rest is as it was");
    assert!(complaints.is_empty());
    assert_eq!(room.look(), None, "told once");
    assert_eq!(runtime.asked().len(), 1);
}

#[test]
fn a_runtime_that_hangs_leaves_the_worker_as_its_control_group_tells_it() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = FakeCri::start(&directory.path().join("cri.sock"), Says::Nothing);
    let patience = Duration::from_millis(200);
    let mut room = Room::new(Runtimes::at(&runtime.path).with_patience(patience));
    let begun = Instant::now();
    assert!(room.look().is_some());
    assert!(begun.elapsed() < Duration::from_secs(2), "nobody waits for the runtime");
    assert_eq!(room.ask().0, None, "nothing else is known");
}

#[test]
fn a_runtime_that_names_another_pod_is_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let stranger = Container::engine(&id()).label("io.kubernetes.pod.uid", &"7".repeat(36));
    let runtime = FakeCri::start(&directory.path().join("cri.sock"), Says::Container(stranger));
    let mut room = Room::new(Runtimes::at(&runtime.path));
    room.look();
    assert_eq!(room.ask().0, None);
}

#[test]
fn without_a_socket_the_worker_stays_as_it_was() {
    let mut room = Room::new(Runtimes::at("/nowhere/cri.sock"));
    let first = room.look().unwrap();
    assert_eq!((first.container, first.image, first.image_digest), (None, None, None));
    assert_eq!(room.ask(), (None, Vec::new()), "said when it was asked for twice");
}
