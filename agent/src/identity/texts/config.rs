//! What the configuration of a model means: the fields that change attention, rope, mixture of experts, quantisation or the
//! shape of the model, without those that change nothing.
//!
//! The value is `config-v1:` and two digests joined by `+`. The first is over the fields of [`DECIDES`], brought to one form:
//! a difference there is one of the model. The second is over the fields that neither list names: one there may mean nothing,
//! and leaves open whether the models are equal. Fields of [`COSMETIC`] are left out, at every depth. A field that is null,
//! false, or an empty object or list counts as absent, since releases differ in what they write out. Source of the names: the
//! configuration classes of `transformers` and `mistral-common`, and what vLLM and SGLang read of them.

use kvprov_model::id::hex;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// The form of values.
const ALGORITHM: &str = "config-v1";
/// Digits of each digest.
const DIGITS: usize = 32;

/// Fields that decide what the model computes.
const DECIDES: &[&str] = &[
    // Shape.
    "architectures",
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "vocab_size",
    "hidden_act",
    "hidden_activation",
    "rms_norm_eps",
    "layer_norm_eps",
    "norm_eps",
    "layer_norm_epsilon",
    "tie_word_embeddings",
    "dim",
    "n_layers",
    "hidden_dim",
    "n_embd",
    "n_layer",
    "n_inner",
    "activation_function",
    "dtype",
    // Attention.
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "n_heads",
    "n_kv_heads",
    "n_head",
    "num_kv_heads",
    "multi_query",
    "attention_bias",
    "qkv_bias",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "sliding_window_pattern",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "query_pre_attn_scalar",
    "attention_multiplier",
    "use_qk_norm",
    "qk_layernorm",
    "attention_chunk_size",
    "kv_lora_rank",
    "q_lora_rank",
    "qk_rope_head_dim",
    "qk_nope_head_dim",
    "v_head_dim",
    "index_topk",
    "index_n_heads",
    "index_head_dim",
    "alibi",
    "full_attention_interval",
    "attn_temperature_tuning",
    "no_rope_layers",
    // Rope.
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "rotary_dim",
    "rotary_pct",
    "rotary_emb_base",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "use_mrope",
    // Mixture of experts.
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "shared_expert_intermediate_size",
    "norm_topk_prob",
    "routed_scaling_factor",
    "scoring_func",
    "topk_method",
    "n_group",
    "topk_group",
    "first_k_dense_replace",
    "moe_layer_freq",
    "decoder_sparse_step",
    "mlp_only_layers",
    "moe",
    // State space layers.
    "mamba_d_state",
    "mamba_d_conv",
    "mamba_expand",
    "mamba_n_heads",
    "mamba_d_head",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    // Quantisation.
    "quantization_config",
    "quantization",
    "compression_config",
];

/// Fields that change nothing that is computed of given tokens.
const COSMETIC: &[&str] = &[
    // Where it comes from, and who wrote it.
    "_name_or_path",
    "name_or_path",
    "transformers_version",
    "_commit_hash",
    "license",
    "unsloth_version",
    "unsloth_fixed",
    "unsloth_processed",
    "_attn_implementation_autoset",
    "_diffusers_version",
    "tokenizer_class",
    // Which token ends or fills: no key or value of the others.
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    // How answers are drawn.
    "temperature",
    "top_p",
    "top_k",
    "do_sample",
    "num_beams",
    "max_length",
    "min_length",
    "max_new_tokens",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "early_stopping",
    "num_return_sequences",
    "diversity_penalty",
    "bad_words_ids",
    "suppress_tokens",
    "typical_p",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "encoder_no_repeat_ngram_size",
    "num_beam_groups",
    "begin_suppress_tokens",
    // Training, and what is given back.
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "aux_loss_alpha",
    "seq_aux",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "return_dict",
    "return_dict_in_generate",
    "gradient_checkpointing",
    "torchscript",
    "id2label",
    "label2id",
    "problem_type",
    "finetuning_task",
    "task_specific_params",
    "use_bfloat16",
    "tf_legacy_loss",
    "chunk_size_feed_forward",
    "prefix",
];

/// Parts that hold fields of the same kinds.
const PARTS: &[&str] =
    &["text_config", "llm_config", "language_config", "thinker_config", "vision_config", "audio_config"];

/// The meaning of a configuration; `None` where it is no object of JSON.
pub(super) fn meaning(content: &[u8]) -> Option<String> {
    let Value::Object(config) = serde_json::from_slice(content).ok()? else { return None };
    let (mut decides, mut rest) = (BTreeMap::new(), BTreeMap::new());
    sort("", config, &mut decides, &mut rest);
    Some(format!("{ALGORITHM}:{}+{}", digest(&decides), digest(&rest)))
}

/// Sorts the fields of one part by what they decide.
fn sort(
    part: &str,
    fields: Map<String, Value>,
    decides: &mut BTreeMap<String, Value>,
    rest: &mut BTreeMap<String, Value>,
) {
    for (name, value) in in_one_form(fields) {
        match value {
            Value::Object(fields) if PARTS.contains(&name.as_str()) => {
                sort(&format!("{part}{name}."), fields, decides, rest);
            }
            value => {
                let into = if DECIDES.contains(&name.as_str()) { &mut *decides } else { &mut *rest };
                into.insert(format!("{part}{name}"), value);
            }
        }
    }
}

