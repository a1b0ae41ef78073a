//! The whole way: kernel programs that the parent attached, read by a child that has no capability.

use crate::{Test, in_role};
use kvprov_agent_common::kernel::watch;
use kvprov_agent_common::ring::Ring;
use kvprov_agent_common::{Event, Kind};
use kvprov_loader::abilities;
use kvprov_loader::attach::{Kernel, Options};
use kvprov_loader::client::Client;
use kvprov_loader::privileges::{Status, kept, restrict};
use kvprov_loader::server::Server;
use kvprov_loader::supervise::{ChildSpec, Ended, Watcher, child, run};
use rustix::fd::OwnedFd;
use std::io::Write;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const TESTS: &[Test] =
    &[("a_child_without_capabilities_reads_what_the_kernel_saw_of_a_worker", a_child_reads_the_ring)];

fn a_child_reads_the_ring() {
    if let Err(reasons) = abilities::all_kernel_programs(&abilities::own().unwrap()) {
        println!("skipped, not all kernel programs run here: {}", reasons.join("; "));
        return;
    }
    assert!(in_role("kernel").arg("parent").status().unwrap().success());
}

pub(crate) fn role(role: &str) -> ExitCode {
    match role {
        "parent" => parent(),
        _ => reader(),
    }
    ExitCode::SUCCESS
}

struct Serving(Arc<Server>);

impl Watcher for Serving {
    fn started(&mut self, _: &str, pid: u32, socket: OwnedFd) {
        self.0.exclude(pid).unwrap();
        let server = Arc::clone(&self.0);
        std::thread::spawn(move || server.serve(socket));
    }

    fn ended(&mut self, _: &str, pid: u32, _: ExitStatus) {
        self.0.include(pid);
    }
}

fn parent() {
    let kernel = Kernel::start(&Options { ring_bytes: 1 << 20, ..Options::default() }).unwrap();
    let before = Status::own().unwrap();
    let after = restrict(kept(before.permitted, (6, 18))).unwrap();
    assert_eq!(after.effective.count_ones(), 2, "{after}");
    let server = Arc::new(Server::new(Box::new(kernel)).unwrap());
    let spec = ChildSpec { name: "reader", arguments: vec!["reader".into()] };
    assert_eq!(run(vec![spec], &mut Serving(server)).unwrap(), Ended::Child("reader"));
}

fn reader() {
    assert_eq!(child::enter().unwrap().permitted, 0);
    let client = Client::from_stdin().unwrap();
    let (hello, ring) = client.hello().unwrap();
    assert_eq!(hello.capabilities.count_ones(), 2);
    let mut ring = Ring::new(ring.unwrap(), hello.ring_bytes.into()).unwrap();
    assert!(client.programs().unwrap().iter().any(|program| program.problem.is_none()));

    let mut worker = Command::new("sh")
        .args(["-c", "read go; cat /etc/hostname /etc/passwd >/dev/null"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let id = client.identify(worker.id()).unwrap();
    client.watch(id, watch::FILES).unwrap();
    worker.stdin.take().unwrap().write_all(b"go\n").unwrap();
    worker.wait().unwrap();

    let mut opened = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline && !opened.iter().any(|path| path == b"/etc/passwd") {
        ring.peek(usize::MAX, |_, bytes| {
            if let Some(Event::Path { record, first, .. }) = Event::parse(bytes)
                && record.header.kind == Kind::Open as u16
            {
                opened.push(first.to_vec());
            }
        })
        .unwrap();
        ring.release();
        std::thread::yield_now();
    }
    assert!(opened.iter().any(|path| path == b"/etc/passwd"), "{opened:?}");
    let counters = client.counters().unwrap();
    for kind in &counters.by_kind {
        assert_eq!(kind.fired, kind.filtered + kind.delivered + kind.dropped, "{kind:?}");
    }
    assert!(counters.by_kind.iter().any(|kind| kind.kind == Kind::Open as u16 && kind.delivered > 0));
}
