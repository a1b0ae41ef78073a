//! Names that rotation gives, and which of them are older.
//!
//! `engine.log.1`, `engine.log-20260101`, `engine-20260101.log`, `0.log.20260101-120000.gz`: the name of the live file
//! with digits behind it or before its ending, perhaps packed.

use std::cmp::Ordering;

/// A file that was set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rotated {
    /// What stands for its age.
    mark: String,
    /// Packed by gzip.
    pub(super) packed: bool,
}

/// Endings of files that are still being made, or of other use.
const OTHER: [&str; 6] = [".tmp", ".swp", ".lock", ".pid", "~", ".part"];
/// Endings of packed files that are not read.
const FOREIGN: [&str; 4] = [".xz", ".bz2", ".zst", ".lz4"];

// === impl Rotated ===

impl Rotated {
    /// Reads a name beside the live file `live`; `None` if it is of no rotation of it.
    pub(super) fn parse(live: &str, name: &str) -> Option<Self> {
        if name == live || OTHER.iter().chain(&FOREIGN).any(|ending| name.ends_with(ending)) {
            return None;
        }
        let (plain, packed) = match name.strip_suffix(".gz") {
            Some(plain) => (plain, true),
            None => (name, false),
        };
        if plain == live {
            return packed.then(|| Self { mark: String::new(), packed });
        }
        let mark = match plain.strip_prefix(live) {
            Some(mark) => mark,
            None => {
                let (stem, ending) = live.rsplit_once('.')?;
                plain.strip_prefix(stem)?.strip_suffix(ending)?.strip_suffix('.')?
            }
        };
        let inner = mark.strip_prefix(['.', '-', '_'])?;
        let fits = inner.len() <= 64
            && inner.starts_with(|c: char| c.is_ascii_digit())
            && inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:_-+".contains(&byte));
        fits.then(|| Self { mark: inner.to_owned(), packed })
    }

    /// Older first.
    pub(super) fn cmp_age(&self, other: &Self) -> Ordering {
        match (self.number(), other.number()) {
            // `.2` was set aside before `.1`.
            (Some(own), Some(its)) => its.cmp(&own),
            // A date sorts by itself; what has only a number was not rotated by the same hand.
            (None, None) => self.mark.cmp(&other.mark),
            (Some(_), None) => Ordering::Greater,
            (None, Some(_)) => Ordering::Less,
        }
    }

    fn number(&self) -> Option<u32> {
        (self.mark.len() <= 5).then(|| self.mark.parse().ok()).flatten()
    }
}

/// Whether a name would be a rotation if its packing were one that is read.
pub(super) fn is_packed_otherwise(live: &str, name: &str) -> bool {
    FOREIGN.iter().any(|ending| {
        name.strip_suffix(ending).is_some_and(|plain| plain == live || Rotated::parse(live, plain).is_some())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn oldest_first(live: &str, names: &[&str]) -> Vec<String> {
        let mut found: Vec<(Rotated, String)> =
            names.iter().filter_map(|name| Some((Rotated::parse(live, name)?, (*name).to_owned()))).collect();
        found.sort_by(|a, b| a.0.cmp_age(&b.0));
        found.into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn numbers_count_backwards_and_dates_forwards() {
        assert_eq!(
            oldest_first("e.log", &["e.log.1", "e.log.10.gz", "e.log.2.gz"]),
            ["e.log.10.gz", "e.log.2.gz", "e.log.1"]
        );
        assert_eq!(
            oldest_first("0.log", &["0.log.20260102-000000", "0.log.20260101-120000.gz"]),
            ["0.log.20260101-120000.gz", "0.log.20260102-000000"]
        );
        assert_eq!(
            oldest_first("e.log", &["e-20260102.log", "e-20260101.log"]),
            ["e-20260101.log", "e-20260102.log"]
        );
    }

    #[test]
    fn names_of_other_files_are_no_rotation() {
        for name in [
            "e.log",
            "e.log.lock",
            "e.log.err",
            "e.log.1.tmp",
            "ee.log.1",
            "e.log1",
            "e2.log",
            "0.log.20260101.xz",
        ] {
            assert_eq!(Rotated::parse("e.log", name), None, "{name}");
        }
        assert!(is_packed_otherwise("e.log", "e.log.1.xz"));
        assert!(!is_packed_otherwise("e.log", "x.log.1.xz"));
    }
}
