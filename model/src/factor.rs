//! Factors: the inputs that decide what KV means or how it is laid out.

use crate::fact;
use crate::id::hex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

crate::string_enum! {
    /// How much of a factor's value is known.
    pub enum FactorState {
        /// The value is a digest or setting of the whole.
        Full = "full",
        /// Size, header and samples only; proves neither equality nor difference.
        Provisional = "provisional",
        /// Nothing is known.
        Unknown = "unknown",
    }
}

/// One factor of a worker or of an adapter on it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Factor {
    /// How the value was made: `sha256`, `setting`, … Values compare only within one algorithm.
    pub algorithm: String,
    /// The value under that algorithm.
    pub value: String,
    /// How much of it is known.
    pub state: FactorState,
}

/// The three answers of a comparison. "Unknown" is never read as either of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Comparison {
    /// Both are fully known and the same.
    Equal,
    /// Both are fully known under one algorithm and not the same.
    Different,
    /// One is missing or incomplete, or the algorithms differ.
    Unknown,
}

/// Names of the semantic factors, which together are the revision.
pub const SEMANTIC: &[&str] = &["weights", "adapter", "tokenizer", "chat_template", "config", "quantisation"];

/// Names of the factors that decide how KV is laid out, cut and named; with them a revision is a compatibility group. They are
/// settings: a fact of that name ([`crate::fact`]), or what the worker is.
pub const REPRESENTATION: &[&str] = &[
    "engine",
    "engine_version",
    fact::CONNECTOR,
    fact::DTYPE,
    fact::KV_CACHE_DTYPE,
    fact::DYNAMIC_KV_SCALES,
    fact::KV_LAYOUT,
    fact::ATTENTION_BACKEND,
    fact::BLOCK_SIZE,
    fact::TP_SIZE,
    fact::PP_SIZE,
    fact::CP_SIZE,
    fact::DP_SIZE,
    fact::HASH_ALGORITHM,
    fact::HASH_SEED,
    fact::TOKEN_FORM,
    fact::ADAPTER_KEY,
    fact::KEY_TAG,
];

/// A set of factors by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Factors(pub BTreeMap<String, Factor>);

// === impl Factor ===

impl Factor {
    /// A fully known factor from `algorithm:value`, as bundles write it; text without a colon is a setting.
    pub fn full(text: &str) -> Self {
        let (algorithm, value) = text.split_once(':').unwrap_or(("setting", text));
        Self { algorithm: algorithm.to_owned(), value: value.to_owned(), state: FactorState::Full }
    }

    /// Compares two factors of the same name.
    pub fn compare(&self, other: &Self) -> Comparison {
        let full = self.state == FactorState::Full && other.state == FactorState::Full;
        if !full || self.algorithm != other.algorithm {
            Comparison::Unknown
        } else if self.value == other.value {
            Comparison::Equal
        } else {
            Comparison::Different
        }
    }

    /// Whether the value is a digest of content, which alone proves a revision.
    pub fn is_content_digest(&self) -> bool {
        self.state == FactorState::Full && self.algorithm == "sha256"
    }
}

// === impl Factors ===

impl Factors {
    /// Compares one factor by name; a missing one is unknown.
    pub fn compare(&self, other: &Self, name: &str) -> Comparison {
        match (self.0.get(name), other.0.get(name)) {
            (Some(a), Some(b)) => a.compare(b),
            _ => Comparison::Unknown,
        }
    }

    /// The first semantic factor that is known to differ.
    pub fn first_difference(&self, other: &Self) -> Option<&'static str> {
        SEMANTIC.iter().copied().find(|name| self.compare(other, name) == Comparison::Different)
    }

    /// Compares what decides the meaning of KV: different if any factor is known to differ, equal if the weights
    /// and every factor that either side knows are equal, else unknown.
    pub fn compare_revision(&self, other: &Self) -> Comparison {
        if self.first_difference(other).is_some() {
            return Comparison::Different;
        }
        let named_by_either =
            SEMANTIC.iter().filter(|name| self.0.contains_key(**name) || other.0.contains_key(**name));
        let mut all_equal = self.compare(other, "weights") == Comparison::Equal;
        for name in named_by_either {
            all_equal &= self.compare(other, name) == Comparison::Equal;
        }
        if all_equal { Comparison::Equal } else { Comparison::Unknown }
    }

    /// `rev:` and 12 hex digits of sha256 over the canonical JSON of the semantic factors; exists only when the
    /// weights are known and every named factor is full.
    pub fn revision_id(&self) -> Option<String> {
        let semantic: BTreeMap<&str, [&str; 2]> = self
            .0
            .iter()
            .filter(|(name, _)| SEMANTIC.contains(&name.as_str()))
            .map(|(name, factor)| (name.as_str(), [factor.algorithm.as_str(), factor.value.as_str()]))
            .collect();
        let full = self
            .0
            .iter()
            .all(|(name, factor)| !SEMANTIC.contains(&name.as_str()) || factor.state == FactorState::Full);
        if !full || !semantic.contains_key("weights") {
            return None;
        }
        let json = serde_json::to_string(&semantic).ok()?;
        Some(format!("rev:{}", &hex(&Sha256::digest(json.as_bytes()))[..12]))
    }
}

impl FromIterator<(String, Factor)> for Factors {
    fn from_iter<I: IntoIterator<Item = (String, Factor)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors(pairs: &[(&str, &str)]) -> Factors {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), Factor::full(text))).collect()
    }

    #[test]
    fn equal_digests_are_equal_and_unequal_ones_different() {
        assert_eq!(Factor::full("sha256:aa").compare(&Factor::full("sha256:aa")), Comparison::Equal);
        assert_eq!(Factor::full("sha256:aa").compare(&Factor::full("sha256:bb")), Comparison::Different);
    }

    #[test]
    fn other_algorithms_are_incomparable() {
        assert_eq!(Factor::full("sha256:aa").compare(&Factor::full("git-sha1:bb")), Comparison::Unknown);
    }

    #[test]
    fn a_provisional_factor_proves_nothing() {
        let mut provisional = Factor::full("sha256:aa");
        provisional.state = FactorState::Provisional;
        for other in ["sha256:aa", "sha256:bb"] {
            assert_eq!(provisional.compare(&Factor::full(other)), Comparison::Unknown);
        }
    }

    #[test]
    fn a_missing_factor_makes_the_revision_unknown_not_equal() {
        let both = factors(&[("weights", "sha256:aa"), ("adapter", "sha256:cc")]);
        let weights = factors(&[("weights", "sha256:aa")]);
        assert_eq!(both.compare_revision(&weights), Comparison::Unknown);
        assert_eq!(both.compare_revision(&both), Comparison::Equal);
    }

    #[test]
    fn one_known_difference_is_enough() {
        let a = factors(&[("weights", "sha256:aa"), ("config", "sha256:11")]);
        let b = factors(&[("weights", "sha256:bb")]);
        assert_eq!(a.compare_revision(&b), Comparison::Different);
        assert_eq!(a.first_difference(&b), Some("weights"));
    }

    #[test]
    fn a_revision_id_needs_full_weights() {
        assert_eq!(factors(&[("config", "sha256:aa")]).revision_id(), None);
        let id = factors(&[("weights", "sha256:aa")]).revision_id();
        assert!(id.is_some_and(|id| id.starts_with("rev:") && id.len() == 16));
    }
}
