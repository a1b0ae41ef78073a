//! Loading, checking, facts, keys and JSON lines.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop at a broken premise")]

use kvprov_model::observation::Body;
use kvprov_packs::{PackError, Packs, Version};
use std::collections::BTreeMap;

fn errors(pack: &str) -> Vec<PackError> {
    Packs::from_texts(&[("e/a.toml", pack)]).err().unwrap_or_default()
}

fn template(changes: &str) -> String {
    format!("engine = \"e\"\n[[template]]\nid = \"e-x\"\nsource = \"test\"\n{changes}\n")
}

#[track_caller]
fn refused(pack: &str, line: usize, words: &str) {
    let errors = errors(pack);
    assert!(
        errors.iter().any(|error| error.line == line && error.to_string().contains(words)),
        "{words:?} at {line} not in {errors:#?}"
    );
}

#[test]
fn the_builtin_packs_have_no_error() {
    let errors = Packs::check_builtin();
    assert!(errors.is_empty(), "{}", errors.iter().map(|error| format!("{error}\n")).collect::<String>());
}

#[test]
fn every_kind_of_mistake_is_named_with_its_line() {
    let good = "text = \"Some_words {request_id:id}\"\nkind = \"lease\"\nexample = \"Some_words r\"";
    assert_eq!(errors(&template(good)), []);
    refused("engine = \"e\"\n[[template]\n", 2, "see packs/SCHEMA.md");
    refused(&template(&format!("{good}\nwhatever = 1")), 8, "whatever");
    refused(&template(&good.replace("\"lease\"", "\"leese\"")), 6, "`leese` is no kind");
    refused(&template(&good.replace("request_id:id", "request:id")), 5, "`request` is no attribute of lease");
    refused(&template(&good.replace("request_id:id", "request_id:uuid")), 5, "`uuid` is no type");
    refused(&template(&good.replace("request_id:id", "request_id:text")), 5, "never kept");
    refused(&template(&good.replace("request_id:id", "readers:id")), 5, "integer");
    refused(&template(&good.replace("\"Some_words r\"", "\"Other_words r\"")), 7, "no anchor");
    refused(&template(&good.replace("\"Some_words r\"", "\"Some_words\"")), 7, "does not match");
    refused(&template(&format!("{good}\nset = {{ state = \"gone\" }}")), 8, "use one of granted");
    refused(&template(&format!("{good}\nset = {{ readers = \"two\" }}")), 8, "integer");
    refused(&template(&format!("{good}\nsince = \"soon\"")), 2, "no version");
    refused(&template(&format!("{good}\nsince = \"2\"\nuntil = \"1\"")), 2, "not before");
    refused(&template(&format!("{good}\nimplies = {{ policy = \"x\" }}")), 8, "no fact");
    refused(
        &template(
            &good.replace("Some_words", "a").replace("\"lease\"", "\"none\"").replace("request_id", "_"),
        ),
        5,
        "6 bytes",
    );
    let cause = "text = \"Some_words\"\nkind = \"transfer\"\nexample = \"Some_words\"\nset = { cause = \"bad_luck\" }";
    refused(&template(cause), 8, "bad_luck");
    let counter = "text = \"Some_words {values.luck:int}\"\nkind = \"counters\"\nexample = \"Some_words 1\"";
    refused(&template(counter), 5, "`luck` is no counter");
}

#[test]
fn an_id_stands_once_and_a_shadowed_example_is_an_error() {
    let one = "\n[[template]]\nid = \"e-x\"\ntext = \"Some_words now\"\nkind = \"none\"\nexample = \"Some_words now\"\nsource = \"t\"\n";
    refused(&format!("engine = \"e\"\n{one}{one}"), 10, "stands at");
    let shadow = one
        .replace("e-x", "e-y")
        .replace("example = \"Some_words now\"", "example = \"Some_words now and then\"");
    let longer = one.replace("e-x", "e-z").replace("now", "now and then");
    refused(&format!("engine = \"e\"\n{shadow}{longer}"), 7, "read as e-z");
}

#[test]
fn other_entries_are_checked_too() {
    refused(
        "engine = \"e\"\n[[metric]]\nname = \"m\"\ntype = \"counter\"\ncounter = \"luck\"\n",
        5,
        "no counter",
    );
    refused("engine = \"e\"\n[[fact]]\nfact = \"luck\"\nfrom = [\"x\"]\n", 3, "no fact");
    refused(
        "engine = \"e\"\n[[key]]\nid = \"e-k\"\nmatch = '('\nexample = \"x\"\n",
        4,
        "correct the expression",
    );
    refused("engine = \"e\"\n[[key]]\nid = \"e-k\"\nmatch = 'a'\nexample = \"x\"\n", 5, "does not match");
    refused(
        "engine = \"e\"\n[[key]]\nid = \"e-k\"\nmatch = 'a'\ncontent = \"h\"\nexample = \"a\"\n",
        4,
        "no capture `h`",
    );
}

