//! The file in which a runtime keeps what it runs: read where the runtime itself cannot be asked.
//!
//! Sources: the OCI runtime specification (`config.json` with `annotations`); containerd's CRI plugin and CRI-O, which
//! write the pod there, each in words of its own; Docker's `config.v2.json`. The files are root's and hold arguments and
//! environment of the container as well, of which nothing is kept: they are skipped unread. Invariant: a file that is no
//! such file, or says a thing twice, tells nothing.
//!
//! A file is opened through the first process of the node. Where that is not the node's (a pid namespace of its own), there
//! are no such files.

use super::Wanted;
use crate::access::{AccessError, ProcessAccess};
use kvprov_loader::containers::{ContainerNames, Said};
use serde::Deserialize;
use std::io::Read as _;

/// Largest file that is read, in bytes.
const LARGEST: u64 = 4 << 20;
/// The process whose root is the node's.
const FIRST: u32 = 1;

/// In which words a file tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    /// The CRI plugin of containerd.
    Containerd,
    /// CRI-O.
    CriO,
    /// Docker.
    Docker,
}

/// Where files are: in front of the id and behind it.
pub(super) const PLACES: [(Grammar, &str, &str); 5] = [
    (Grammar::Containerd, "/run/containerd/io.containerd.runtime.v2.task/k8s.io/", "/config.json"),
    (Grammar::Containerd, "/run/k3s/containerd/io.containerd.runtime.v2.task/k8s.io/", "/config.json"),
    (Grammar::CriO, "/run/containers/storage/overlay-containers/", "/userdata/config.json"),
    (Grammar::CriO, "/var/lib/containers/storage/overlay-containers/", "/userdata/config.json"),
    (Grammar::Docker, "/var/lib/docker/containers/", "/config.v2.json"),
];

/// The bundle of a container of Kubernetes.
#[derive(Deserialize)]
struct Bundle {
    annotations: Annotations,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    containerd_pod: String,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    containerd_namespace: String,
    #[serde(rename = "io.kubernetes.cri.sandbox-uid")]
    containerd_uid: String,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    containerd_container: String,
    #[serde(rename = "io.kubernetes.cri.image-name")]
    containerd_image: String,
    #[serde(rename = "io.kubernetes.pod.name")]
    crio_pod: String,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    crio_namespace: String,
    #[serde(rename = "io.kubernetes.pod.uid")]
    crio_uid: String,
    #[serde(rename = "io.kubernetes.container.name")]
    crio_container: String,
    #[serde(rename = "io.kubernetes.cri-o.ImageName")]
    crio_image: String,
    #[serde(rename = "io.kubernetes.cri-o.ImageRef")]
    crio_image_ref: String,
}

/// What Docker keeps of a container.
#[derive(Deserialize)]
struct DockerFile {
    #[serde(rename = "ID")]
    id: String,
    #[serde(rename = "Name", default)]
    name: String,
    #[serde(rename = "Config")]
    config: DockerConfig,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image", default)]
    image: String,
}

/// What the first file that is there tells.
pub(super) fn names(access: &dyn ProcessAccess, wanted: &Wanted) -> Option<ContainerNames> {
    let first = access.identify(FIRST).ok()?;
    for (grammar, before, after) in PLACES {
        let path = format!("{before}{}{after}", wanted.id.as_str());
        match access.open_file_of(first, path.as_bytes()) {
            Ok((file, _)) => {
                let mut text = Vec::new();
                file.take(LARGEST + 1).read_to_end(&mut text).ok()?;
                let names = read(grammar, &text, wanted).filter(|names| !names.is_empty());
                if names.is_some() {
                    return names;
                }
                tracing::debug!(path, "the file of a container tells no name of it");
            }
            Err(AccessError::NotFound) => {}
            Err(error) => tracing::debug!(path, %error, "the file of a container is not read"),
        }
    }
    None
}

/// What a file tells; `None` where it is no such file.
pub(super) fn read(grammar: Grammar, text: &[u8], wanted: &Wanted) -> Option<ContainerNames> {
    if text.len() as u64 > LARGEST {
        return None;
    }
    Some(match grammar {
        Grammar::Containerd => {
            let annotations = serde_json::from_slice::<Bundle>(text).ok()?.annotations;
            ContainerNames::of(&Said {
                pod: &annotations.containerd_pod,
                namespace: &annotations.containerd_namespace,
                pod_uid: &annotations.containerd_uid,
                container: &annotations.containerd_container,
                image: &annotations.containerd_image,
                image_ref: "",
            })
        }
        Grammar::CriO => {
            let annotations = serde_json::from_slice::<Bundle>(text).ok()?.annotations;
            ContainerNames::of(&Said {
                pod: &annotations.crio_pod,
                namespace: &annotations.crio_namespace,
                pod_uid: &annotations.crio_uid,
                container: &annotations.crio_container,
                image: &annotations.crio_image,
                image_ref: &annotations.crio_image_ref,
            })
        }
        Grammar::Docker => docker(&serde_json::from_slice(text).ok()?, wanted)?,
    })
}

/// Of a container that Docker runs by itself its name; of one of Kubernetes what is in its name:
/// `k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT`. Anybody may name a container so: the control group has to agree on the uid.
fn docker(file: &DockerFile, wanted: &Wanted) -> Option<ContainerNames> {
    if file.id != wanted.id.as_str() {
        return None;
    }
    let name = file.name.strip_prefix('/').unwrap_or(&file.name);
    let image = file.config.image.as_str();
    let parts: Vec<&str> = name.split('_').collect();
    let said = match parts.as_slice() {
        ["k8s", container, pod, namespace, uid, _] if wanted.pod_uid.as_deref() == Some(*uid) => {
            Said { pod, namespace, pod_uid: uid, container, image, image_ref: "" }
        }
        _ => Said { container: name, image, ..Said::default() },
    };
    Some(ContainerNames::of(&said))
}
