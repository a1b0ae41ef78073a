//! Versions as engines print them, and ranges of them.
//!
//! Invariant: [`Version`] has a total order in which `dev` and `rc` builds come before their release and `post`
//! builds after it. Input comes from banners, packages and bundles, so parsing is lenient; a local part (`+cu128`,
//! `+g1a2b3c`) is ignored.

use std::cmp::Ordering;
use std::fmt;

/// A version: release numbers and what stands before or after the release.
#[derive(Debug, Clone)]
pub struct Version {
    release: Vec<u64>,
    stage: Stage,
    post: Option<u64>,
    dev: Option<u64>,
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Alpha(u64),
    Beta(u64),
    Candidate(u64),
    Release,
}

/// A range of versions, from inclusive, up to exclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionRange {
    /// The first version of the range; absent: every earlier one too.
    pub since: Option<Version>,
    /// The first version past the range; absent: every later one too.
    pub until: Option<Version>,
}

// === impl Version ===

impl Version {
    /// Longest text that is read as a version, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Reads `0.11.2`, `v0.22.1rc1`, `0.4.3.dev77`, `0.3.13.post1`, `0.11.1.dev1+g123`. `None` when it does not start
    /// with a number or holds something that is no version.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > Self::MAX_LEN {
            return None;
        }
        let public = text.split('+').next().unwrap_or_default();
        let mut rest = public.strip_prefix(['v', 'V']).unwrap_or(public);
        let mut release = Vec::new();
        loop {
            let (number, after) = leading_number(rest)?;
            release.push(number);
            rest = after;
            match rest.strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_digit()) => rest = next,
                _ => break,
            }
        }
        let mut version =
            Self { release, stage: Stage::Release, post: None, dev: None, text: text.to_owned() };
        while !rest.is_empty() {
            rest = version.read_suffix(rest)?;
        }
        Some(version)
    }

    /// Reads one of `rc1`, `.dev77`, `-post1`; gives what follows.
    fn read_suffix<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let text = text.strip_prefix(['.', '-', '_']).unwrap_or(text);
        let end = text.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (word, after) = text.split_at(end);
        let (number, after) = match leading_number(after.strip_prefix('.').unwrap_or(after)) {
            Some((number, after)) => (number, after),
            None => (0, after),
        };
        match word.to_ascii_lowercase().as_str() {
            "a" | "alpha" => self.stage = Stage::Alpha(number),
            "b" | "beta" => self.stage = Stage::Beta(number),
            "rc" | "c" | "pre" | "preview" => self.stage = Stage::Candidate(number),
            "post" | "r" | "rev" => self.post = Some(number),
            "dev" => self.dev = Some(number),
            _ => return None,
        }
        Some(after)
    }

    /// The text as it was read.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    fn release_without_trailing_zeros(&self) -> &[u64] {
        let end = self.release.iter().rposition(|part| *part != 0).map_or(0, |last| last + 1);
        &self.release[..end]
    }

    /// The key of the order. A `dev` build of nothing else comes before every stage of its release.
    fn rank(&self) -> (&[u64], bool, Stage, Option<u64>, bool, u64) {
        let bare_dev = self.dev.is_some() && self.stage == Stage::Release && self.post.is_none();
        (
            self.release_without_trailing_zeros(),
            !bare_dev,
            self.stage,
            self.post,
            self.dev.is_none(),
            self.dev.unwrap_or(0),
        )
    }
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number = text[..end].parse().ok()?;
    Some((number, &text[end..]))
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl VersionRange ===

impl VersionRange {
    /// Whether the version lies in the range; an unknown version lies in every range.
    pub fn contains(&self, version: Option<&Version>) -> bool {
        let Some(version) = version else { return true };
        self.since.as_ref().is_none_or(|since| since <= version)
            && self.until.as_ref().is_none_or(|until| version < until)
    }

    /// A version inside the range, to try examples with; `None` where every version is inside.
    pub fn sample(&self) -> Option<Version> {
        match (&self.since, &self.until) {
            (Some(since), _) => Some(since.clone()),
            (None, Some(_)) => Version::parse("0"),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;
    use proptest::prelude::*;

    fn version(text: &str) -> Version {
        Version::parse(text).unwrap()
    }

    #[test]
    fn versions_sort_as_they_were_released() {
        let sorted = [
            "0.4.3.dev1",
            "0.4.3.dev77",
            "0.4.3rc1.dev2",
            "0.4.3rc1",
            "v0.4.3rc2",
            "0.4.3",
            "0.4.3.post1.dev1",
            "0.4.3.post1",
            "0.5",
            "0.11.1.dev1+g123",
            "0.11.2",
            "0.22.1rc1",
            "0.22.1+cu128",
            "1.0.0-alpha.1",
        ];
        for pair in sorted.windows(2) {
            assert!(version(pair[0]) < version(pair[1]), "{} < {}", pair[0], pair[1]);
        }
        assert_eq!(version("v0.19"), version("0.19.0+cu12"));
    }

    #[test]
    fn what_is_no_version_is_not_read() {
        for text in ["", "main", "x1.2", "0.1.banana", "1.99999999999999999999999", &"1".repeat(100)] {
            assert!(Version::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn a_range_holds_its_begin_and_not_its_end() {
        let range = VersionRange { since: Version::parse("0.11.1"), until: Version::parse("0.14") };
        assert!(range.contains(Some(&version("0.11.1"))));
        assert!(!range.contains(Some(&version("0.14.0"))));
        assert!(range.contains(Some(&version("0.14.0rc1"))), "a candidate of the end is before it");
        assert!(range.contains(None));
    }

    proptest! {
        #[test]
        fn the_order_is_total(texts in proptest::collection::vec("v?[0-9]{1,2}(\\.[0-9]{1,2}){0,2}(rc[0-9]|\\.dev[0-9]|\\.post[0-9]|a1){0,2}", 3)) {
            let v: Vec<Version> = texts.iter().filter_map(|text| Version::parse(text)).collect();
            for (a, b) in v.iter().flat_map(|a| v.iter().map(move |b| (a, b))) {
                prop_assert_eq!(a.cmp(b), b.cmp(a).reverse());
                for c in &v {
                    if a <= b && b <= c {
                        prop_assert!(a <= c);
                    }
                }
            }
        }

        #[test]
        fn parsing_never_panics(text in "\\PC*") {
            let _ = Version::parse(&text);
        }
    }
}
