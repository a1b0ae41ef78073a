//! What a path is: an artifact of a store, a file of the model, or nothing of interest.
//!
//! Input: the grammars of the packs. Readers ask through a trait, so that they hold no name of any engine.

use kvprov_packs::Packs;
use std::collections::BTreeMap;

/// A name in a store, split by its grammar.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactName {
    /// Directory of the store, without a slash at its end.
    pub store_dir: String,
    /// The key below the directory.
    pub key: String,
    /// The grammar that split it.
    pub grammar: String,
    /// The part that stands for token content.
    pub content: Option<String>,
    /// The other parts by fact name.
    pub fields: BTreeMap<String, String>,
}

/// A file that is a factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelFile {
    /// `weights`, `adapter`, `tokenizer`, `chat_template`, `config`, `quantisation`.
    pub factor: String,
    /// sha256 of its content as the path states it.
    pub digest: Option<String>,
    /// Evidence only: a commit.
    pub evidence: Option<String>,
}

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRole {
    /// KV under its final name.
    Artifact(ArtifactName),
    /// KV that is being written.
    Temporary,
    /// A file of the model.
    Model(ModelFile),
    /// Anything else, settings and probes of a store included.
    Other,
}

/// Tells what a path is.
pub trait Names: Sync {
    /// What an absolute path is.
    fn role(&self, path: &str) -> FileRole;
}

// === impl Packs ===

impl Names for Packs {
    fn role(&self, path: &str) -> FileRole {
        // Stores first: a store may keep KV in files that look like weights (`model.layers.0….safetensors`).
        if let Some(split) = self.keys().split(path) {
            if split.not_artifact || split.store_dir.is_empty() {
                return FileRole::Other;
            }
            if split.temporary {
                return FileRole::Temporary;
            }
            return FileRole::Artifact(ArtifactName {
                store_dir: split.store_dir.to_owned(),
                key: split.key,
                grammar: split.grammar.to_owned(),
                content: split.content,
                fields: split.fields,
            });
        }
        match self.keys().weights_of(path) {
            Some(file) => FileRole::Model(ModelFile {
                factor: file.factor.to_owned(),
                digest: file.digest.map(str::to_owned),
                evidence: file.evidence.map(str::to_owned),
            }),
            None => FileRole::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

    #[test]
    fn files_of_a_snapshot_of_a_hub_are_of_a_model_and_no_artifacts() {
        let files = [
            ("model.safetensors", "weights"),
            ("model-00001-of-00002.safetensors", "weights"),
            ("model.safetensors.index.json", "weights"),
            ("pytorch_model.bin", "weights"),
            ("adapter_model.safetensors", "adapter"),
            ("config.json", "config"),
            ("tokenizer.json", "tokenizer"),
        ];
        for (file, factor) in files {
            let path = format!("/cache/hub/models--org--m/snapshots/{COMMIT}/{file}");
            let role = Packs::builtin().role(&path);
            assert!(matches!(&role, FileRole::Model(model) if model.factor == factor), "{path}: {role:?}");
        }
    }

    #[test]
    fn layers_in_a_folder_of_a_hash_are_artifacts() {
        let path = format!("/mnt/kv/{}/model.layers.0.self_attn.attn.safetensors", "0a".repeat(16));
        assert!(matches!(Packs::builtin().role(&path), FileRole::Artifact(_)));
    }
}
