//! Factors: the inputs that decide what KV means or how it is laid out.
//!
//! A value is a digest of files, which `sha256sum` gives as well. Files may differ although what they mean is the same:
//! the same tensors in other shards, a configuration saved by another release. Two more fields tell those apart: the
//! `layout` of the files and their `meaning`. Where they do not decide, unequal values are neither equal nor different.

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
    /// Names and sizes of the files as a short hash, where the same content may stand in other files (weights).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<String>,
    /// What the content means whatever files hold it, as `algorithm:value`; see [`Factor::compare`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
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

/// The algorithm of values that are digests of content.
pub const DIGEST: &str = "sha256";

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
    /// A fully known factor from `algorithm:value`, as bundles write it; text without a colon is a setting. A digest may be
    /// followed by `layout=…` and `meaning=…`, as [`Factor::to_text`] writes them.
    pub fn full(text: &str) -> Self {
        let (algorithm, value) = text.split_once(':').unwrap_or(("setting", text));
        let mut factor = Self {
            algorithm: algorithm.to_owned(),
            value: value.to_owned(),
            state: FactorState::Full,
            layout: None,
            meaning: None,
        };
        if algorithm == DIGEST {
            let mut words = value.split_ascii_whitespace();
            factor.value = words.next().unwrap_or_default().to_owned();
            for (name, text) in words.filter_map(|word| word.split_once('=')) {
                match name {
                    "layout" => factor.layout = Some(text.to_owned()),
                    "meaning" => factor.meaning = Some(text.to_owned()),
                    _ => {}
                }
            }
        }
        factor
    }

    /// The text from which [`Factor::full`] makes it again.
    pub fn to_text(&self) -> String {
        let mut text = format!("{}:{}", self.algorithm, self.value);
        for (name, word) in [("layout", &self.layout), ("meaning", &self.meaning)] {
            if let Some(word) = word {
                text.push_str(&format!(" {name}={word}"));
            }
        }
        text
    }

    /// Compares two factors of the same name. Equal values are equal. Unequal ones are compared by what they mean, where
    /// both sides know that; else they differ only if their files are laid out alike, or if neither side has a layout.
    pub fn compare(&self, other: &Self) -> Comparison {
        let full = self.state == FactorState::Full && other.state == FactorState::Full;
        if !full || self.algorithm != other.algorithm {
            return Comparison::Unknown;
        }
        if self.value == other.value {
            return Comparison::Equal;
        }
        if let (Some(a), Some(b)) = (&self.meaning, &other.meaning)
            && let Some(comparison) = compare_meanings(a, b)
        {
            return comparison;
        }
        if self.layout == other.layout { Comparison::Different } else { Comparison::Unknown }
    }

    /// Whether the value is a digest of content, which alone proves a revision.
    pub fn is_content_digest(&self) -> bool {
        self.state == FactorState::Full && self.algorithm == DIGEST
    }

    /// What two statements on one factor for one time come to, whichever was made first: the full one before another, and
    /// of equal values what either knows besides. `None`: they contradict each other.
    pub fn join(&self, other: &Self) -> Option<Self> {
        let is_full = |factor: &Self| factor.state == FactorState::Full;
        match (is_full(self), is_full(other)) {
            (true, false) => Some(self.clone()),
            (false, true) => Some(other.clone()),
            (false, false) => Some(self.max(other).clone()),
            (true, true) if (&self.algorithm, &self.value) != (&other.algorithm, &other.value) => None,
            (true, true) => {
                let layout = one_of(self.layout.as_ref(), other.layout.as_ref())?;
                let meaning = one_of(self.meaning.as_ref(), other.meaning.as_ref())?;
                Some(Self { layout: layout.cloned(), meaning: meaning.cloned(), ..self.clone() })
            }
        }
    }
}

/// The one that is there; `None` where both are and differ.
fn one_of<'t>(a: Option<&'t String>, b: Option<&'t String>) -> Option<Option<&'t String>> {
    match (a, b) {
        (Some(a), Some(b)) if a != b => None,
        _ => Some(a.or(b)),
    }
}

