//! The part of the container runtime interface that is spoken: one question and its answer.
//!
//! Source: `runtime/v1/api.proto` of `k8s.io/cri-api`, of which only the fields that are read stand here; prost skips the
//! others. Labels are those that the kubelet gives every container.

use super::names::{ContainerNames, Said};
use std::collections::HashMap;

/// The only method that is ever called. It reads.
pub(super) const CONTAINER_STATUS: &str = "/runtime.v1.RuntimeService/ContainerStatus";

/// Labels of the kubelet.
const POD: &str = "io.kubernetes.pod.name";
const NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER: &str = "io.kubernetes.container.name";

/// `ContainerStatusRequest`. That it is not verbose is the default and therefore not sent: a verbose answer would hold the
/// environment of the container.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatusRequest {
    #[prost(string, tag = "1")]
    pub(super) container_id: String,
}

/// `ContainerStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) status: Option<ContainerStatus>,
}

/// `ContainerStatus`.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(message, optional, tag = "8")]
    image: Option<ImageSpec>,
    #[prost(string, tag = "9")]
    image_ref: String,
    #[prost(map = "string, string", tag = "12")]
    labels: HashMap<String, String>,
}

/// `ImageSpec`.
#[derive(Clone, PartialEq, prost::Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
    #[prost(string, tag = "18")]
    user_specified_image: String,
}

// === impl ContainerStatus ===

impl ContainerStatus {
    /// What of it are names.
    pub(super) fn names(&self) -> ContainerNames {
        let label = |name: &str| self.labels.get(name).map_or("", String::as_str);
        let image = self.image.as_ref().map_or("", |image| match image.user_specified_image.as_str() {
            "" => &image.image,
            specified => specified,
        });
        ContainerNames::of(&Said {
            pod: label(POD),
            namespace: label(NAMESPACE),
            pod_uid: label(POD_UID),
            container: label(CONTAINER),
            image,
            image_ref: &self.image_ref,
        })
    }
}
