//! The parent: attaches the kernel programs, keeps only the capabilities it needs, answers its agent, and keeps the
//! children running. It parses nothing that an engine wrote.

use crate::config::Config;
use crate::live::arguments::{Common, Half};
use crate::live::{demo, logging};
use anyhow::Context;
use kvprov_loader::abilities::{self, Part, RealMachine, State};
use kvprov_loader::attach::{self, Kernel};
use kvprov_loader::containers::Runtimes;
use kvprov_loader::privileges::{self, Status};
use kvprov_loader::server::{KernelPrograms, NoKernel, Server};
use kvprov_loader::supervise::{self, ChildSpec, Ended, Watcher};
use rustix::fd::OwnedFd;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitCode, ExitStatus};
use std::sync::Arc;

/// Which children run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Children {
    /// Both halves, on one machine.
    Both,
    /// The agent alone.
    Agent,
    /// Both halves, and engine doubles for them to look at.
    Demo,
}

/// Runs the children until a signal comes, or one of them has done its work.
pub(crate) fn run(common: &Common, children: Children) -> anyhow::Result<ExitCode> {
    logging::begin("warn");
    let config = common.config(Half::Collector)?;
    if let Some(recording) = &common.record
        && std::fs::read_dir(recording).is_ok_and(|mut held| held.next().is_some())
    {
        anyhow::bail!("{} is not empty; a recording needs a directory of its own", recording.display());
    }
    let runtimes = runtimes(&config.agent.container_runtime)?;
    let held = Status::own()?;
    let (programs, mut blind) = programs(&config);
    let sees_calls = match (programs.ring().is_some(), blind.is_empty()) {
        (true, true) => Some("system calls"),
        (true, false) => Some("some system calls"),
        (false, _) => None,
    };
    blind.extend(missing(&held));
    // What attaching needed is needed no more.
    privileges::restrict(privileges::kept(held.permitted, abilities::kernel_version()))?;
    let server = Server::new(programs).context("starting the loader's helper threads")?;
    let server = Arc::new(server.asking(runtimes));
    if children != Children::Agent {
        greet(&config, sees_calls);
    }
    for line in &blind {
        println!("blind   {line}");
    }
    let mut specs = Vec::new();
    if children != Children::Agent {
        specs.push(ChildSpec { name: "collector", arguments: common.of_listening_child("collector") });
    }
    let agent = match children {
        Children::Agent => common.of_listening_child("agent"),
        _ => common.of_child("agent"),
    };
    specs.push(ChildSpec { name: "agent", arguments: agent });
    if children == Children::Demo {
        specs.push(ChildSpec { name: demo::COMMAND, arguments: common.of_listening_child(demo::COMMAND) });
    }
    let mut serving = Serving { server, held: BTreeMap::new(), demo_failed: false };
    match supervise::run(specs, &mut serving)? {
        Ended::Child(_) if serving.demo_failed => Ok(ExitCode::FAILURE),
        Ended::Signal | Ended::Child(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Who is asked what containers are called.
fn runtimes(word: &str) -> anyhow::Result<Runtimes> {
    match word {
        "auto" => Ok(Runtimes::known()),
        "off" => Ok(Runtimes::off("switched off by the configuration")),
        path if path.starts_with('/') => Ok(Runtimes::at(path)),
        other => {
            anyhow::bail!("agent.container_runtime: {other:?} is neither auto, off nor the path of a socket")
        }
    }
}

/// The kernel programs, or why there are none; and what cannot be seen, in words.
fn programs(config: &Config) -> (Box<dyn KernelPrograms>, Vec<String>) {
    if !config.agent.kernel {
        let reasons = vec!["system calls: switched off by the configuration".to_owned()];
        return (Box::new(NoKernel { reasons: reasons.clone() }), reasons);
    }
    let scope =
        config.agent.scope.as_deref().and_then(|scope| scope.strip_prefix("cgroup:")).map(PathBuf::from);
    let options = attach::Options {
        ring_bytes: config.agent.ring_bytes,
        scope,
        own: vec![std::process::id()],
        statistics: config.agent.kernel_statistics,
        ..attach::Options::default()
    };
    match Kernel::start(&options) {
        Ok(kernel) => {
            let lost = KernelPrograms::lost(&kernel);
            (Box::new(kernel), lost)
        }
        Err(error) => {
            let reasons = vec![format!("system calls: {error}; `kvprov doctor` says what to change")];
            (Box::new(NoKernel { reasons: reasons.clone() }), reasons)
        }
    }
}

/// What is lost in processes for want of a capability. Of those for kernel programs alone the programs tell.
fn missing(held: &Status) -> Vec<String> {
    let abilities = abilities::probe(&RealMachine, held).into_iter();
    let lacks = abilities.filter(|ability| ability.name.starts_with("cap_") && ability.state != State::Good);
    let of_processes = lacks.filter(|ability| ability.part == Part::Processes);
    of_processes.map(|ability| format!("{}: {}", ability.cost, ability.found)).collect()
}

fn greet(config: &Config, sees_calls: Option<&str>) {
    let data = config.collector.data.as_deref().unwrap_or(std::path::Path::new("."));
    println!("kvprov  findings   http://{}/", config.collector.listen);
    println!("        API        http://{}/api/v1/findings", config.collector.listen);
    println!(
        "        metrics    http://{0}/metrics and http://{1}/metrics",
        config.collector.listen, config.agent.listen
    );
    println!("        data       {}", data.display());
    let logs = config.agent.logs.then_some("logs");
    let counters = config.agent.metrics.then_some("counters");
    let sees: Vec<&str> = logs.into_iter().chain(counters).chain(sees_calls).collect();
    println!("        watches    {}", sees.join(", "));
}

/// Serves the agent's questions, each agent on a thread of its own. No child of this process is ever watched.
struct Serving {
    server: Arc<Server>,
    /// Ends of sockets that nobody asks on: a child whose standard input closed would think its parent gone.
    held: BTreeMap<u32, OwnedFd>,
    /// The demo did not find everything.
    demo_failed: bool,
}

impl Watcher for Serving {
    fn started(&mut self, name: &str, pid: u32, socket: OwnedFd) {
        tracing::info!(name, pid, "started");
        if let Err(error) = self.server.exclude(pid) {
            tracing::debug!(%error, name, "a child could not be excluded from being watched");
        }
        if name != "agent" {
            self.held.insert(pid, socket);
            return;
        }
        let server = Arc::clone(&self.server);
        let serving = std::thread::Builder::new().name("serves-agent".to_owned()).spawn(move || {
            if let Err(error) = server.serve(socket) {
                tracing::warn!(%error, "the agent's socket broke");
            }
        });
        if let Err(error) = serving {
            tracing::error!(%error, "no thread to answer the agent");
        }
    }

    fn ended(&mut self, name: &str, pid: u32, status: ExitStatus) {
        self.held.remove(&pid);
        self.server.include(pid);
        self.demo_failed |= name == demo::COMMAND && !status.success();
        if status.success() {
            tracing::info!(name, pid, "ended");
        } else {
            eprintln!("kvprov: the {name} ({pid}) ended: {status}");
        }
    }

    fn is_needed(&self, name: &str) -> bool {
        // A demo that failed would only fail again.
        name != demo::COMMAND
    }
}
