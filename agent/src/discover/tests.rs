//! Discovery over machines in memory, with the command lines and titles of real engines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

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
fn a_wrapper_above_the_leader_is_not_part_of_it() {
    let system = machine();
    system.start(20, 10, "bash /srv/start.sh");
    system.start(21, 20, "uv run vllm serve /models/cur");
    vllm(&system, 100, 21, VLLM);
    let changes = discovery().scan(&system, NOW).unwrap();
    assert_eq!(pids(found(&changes)[0]), [100, 101, 103]);
    assert_eq!(changes.len(), 1);
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
fn a_stranger_whose_parents_number_is_an_engines_now_is_not_part_of_it() {
    let system = machine();
    system.start(100, 10, "bash");
    system.start(101, 100, "sleep 1000");
    let mut discovery = discovery();
    for _ in 0..5 {
        discovery.scan(&system, NOW).unwrap();
    }
    system.end(100);
    system.start(100, 10, SGLANG);
    let changes: Vec<Change> = (0..6).flat_map(|_| discovery.scan(&system, NOW).unwrap()).collect();
    assert_eq!(found(&changes).len(), 1);
    assert_eq!(pids(found(&changes)[0]), [100]);
}

#[test]
fn two_engines_and_their_router_are_three_workers() {
    let system = machine();
    system.start(
        50,
        10,
        "python -m sglang_router.launch_router --pd-disaggregation --prefill http://a --decode http://b",
    );
    vllm(&system, 100, 50, VLLM);
    vllm(&system, 200, 50, &VLLM.replace("8100", "8200").replace("kv_producer", "kv_consumer"));
    let changes = discovery().scan(&system, NOW).unwrap();
    let workers = found(&changes);
    let of = |pid| *workers.iter().find(|worker| worker.leader.pid == pid).unwrap();
    assert_eq!(workers.len(), 3);
    assert_eq!((of(50).engine.as_str(), &of(50).role), ("router", &Some(Role::Router)));
    assert_eq!(pids(of(50)), [50], "the engines below it are workers of their own");
    assert_eq!(of(100).role, Some(Role::Prefill));
    assert_eq!(of(200).role, Some(Role::Decode));
    assert_ne!(of(100).id, of(200).id);
}

#[test]
fn a_child_before_exec_is_part_of_its_parent() {
    let system = machine();
    system.start(100, 10, VLLM);
    system.fork(101, 100);
    system.fork(102, 101);
    let mut discovery = discovery();
    let changes = discovery.scan(&system, NOW).unwrap();
    assert_eq!(pids(found(&changes)[0]), [100], "it may be about to become a helper");
    let changes = discovery.scan(&system, NOW).unwrap();
    assert!(matches!(changes.as_slice(), [Change::Changed(worker)] if pids(worker) == [100, 101, 102]));
}

#[test]
fn a_leader_that_overwrites_its_arguments_keeps_its_name_and_settings() {
    let system = machine();
    system.start(100, 10, VLLM);
    system.fork(101, 100);
    let mut discovery = discovery();
    let before = found(&discovery.scan(&system, NOW).unwrap())[0].clone();
    system.title(100, "VLLM::APIServer");
    system.change(100, |fake| fake.environment = Some(b"VLLM::APIServer\0".to_vec()));
    for _ in 0..9 {
        discovery.scan(&system, NOW).unwrap();
    }
    assert_eq!(discovery.workers().count(), 1, "the child that kept the arguments is no engine of its own");
    let after = discovery.workers().next().unwrap();
    assert_eq!((&after.id, &after.facts, &after.role), (&before.id, &before.facts, &before.role));
    // Neither is it one when the leader dies.
    system.end(100);
    let changes = discovery.scan(&system, NOW).unwrap();
    assert!(matches!(changes.as_slice(), [Change::Changed(worker)] if worker.id == before.id), "{changes:?}");
    system.end(101);
    assert!(matches!(discovery.scan(&system, NOW).unwrap().as_slice(), [Change::Gone { .. }]));
}

#[test]
fn a_leader_that_calls_exec_with_other_settings_is_told_anew() {
    let system = machine();
    system.start(100, 10, SGLANG);
    let mut discovery = discovery();
    let id = found(&discovery.scan(&system, NOW).unwrap())[0].id.clone();
    system.exec(100, &SGLANG.replace("--tp-size 2", "--tp-size 4"));
    let changes = discovery.exec(&system, 100, NOW);
    let [Change::Changed(worker)] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((&worker.id, fact(worker, "tp_size")), (&id, "4"));
    system.exec(100, VLLM);
    let changes = discovery.exec(&system, 100, NOW);
    assert!(matches!(changes.as_slice(), [Change::Gone { .. }, Change::Found(new)] if new.engine == "vllm"));
    system.exec(100, "sleep 1");
    assert!(matches!(discovery.exec(&system, 100, NOW).as_slice(), [Change::Gone { .. }]));
}

#[test]
fn a_worker_outlives_its_leader_and_ends_with_its_last_process() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    let id = found(&discovery.scan(&system, NOW).unwrap())[0].id.clone();
    system.end(100);
    let killed = Exit { signal: Some(9), status: None };
    let changes = discovery.exited(&system, 100, killed, NOW);
    let [Change::Changed(worker)] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!((&worker.id, worker.leader_lives), (&id, false));
    assert_eq!(fact(worker, "connector"), "NixlConnector", "what was known stands");
    assert!(pids(worker).contains(&101) && pids(worker).contains(&103));
    discovery.scan(&system, NOW).unwrap();
    for pid in [101, 103] {
        system.end(pid);
    }
    let later = NOW.plus(5);
    let changes = discovery.scan(&system, later).unwrap();
    assert_eq!(changes, [Change::Gone { worker: id, exit: Some(killed), at: NOW }]);
}

