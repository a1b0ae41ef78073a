//! Discovery on this machine: real processes, and, when asked for, the store rigs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]
#![allow(clippy::print_stdout, reason = "the ignored tests print tables")]
#![allow(clippy::disallowed_methods, reason = "a rig tells by files that it is ready")]

use kvprov_agent::bundle::Bundle;
use kvprov_agent::discover::{Change, Discovery, Exit, FoundWorker, LiveProcesses, NodeIdentity, Output};
use kvprov_model::clock::WallTime;
use kvprov_packs::{Packs, Version};
use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const NOW: WallTime = WallTime(1_800_000_000_000_000_000);

/// Ends what a test started, whatever happens to the test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn discovery() -> Discovery<'static> {
    Discovery::new(Packs::builtin(), NodeIdentity::read(None).unwrap(), None)
}

/// A shell that calls itself something else and waits: its arguments are ours, its program is no engine.
fn called(name: &str, arguments: &[&str], output: Stdio) -> Started {
    let mut command = Command::new("/bin/sh");
    command.arg0(name).args(["-c", "read line"]).args(arguments).stdin(Stdio::piped()).stdout(output);
    let started = Started(command.spawn().unwrap());
    // A spawn is over a little before its arguments are in place; the kernel tells of an exec only behind that.
    let begun = Instant::now();
    let shown = format!("/proc/{}/cmdline", started.0.id());
    while !std::fs::read(&shown).unwrap().starts_with(name.as_bytes()) {
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} shows no arguments");
        std::thread::sleep(Duration::from_millis(1));
    }
    started
}

fn of_pid(workers: &[Change], pid: u32) -> Option<FoundWorker> {
    workers.iter().find_map(|change| match change {
        Change::Found(worker) | Change::Changed(worker) if worker.leader.pid == pid => Some(worker.clone()),
        _ => None,
    })
}

#[test]
fn a_live_process_is_found_and_its_end_is_told() {
    let system = LiveProcesses::open().unwrap();
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let output = Stdio::from(log.reopen().unwrap());
    let mut started = called("mooncake_master", &["--rpc_port=50999", "--api-key=secret"], output);
    let pid = started.0.id();
    let worker = of_pid(&discovery.exec(&system, pid, NOW), pid).unwrap();
    assert_eq!(worker.engine, "mooncake");
    assert_eq!(worker.facts.get("store").map(String::as_str), Some("mooncake:127.0.0.1:50999"));
    assert!(!format!("{worker:?}").contains("secret"));
    let files: Vec<&Path> = worker
        .output_files()
        .into_iter()
        .filter_map(|output| match output {
            Output::File { path, .. } => Some(path.as_path()),
            _ => None,
        })
        .collect();
    assert!(files.contains(&log.path()), "{files:?}");
    assert_eq!(discovery.worker_of(pid).map(|worker| worker.leader.pid), Some(pid));

    started.0.kill().unwrap();
    let status = started.0.wait().unwrap();
    let exit = Exit { signal: status.signal().map(i64::from), status: None };
    let changes = discovery.exited(&system, pid, exit, NOW);
    assert_eq!(changes, [Change::Gone { worker: worker.id, exit: Some(exit), at: NOW }]);
}

#[test]
fn a_look_at_this_machine_fails_at_nothing_and_repeats_nothing() {
    let system = LiveProcesses::open().unwrap();
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    discovery.scan(&system, NOW).unwrap();
    assert!(discovery.report().processes > 1);
    assert!(discovery.report().read < discovery.report().processes / 2, "{:?}", discovery.report());
}

