//! What a close look at one worker tells.

use super::*;

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
    let origin = |fact: &str| worker.fact_origins[fact].as_str();
    assert_eq!(origin("tp_size"), "setting tensor_parallel_size of a settings file");
    assert_eq!(origin("model_path"), "setting model_tag of the command line");
    assert_eq!(origin("connector"), "setting kv_transfer_config.kv_connector of the command line");
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
fn a_parent_outside_the_scope_stands_in_for_nobody() {
    let system = machine();
    // The same interpreter, as one engine's launcher and any script are.
    system.start(100, 10, "python3 run.py");
    system.start(101, 100, "python3 other.py");
    system.start(102, 100, "sglang::scheduler_TP0");
    system.change(102, |fake| {
        fake.executable = "/usr/bin/python3.11".into();
        fake.cgroup = "0::/test/a\n".to_owned();
    });
    let mut discovery = Discovery::new(Packs::builtin(), node(), Some("/test".to_owned()));
    let changes = discovery.scan(&system, NOW).unwrap();
    let pids: Vec<u32> = found(&changes)[0].processes.iter().map(|process| process.key.pid).collect();
    assert_eq!(pids, [102]);
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
