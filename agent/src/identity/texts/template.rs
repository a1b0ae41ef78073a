//! The chat template inside a file of JSON.
//!
//! Its digest is that of the template's text, so that the same template in a file of its own, which is that text, is equal.

use kvprov_model::id::hex;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// What the key holds: a text, or several with names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Template {
    One(String),
    Several(Vec<Named>),
}

#[derive(Deserialize)]
struct Named {
    name: String,
    template: String,
}

#[derive(Deserialize)]
struct Holder {
    #[serde(default)]
    chat_template: Option<Template>,
}

/// Whether a file of this name holds a template inside other text.
pub(super) fn is_inside(name: &[u8]) -> bool {
    matches!(name, b"tokenizer_config.json" | b"chat_template.json")
}

/// The digest of the template in a file. Of several it is the one named `default`, which is used unless a request asks for
/// another.
pub(super) fn digest(content: &[u8]) -> Option<String> {
    let holder: Holder = serde_json::from_slice(content).ok()?;
    let text = match holder.chat_template? {
        Template::One(text) => text,
        Template::Several(all) => all.into_iter().find(|one| one.name == "default")?.template,
    };
    Some(hex(&Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_inside_json_equals_a_file_of_its_text() {
        let expected = Some(hex(&Sha256::digest("{{ a }}\n")));
        assert_eq!(digest(br#"{"chat_template": "{{ a }}\n", "model_max_length": 1e30}"#), expected);
        let several = br#"{"chat_template": [{"name":"tool","template":"t"},{"name":"default","template":"{{ a }}\n"}]}"#;
        assert_eq!(digest(several), expected);
    }

    #[test]
    fn without_a_template_there_is_no_digest() {
        for text in ["{}", r#"{"chat_template": null}"#, r#"{"chat_template": 1}"#, "nonsense"] {
            assert_eq!(digest(text.as_bytes()), None, "{text}");
        }
    }
}