#[test]
fn without_the_kernel_the_end_is_known_and_its_reason_is_not() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    for pid in 100..104 {
        system.end(pid);
    }
    let changes = discovery.scan(&system, NOW).unwrap();
    assert!(matches!(changes.as_slice(), [Change::Gone { exit: None, at: NOW, .. }]), "{changes:?}");
}

#[test]
fn a_restart_under_one_port_is_another_worker() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    let old = found(&discovery.scan(&system, NOW).unwrap())[0].id.clone();
    for pid in 100..104 {
        system.end(pid);
    }
    // The same numbers come again.
    vllm(&system, 100, 10, VLLM);
    let changes = discovery.scan(&system, NOW).unwrap();
    let [Change::Gone { worker: gone, .. }, Change::Found(new)] = changes.as_slice() else {
        panic!("{changes:?}")
    };
    assert_eq!(*gone, old);
    assert_ne!(new.id, old);
}

#[test]
fn a_late_word_of_an_end_does_not_end_who_has_the_number_now() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    assert_eq!(discovery.exited(&system, 100, Exit::default(), NOW), []);
    assert_eq!(discovery.workers().count(), 1);
}

#[test]
fn a_dead_process_that_was_not_waited_for_is_gone() {
    let system = machine();
    system.start(100, 10, SGLANG);
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    system.change(100, |fake| fake.stat.state = 'Z');
    assert!(matches!(discovery.scan(&system, NOW).unwrap().as_slice(), [Change::Gone { .. }]));
}

#[test]
fn titles_without_a_leader_stand_for_their_tree_and_guess_nothing() {
    let system = machine();
    // The server died before the agent came.
    for (pid, title) in
        [(101, "sglang::scheduler_TP0"), (102, "sglang::scheduler_TP1"), (103, "sglang::detokenizer")]
    {
        system.start(pid, 1, "python");
        system.title(pid, title);
        system.change(pid, |fake| fake.stat.session = 77);
    }
    system.environment(101, &["SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=/mnt/kv"]);
    let mut discovery = discovery();
    let changes = discovery.scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!((changes.len(), worker.engine.as_str()), (1, "sglang"));
    assert_eq!(pids(worker), [101, 102, 103]);
    assert_eq!(worker.role, None);
    assert_eq!(fact(worker, "tp_size"), "", "a default is no knowledge where arguments are not seen");
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
}

#[test]
fn a_program_that_embeds_an_engine_is_its_leader() {
    let system = machine();
    system.start(100, 10, "/srv/venv/bin/python /srv/app/serve.py --port 9000");
    system.start(101, 100, "/srv/venv/bin/python -c 'from multiprocessing.spawn import spawn_main'");
    system.title(101, "VLLM::EngineCore");
    let changes = discovery().scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!((worker.leader.pid, pids(worker)), (100, vec![100, 101]));
    assert_eq!(fact(worker, "http_address"), "", "its options are its own");
}

