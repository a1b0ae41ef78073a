//! What names of stored files and keys say.
//!
//! Input is an absolute path (of a system call, of a log line) or a key that is no path. A grammar is matched against
//! the last parts of a path, so that what precedes them is the directory of the store.
//!
//! Invariant: matching is linear in the length of the name; longer names than [`MAX_NAME`] are not split.

use crate::schema::{KeyPlace, Normalise};
use regex::{Captures, Regex, RegexSet};
use std::collections::BTreeMap;

/// Longest path or key that is split, in bytes: the longest path of Linux.
pub const MAX_NAME: usize = 4096;

/// A file name or key, split by its grammar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SplitKey<'p, 't> {
    /// The directory of the store, without a slash at its end; empty for a key that is no path.
    pub store_dir: &'t str,
    /// The key: what follows the directory.
    pub key: String,
    /// Id of the grammar.
    pub grammar: &'p str,
    /// The engine whose pack holds the grammar.
    pub engine: &'p str,
    /// The part that stands for token content, normalised.
    pub content: Option<String>,
    /// The other parts by fact name.
    pub fields: BTreeMap<String, String>,
    /// Names in `fields` that differ between ranks of one worker and do not fork a keyspace.
    pub rank_fields: &'p [String],
    /// A name used while writing; the final one comes by a rename.
    pub temporary: bool,
    /// Settings or probes of the store: no KV.
    pub not_artifact: bool,
}

/// A file that is a factor of the revision, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WeightsFile<'p, 't> {
    /// `weights`, `adapter`, `tokenizer`, `chat_template`, `config`, `quantisation`; `any` where only the content can tell,
    /// as for a blob of a hub cache.
    pub factor: &'p str,
    /// sha256 of the content as the name states it, 64 hex digits.
    pub digest: Option<&'t str>,
    /// A commit in the path: evidence only, never a digest.
    pub evidence: Option<&'t str>,
}

/// One `[[key]]`, checked.
#[derive(Debug, Clone)]
pub(crate) struct KeyGrammar {
    pub(crate) id: String,
    pub(crate) engine: String,
    pub(crate) pattern: String,
    pub(crate) place: KeyPlace,
    pub(crate) content: Vec<String>,
    pub(crate) temporary: bool,
    /// A capture that tells a temporary name when it took part.
    pub(crate) temporary_if: Option<String>,
    /// Capture and fact.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) hex_fields: Vec<String>,
    pub(crate) rank_fields: Vec<String>,
    pub(crate) normalise: Option<Normalise>,
    pub(crate) not_artifact: bool,
}

/// One `[[weights]]`, checked.
#[derive(Debug, Clone)]
pub(crate) struct WeightsGrammar {
    pub(crate) pattern: Regex,
    pub(crate) factor: String,
    pub(crate) digest: Option<String>,
    pub(crate) evidence: Option<String>,
}

/// Grammars of keys and names.
#[derive(Debug, Clone, Default)]
pub struct KeyGrammars {
    paths: Grammars,
    keys: Grammars,
    weights: Vec<WeightsGrammar>,
}

/// Grammars that are tried on the same text; the set rejects most names at once.
#[derive(Debug, Clone, Default)]
struct Grammars {
    set: Option<RegexSet>,
    each: Vec<(KeyGrammar, Regex)>,
}

/// The expression as it is matched: over the last parts of a path, the file name, or the whole key.
pub(crate) fn anchored(pattern: &str, place: KeyPlace) -> String {
    match place {
        KeyPlace::Key => format!("^(?P<key__>{})$", bare(pattern)),
        KeyPlace::Path | KeyPlace::FileName => format!("^(?:(?P<dir__>.*)/)?(?P<key__>{})$", bare(pattern)),
    }
}

/// The expression without anchors of its own at its ends.
fn bare(pattern: &str) -> &str {
    let pattern = pattern.strip_prefix('^').unwrap_or(pattern);
    pattern.strip_suffix('$').filter(|rest| !rest.ends_with('\\')).unwrap_or(pattern)
}

impl KeyGrammars {
    pub(crate) fn new(grammars: Vec<KeyGrammar>, weights: Vec<WeightsGrammar>) -> Self {
        let (keys, paths) = grammars.into_iter().partition(|grammar| grammar.place == KeyPlace::Key);
        Self { paths: Grammars::new(paths), keys: Grammars::new(keys), weights }
    }