#[test]
fn an_override_replaces_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("e")).unwrap();
    let good = "text = \"Zz_words\"\nkind = \"none\"\nexample = \"Zz_words\"";
    std::fs::write(dir.path().join("e/a.toml"), template(good)).unwrap();
    let packs = Packs::with_overrides(dir.path()).unwrap();
    assert!(packs.template("e-x").is_some());
    assert!(packs.list().iter().any(|summary| summary.engine == "e" && summary.templates == 1));
    std::fs::write(dir.path().join("e/a.toml"), "engine = 1").unwrap();
    let errors = Packs::check(dir.path());
    assert!(errors[0].to_string().contains("e/a.toml:1"), "{errors:?}");
    assert!(!Packs::check(&dir.path().join("absent")).is_empty());
}

fn facts(
    pack: &str,
    engine: Option<&str>,
    version: &str,
    settings: &[(&str, &str)],
) -> BTreeMap<String, String> {
    let packs = Packs::from_texts(&[("e/a.toml", pack), ("l/a.toml", LIBRARY)]).unwrap();
    let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    packs.facts(engine, Version::parse(version).as_ref(), &settings).facts
}

const FACTS: &str = r#"
engine = "e"
[[fact]]
fact = "connector"
from = ["kv_transfer_config.kv_connector"]
[[fact]]
fact = "load_failure_policy"
from = ["kv_load_failure_policy"]
default = [{ until = "0.17", value = "recompute" }, { since = "0.17", value = "fail" }]
when = { connector = "Nixl*" }
[[fact]]
fact = "prefix_caching"
from = ["disable_radix_cache"]
map = { "True" = "false", "maybe" = "" }
default = [{ value = "true" }]
[[fact]]
fact = "block_size"
from = ["block_size"]
default = [{ value = "16" }]
[[fact]]
fact = "http_address"
compose = "{host|0.0.0.0}:{port|8000}"
"#;

const LIBRARY: &str = r#"
engine = "l"
applies_when = { connector = "Lib*" }
[[fact]]
fact = "block_size"
from = ["chunk_size"]
default = [{ value = "256" }]
[[fact]]
fact = "store"
from = ["remote_url"]
match = '^fs://[^/]*(/.+?)/?$'
format = "file:{}"
"#;

#[test]
fn settings_defaults_and_conditions_make_facts() {
    let of = |version, settings: &[(&str, &str)]| facts(FACTS, Some("e"), version, settings);
    let nixl = ("kv_transfer_config.kv_connector", "NixlConnector");
    assert_eq!(of("0.16", &[nixl])["load_failure_policy"], "recompute");
    assert_eq!(of("0.17", &[nixl])["load_failure_policy"], "fail");
    assert!(
        !of("?", &[nixl]).contains_key("load_failure_policy"),
        "an unknown version has no bounded default"
    );
    assert!(!of("0.17", &[]).contains_key("load_failure_policy"));
    let given = of("0.17", &[nixl, ("x.kv_load_failure_policy", "recompute")]);
    assert_eq!(given["load_failure_policy"], "recompute");
    assert_eq!(of("1", &[("--disable-radix-cache", "True")])["prefix_caching"], "false");
    assert_eq!(of("1", &[])["prefix_caching"], "true");
    assert!(!of("1", &[("disable_radix_cache", "maybe")]).contains_key("prefix_caching"));
    assert_eq!(of("1", &[("port", "81")])["http_address"], "0.0.0.0:81");
    assert!(!of("1", &[]).contains_key("http_address"));
}

