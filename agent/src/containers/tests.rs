//! What is told of a container, by whom, and what stays unknown.

use super::bundle::{Grammar, PLACES, read};
use super::*;
use crate::access::fake::{Fake, FakeProcess};
use proptest::prelude::*;
use std::time::{Duration, Instant};

const UID: &str = "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b";

fn id() -> ContainerId {
    ContainerId::parse(&"9f".repeat(32)).unwrap()
}

fn digest() -> String {
    format!("sha256:{}", "5c".repeat(32))
}

fn in_pod() -> Wanted {
    Wanted { id: id(), pod_uid: Some(UID.to_owned()) }
}

fn in_no_pod() -> Wanted {
    Wanted { id: id(), pod_uid: None }
}

/// The bundle of containerd for a container of `decode-0`, with what a reader must skip.
fn containerd() -> String {
    serde_json::json!({
        "ociVersion": "1.1.0",
        "process": {"args": ["vllm", "serve"], "env": ["HF_TOKEN=a secret", "HOSTNAME=decode-0"]},
        "root": {"path": "rootfs"},
        "annotations": {
            "io.kubernetes.cri.container-name": "engine",
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.image-name": "docker.io/vllm/vllm-openai:v0.32",
            "io.kubernetes.cri.sandbox-id": "7d".repeat(32),
            "io.kubernetes.cri.sandbox-name": "decode-0",
            "io.kubernetes.cri.sandbox-namespace": "serving",
            "io.kubernetes.cri.sandbox-uid": UID,
        },
        "linux": {"devices": [{"path": "/dev/nvidia0", "major": 195}]},
    })
    .to_string()
}

fn crio() -> String {
    serde_json::json!({
        "annotations": {
            "io.kubernetes.cri-o.Annotations": "{\"a\":\"b\"}",
            "io.kubernetes.cri-o.ImageName": "quay.io/team/vllm:v0.32",
            "io.kubernetes.cri-o.ImageRef": "9f".repeat(32),
            "io.kubernetes.container.name": "engine",
            "io.kubernetes.pod.name": "decode-0",
            "io.kubernetes.pod.namespace": "serving",
            "io.kubernetes.pod.uid": UID,
        }
    })
    .to_string()
}

fn docker(name: &str) -> String {
    serde_json::json!({
        "ID": id().as_str(),
        "Name": name,
        "Image": digest(),
        "Config": {"Image": "vllm/vllm-openai:v0.32", "Env": ["HF_TOKEN=a secret"],
            "Labels": {"io.kubernetes.pod.name": "of-the-image"}},
    })
    .to_string()
}

/// A node whose first process sees these files.
fn node(files: &[(&str, String)]) -> Fake {
    let first = FakeProcess::new(1, 1);
    Fake::new([files.iter().fold(first, |first, (path, text)| first.file(*path, text.clone()))])
}

fn place(grammar: Grammar) -> String {
    let (_, before, after) = PLACES.into_iter().find(|(of, ..)| *of == grammar).unwrap();
    format!("{before}{}{after}", id().as_str())
}

fn engine() -> ContainerNames {
    ContainerNames {
        pod: Some("decode-0".to_owned()),
        namespace: Some("serving".to_owned()),
        pod_uid: Some(UID.to_owned()),
        container: Some("engine".to_owned()),
        image: Some("docker.io/vllm/vllm-openai:v0.32".to_owned()),
        image_digest: Some(digest()),
    }
}

#[test]
fn what_the_runtime_says_stands_and_no_file_is_read() {
    let node = node(&[(&place(Grammar::Containerd), containerd().replace("decode-0", "another"))]);
    node.says_of(id(), Ok(engine()));
    let told = tell(&node, &in_pod());
    assert_eq!(told.by(), By::Runtime);
    assert_eq!(told, Told { names: engine(), untold: None, again: false });
}

#[test]
fn without_a_runtime_the_bundle_of_containerd_tells_all_but_the_digest() {
    for before in ["/run/containerd", "/run/k3s/containerd"] {
        let path = format!("{before}/io.containerd.runtime.v2.task/k8s.io/{}/config.json", id().as_str());
        let node = node(&[(&path, containerd())]);
        node.says_of(id(), Err(AccessError::Failed("no socket".to_owned())));
        let told = tell(&node, &in_pod());
        assert_eq!(told.names, ContainerNames { image_digest: None, ..engine() });
        assert_eq!((told.untold.as_deref(), told.again), (Some("no socket"), false));
    }
}

#[test]
fn an_image_that_was_asked_for_by_digest_tells_it_in_the_bundle_too() {
    let image = format!("docker.io/vllm/vllm-openai@{}", digest());
    let text = containerd().replace("docker.io/vllm/vllm-openai:v0.32", &image);
    let names = read(Grammar::Containerd, text.as_bytes(), &in_pod()).unwrap();
    assert_eq!((names.image, names.image_digest), (Some(image), Some(digest())));
}

