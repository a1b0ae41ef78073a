//! What is told of a container: a few names, each checked to be one.
//!
//! Whoever starts a container writes parts of what its runtime says of it. A text that is no name of its kind, or is longer
//! than one may be, is left out: unknown, never cut to something that names another thing.
//!
//! Source of the shapes: Kubernetes (names of pods are DNS subdomains, those of namespaces DNS labels), Docker (names of
//! containers), the OCI image specification (references and digests).

/// Longest name of a pod, in bytes.
const SUBDOMAIN_MAX: usize = 253;
/// Longest name of a namespace, in bytes.
const LABEL_MAX: usize = 63;
/// Longest name of a container, in bytes; Kubernetes allows 63, Docker sets no bound.
const CONTAINER_MAX: usize = 253;
/// Longest uid of a pod, in bytes.
const UID_MAX: usize = 64;
/// Longest reference of an image, in bytes.
const IMAGE_MAX: usize = 512;
/// Digits of an id.
const ID_DIGITS: usize = 64;

/// The id of a container: 64 hex digits in small letters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(String);

/// What a runtime says of a container, as it says it. Empty: nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Said<'s> {
    /// Name of the pod.
    pub pod: &'s str,
    /// Namespace of the pod.
    pub namespace: &'s str,
    /// Uid of the pod.
    pub pod_uid: &'s str,
    /// Name of the container in its pod, or its only name.
    pub container: &'s str,
    /// The image that was asked for.
    pub image: &'s str,
    /// The image that runs.
    pub image_ref: &'s str,
}

/// What is known of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerNames {
    /// Name of its Kubernetes pod.
    pub pod: Option<String>,
    /// Namespace of the pod.
    pub namespace: Option<String>,
    /// Uid of the pod.
    pub pod_uid: Option<String>,
    /// Its name in the pod, or its only name.
    pub container: Option<String>,
    /// The image that was asked for: `registry/name:tag`.
    pub image: Option<String>,
    /// Digest under which the registry has the image: `sha256:…`. An image's id is none.
    pub image_digest: Option<String>,
}

// === impl ContainerId ===

impl ContainerId {
    /// Takes an id; `None` when it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        (text.len() == ID_DIGITS && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// === impl ContainerNames ===

impl ContainerNames {
    /// What of the texts are names.
    pub fn of(said: &Said<'_>) -> Self {
        let keep = |text: &str, is_name: fn(&str) -> bool| is_name(text).then(|| text.to_owned());
        Self {
            pod: keep(said.pod, is_subdomain),
            namespace: keep(said.namespace, is_label),
            pod_uid: keep(said.pod_uid, is_uid),
            container: keep(said.container, is_container),
            image: keep(said.image, is_image),
            image_digest: [said.image_ref, said.image].into_iter().find_map(digest),
        }
    }

