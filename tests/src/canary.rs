//! Words and numbers that must never come out again.
//!
//! Prompts, completions and token ids pass by in nearly every input. A canary is one that occurs nowhere else; planted
//! in every shape that engines, proxies and people give such text, it must appear in no output and in no file that
//! kvprov writes. Hashes of tokens may appear, the tokens not: not as digits, and not in the bytes of an integer.

use crate::bundle::{Bundle, text};
use toml::{Table, Value};

/// Stands for words of a prompt or a completion.
pub const WORDS: &str = "CANARYlittlebird";

/// Stand for token ids; two in a row, so that their bytes are no chance hit.
pub const TOKENS: [u32; 2] = [912_345_671, 912_345_683];

/// Where a canary was found: what it is, and the text around it.
pub fn find(bytes: &[u8]) -> Option<String> {
    let [first, second] = TOKENS;
    let little: Vec<u8> = [first.to_le_bytes(), second.to_le_bytes()].concat();
    let big: Vec<u8> = [first.to_be_bytes(), second.to_be_bytes()].concat();
    let wide: Vec<u8> = [u64::from(first).to_le_bytes(), u64::from(second).to_le_bytes()].concat();
    let digits = first.to_string();
    let needles: [(&str, &[u8]); 5] = [
        ("words", WORDS.as_bytes()),
        ("token ids as digits", digits.as_bytes()),
        ("token ids as bytes", &little),
        ("token ids as bytes", &big),
        ("token ids as bytes", &wide),
    ];
    needles.iter().find_map(|(what, needle)| {
        let at = bytes.windows(needle.len()).position(|window| window == *needle)?;
        let around = &bytes[at.saturating_sub(80)..bytes.len().min(at + needle.len() + 80)];
        Some(format!("{what} in …{}…", String::from_utf8_lossy(around)))
    })
}

/// A bundle with canaries in every one of its inputs, beside what it said before.
pub fn plant(bundle: &Bundle) -> Bundle {
    let mut planted = bundle.clone();
    for (kind, grow) in [
        ("log", in_log as fn(&str) -> String),
        ("metrics", in_metrics),
        ("kv-events", in_events),
        ("kernel", in_kernel),
    ] {
        for file in bundle.files_of_kind(kind) {
            if let Some(bytes) = planted.files.get_mut(&file)
                && let Ok(text) = std::str::from_utf8(bytes)
            {
                *bytes = grow(text).into_bytes();
            }
        }
    }
    planted.edit_each("worker", in_settings);
    add_events(&mut planted);
    planted
}

/// Log lines of many shapes, at the beginning, in the middle and at the end, and inside the lines that are there.
fn in_log(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let middle = lines.len() / 2;
    let mut grown = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if index == 0 || index == middle {
            grown.extend(log_lines());
        }
        grown.push((*line).to_owned());
        // A known line that runs on: what follows its words is not known.
        if index % 7 == 3 && !line.ends_with('}') {
            grown.push(format!("{line} prompt: '{WORDS}'"));
        }
    }
    grown.extend(log_lines());
    grown.join("\n") + "\n"
}

fn log_lines() -> Vec<String> {
    let [a, b] = TOKENS;
    let words = WORDS;
    vec![
        format!(
            "(APIServer pid=1) INFO 06-01 09:00:10 [request_logger.py:66] Received request cmpl-aa11: prompt: \
             'say {words}', params: SamplingParams(n=1), prompt_token_ids: [{a}, {b}], lora_request: None."
        ),
        format!(
            "INFO 06-01 09:00:10 [logger.py:39] Received request chatcmpl-aa12: prompt: \"{words}\\n{words}\""
        ),
        format!(
            "(EngineCore pid=2) DEBUG 06-01 09:00:10 [core.py:1] EngineCoreRequest(request_id='aa13', \
             prompt='{words}', prompt_token_ids=[{a}, {b}])"
        ),
        format!("(EngineCore pid=2) ERROR 06-01 09:00:10 [nixl_connector.py:1] failed: {words} [{a}, {b}]"),
        format!(
            "(EngineCore_DP0 pid=2) [2026-06-01 09:00:10,523] LMCache DEBUG: [HASH_GENERATION] prefix_hash=-5, \
             tokens_len=256, tokens_preview=({a}, {b}), extra_keys=None, PYTHONHASHSEED=0, result_hash=-19 \
             (token_database.py:246:lmcache.v1.token_database)"
        ),
        format!("[2026-06-01 09:00:10] Receive: obj=GenerateReqInput(text='{words}', input_ids=[{a}, {b}])"),
        format!("[2026-06-01 09:00:10 TP0] Finish: obj=GenerateReqInput(rid='x'), out={{'text': '{words}'}}"),
        format!("[WRITE_BACKUP_STORAGE] first_tokens=[({a}, {b}), ({b}, {a})]"),
        format!("[PREFETCH_QUERY] first_3_pairs=[([{a}], '16fde07b03e14576'), ...]"),
        format!(
            "2026-06-01T09:00:10.256Z  WARN dynamo_llm::http: bad request body={{\"prompt\":\"{words}\"}}"
        ),
        format!("I0601 09:00:10.698262  1822 rpc_service.cpp:41] value={words} tokens={a},{b}"),
        format!("INFO:     127.0.0.1:52110 - \"POST /v1/completions?prompt={words} HTTP/1.1\" 200 OK"),
        format!("ValueError: {words}"),
        format!("  File \"x.py\", line 1, in f  # {words} {a} {b}"),
        words.to_owned(),
        format!("[{a}, {b}]"),
        proxy_line(),
    ]
}