#[test]
fn the_bundle_of_crio_tells_pod_and_image_and_its_image_id_is_no_digest() {
    let node = node(&[(&place(Grammar::CriO), crio())]);
    let told = tell(&node, &in_pod());
    let image = Some("quay.io/team/vllm:v0.32".to_owned());
    assert_eq!(told.names, ContainerNames { image, image_digest: None, ..engine() });
}

#[test]
fn docker_tells_name_and_image_and_no_pod() {
    let node = node(&[(&place(Grammar::Docker), docker("/my_engine"))]);
    let names = tell(&node, &in_no_pod()).names;
    assert_eq!(names.container.as_deref(), Some("my_engine"));
    assert_eq!(names.image.as_deref(), Some("vllm/vllm-openai:v0.32"));
    assert_eq!((names.pod, names.namespace), (None, None), "labels of an image are its maker's words");
    assert_eq!(names.image_digest, None, "an image id of Docker is no digest of a registry");
}

#[test]
fn of_kubernetes_over_docker_the_name_tells_the_pod_where_the_control_group_agrees() {
    let name = format!("/k8s_engine_decode-0_serving_{UID}_3");
    let read = |wanted: &Wanted| read(Grammar::Docker, docker(&name).as_bytes(), wanted).unwrap();
    let names = read(&in_pod());
    assert_eq!((names.pod.as_deref(), names.namespace.as_deref()), (Some("decode-0"), Some("serving")));
    assert_eq!(names.container.as_deref(), Some("engine"));
    for wanted in [in_no_pod(), Wanted { pod_uid: Some("7".repeat(36)), ..in_pod() }] {
        let names = read(&wanted);
        assert_eq!((names.pod, names.namespace), (None, None), "anybody may name a container so");
    }
}

#[test]
fn names_of_a_pod_with_another_uid_are_not_taken() {
    let other = ContainerNames { pod_uid: Some("7".repeat(36)), ..engine() };
    let fake = node(&[]);
    fake.says_of(id(), Ok(other));
    let told = tell(&fake, &in_pod());
    assert!(told.names.is_empty() && told.untold.unwrap().contains("another pod"));
    let fake = node(&[(&place(Grammar::Containerd), containerd().replace(UID, &"7".repeat(36)))]);
    assert!(tell(&fake, &in_pod()).names.is_empty());
}

#[test]
fn a_control_group_without_a_uid_contradicts_nobody() {
    let node = node(&[]);
    node.says_of(id(), Ok(engine()));
    assert_eq!(tell(&node, &in_no_pod()).names, engine());
}

#[test]
fn where_nobody_tells_it_is_unknown_with_the_reason_and_asked_for_again() {
    let node = node(&[]);
    node.says_of(id(), Err(AccessError::Failed("no socket is here".to_owned())));
    let told = tell(&node, &in_pod());
    assert_eq!((told.names.is_empty(), told.again), (true, true));
    assert_eq!(told.untold.as_deref(), Some("no socket is here"));
    // Without a first process of the node, such as in a pid namespace of its own.
    assert!(tell(&Fake::default(), &in_pod()).names.is_empty());
}

#[test]
fn a_runtime_that_hangs_now_is_asked_for_the_digest_again() {
    let node = node(&[(&place(Grammar::Containerd), containerd())]);
    node.says_of(id(), Err(AccessError::NotNow("it did not answer".to_owned())));
    let told = tell(&node, &in_pod());
    assert_eq!((told.names.pod.as_deref(), told.again), (Some("decode-0"), true));
}

#[test]
fn a_file_of_a_process_that_may_not_be_looked_at_tells_nothing() {
    let first = FakeProcess::new(1, 1).file(place(Grammar::Containerd), containerd()).of_another_user();
    assert!(tell(&Fake::new([first]), &in_pod()).names.is_empty());
}

#[test]
fn what_is_no_bundle_tells_nothing() {
    let twice = containerd().replace("\"annotations\":{", "\"annotations\":{},\"annotations\":{");
    let twice_inside = containerd()
        .replace("\"annotations\":{", "\"annotations\":{\"io.kubernetes.cri.sandbox-namespace\":\"other\",");
    for wrong in [
        "",
        "{}",
        "[]",
        "null",
        "{\"annotations\":null}",
        "{\"annotations\":[]}",
        "{\"annotations\":{\"io.kubernetes.cri.sandbox-name\":7}}",
        "{\"annotations\":{\"io.kubernetes.cri.sandbox-name\":{\"a\":\"b\"}}}",
        &twice,
        &twice_inside,
        &containerd()[..containerd().len() - 1],
        &format!("{} x", containerd()),
        &"[".repeat(100_000),
    ] {
        let names = read(Grammar::Containerd, wrong.as_bytes(), &in_pod()).unwrap_or_default();
        assert!(names.is_empty(), "{wrong}");
    }
    let none = read(Grammar::Containerd, &[0xff, 0xfe], &in_pod());
    assert_eq!(none, None);
}