#[test]
fn the_split_of_the_context_is_part_of_keys_that_hold_its_rank() {
    for connector in ["MooncakeStoreConnector", "OffloadingConnector", "AscendStoreConnector"] {
        let settings = [("kv_connector", connector), ("decode_context_parallel_size", "2")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let found = Packs::builtin().facts(Some("vllm"), Version::parse("0.33.0").as_ref(), &settings).facts;
        assert!(found["key_factors"].split(',').any(|name| name == "cp_size"), "{connector}");
        assert_eq!(found["cp_size"], "2");
    }
}

#[test]
fn json_in_a_setting_is_opened() {
    let json =
        [("kv-transfer-config", "{\"kv_connector\":\"NixlConnector\",\"kv_load_failure_policy\":\"fail\"}")];
    assert_eq!(facts(FACTS, Some("e"), "0.1", &json)["load_failure_policy"], "fail");
}

#[test]
fn facts_of_a_library_win_where_it_is_used() {
    let with = [("kv_transfer_config.kv_connector", "LibConnector"), ("remote_url", "fs://h:0/mnt/kv/")];
    let found = facts(FACTS, Some("e"), "1", &with);
    assert_eq!((found["block_size"].as_str(), found["store"].as_str()), ("256", "file:/mnt/kv"));
    let without = facts(FACTS, Some("e"), "1", &[("remote_url", "fs://h:0/mnt/kv/")]);
    assert_eq!(without["block_size"], "16");
    assert!(!without.contains_key("store"));
}

#[test]
fn a_json_line_is_read_by_paths() {
    let pack = r#"
engine = "e"
[[json]]
id = "e-hop"
kind = "request_leg"
when = { hop = "P" }
present = ["status"]
set = { leg = "prefill" }
attributes = { request_id = "rid", status = "status", duration_ns = "dt", remote_engine_id = "sent.engine" }
exists = { kv_params_sent = "sent", kv_params_received = "got" }
compose = { remote_peer = "{sent.host}:{sent.port}" }
first = { finish_reason = "finish" }
time = "t"
scale = { duration_ns = 1e9 }
example = '{"t": 1.5, "hop": "P", "status": 200}'
"#;
    let packs = Packs::from_texts(&[("e/a.toml", pack)]).unwrap();
    let line = r#"{"t": 12.5, "hop": "P", "rid": "r1", "status": 200, "dt": 0.5, "finish": ["stop"], "got": null,
                   "sent": {"engine": "x", "host": "h", "port": 5}, "prompt": "secret words"}"#;
    assert!(packs.matcher().may_matter(line.as_bytes()));
    assert!(
        packs.matcher().may_matter(line.replace('"', "\\\"").as_bytes()),
        "also inside another JSON text"
    );
    let serde_json::Value::Object(object) = serde_json::from_str(line).unwrap() else { panic!("no object") };
    let found = packs.matcher().match_json(&object).unwrap();
    assert_eq!(found.time, Some(12.5));
    assert!(!found.says.contains("secret"));
    let Some(Body::RequestLeg(leg)) = found.body else { panic!("no leg") };
    assert_eq!(leg.request_id.as_deref(), Some("r1"));
    assert_eq!((leg.status, leg.duration_ns), (Some(200), Some(500_000_000)));
    assert_eq!((leg.kv_params_sent, leg.kv_params_received), (Some(true), Some(false)));
    assert_eq!(leg.remote_peer.as_deref(), Some("h:5"));
    assert_eq!(leg.finish_reason.as_deref(), Some("stop"));
}

const HASH: &str = "fea7b32778ecbdd7adee1941e98c89cf96bbc762f5f1beb0be24e36a456fbbc5";

#[test]
fn a_hicache_name_is_split_from_both_ends() {
    let keys = Packs::builtin().keys();
    let name = format!("/mnt/kv/{HASH}_my_model_2_v1_1_2.bin");
    let split = keys.split(&name).unwrap();
    assert_eq!((split.store_dir, split.grammar), ("/mnt/kv", "sglang-hicache-file"));
    assert_eq!(split.content.as_deref(), Some(HASH));
    assert_eq!(split.fields["model_name"], "my_model_2_v1");
    assert_eq!((split.fields["tp_rank"].as_str(), split.fields["tp_size"].as_str()), ("1", "2"));
    assert_eq!(split.rank_fields, ["tp_rank"]);
}

#[test]
fn sharded_and_nested_names_leave_the_directory_of_the_store() {
    let keys = Packs::builtin().keys();
    for (path, dir) in [
        (format!("/mnt/kv-nixl/c0/{HASH}_chat-large_0_1"), "/mnt/kv-nixl"),
        (format!("/mnt/kv-nixl/fe/{}_chat-large_0_1", &HASH[2..]), "/mnt/kv-nixl"),
        (format!("/mnt/t/Qwen_0123456789ab_r0/fea/7b_g0/{HASH}.bin"), "/mnt/t"),
        (format!("/mnt/ex/{}/layer.0.safetensors", &HASH[..32]), "/mnt/ex"),
    ] {
        let split = keys.split(&path).unwrap_or_else(|| panic!("{path}"));
        assert_eq!(split.store_dir, dir);
        assert_eq!(format!("{dir}/{}", split.key), path);
        assert!(split.content.is_some_and(|content| HASH.starts_with(&content)));
    }
}