/// Compares `algorithm:value` with another, `None` where the algorithms differ. What follows a `+` in a value is what
/// may mean nothing: a difference there alone is neither.
fn compare_meanings(a: &str, b: &str) -> Option<Comparison> {
    let ((a_algorithm, a), (b_algorithm, b)) = (a.split_once(':')?, b.split_once(':')?);
    if a_algorithm != b_algorithm {
        return None;
    }
    let sure = |text: &str| text.split('+').next().map(str::to_owned);
    Some(match (a == b, sure(a) == sure(b)) {
        (true, _) => Comparison::Equal,
        (false, true) => Comparison::Unknown,
        (false, false) => Comparison::Different,
    })
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
    /// weights are known and every named factor is full. It is over the digests of files, so that it stays what it was when
    /// more becomes known of them, and so that `sha256sum` is enough to check it: two layouts of equal tensors have two
    /// ids. Whether two revisions are equal is for [`Factors::compare_revision`] to say, never for their ids.
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

    fn in_files(value: &str, layout: &str, meaning: Option<&str>) -> Factor {
        let meaning = meaning.map(|meaning| format!(" meaning={meaning}")).unwrap_or_default();
        Factor::full(&format!("sha256:{value} layout={layout}{meaning}"))
    }

    #[test]
    fn files_of_one_layout_with_other_content_are_different() {
        let (a, b) = (in_files("aa", "l1", None), in_files("bb", "l1", None));
        assert_eq!(a.compare(&b), Comparison::Different);
    }

    #[test]
    fn files_of_two_layouts_are_neither_until_their_tensors_are_known() {
        let (a, b) = (in_files("aa", "l1", None), in_files("bb", "l2", Some("tensors-v1:t")));
        assert_eq!(a.compare(&b), Comparison::Unknown);
        assert_eq!(Factor::full("sha256:aa").compare(&b), Comparison::Unknown, "declared without a layout");
        assert_eq!(in_files("aa", "l1", Some("tensors-v1:t")).compare(&b), Comparison::Equal);
        assert_eq!(in_files("aa", "l1", Some("tensors-v1:u")).compare(&b), Comparison::Different);
        assert_eq!(in_files("aa", "l1", Some("gguf-v1:t")).compare(&b), Comparison::Unknown);
    }

    #[test]
    fn equal_tensors_are_no_difference_and_have_two_revision_ids() {
        let of = |factor| Factors([("weights".to_owned(), factor)].into());
        let one = of(in_files("aa", "l1", Some("tensors-v1:t")));
        let other = of(in_files("bb", "l2", Some("tensors-v1:t")));
        assert_eq!((one.first_difference(&other), one.compare_revision(&other)), (None, Comparison::Equal));
        assert_ne!(one.revision_id(), other.revision_id());
    }

    #[test]
    fn a_difference_only_in_what_may_mean_nothing_is_neither() {
        let config = |value: &str, meaning: &str| Factor::full(&format!("sha256:{value} meaning={meaning}"));
        let one = config("aa", "config-v1:m+r");
        assert_eq!(one.compare(&config("bb", "config-v1:m+r")), Comparison::Equal);
        assert_eq!(one.compare(&config("bb", "config-v1:m+s")), Comparison::Unknown);
        assert_eq!(one.compare(&config("bb", "config-v1:n+r")), Comparison::Different);
    }

    #[test]
    fn text_gives_the_same_factor_again() {
        for text in
            ["sha256:aa", "sha256:aa layout=l meaning=tensors-v1:t", "setting:a layout=b", "git-sha1:c"]
        {
            assert_eq!(Factor::full(text).to_text(), text);
        }
        assert_eq!(Factor::full("setting:a layout=b").value, "a layout=b");
    }

    #[test]
    fn statements_for_one_time_join_in_any_order_or_contradict_each_other() {
        let (bare, known) = (Factor::full("sha256:aa"), in_files("aa", "l1", Some("tensors-v1:t")));
        let sampled = Factor { state: FactorState::Provisional, ..Factor::full("samples-v1:ss") };
        let joins =
            |a: &Factor, b: &Factor| [a.join(b), b.join(a)].map(|joined| joined.map(|one| one.to_text()));
        assert_eq!(joins(&bare, &known), [Some(known.to_text()), Some(known.to_text())]);
        assert_eq!(joins(&bare, &sampled), [Some(bare.to_text()), Some(bare.to_text())]);
        assert_eq!(joins(&bare, &Factor::full("sha256:bb")), [None, None]);
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