    /// Splits an absolute path or a key. `None` when no grammar knows it.
    pub fn split<'p, 't>(&'p self, path: &'t str) -> Option<SplitKey<'p, 't>> {
        if path.len() > MAX_NAME {
            return None;
        }
        if path.starts_with('/') {
            return self.paths.split(path);
        }
        self.keys.split(path).or_else(|| self.paths.split(path))
    }

    /// What a path of a model's file is.
    pub fn weights_of<'p, 't>(&'p self, path: &'t str) -> Option<WeightsFile<'p, 't>> {
        if path.len() > MAX_NAME {
            return None;
        }
        self.weights.iter().find_map(|grammar| {
            let found = grammar.pattern.captures(path)?;
            let part = |name: &Option<String>| found.name(name.as_ref()?).map(|part| part.as_str());
            Some(WeightsFile {
                factor: &grammar.factor,
                digest: part(&grammar.digest),
                evidence: part(&grammar.evidence),
            })
        })
    }

    /// How many grammars of keys there are.
    pub(crate) fn len_of(&self, engine: &str) -> usize {
        self.paths.each.iter().chain(&self.keys.each).filter(|(grammar, _)| grammar.engine == engine).count()
    }
}

impl Grammars {
    fn new(grammars: Vec<KeyGrammar>) -> Self {
        let each: Vec<(KeyGrammar, Regex)> = grammars
            .into_iter()
            .filter_map(|grammar| {
                let regex = Regex::new(&anchored(&grammar.pattern, grammar.place)).ok()?;
                Some((grammar, regex))
            })
            .collect();
        let set = RegexSet::new(each.iter().map(|(_, regex)| regex.as_str())).ok();
        Self { set, each }
    }

    fn split<'p, 't>(&'p self, text: &'t str) -> Option<SplitKey<'p, 't>> {
        let set = self.set.as_ref()?;
        set.matches(text).iter().find_map(|index| {
            let (grammar, regex) = &self.each[index];
            grammar.read(&regex.captures(text)?)
        })
    }
}

impl KeyGrammar {
    fn read<'p, 't>(&'p self, found: &Captures<'t>) -> Option<SplitKey<'p, 't>> {
        let part = |name: &str| found.name(name).map(|part| part.as_str()).filter(|text| !text.is_empty());
        if self.place == KeyPlace::FileName && part("key__")?.contains('/') {
            return None;
        }
        let content: String = self.content.iter().filter_map(|name| part(name)).collect();
        let fields = self.fields.iter().filter_map(|(capture, fact)| {
            let text = part(capture)?;
            let value = if self.hex_fields.contains(capture) {
                u64::from_str_radix(text, 16).ok()?.to_string()
            } else {
                text.to_owned()
            };
            Some((fact.clone(), value))
        });
        Some(SplitKey {
            store_dir: found.name("dir__").map_or("", |dir| dir.as_str()),
            key: part("key__")?.to_owned(),
            grammar: &self.id,
            engine: &self.engine,
            content: (!content.is_empty()).then(|| match self.normalise {
                Some(Normalise::LmcacheHash) => lmcache_hash(&content),
                None => content,
            }),
            fields: fields.collect(),
            rank_fields: &self.rank_fields,
            temporary: self.temporary || self.temporary_if.as_ref().is_some_and(|name| part(name).is_some()),
            not_artifact: self.not_artifact,
        })
    }
}

/// A signed or unpadded 64-bit hex number as 16 unsigned digits; longer hashes stay as they are.
fn lmcache_hash(text: &str) -> String {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    match u64::from_str_radix(digits, 16) {
        Ok(number) if negative => format!("{:016x}", number.wrapping_neg()),
        Ok(number) => format!("{number:016x}"),
        Err(_) => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_hash_and_its_unsigned_form_are_one() {
        assert_eq!(lmcache_hash("-33f9bce42327706c"), "cc06431bdcd88f94");
        assert_eq!(lmcache_hash("6671432cc016aec"), "06671432cc016aec");
        let long = "b415471b3f5989b8752093a51601c86a5ddda74b1096999c476c5885c7e0b1f1";
        assert_eq!(lmcache_hash(long), long);
    }
}
