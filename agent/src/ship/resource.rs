//! Who sends: resource attributes by the conventions of OpenTelemetry and Kubernetes.
//!
//! `host.name` and the boot id come from the observation itself. What is added here describes the agent, not what was
//! observed; it is the same at every start of one installation, so that an observation that is read again after a
//! restart is the same to the last byte.

use kvprov_model::value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};

/// The name of the service that the agent is.
pub const SERVICE_NAME: &str = "kvprov-agent";
/// Longest attribute value taken from the environment.
const MAX_VALUE: usize = 256;
/// Most attributes taken from `OTEL_RESOURCE_ATTRIBUTES`.
const MAX_ATTRIBUTES: usize = 32;

/// What Kubernetes' downward API conventionally sets, and the attribute it becomes.
const FROM_KUBERNETES: [(&str, &str); 7] = [
    ("K8S_NODE_NAME", "k8s.node.name"),
    ("K8S_NAMESPACE_NAME", "k8s.namespace.name"),
    ("K8S_POD_NAME", "k8s.pod.name"),
    ("K8S_POD_UID", "k8s.pod.uid"),
    ("K8S_CONTAINER_NAME", "k8s.container.name"),
    ("K8S_DAEMONSET_NAME", "k8s.daemonset.name"),
    ("K8S_CLUSTER_NAME", "k8s.cluster.name"),
];

/// The attributes of an agent whose environment `variable` reads.
pub fn detect(variable: impl Fn(&str) -> Option<String>) -> Vec<(String, Value)> {
    let mut attributes = vec![("service.name".to_owned(), SERVICE_NAME.to_owned())];
    let mut add = |name: &str, value: &str| {
        let fits = !name.is_empty() && !value.is_empty() && value.len() <= MAX_VALUE;
        // The node's own name comes from the observation, and the first who says something is right.
        if fits && name != "host.name" && attributes.iter().all(|(known, _)| known != name) {
            attributes.push((name.to_owned(), value.to_owned()));
        }
    };
    for (name, attribute) in FROM_KUBERNETES {
        if let Some(value) = variable(name) {
            add(attribute, value.trim());
        }
    }
    // `key=value,key=value`, percent-encoding left as it is: names of clusters and zones have none.
    let more = variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default();
    for pair in more.split(',').take(MAX_ATTRIBUTES) {
        if let Some((name, value)) = pair.split_once('=') {
            add(name.trim(), value.trim());
        }
    }
    attributes.into_iter().map(|(name, value)| (name, Value::Str(value))).collect()
}

/// Attributes in the form of the wire. Of values only texts, numbers and truth values are known to describe a sender.
pub(super) fn attributes(resource: &[(String, Value)]) -> Vec<KeyValue> {
    let value = |value: &Value| match value {
        Value::Str(text) => Some(any_value::Value::StringValue(text.clone())),
        Value::Int(number) => Some(any_value::Value::IntValue(*number)),
        Value::Bool(flag) => Some(any_value::Value::BoolValue(*flag)),
        _ => None,
    };
    let pair = |(key, own): &(String, Value)| {
        let value = Some(AnyValue { value: Some(value(own)?) });
        Some(KeyValue { key: key.clone(), value, ..KeyValue::default() })
    };
    resource.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(variables: &[(&str, &str)]) -> Vec<(String, Value)> {
        detect(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn outside_of_a_cluster_only_the_service_is_named() {
        assert_eq!(names(&[]), vec![("service.name".to_owned(), Value::Str(SERVICE_NAME.to_owned()))]);
    }

    #[test]
    fn a_pod_says_where_it_is() {
        let found =
            names(&[("K8S_POD_UID", "u-1"), ("OTEL_RESOURCE_ATTRIBUTES", "k8s.cluster.name=c, a = b ,,x")]);
        let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, ["service.name", "k8s.pod.uid", "k8s.cluster.name", "a"]);
    }

    #[test]
    fn the_environment_overrides_neither_the_service_nor_the_node() {
        let found = names(&[("OTEL_RESOURCE_ATTRIBUTES", "service.name=x,host.name=y")]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_value_without_end_is_left_out() {
        let long = "x".repeat(MAX_VALUE + 1);
        assert_eq!(names(&[("K8S_POD_NAME", &long)]).len(), 1);
    }
}
