//! Identities: observations, workers, requests, stores.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// The identity of an observation: 16 bytes of a hash over where it came from. The same line, record or snapshot
/// read twice has the same id, so that a duplicate merges into nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObservationId(pub [u8; 16]);

macro_rules! text_id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl $name {
            /// The text of the id.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// One engine instance. In bundles the declared name, live `node/boot/pid/start`.
    WorkerId
}
text_id! {
    /// One node, as its operating system or Kubernetes names it.
    NodeId
}
text_id! {
    /// A shared place for artifacts: `file:<file system>:<directory>`, `mooncake:<master>`, `lm://host:port`.
    StoreId
}
text_id! {
    /// The stable id of a finding, 16 hex digits.
    FindingId
}

/// The stem by which one client request is known on every leg: the printed id without API prefix (`cmpl-`,
/// `chatcmpl-`) and suffix (`-0`, `-0-<8 hex>`, `-<8 hex>`).
///
/// Source: vLLM builds `<prefix><X-Request-Id>`, adds the prompt index for completions, and from 0.14 a random
/// suffix of 8 hex digits that differs between prefill and decode. Dynamo hands it a bare UUID, which gets that suffix too.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestStem(pub String);

// === impl ObservationId ===

impl ObservationId {
    /// Derives the id from the source instance, its generation (a rotation, a restart), the offset or sequence
    /// number in it, and the index among the observations that one place gave.
    pub fn derive(instance: &str, generation: u64, offset: u64, index: u32) -> Self {
        let mut hash = Sha256::new();
        hash.update((instance.len() as u64).to_le_bytes());
        hash.update(instance.as_bytes());
        hash.update(generation.to_le_bytes());
        hash.update(offset.to_le_bytes());
        hash.update(index.to_le_bytes());
        let digest = hash.finalize();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self(id)
    }

    /// 32 hex digits.
    pub fn to_hex(self) -> String {
        hex(&self.0)
    }

    /// Reads 32 hex digits.
    pub fn parse_hex(text: &str) -> Option<Self> {
        if text.len() != 32 || !text.is_ascii() {
            return None;
        }
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(id))
    }
}

impl fmt::Debug for ObservationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// Lower-case hex of bytes.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

// === impl RequestStem ===

impl RequestStem {
    /// The stem of an id as an engine, a router or a client prints it.
    pub fn of(printed: &str) -> Self {
        let mut stem = printed;
        for prefix in ["chatcmpl-", "cmpl-"] {
            if let Some(rest) = stem.strip_prefix(prefix).filter(|rest| !rest.is_empty()) {
                stem = rest;
                // Only what an engine prefixed also got the engine's suffixes.
                stem = strip_random_suffix(stem);
                stem = stem.strip_suffix("-0").filter(|rest| !rest.is_empty()).unwrap_or(stem);
                return Self(stem.to_owned());
            }
        }
        let without = strip_random_suffix(stem);
        // A client that numbers its requests begins with zeros.
        let is_number = stem[without.len()..].starts_with("-0000");
        Self(if is_uuid(without) && !is_number { without } else { stem }.to_owned())
    }

    /// The text of the stem.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Drops `-<8 hex>`, unless what remains would no longer be an id of its own: the last group of a UUID has 12
/// digits, so 8 can only be the engine's suffix.
fn strip_random_suffix(id: &str) -> &str {
    match id.rsplit_once('-') {
        Some((head, tail))
            if tail.len() == 8
                && !head.is_empty()
                && tail.bytes().all(|b| b.is_ascii_hexdigit() && !b.is_ascii_uppercase()) =>
        {
            head
        }
        _ => id,
    }
}

/// 32 hex digits, in groups of 8, 4, 4, 4 and 12 or together.
fn is_uuid(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.len() {
        32 => is_hex(text),
        36 => text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && text.split('-').all(is_hex),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_uuid_has_no_suffix_and_one_with_a_suffix_has() {
        let uuid = "5f0b6c3e-2f9f-4a7e-9f67-0c8f0a4b9d21";
        let of = |printed: &str| RequestStem::of(printed).0;
        assert_eq!(of(uuid), uuid);
        assert_eq!(of(&format!("{uuid}-7a11c0de")), uuid);
        assert_eq!(of("0123456789abcdef0123456789abcdef-7a11c0de"), "0123456789abcdef0123456789abcdef");
        for other in [
            "job-7a11c0de",
            "5f0b6c3e-7a11c0de",
            &format!("{uuid}-0000001b"),
            &format!("{uuid}-7A11C0DE"),
            &format!("{uuid}-7a11c0d"),
        ] {
            assert_eq!(of(other), other);
        }
    }

    #[test]
    fn both_legs_of_a_request_share_a_stem() {
        for printed in ["cmpl-lab-A-1", "cmpl-lab-A-1-0", "cmpl-lab-A-1-0-920717f1", "lab-A-1"] {
            assert_eq!(RequestStem::of(printed).as_str(), "lab-A-1", "{printed}");
        }
        assert_eq!(RequestStem::of("chatcmpl-x-0a1b2c3d").as_str(), "x");
    }

    #[test]
    fn a_uuid_is_not_cut() {
        let uuid = "129a69c8-cd1a-40e0-aa3e-94662fd8cc2b";
        assert_eq!(RequestStem::of(&format!("chatcmpl-{uuid}")).as_str(), uuid);
        assert_eq!(RequestStem::of(uuid).as_str(), uuid);
    }

    #[test]
    fn an_observation_id_depends_on_every_part() {
        let base = ObservationId::derive("a", 0, 0, 0);
        for other in [
            ObservationId::derive("b", 0, 0, 0),
            ObservationId::derive("a", 1, 0, 0),
            ObservationId::derive("a", 0, 1, 0),
            ObservationId::derive("a", 0, 0, 1),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(ObservationId::parse_hex(&base.to_hex()), Some(base));
    }
}
