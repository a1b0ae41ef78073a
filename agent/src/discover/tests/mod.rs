//! Discovery over machines in memory, with the command lines and titles of real engines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

mod looks;
mod names;
mod trees;

use super::fake::FakeSystem;
use super::*;
use kvprov_model::id::NodeId;
use kvprov_model::observation::{Body, Role};

const NOW: WallTime = WallTime(1_800_000_000_000_000_000);
const VLLM: &str = "/srv/venv/bin/python /srv/venv/bin/vllm serve /models/cur --served-model-name tiny --host 127.0.0.1 --port 8100 \
    --enforce-eager --block-size 32 --dtype float16 --kv-transfer-config \
    '{\"kv_connector\": \"NixlConnector\", \"kv_role\": \"kv_producer\", \"kv_buffer_device\": \"cpu\"}'";
const SGLANG: &str = "/srv/venv/bin/python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 2 --page-size 64 \
    --enable-hierarchical-cache --hicache-storage-backend file";

fn node() -> NodeIdentity {
    NodeIdentity {
        node: NodeId("n".to_owned()),
        boot_id: "b".to_owned(),
        machine_id: None,
        booted: Some(WallTime(0)),
        ticks_per_second: 100,
    }
}

fn discovery() -> Discovery<'static> {
    Discovery::new(Packs::builtin(), node(), None)
}

/// A machine with init and a shell.
fn machine() -> FakeSystem {
    let system = FakeSystem::default();
    system.start(1, 0, "/sbin/init");
    system.start(10, 1, "-bash");
    system
}

/// A server with scheduler, worker and the helper that Python starts.
fn vllm(system: &FakeSystem, pid: u32, parent: u32, line: &str) {
    system.start(pid, parent, line);
    system.fork(pid + 1, pid);
    system.title(pid + 1, "VLLM::EngineCore");
    system.start(
        pid + 2,
        pid,
        "/srv/venv/bin/python -c 'from multiprocessing.resource_tracker import main;main(5)'",
    );
    system.fork(pid + 3, pid + 1);
    system.title(pid + 3, "VLLM::Worker_TP0");
}

fn found(changes: &[Change]) -> Vec<&FoundWorker> {
    changes
        .iter()
        .map(|change| match change {
            Change::Found(worker) => worker,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn pids(worker: &FoundWorker) -> Vec<u32> {
    worker.processes.iter().map(|process| process.key.pid).collect()
}

fn fact<'w>(worker: &'w FoundWorker, name: &str) -> &'w str {
    worker.facts.get(name).map_or("", String::as_str)
}

#[test]
fn a_tree_is_one_worker_with_role_settings_and_facts() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    system.environment(100, &["VLLM_NIXL_SIDE_CHANNEL_PORT=5700", "HF_TOKEN=secret", "PYTHONHASHSEED=0"]);
    let changes = discovery().scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!((changes.len(), worker.engine.as_str()), (1, "vllm"));
    assert_eq!(worker.role, Some(Role::Prefill));
    assert_eq!(pids(worker), [100, 101, 103], "the helper counts when it lasts");
    assert_eq!(worker.leader, ProcessKey { pid: 100, start: 3 });
    for (name, value) in [
        ("connector", "NixlConnector"),
        ("model_path", "/models/cur"),
        ("model_name", "tiny"),
        ("block_size", "32"),
        ("dtype", "float16"),
        ("http_address", "127.0.0.1:8100"),
        ("side_channel", "localhost:5700"),
        ("hash_seed", "0"),
        ("tp_size", "1"),
    ] {
        assert_eq!(fact(worker, name), value, "{name}");
    }
    let all = format!("{worker:?}");
    assert!(!all.contains("secret") && !all.contains("HF_TOKEN"), "{all}");
}

#[test]
fn a_helper_that_lasts_joins_and_one_that_does_not_is_not_told() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    system.start(150, 100, "nvidia-smi -q");
    let changes = discovery.scan(&system, NOW).unwrap();
    let [Change::Changed(worker)] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(pids(worker), [100, 101, 102, 103]);
    system.end(150);
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
}