    /// What stands here, checked again: for names that came over a wire.
    #[must_use]
    pub fn checked(&self) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (pod, namespace, pod_uid) = (text(&self.pod), text(&self.namespace), text(&self.pod_uid));
        let (container, image) = (text(&self.container), text(&self.image));
        let said = Said {
            pod: &pod,
            namespace: &namespace,
            pod_uid: &pod_uid,
            container: &container,
            image: &image,
            image_ref: "",
        };
        let image_digest = self.image_digest.clone().filter(|digest| is_digest(digest));
        Self { image_digest, ..Self::of(&said) }
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn is_alphanumeric(byte: Option<&u8>) -> bool {
    byte.is_some_and(u8::is_ascii_alphanumeric)
}

fn is_small(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= LABEL_MAX
        && bytes.iter().all(|byte| is_small(*byte) || *byte == b'-')
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
}

fn is_subdomain(text: &str) -> bool {
    // A part of a pod's name may be longer than a label: only the whole has a bound.
    let bytes = text.as_bytes();
    bytes.len() <= SUBDOMAIN_MAX
        && bytes.iter().all(|byte| is_small(*byte) || matches!(byte, b'-' | b'.'))
        && is_alphanumeric(bytes.first())
        && is_alphanumeric(bytes.last())
}

fn is_uid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= UID_MAX
        && is_alphanumeric(bytes.first())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
}

fn is_container(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= CONTAINER_MAX
        && is_alphanumeric(bytes.first())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// A reference: a name, perhaps with a tag or a digest. The id of an image is no name of it.
fn is_image(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_id = is_digest(text) || ContainerId::parse(text).is_some();
    let is_part =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b'@');
    bytes.len() <= IMAGE_MAX && !is_id && is_alphanumeric(bytes.first()) && bytes.iter().all(is_part)
}

/// The digest behind the name of an image. Alone it would be an id, which is another thing in each runtime.
fn digest(reference: &str) -> Option<String> {
    let (name, digest) = reference.rsplit_once('@')?;
    (is_image(name) && is_digest(digest)).then(|| digest.to_owned())
}

fn is_digest(text: &str) -> bool {
    let is_hex = |digits: &str, length: usize| {
        digits.len() == length && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    match text.split_once(':') {
        Some(("sha256", digits)) => is_hex(digits, 64),
        Some(("sha512", digits)) => is_hex(digits, 128),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digits: usize) -> String {
        "9f".repeat(digits / 2)
    }

    fn said<'s>() -> Said<'s> {
        Said { pod: "decode-0", namespace: "serving", container: "engine", ..Said::default() }
    }

    #[test]
    fn names_of_kubernetes_are_kept() {
        let names = ContainerNames::of(&Said {
            pod_uid: "0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b",
            image: "registry.local:5000/team/vllm:v0.32",
            ..said()
        });
        assert_eq!(names.pod.as_deref(), Some("decode-0"));
        assert_eq!(names.namespace.as_deref(), Some("serving"));
        assert_eq!(names.container.as_deref(), Some("engine"));
        assert_eq!(names.pod_uid.as_deref(), Some("0f4b3a2c-1d5e-4f60-9a7b-8c9d0e1f2a3b"));
        assert_eq!(names.image.as_deref(), Some("registry.local:5000/team/vllm:v0.32"));
        assert_eq!(names.image_digest, None);
        assert_eq!(names.checked(), names);
    }

    #[test]
    fn nothing_said_is_nothing_known() {
        assert!(ContainerNames::of(&Said::default()).is_empty());
    }

    #[test]
    fn what_is_no_name_is_left_out_and_the_rest_stays() {
        let long = "a".repeat(5000);
        for wrong in ["../etc", "a b", "A\n", "\u{202e}evil", "-a", "a-", "a\0", "<b>", long.as_str()] {
            let names = ContainerNames::of(&Said { pod: wrong, namespace: wrong, ..said() });
            assert_eq!((names.pod, names.namespace), (None, None), "{wrong:?}");
            assert_eq!(names.container.as_deref(), Some("engine"));
        }
        for wrong in ["", "/a", "a b", "a\u{7f}", long.as_str()] {
            let names =
                ContainerNames::of(&Said { container: wrong, image: wrong, pod_uid: wrong, ..said() });
            assert_eq!((names.container, names.image), (None, None), "{wrong:?}");
        }
    }

    #[test]
    fn bounds_are_those_of_kubernetes() {
        let pod = |length: usize| ContainerNames::of(&Said { pod: &"a".repeat(length), ..said() }).pod;
        assert!(pod(253).is_some() && pod(254).is_none());
        let space = |length| ContainerNames::of(&Said { namespace: &"a".repeat(length), ..said() }).namespace;
        assert!(space(63).is_some() && space(64).is_none());
    }

    #[test]
    fn a_digest_is_what_stands_behind_a_name() {
        let sha = format!("sha256:{}", hex(64));
        let of = |image: &str, image_ref: &str| {
            ContainerNames::of(&Said { image, image_ref, ..Said::default() }).image_digest
        };
        assert_eq!(of("", &format!("docker.io/vllm/vllm@{sha}")), Some(sha.clone()));
        assert_eq!(of(&format!("vllm@{sha}"), ""), Some(sha.clone()), "asked for by digest");
        let longer = format!("sha512:{}", hex(128));
        assert_eq!(of("", &format!("vllm@{longer}")), Some(longer));
        let other = format!("sha256:{}", "0".repeat(64));
        assert_eq!(
            of(&format!("a@{other}"), &format!("a@{sha}")),
            Some(sha),
            "what runs is the better witness"
        );
    }

    #[test]
    fn an_image_id_is_neither_name_nor_digest() {
        for id in [format!("sha256:{}", hex(64)), hex(64)] {
            let names = ContainerNames::of(&Said { image: &id, image_ref: &id, ..Said::default() });
            assert!(names.is_empty(), "{id}");
        }
    }

    #[test]
    fn a_damaged_digest_is_unknown() {
        for digest in
            ["sha256:12", &format!("sha256:{}", "Z".repeat(64)), &format!("md5:{}", hex(32)), "@", ""]
        {
            let names = ContainerNames::of(&Said { image_ref: &format!("vllm@{digest}"), ..Said::default() });
            assert_eq!(names.image_digest, None, "{digest}");
        }
    }

    #[test]
    fn an_id_has_64_small_hex_digits() {
        assert!(ContainerId::parse(&hex(64)).is_some());
        for wrong in [hex(62), hex(66), "9F".repeat(32), "../".repeat(21) + "a", String::new()] {
            assert_eq!(ContainerId::parse(&wrong), None, "{wrong}");
        }
    }
}