#[test]
fn actors_of_ray_join_the_one_server_beside_them() {
    let system = machine();
    system.start(50, 1, "/srv/ray/raylet --node-ip 192.0.2.1");
    vllm(&system, 100, 10, VLLM);
    system.start(60, 50, "ray::IDLE");
    system.start(61, 50, "ray::RayWorkerWrapper.execute_method");
    system.start(62, 50, "ray::RayWorkerWrapper.execute_method");
    system.change(61, |fake| fake.mapped = vec!["/v/site-packages/vllm/_C.abi3.so".to_owned()]);
    let mut discovery = discovery();
    let changes = discovery.scan(&system, NOW).unwrap();
    assert_eq!(found(&changes).len(), 1);
    assert!(pids(found(&changes)[0]).contains(&61));
    assert!(!pids(found(&changes)[0]).contains(&62), "its libraries are not loaded yet");
    system.change(62, |fake| fake.mapped = vec!["/v/site-packages/vllm/_C.abi3.so".to_owned()]);
    let changes = discovery.scan(&system, NOW).unwrap();
    assert!(
        matches!(changes.as_slice(), [Change::Changed(worker)] if pids(worker).contains(&62)),
        "{changes:?}"
    );
}

#[test]
fn an_unreadable_environment_leaves_unknown_what_it_may_decide() {
    let system = machine();
    vllm(&system, 100, 10, &VLLM.replace("--dtype float16", "--prefix-caching-hash-algo sha256"));
    for pid in 100..104 {
        system.change(pid, |fake| fake.environment = None);
    }
    system.directories.borrow_mut().extend([
        ("/srv/venv/lib".into(), vec!["python3.11".to_owned()]),
        ("/srv/venv/lib/python3.11/site-packages".into(), vec!["vllm-0.28.0.dist-info".to_owned()]),
    ]);
    let changes = discovery().scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!(worker.engine_version.as_deref(), Some("0.28.0"));
    assert_eq!(worker.unread["environment"], io::ErrorKind::PermissionDenied);
    assert_eq!(fact(worker, "hash_seed"), "");
    assert_eq!(fact(worker, "hash_algorithm"), "sha256", "arguments tell it");
    system.environment(100, &["PATH=/bin"]);
    let changes = discovery().scan(&system, NOW).unwrap();
    assert_eq!(fact(found(&changes)[0], "hash_seed"), "random", "not set is the default of the release");
}

#[test]
fn a_title_over_the_environment_is_read_from_a_child() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    system.change(100, |fake| fake.environment = Some(b"VLLM::APIServer\0\0\0\0".to_vec()));
    system.environment(101, &["VLLM_NIXL_SIDE_CHANNEL_PORT=5701"]);
    let changes = discovery().scan(&system, NOW).unwrap();
    assert_eq!(fact(found(&changes)[0], "side_channel"), "localhost:5701");
}

#[test]
fn a_version_that_was_not_there_at_first_is_told_later() {
    let system = machine();
    system.start(100, 10, SGLANG);
    let mut discovery = discovery();
    assert_eq!(found(&discovery.scan(&system, NOW).unwrap())[0].engine_version, None);
    system.change(100, |fake| fake.mapped = vec!["/x/site-packages/numpy/n.so".to_owned()]);
    system
        .directories
        .borrow_mut()
        .insert("/x/site-packages".into(), vec!["sglang-0.5.23.dist-info".to_owned()]);
    let changes = discovery.scan(&system, NOW).unwrap();
    let [Change::Changed(worker)] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(worker.engine_version.as_deref(), Some("0.5.23"));
}