/// Prints the cost of a look. `KVPROV_PROCESSES`: how many processes to start first.
#[test]
#[ignore = "starts thousands of processes"]
fn the_cost_of_a_look() {
    let count: u32 = std::env::var("KVPROV_PROCESSES").map_or(5000, |text| text.parse().unwrap());
    let mut parent = Started(
        Command::new("/bin/sh")
            .args([
                "-c",
                &format!("i=0; while [ $i -lt {count} ]; do sleep 600 & i=$((i+1)); done; echo; wait"),
            ])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap(),
    );
    let mut ready = [0];
    std::io::Read::read_exact(parent.0.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let system = LiveProcesses::open().unwrap();
    let mut discovery = discovery();
    for look in 0..6 {
        let (wall, cpu) = (Instant::now(), cpu_time());
        discovery.scan(&system, NOW).unwrap();
        let (wall, cpu) = (wall.elapsed(), cpu_time() - cpu);
        println!("look {look}: {:?} wall {wall:?} cpu {cpu:?}", discovery.report());
    }
    let group = rustix::process::Pid::from_child(&parent.0);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
}

/// Time that this thread was on a processor.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Compares what is found of a run of a store rig, which waits at its gate, with what the rig's own bundle declares.
/// `KVPROV_RIG_OUT`: the directory of the run.
#[test]
#[ignore = "needs a store rig at its gate"]
fn facts_of_the_rig_equal_those_of_its_bundle() {
    let out = PathBuf::from(std::env::var_os("KVPROV_RIG_OUT").unwrap());
    let pids = out.join("pids.json");
    wait_for(&pids);
    let pids: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(pids).unwrap()).unwrap();
    let system = LiveProcesses::open().unwrap();
    let mut discovery = discovery();
    let changes = discovery.scan(&system, NOW).unwrap();
    let store = pids["store"].as_str().unwrap_or_default().to_owned();
    let manifest = out.join("bundle/incident.toml");
    wait_for(&manifest);
    // The rig writes the manifest at once, when all else is done.
    std::thread::sleep(Duration::from_millis(200));
    let bundle = Bundle::open(&[out.join("bundle")]).unwrap();
    let neutral =
        |text: &str| text.replace(&store, "/mnt/kv").replace(&format!("{}/models", out.display()), "/models");
    let mut failures = 0;
    for declared in bundle.workers() {
        let pid = &pids["pids"][&declared.name];
        let pid = u32::try_from(pid.as_u64().or(pids["master"].as_u64()).unwrap()).unwrap();
        let Some(worker) = of_pid(&changes, pid) else {
            println!("{} {}: pid {pid} is NOT FOUND", out.display(), declared.name);
            failures += 1;
            continue;
        };
        let version = declared.engine_version.as_deref().and_then(Version::parse);
        let wanted = Packs::builtin().facts(declared.engine.as_deref(), version.as_ref(), &declared.settings);
        // The same settings without a version, which only shows where the engine is installed.
        let unversioned = Packs::builtin().facts(declared.engine.as_deref(), None, &declared.settings);
        let got: BTreeMap<String, String> =
            worker.facts.iter().map(|(name, value)| (name.clone(), neutral(value))).collect();
        let differs = |wanted: &BTreeMap<String, String>| -> Vec<String> {
            let names: std::collections::BTreeSet<&String> = wanted.keys().chain(got.keys()).collect();
            names
                .into_iter()
                .filter(|name| wanted.get(*name) != got.get(*name))
                .map(|name| format!("{name}: declared {:?}, found {:?}", wanted.get(name), got.get(name)))
                .collect()
        };
        let (with, without) = (differs(&wanted.facts), differs(&unversioned.facts));
        let same = [
            ("engine", declared.engine.as_deref() == Some(worker.engine.as_str())),
            ("role", declared.role == worker.role),
        ];
        for (what, _) in same.iter().filter(|(_, same)| !same) {
            println!("  {what} differs: {:?} {:?}", worker.engine, worker.role);
            failures += 1;
        }
        println!(
            "{} {}: {} {:?} {:?}, {} processes, {} facts; differing with the declared version: {with:?}, without: {without:?}",
            out.file_name().unwrap().display(),
            declared.name,
            worker.id,
            worker.engine_version,
            worker.role,
            worker.processes.len(),
            worker.facts.len(),
        );
        failures += without.iter().filter(|line| !line.starts_with("tp_rank")).count();
    }
    let strangers = changes.len().saturating_sub(bundle.workers().len());
    println!("{} workers that are not of the rig: {strangers}", out.display());
    assert_eq!(failures, 0);
}

fn wait_for(path: &Path) {
    let end = Instant::now() + Duration::from_secs(180);
    while !path.exists() {
        assert!(Instant::now() < end, "{} does not come", path.display());
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_millis(50));
}

/// Prints what is found on this machine.
#[test]
#[ignore = "prints what is there"]
fn workers_of_this_machine() {
    let system = LiveProcesses::open().unwrap();
    let mut discovery = discovery();
    for change in discovery.scan(&system, NOW).unwrap() {
        let Change::Found(worker) = change else { continue };
        println!("{} {:?} {:?} unread {:?}", worker.id, worker.engine_version, worker.role, worker.unread);
        for process in &worker.processes {
            let (pid, name) = (process.key.pid, &process.thread_name);
            println!("  {pid} {name} {:?} {:?}", process.signature, process.output);
        }
        println!("  {:?}\n  {:?}", worker.settings, worker.facts);
    }
}
