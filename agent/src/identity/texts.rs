//! What small files say beside their digest: what a configuration means, which chat template is inside.

mod config;
mod template;

use serde::{Deserialize, Serialize};

/// Longest file that is looked into, in bytes.
const MAX_TEXT: u64 = 16 << 20;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Texts {
    /// What a configuration means, as `algorithm:value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// sha256 of the text of the chat template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Whether a file of this path is looked into.
pub(super) fn are_in(path: &[u8], size: u64) -> bool {
    size <= MAX_TEXT && (is_config(name_of(path)) || template::is_inside(name_of(path)))
}

/// Whether a file may hold a chat template beside, or instead of, what it is for.
pub(super) fn may_hold_template(name: &str) -> bool {
    name == "tokenizer_config.json" || name.ends_with(".gguf")
}

/// Looks into a file.
pub(super) fn read(path: &[u8], content: &[u8]) -> Texts {
    let name = name_of(path);
    Texts {
        meaning: is_config(name).then(|| config::meaning(content)).flatten(),
        template: template::is_inside(name).then(|| template::digest(content)).flatten(),
    }
}

fn is_config(name: &[u8]) -> bool {
    matches!(name, b"config.json" | b"params.json")
}

fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}