#[test]
fn a_file_of_settings_is_read_and_arguments_win() {
    let system = machine();
    system.start(100, 10, "vllm serve m --kv-transfer-config '{\"kv_connector\":\"LMCacheConnectorV1\",\"kv_role\":\"kv_both\"}' --config e.yaml");
    system.environment(100, &["LMCACHE_CONFIG_FILE=/etc/lmcache.yaml"]);
    system.files.borrow_mut().extend([
        (
            "/etc/lmcache.yaml".into(),
            "chunk_size: 128\nremote_url: redis://u:pw@h:1\napi_key: secret\n".to_owned(),
        ),
        ("/run/engine/e.yaml".into(), "tensor-parallel-size: 4\nmodel_tag: other\n".to_owned()),
    ]);
    let changes = discovery().scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!((fact(worker, "block_size"), fact(worker, "store")), ("128", "redis://h:1"));
    assert_eq!((fact(worker, "tp_size"), fact(worker, "model_path")), ("4", "m"));
    assert_eq!(worker.role, Some(Role::Both));
    assert!(!format!("{worker:?}").contains("secret") && !format!("{worker:?}").contains("pw"));
}

#[test]
fn only_the_scope_is_looked_at() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    system.start(200, 10, SGLANG);
    system.change(200, |fake| fake.cgroup = "0::/test/a\n".to_owned());
    system.start(300, 10, SGLANG);
    system.change(300, |fake| fake.cgroup = "0::/test2\n".to_owned());
    let mut discovery = Discovery::new(Packs::builtin(), node(), Some("/test".to_owned()));
    let changes = discovery.scan(&system, NOW).unwrap();
    assert_eq!(found(&changes).len(), 1);
    assert_eq!(found(&changes)[0].leader.pid, 200);
    system.change(300, |fake| fake.cgroup = "0::/test/b\n".to_owned());
    assert_eq!(found(&discovery.scan(&system, NOW).unwrap())[0].leader.pid, 300, "moved into it");
}

#[test]
fn a_pod_is_named() {
    let id = "ab".repeat(32);
    let system = machine();
    system.start(100, 10, SGLANG);
    system.environment(100, &["HOSTNAME=decode-0"]);
    system.change(100, |fake| {
        fake.cgroup = format!("0::/kubepods/burstable/pod0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b/{id}\n");
    });
    let changes = discovery().scan(&system, NOW).unwrap();
    let worker = found(&changes)[0];
    assert_eq!(worker.pod.as_deref(), Some("decode-0"));
    assert_eq!(worker.container.as_ref().map(|container| container.id.as_str()), Some(id.as_str()));
}

#[test]
fn observations_have_the_same_ids_at_every_look_and_of_every_agent() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let observe = |change: &Change, now| {
        let mut told = Vec::new();
        change.observe(&node(), now, &mut |observation| told.push(observation));
        told.pop().unwrap()
    };
    let first = observe(&discovery().scan(&system, NOW).unwrap()[0], NOW);
    let again = observe(&discovery().scan(&system, NOW.plus(9)).unwrap()[0], NOW.plus(9));
    assert_eq!(first, again);
    let Body::Worker(body) = &first.body else { panic!() };
    assert_eq!(body.pids, ["100", "101", "103"]);
    let gone = Change::Gone {
        worker: first.envelope.worker.clone().unwrap(),
        exit: Some(Exit { signal: Some(9), status: None }),
        at: NOW,
    };
    let gone = observe(&gone, NOW);
    assert!(matches!(&gone.body, Body::WorkerGone(gone) if gone.exit_signal == Some(9)));
    assert_ne!(gone.envelope.id, first.envelope.id);
}

#[test]
fn output_to_a_file_is_told_with_its_path() {
    let system = machine();
    system.start(100, 10, SGLANG);
    let file = Output::File { path: "/var/log/e.log".into(), device: 1, inode: 2 };
    system.change(100, |fake| fake.output = file.clone());
    let changes = discovery().scan(&system, NOW).unwrap();
    assert_eq!(found(&changes)[0].output_files(), [&file]);
}

#[test]
fn parents_in_a_circle_end() {
    let system = machine();
    system.start(100, 101, "a");
    system.start(101, 100, SGLANG);
    assert_eq!(found(&discovery().scan(&system, NOW).unwrap()).len(), 1);
}

#[test]
fn a_machine_full_of_strangers_gives_nothing() {
    let system = machine();
    for pid in 1000..6000 {
        system.start(pid, pid - 1, "/bin/true --model vllm");
    }
    assert_eq!(discovery().scan(&system, NOW).unwrap(), []);
}
