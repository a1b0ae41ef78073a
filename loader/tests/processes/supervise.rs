//! Real parents with real children.

use crate::{Test, in_role};
use kvprov_loader::client::Client;
use kvprov_loader::server::{NoKernel, Server};
use kvprov_loader::supervise::{ChildSpec, Watcher, child, run};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;

pub(crate) const TESTS: &[Test] = &[
    ("a_child_asks_its_parent_without_any_capability", a_child_asks),
    ("a_child_that_is_killed_comes_back_every_time", a_killed_child_comes_back),
    ("a_signal_ends_the_children_in_reverse_and_then_the_parent", a_signal_ends_all),
    ("children_end_when_their_parent_is_killed", children_end_with_the_parent),
    ("a_child_that_does_not_end_is_killed_at_the_second_signal", a_stubborn_child_is_killed),
    ("a_child_that_cannot_start_ends_everything_and_is_named", a_child_that_cannot_start),
    ("a_child_that_ends_well_ends_everything", a_child_that_ends_well),
];

fn a_child_asks() {
    let mut supervisor = Supervisor::start(&["asks"]);
    let started = supervisor.wait_for("started asks ");
    assert_eq!(supervisor.wait_for("asked "), format!("{started} 0"));
}

fn a_killed_child_comes_back() {
    let mut supervisor = Supervisor::start(&["asks"]);
    for _ in 0..5 {
        let pid = supervisor.wait_for("started asks ");
        supervisor.wait_for("asked ");
        kill(&pid);
        assert!(supervisor.wait_for("ended asks ").contains("signal: 9"));
    }
    supervisor.wait_for("asked ");
}

fn a_signal_ends_all() {
    for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut supervisor = Supervisor::start(&["first", "second"]);
        supervisor.wait_for("asked ");
        supervisor.wait_for("asked ");
        supervisor.signal(signal);
        supervisor.wait_for("stopping");
        assert_eq!(supervisor.wait_for("ended second "), "exit status: 0");
        supervisor.wait_for("stopping");
        assert_eq!(supervisor.wait_for("ended first "), "exit status: 0");
        assert_eq!(supervisor.wait_for("result "), "Signal");
        assert!(supervisor.process.wait().unwrap().success());
    }
}

fn children_end_with_the_parent() {
    let mut supervisor = Supervisor::start(&["asks"]);
    let pid = supervisor.wait_for("started asks ");
    supervisor.wait_for("asked ");
    supervisor.process.kill().unwrap();
    supervisor.process.wait().unwrap();
    wait_until_gone(&pid);
}

fn a_stubborn_child_is_killed() {
    let mut supervisor = Supervisor::start(&["stubborn"]);
    let pid = supervisor.wait_for("stubborn ");
    supervisor.signal(Signal::TERM);
    supervisor.wait_for("ignored");
    supervisor.signal(Signal::INT);
    assert!(supervisor.wait_for("ended stubborn ").contains("signal: 9"));
    assert_eq!(supervisor.wait_for("result "), "Signal");
    wait_until_gone(&pid);
}

fn a_child_that_cannot_start() {
    let mut supervisor = Supervisor::start(&["asks", "fails"]);
    assert_eq!(supervisor.wait_for("ended fails "), "exit status: 7");
    assert!(supervisor.wait_for("result ").starts_with("fails cannot start"));
    assert!(supervisor.process.wait().unwrap().success());
}

fn a_child_that_ends_well() {
    let mut supervisor = Supervisor::start(&["asks", "ends"]);
    assert_eq!(supervisor.wait_for("result "), "Child(\"ends\")");
}

/// Prints a line; who listens may be gone.
macro_rules! say {
    ($($word:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($word)*);
    };
}

/// A supervisor in a process of its own, and what it and its children print.
struct Supervisor {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Supervisor {
    fn start(children: &[&str]) -> Self {
        let mut process = in_role("supervise").args(children).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The rest of the next line with this begin.
    fn wait_for(&mut self, begin: &str) -> String {
        for line in self.lines.by_ref() {
            if let Some(rest) = line.unwrap().strip_prefix(begin) {
                return rest.trim().to_owned();
            }
        }
        panic!("no line {begin:?} came");
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn kill(pid: &str) {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
}

fn wait_until_gone(pid: &str) {
    let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
    if let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) {
        let wait = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&wait)).unwrap();
        assert_eq!(ended, 1, "it goes on living");
    }
}

/// Serves the children, and tells of them.
struct Telling(Arc<Server>);

impl Watcher for Telling {
    fn started(&mut self, name: &str, pid: u32, socket: OwnedFd) {
        let server = Arc::clone(&self.0);
        std::thread::spawn(move || server.serve(socket));
        say!("started {name} {pid}");
    }

    fn ended(&mut self, name: &str, _: u32, status: ExitStatus) {
        say!("ended {name} {status}");
    }
}

/// What the processes do.
pub(crate) fn role(arguments: &[String]) -> ExitCode {
    match arguments {
        [child, name] if child == "child" => return as_child(name),
        children => {
            let spec = |name: &String| ChildSpec {
                name: name.clone().leak(),
                arguments: [OsString::from("child"), OsString::from(name)].to_vec(),
            };
            let server = Arc::new(Server::new(Box::new(NoKernel::default())).unwrap());
            match run(children.iter().map(spec).collect(), &mut Telling(server)) {
                Ok(ended) => {
                    say!("result {ended:?}");
                }
                Err(error) => {
                    say!("result {error}");
                }
            }
        }
    }
    ExitCode::SUCCESS
}

fn as_child(name: &str) -> ExitCode {
    let status = child::enter().unwrap();
    let mut term = term();
    match name {
        "fails" => return ExitCode::from(7),
        "ends" => {}
        "stubborn" => {
            say!("stubborn {}", std::process::id());
            loop {
                let _ = term.read(&mut [0]);
                say!("ignored");
            }
        }
        _ => {
            let client = Client::from_stdin().unwrap();
            let own = client.identify(std::process::id()).unwrap();
            say!("asked {} {}", own.pid, status.permitted);
            let _ = term.read(&mut [0]);
            say!("stopping");
        }
    }
    ExitCode::SUCCESS
}

/// Where a byte comes in place of SIGTERM.
fn term() -> UnixStream {
    let (read, write) = UnixStream::pair().unwrap();
    signal_hook::low_level::pipe::register(Signal::TERM.as_raw(), write).unwrap();
    read
}