#[test]
fn words_of_one_runtime_tell_nothing_in_the_file_of_another() {
    // An annotation that somebody gave their pod, where the runtime copies annotations of pods.
    assert!(read(Grammar::Containerd, crio().as_bytes(), &in_pod()).unwrap().is_empty());
    assert!(read(Grammar::CriO, containerd().as_bytes(), &in_pod()).unwrap().is_empty());
}

#[test]
fn a_file_of_docker_for_another_container_tells_nothing() {
    let other = Wanted { id: ContainerId::parse(&"0a".repeat(32)).unwrap(), pod_uid: None };
    assert_eq!(read(Grammar::Docker, docker("/x").as_bytes(), &other), None);
}

#[test]
fn values_that_are_no_names_are_left_out() {
    for wrong in ["../../x", "a b", "<script>", "\\u0000", "\\u202e", &"a".repeat(300)] {
        let text = containerd().replace("\"serving\"", &format!("\"{wrong}\""));
        let names = read(Grammar::Containerd, text.as_bytes(), &in_pod()).unwrap();
        assert_eq!((names.namespace, names.pod.as_deref()), (None, Some("decode-0")), "{wrong}");
    }
}

#[test]
fn a_file_without_end_is_not_read() {
    let long = containerd().replace("a secret", &"x".repeat(5 << 20));
    assert_eq!(read(Grammar::Containerd, long.as_bytes(), &in_pod()), None);
    assert!(tell(&node(&[(&place(Grammar::Containerd), long)]), &in_pod()).names.is_empty());
}

proptest! {
    #[test]
    fn any_bytes_are_a_bundle_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for (grammar, ..) in PLACES {
            let _ = read(grammar, &bytes, &in_pod());
        }
    }

    #[test]
    fn a_damaged_bundle_gives_names_or_none(place: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        for (grammar, text) in
            [(Grammar::Containerd, containerd()), (Grammar::CriO, crio()), (Grammar::Docker, docker("/k8s_a_b_c_d_0"))]
        {
            let mut bytes = text.into_bytes();
            let at = place.index(bytes.len());
            bytes[at] = byte;
            bytes.truncate(cut.index(bytes.len()) + 1);
            let names = read(grammar, &bytes, &in_pod()).unwrap_or_default();
            prop_assert_eq!(names.checked(), names);
        }
    }

    #[test]
    fn whatever_an_annotation_holds_what_is_told_is_a_name(value: String) {
        let text = containerd().replace("\"serving\"", &serde_json::Value::String(value).to_string());
        let names = read(Grammar::Containerd, text.as_bytes(), &in_pod()).unwrap();
        prop_assert_eq!(names.checked(), names);
    }
}

/// What an asker tells once it told so much.
fn told_by(asker: &mut Asker, many: usize) -> (Vec<Told>, Vec<Complaint>) {
    let (mut all, mut complaints) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    while all.len() < many && begun.elapsed() < Duration::from_secs(10) {
        let (told, said) = asker.told(Instant::now());
        all.extend(told.into_iter().map(|(_, told)| told));
        complaints.extend(said);
        std::thread::yield_now();
    }
    (all, complaints)
}

#[test]
fn an_asker_tells_once_and_does_not_ask_again() {
    let node = std::sync::Arc::new(node(&[]));
    node.says_of(id(), Ok(engine()));
    let mut asker = Asker::start(std::sync::Arc::clone(&node)).unwrap();
    asker.want([in_pod()].into_iter(), Instant::now());
    let (told, complaints) = told_by(&mut asker, 1);
    assert_eq!((told[0].names.clone(), complaints), (engine(), Vec::new()));
    // What a runtime says later of the same container is not heard.
    node.says_of(id(), Err(AccessError::NotFound));
    asker.want([in_pod()].into_iter(), Instant::now() + Duration::from_secs(10_000));
    assert!(asker.told(Instant::now()).0.is_empty());
}

#[test]
fn what_stays_unknown_is_said_once() {
    let node = node(&[]);
    node.says_of(id(), Err(AccessError::Failed("no socket is here".to_owned())));
    let mut asker = Asker::start(node).unwrap();
    let mut said = Vec::new();
    for minute in 0..4 {
        asker.want([in_pod()].into_iter(), Instant::now() + Duration::from_secs(minute * 1000));
        said.extend(told_by(&mut asker, 1).1);
    }
    assert_eq!(said.len(), 1, "{said:?}");
    assert_eq!(said[0].why, "no socket is here");
}

#[test]
fn a_digest_that_no_file_tells_is_said_to_be_unknown() {
    let node = node(&[(&place(Grammar::Containerd), containerd())]);
    node.says_of(id(), Err(AccessError::Failed("no socket is here".to_owned())));
    let mut asker = Asker::start(node).unwrap();
    asker.want([in_pod()].into_iter(), Instant::now());
    let (told, said) = told_by(&mut asker, 1);
    assert_eq!(told[0].names.pod.as_deref(), Some("decode-0"));
    assert!(said[0].what.contains("digest"), "{said:?}");
}
