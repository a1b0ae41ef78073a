//! What small files say beside their digest.

use crate::rig::{Rig, sha256};
use kvprov_model::factor::Comparison;

#[test]
fn a_configuration_saved_by_another_release_is_equal_and_another_rope_is_different() {
    let mut rig = Rig::new();
    for (worker, text) in [
        (
            "old",
            r#"{"hidden_size":64,"rope_theta":1e6,"torch_dtype":"bfloat16","transformers_version":"4.51"}"#,
        ),
        (
            "new",
            r#"{"dtype":"bfloat16","hidden_size":64,"rope_parameters":{"rope_theta":1000000,"rope_type":"default"}}"#,
        ),
        ("other", r#"{"hidden_size":64,"rope_theta":1e4,"torch_dtype":"bfloat16"}"#),
    ] {
        let path = rig.write(&format!("{worker}/config.json"), text.as_bytes());
        rig.open_as(worker, "config", &path);
    }
    rig.wait(3);
    assert_eq!(rig.compared("old", "new", "config"), Some(Comparison::Equal));
    assert_eq!(rig.compared("old", "other", "config"), Some(Comparison::Different));
    assert_eq!(rig.last_of("old", "config").unwrap().algorithm, "sha256");
}

#[test]
fn a_chat_template_is_the_same_in_a_file_and_inside_the_tokenizers_settings() {
    let mut rig = Rig::new();
    let inside = rig.write("a/tokenizer_config.json", br#"{"chat_template":"{{ m }}"}"#);
    rig.open_as("inside", "tokenizer", &inside);
    let alone = rig.write("b/chat_template.jinja", b"{{ m }}");
    let none = rig.write("b/tokenizer_config.json", b"{}");
    rig.open_as("alone", "chat_template", &alone);
    rig.open_as("alone", "tokenizer", &none);
    rig.wait(3);
    assert_eq!(rig.compared("inside", "alone", "chat_template"), Some(Comparison::Equal));
    assert_eq!(rig.full_of("chat_template"), [sha256(b"{{ m }}"), sha256(b"{{ m }}")]);
}

#[test]
fn settings_of_a_tokenizer_without_a_template_tell_none() {
    let mut rig = Rig::new();
    let path = rig.write("a/tokenizer_config.json", b"{}");
    rig.open("tokenizer", &path);
    rig.wait(100);
    assert!(rig.last_of("w", "chat_template").is_none());
    assert!(rig.last_of("w", "tokenizer").is_some());
}

#[test]
fn settings_of_a_draft_and_of_an_adapter_are_not_the_models() {
    let mut rig = Rig::new();
    for (factor, name, content) in [
        ("config", "model/config.json", r#"{"hidden_size":64}"#),
        ("config", "draft/config.json", r#"{"hidden_size":32}"#),
        ("weights", "model/model.safetensors", "a long one"),
        ("weights", "draft/model.safetensors", "short"),
    ] {
        let path = rig.write(name, content.as_bytes());
        rig.open(factor, &path);
    }
    rig.wait(3);
    rig.seconds += 600;
    for (factor, name) in [("tokenizer", "ad/tokenizer.json"), ("adapter", "ad/adapter_model.safetensors")] {
        let path = rig.write(name, name.as_bytes());
        rig.open(factor, &path);
    }
    rig.wait(100);
    assert_eq!(rig.full_of("config"), [sha256(br#"{"hidden_size":64}"#)]);
    assert!(rig.full_of("tokenizer").is_empty());
    assert_eq!(rig.full_of("adapter").len(), 1);
}