/// A line as a proxy writes it, with the client's words and the engine's answer in its body.
fn proxy_line() -> String {
    let [a, b] = TOKENS;
    format!(
        r#"{{"t": 1780304410.5, "hop": "D", "rid": "canary-request-1", "status": 200, "dt": 1.5, "id": "cmpl-canary-request-1", "prompt": "{WORDS}", "messages": [{{"role": "user", "content": "{WORDS}"}}], "text": "{WORDS}", "token_ids": [[{a}, {b}]], "sent": {{"do_remote_prefill": true, "remote_engine_id": "e-1", "prompt": "{WORDS}"}}, "choices": [{{"text": "{WORDS}"}}], "error": "{WORDS}"}}"#
    )
}

/// A label with a user's words, on a metric that no pack knows and on the ones that are there.
fn in_metrics(text: &str) -> String {
    let mut grown: String = text
        .lines()
        .map(|line| match line.split_once('{') {
            Some((name, rest)) if !line.starts_with('#') => {
                format!("{name}{{user_prompt=\"{WORDS}\",{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    grown
        .push_str(&format!("# HELP canary {WORDS}\nvllm:canary_total{{prompt=\"{WORDS}\"}} {}\n", TOKENS[0]));
    grown
}

fn in_events(text: &str) -> String {
    format!("{}\n{}", text.trim_end(), event_lines())
}

fn event_lines() -> String {
    let [a, b] = TOKENS;
    let tokens: Vec<String> = (0..8).flat_map(|_| [a.to_string(), b.to_string()]).collect();
    let tokens = tokens.join(",");
    format!(
        r#"{{"ts":1780304410.0,"seq":9001,"type":"BlockStored","block_hashes":[71],"parent_block_hash":null,"token_ids":[{tokens}],"block_size":16,"lora_id":null,"medium":"GPU","lora_name":null,"extra_keys":["{WORDS}"],"prompt":"{WORDS}"}}
{{"ts":1780304411.0,"seq":9002,"type":"BlockRewritten","token_ids":[{tokens}]}}
"#
    )
}

/// A recorder that also keeps what was read and written.
fn in_kernel(text: &str) -> String {
    let line = format!(
        r#"{{"ts":1780304410.0,"pid":1,"tid":1,"comm":"VLLM::EngineCor","op":"send","ret":64,"bytes":64,"data":"{WORDS}"}}"#
    );
    format!("{}\n{line}\n", text.trim_end())
}

/// Settings that hold text of prompts: a template, a default system prompt, an unknown one.
fn in_settings(worker: &mut Table) {
    let settings = worker.entry("settings").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(settings) = settings {
        for name in ["chat_template", "default_system_prompt", "canary", "hf_overrides"] {
            settings.insert(name.to_owned(), Value::String(format!("You are {WORDS}")));
        }
        let mut nested = Table::new();
        nested.insert("prompt".to_owned(), Value::String(WORDS.to_owned()));
        nested.insert("tokens".to_owned(), Value::Array(TOKENS.map(|id| Value::Integer(id.into())).to_vec()));
        settings.insert("default_chat_template_kwargs".to_owned(), Value::Table(nested));
    }
}

/// A stream of KV events for the first worker, which most bundles lack.
fn add_events(bundle: &mut Bundle) {
    let Some(worker) = bundle.workers().find_map(|worker| Some(text(worker, "name")?.to_owned())) else {
        return;
    };
    let file = "canary-kv-events.jsonl";
    bundle.files.insert(file.to_owned(), event_lines().into_bytes());
    let mut source = Table::new();
    for (key, value) in [("worker", worker.as_str()), ("kind", "kv-events"), ("file", file)] {
        source.insert(key.to_owned(), Value::String(value.to_owned()));
    }
    if let Some(sources) = bundle.list_mut("source") {
        sources.push(Value::Table(source));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_canary_is_found() {
        assert!(find(format!("x {WORDS} y").as_bytes()).is_some());
        assert!(find(format!("[{}]", TOKENS[0]).as_bytes()).is_some());
        assert!(find(&TOKENS.map(u32::to_le_bytes).concat()).is_some());
        assert!(find(b"nothing").is_none());
    }
}