#[test]
fn a_helper_belongs_to_its_parents_worker_at_once_and_is_told_with_the_next_look() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    discovery.scan(&system, NOW).unwrap();
    system.start(150, 101, "ffmpeg -i x");
    assert_eq!(discovery.exec(&system, 150, NOW), []);
    assert_eq!(discovery.worker_of(150).map(|worker| worker.leader.pid), Some(100));
    assert_eq!(discovery.worker_of(10), None);
    system.end(150);
    assert_eq!(discovery.exited(&system, 150, Exit::default(), NOW), []);
    assert_eq!(discovery.worker_of(150), None);
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
}

#[test]
fn nothing_new_is_nothing_told_and_arguments_are_read_once() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    for pid in 1000..1500 {
        system.start(pid, 10, "sleep 1000");
    }
    let mut discovery = discovery();
    for _ in 0..20 {
        discovery.scan(&system, NOW).unwrap();
    }
    let before = system.reads.get();
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
    assert_eq!(system.reads.get(), before);
    let report = discovery.report();
    assert_eq!((report.processes, report.read), (506, 0));
    assert!((350..400).contains(&report.rested), "{report:?}");
}

#[test]
fn words_of_an_engine_in_other_programs_are_no_worker() {
    let system = machine();
    for (index, line) in [
        "bash -c 'vllm serve /models/cur --port 8100'",
        "sh -c 'exec python -m sglang.launch_server --model-path m'",
        "vim /srv/venv/lib/python3.11/site-packages/sglang/launch_server.py",
        "nano vllm/entrypoints/openai/api_server.py",
        "grep -r vllm serve",
        "pgrep -f VLLM::EngineCore",
        "tail -f vllm.log",
        "less sglang::scheduler.log",
        "/usr/bin/python3 /usr/bin/pip install vllm sglang lmcache",
        "python -m pip install vllm",
        "uv pip install vllm",
        "/srv/venv/bin/python /srv/venv/bin/jupyter-lab --notebook-dir /srv/vllm",
        "python -m ipykernel_launcher -f /root/vllm.json",
        "python -c 'import vllm; print(vllm.__version__)'",
        "python /srv/venv/bin/vllm bench serve --model m",
        "vllm collect-env",
        "docker run vllm/vllm-openai --model m",
        "kubectl logs -f vllm-0",
        "git clone https://github.com/sgl-project/sglang",
        "pytest tests/test_sglang.py",
        "python train.py --config mooncake_master",
        "/app/epp --help",
        "python proxy.py --port 8000",
        "strace -f python -m vllm.entrypoints.openai.api_server",
        "",
    ]
    .into_iter()
    .enumerate()
    {
        system.start(100 + u32::try_from(index).unwrap(), 10, line);
    }
    assert_eq!(discovery().scan(&system, NOW).unwrap(), []);
}

#[test]
fn a_shell_that_becomes_the_engine_is_found_at_exec() {
    let system = machine();
    system.start(100, 10, "bash -c 'exec vllm serve m'");
    let mut discovery = discovery();
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
    system.exec(100, "/srv/venv/bin/python /srv/venv/bin/vllm serve m");
    let changes = discovery.exec(&system, 100, NOW);
    assert_eq!(found(&changes)[0].leader.pid, 100);
    assert_eq!(discovery.exec(&system, 100, NOW), [], "told once");
}

#[test]
fn without_exec_events_a_look_finds_what_became_an_engine() {
    let system = machine();
    system.start(100, 10, "/srv/venv/bin/python /srv/launch.py");
    let mut discovery = discovery();
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
    system.exec(100, SGLANG);
    assert_eq!(found(&discovery.scan(&system, NOW).unwrap()).len(), 1);
}

#[test]
fn what_rests_is_found_at_once_by_its_exec_and_within_four_looks_without() {
    for events in [true, false] {
        let system = machine();
        system.start(100, 10, "bash /srv/download-model.sh");
        let mut discovery = discovery();
        for _ in 0..9 {
            assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
        }
        system.exec(100, SGLANG);
        let changes = if events {
            discovery.exec(&system, 100, NOW)
        } else {
            (0..4).flat_map(|_| discovery.scan(&system, NOW).unwrap()).collect()
        };
        assert_eq!(found(&changes).len(), 1);
    }
}

#[test]
fn a_machine_full_of_strangers_gives_nothing() {
    let system = machine();
    for pid in 1000..6000 {
        system.start(pid, pid - 1, "/bin/true --model vllm");
    }
    assert_eq!(discovery().scan(&system, NOW).unwrap(), []);
}
