//! What a runtime says of a container, and which workers it changes.

use super::*;
use crate::containers::ContainerNames;

const UID: &str = "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b";

fn id(digit: &str) -> String {
    digit.repeat(64)
}

fn names(pod: &str) -> ContainerNames {
    ContainerNames {
        pod: Some(pod.to_owned()),
        namespace: Some("serving".to_owned()),
        container: Some("engine".to_owned()),
        ..ContainerNames::default()
    }
}

/// Two engines in two containers, and one on the machine itself.
fn three() -> FakeSystem {
    let system = machine();
    for (pid, digit) in [(100, Some("a")), (200, Some("b")), (300, None)] {
        system.start(pid, 10, SGLANG);
        if let Some(digit) = digit {
            system.environment(pid, &["HOSTNAME=a-host"]);
            place(&system, pid, digit);
        }
    }
    system
}

/// Puts a process into a container.
fn place(system: &FakeSystem, pid: u32, digit: &str) {
    system.change(pid, |fake| fake.cgroup = format!("0::/kubepods/pod{UID}/{}\n", id(digit)));
}

fn pods(discovery: &Discovery<'_>) -> Vec<Option<String>> {
    discovery.workers().map(|worker| worker.body().pod).collect()
}

#[test]
fn names_change_the_workers_of_that_container_alone() {
    let system = three();
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    let changes = discovery.learn(&id("a"), &names("decode-0"));
    let [Change::Changed(worker)] = changes.as_slice() else { panic!("{changes:?}") };
    let body = worker.body();
    assert_eq!((worker.leader.pid, body.pod.as_deref()), (100, Some("decode-0")), "and not the host's name");
    assert_eq!((body.namespace.as_deref(), body.container.as_deref()), (Some("serving"), Some("engine")));
    assert_eq!((body.image, body.image_digest), (None, None), "what was not said is not known");
    assert_eq!(pods(&discovery), [Some("decode-0".to_owned()), Some("a-host".to_owned()), None]);
}

#[test]
fn names_of_a_container_that_no_worker_is_in_change_nothing() {
    let mut discovery = discovery();
    assert!(discovery.learn(&id("a"), &names("decode-0")).is_empty());
    discovery.scan(&three(), NOW).unwrap();
    assert!(discovery.learn(&id("c"), &names("decode-0")).is_empty());
    assert_eq!(pods(&discovery)[0].as_deref(), Some("a-host"), "nothing is kept for whoever comes");
}

#[test]
fn the_same_names_again_or_none_at_all_change_nothing() {
    let mut discovery = discovery();
    discovery.scan(&three(), NOW).unwrap();
    assert!(discovery.learn(&id("a"), &ContainerNames::default()).is_empty());
    assert_eq!(discovery.learn(&id("a"), &names("decode-0")).len(), 1);
    assert!(discovery.learn(&id("a"), &names("decode-0")).is_empty());
}

#[test]
fn names_stay_when_something_else_of_the_worker_changes_and_for_the_next_worker_there() {
    let system = three();
    let mut discovery = discovery();
    discovery.scan(&system, NOW).unwrap();
    discovery.learn(&id("a"), &names("decode-0"));
    assert!(discovery.scan(&system, NOW).unwrap().is_empty(), "told once");
    system.exec(100, "python3 -m sglang.launch_server --model-path /m --tp 2 --port 30001");
    place(&system, 100, "a");
    let changes = discovery.exec(&system, 100, NOW);
    assert_eq!(pods(&discovery)[0].as_deref(), Some("decode-0"), "{changes:?}");
    // The engine ends and another is started by what remains of the container.
    system.end(100);
    system.start(101, 10, SGLANG);
    place(&system, 101, "a");
    discovery.scan(&system, NOW).unwrap();
    assert!(pods(&discovery).contains(&Some("decode-0".to_owned())));
}
