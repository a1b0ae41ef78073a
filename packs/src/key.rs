//! What names of stored files and keys say.

use std::collections::BTreeMap;

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
    /// `weights`, `adapter`, `tokenizer`, `chat_template`, `config`.
    pub factor: &'p str,
    /// sha256 of the content as the name states it, 64 hex digits.
    pub digest: Option<&'t str>,
    /// A commit in the path: evidence only, never a digest.
    pub evidence: Option<&'t str>,
}

/// Grammars of keys and names.
#[derive(Debug, Clone, Default)]
pub struct KeyGrammars {}

impl KeyGrammars {
    /// Splits an absolute path or a key. `None` when no grammar knows it.
    pub fn split<'p, 't>(&'p self, _path: &'t str) -> Option<SplitKey<'p, 't>> {
        None
    }
    /// What a path of a model's file is.
    pub fn weights_of<'p, 't>(&'p self, _path: &'t str) -> Option<WeightsFile<'p, 't>> {
        None
    }
}
