//! Which processes are a worker, from its start to its end.

use super::*;

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
fn parents_in_a_circle_end() {
    let system = machine();
    system.start(100, 101, "a");
    system.start(101, 100, SGLANG);
    assert_eq!(found(&discovery().scan(&system, NOW).unwrap()).len(), 1);
}

#[test]
fn how_a_worker_ended_may_be_heard_after_a_scan_missed_it() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery().hearing_exits(true);
    discovery.scan(&system, NOW).unwrap();
    for pid in [100, 101, 103] {
        system.end(pid);
    }
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
    let exit = Exit { signal: None, status: Some(3) };
    let changes = discovery.exited(&system, 100, exit, NOW);
    let [Change::Gone { exit: Some(told), .. }] = changes.as_slice() else { panic!("{changes:?}") };
    assert_eq!(*told, exit);
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
}

#[test]
fn a_worker_whose_end_nobody_tells_is_gone_with_the_second_scan_that_misses_it() {
    let system = machine();
    vllm(&system, 100, 10, VLLM);
    let mut discovery = discovery().hearing_exits(true);
    discovery.scan(&system, NOW).unwrap();
    for pid in [100, 101, 103] {
        system.end(pid);
    }
    assert_eq!(discovery.scan(&system, NOW).unwrap(), []);
    let changes = discovery.scan(&system, NOW).unwrap();
    assert!(matches!(changes.as_slice(), [Change::Gone { exit: None, .. }]), "{changes:?}");
}