/// Brings the names that releases of `transformers` use for the same thing to one.
fn in_one_form(fields: Map<String, Value>) -> Map<String, Value> {
    let mut fields = reduced(fields);
    if let Some(dtype) = fields.remove("torch_dtype") {
        fields.entry("dtype").or_insert(dtype);
    }
    // Since release 5 the base of rope stands in `rope_parameters`, which took the place of `rope_scaling`.
    if let Some(Value::Object(mut rope)) =
        fields.remove("rope_parameters").or_else(|| fields.remove("rope_scaling"))
    {
        if let Some(theta) = rope.remove("rope_theta") {
            fields.entry("rope_theta").or_insert(theta);
        }
        if let Some(kind) = rope.remove("type") {
            rope.entry("rope_type").or_insert(kind);
        }
        if rope.get("rope_type").is_some_and(|kind| kind == "default") {
            rope.remove("rope_type");
        }
        if !rope.is_empty() {
            fields.insert("rope_scaling".to_owned(), Value::Object(rope));
        }
    }
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let (hidden, heads) = (number("hidden_size"), number("num_attention_heads"));
    if let (Some(hidden), Some(heads @ 1..)) = (hidden, heads) {
        let derived = [("head_dim", hidden / heads), ("num_key_value_heads", heads)];
        for (name, value) in derived {
            // Multi-head latent attention has sizes of its own.
            if !fields.contains_key("kv_lora_rank") {
                fields.entry(name).or_insert(Value::from(value));
            }
        }
    }
    fields
}

/// Without what is cosmetic or says nothing.
fn reduced(fields: Map<String, Value>) -> Map<String, Value> {
    let kept = fields.into_iter().filter(|(name, _)| !COSMETIC.contains(&name.as_str()));
    kept.filter_map(|(name, value)| Some((name, said(value)?))).collect()
}

/// A value in one form; `None` where it says no more than its absence.
fn said(value: Value) -> Option<Value> {
    match value {
        Value::Null | Value::Bool(false) => None,
        Value::Object(fields) => Some(reduced(fields)).filter(|fields| !fields.is_empty()).map(Value::Object),
        // In a list a place counts.
        Value::Array(list) if list.is_empty() => None,
        Value::Number(number) => Some(match number.as_f64() {
            // 1e6, 1000000 and 1000000.0 are one number; above 2^53 it is kept as it was written.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 9e15 => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        }),
        other => Some(other),
    }
}

fn digest(fields: &BTreeMap<String, Value>) -> String {
    // Keys of objects are sorted, here and inside.
    let text = serde_json::to_string(fields).unwrap_or_default();
    hex(&Sha256::digest(text)).chars().take(DIGITS).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use kvprov_model::factor::{Comparison, Factor};

    const BASE: &str = r#""model_type":"llama","hidden_size":64,"num_attention_heads":8,"rope_theta":1e6"#;

    fn compared(a: &str, b: &str) -> Comparison {
        let factor = |value: &str, fields: &str| {
            let config =
                if fields.is_empty() { format!("{{{BASE}}}") } else { format!("{{{BASE},{fields}}}") };
            Factor::full(&format!("sha256:{value} meaning={}", meaning(config.as_bytes()).unwrap()))
        };
        factor("aa", a).compare(&factor("bb", b))
    }

    #[test]
    fn what_changes_nothing_is_equal() {
        for (a, b) in [
            (r#""transformers_version":"4.1""#, r#""transformers_version":"5.0","_name_or_path":"x""#),
            (r#""torch_dtype":"bfloat16""#, r#""dtype":"bfloat16""#),
            (r#""rope_scaling":null"#, r#""rope_parameters":{"rope_type":"default","rope_theta":1000000.0}"#),
            (
                r#""rope_scaling":{"type":"yarn","factor":4}"#,
                r#""rope_scaling":{"rope_type":"yarn","factor":4.0}"#,
            ),
            ("", r#""head_dim":8,"num_key_value_heads":8,"attention_bias":false,"use_cache":true"#),
            (r#""text_config":{"hidden_size":4,"bos_token_id":1}"#, r#""text_config":{"hidden_size":4}"#),
        ] {
            assert_eq!(compared(a, b), Comparison::Equal, "{a} and {b}");
        }
    }

    #[test]
    fn what_changes_attention_rope_experts_or_quantisation_is_different() {
        for field in [
            r#""head_dim":16"#,
            r#""sliding_window":4096"#,
            r#""rope_scaling":{"rope_type":"yarn","factor":4}"#,
            r#""num_experts_per_tok":8"#,
            r#""quantization_config":{"quant_method":"fp8"}"#,
            r#""text_config":{"num_hidden_layers":3}"#,
        ] {
            assert_eq!(compared("", field), Comparison::Different, "{field}");
        }
    }

    #[test]
    fn a_field_that_nobody_knows_leaves_it_open() {
        assert_eq!(compared("", r#""new_field":1"#), Comparison::Unknown);
        assert_eq!(
            compared(r#""new_field":1"#, r#""new_field":2,"sliding_window":8"#),
            Comparison::Different
        );
    }

    #[test]
    fn what_is_no_configuration_has_no_meaning() {
        for text in ["", "[]", "{", "1"] {
            assert_eq!(meaning(text.as_bytes()), None);
        }
    }

    #[test]
    fn no_field_is_on_both_lists() {
        assert!(DECIDES.iter().all(|name| !COSMETIC.contains(name)));
    }
}