#[test]
fn one_lmcache_hash_is_equal_in_every_form() {
    let keys = Packs::builtin().keys();
    let content = |name: &str| keys.split(name).unwrap_or_else(|| panic!("{name}")).content;
    let file = content("/mnt/kv/Qwen-Qwen3-8B@1@0@-33f9bce42327706c@bfloat16.pt");
    assert_eq!(file.as_deref(), Some("cc06431bdcd88f94"));
    assert_eq!(file, content("/mnt/kv/Qwen-SEP-Qwen3-8B@0x01000100@0@cc06431bdcd88f94.data"));
    assert_eq!(file, content("vllm@Qwen/Qwen3-8B@1@0@-33f9bce42327706c"));
    for older in ["m@0x01000100@cc06431bdcd88f94.data", "m@0x0@0@cc06431bdcd88f94@tenant-a.data"] {
        assert_eq!(file, content(&format!("/mnt/kv/{older}")));
    }
    let l2 = keys.split("/mnt/kv/m@0x0a030a03@0@cc06431bdcd88f94.tmp").unwrap();
    assert_eq!((l2.fields["tp_size"].as_str(), l2.fields["tp_rank"].as_str()), ("10", "3"));
    assert!(l2.temporary);
}

#[test]
fn temporary_names_and_settings_are_told_apart_from_artifacts() {
    let keys = Packs::builtin().keys();
    assert!(keys.split("/mnt/kv/.26f117da75124d2cb03c4bdf50086147.tmp").unwrap().temporary);
    assert!(keys.split("/mnt/kv/Qwen_0123456789ab/config.json").unwrap().not_artifact);
    for path in ["/etc/passwd", "/mnt/kv/", "", "/usr/lib/python3/x.bin", "README.md", &"a".repeat(9000)] {
        assert_eq!(keys.split(path), None, "{path}");
    }
}

#[test]
fn files_of_a_model_are_told_by_their_names() {
    let keys = Packs::builtin().keys();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = format!("/c/models--a--b/snapshots/{commit}/model-00001-of-00002.safetensors");
    let file = keys.weights_of(&snapshot).unwrap();
    assert_eq!((file.factor, file.digest, file.evidence), ("weights", None, Some(commit)));
    let blob = format!("/c/models--a--b/blobs/{HASH}");
    assert_eq!(keys.weights_of(&blob).unwrap().digest, Some(HASH));
    for (path, factor) in [
        ("/m/config.json", "config"),
        ("/m/tokenizer.json", "tokenizer"),
        ("/m/chat_template.jinja", "chat_template"),
        ("/a/adapter_model.safetensors", "adapter"),
        ("/m/q.gguf", "weights"),
    ] {
        assert_eq!(keys.weights_of(path).map(|file| file.factor), Some(factor), "{path}");
    }
    assert_eq!(keys.weights_of("/m/README.md"), None);
}

#[test]
fn cut_and_wrapped_examples_are_read_without_a_crash() {
    let packs = Packs::builtin();
    for template in packs.templates() {
        let text = &template.example;
        for (at, _) in text.char_indices().step_by(9) {
            for message in
                [text[..at].to_owned(), format!("{}\n  {}", &text[..at], &text[at..]), text[at..].to_owned()]
            {
                if let Some(found) =
                    packs.matcher().match_message(&message, &kvprov_packs::Speaker::default())
                {
                    let _ = (found.body(), found.facts(), found.settings(), found.implies());
                    assert!(found.says().len() <= 300);
                }
            }
        }
    }
}

#[test]
fn a_span_that_tells_of_a_request_is_known_by_its_name() {
    let spans = Packs::builtin().spans();
    for (name, id) in [
        ("llm_request", Some("vllm-llm-request")),
        ("decode Req 2a590099", Some("sglang-request")),
        (" Req 2a590099", Some("sglang-request")),
        ("Load model", None),
        ("llm_request_more", None),
    ] {
        assert_eq!(spans.lookup(name).map(|span| span.id.as_str()), id, "{name}");
    }
    let vllm = spans.lookup("llm_request").unwrap();
    assert_eq!(vllm.meaning("gen_ai.request.id"), Some("request_id"));
    assert_eq!(vllm.meaning("gen_ai.prompt"), None);
}

#[test]
fn mistakes_in_a_span_are_named_with_their_line() {
    let span = |changes: &str| format!("engine = \"e\"\n[[span]]\nid = \"e-s\"\n{changes}\n");
    let good = "name = \"req *\"\nattributes = { request_id = \"id\" }\nexample = \"req 1\"";
    assert_eq!(errors(&span(good)), []);
    refused(&span(&good.replace("req *", "*")), 4, "3 letters");
    refused(&span(&good.replace("request_id", "prompt_tokens")), 2, "request_id");
    refused(&span(&good.replace("\"id\" }", "\"id\", luck = \"x\" }")), 5, "luck");
    refused(&span(&good.replace("\"req 1\"", "\"other\"")), 6, "no such name");
}
