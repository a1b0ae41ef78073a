//! KV events as lines of JSON: one decoded event a line (bundles), or one batch a line as it crossed the wire.
//!
//! Event types are maps with `type` (vLLM from 0.24, SGLang) or arrays that begin with the type (vLLM up to 0.23);
//! unknown fields are ignored. The same forms come as MessagePack: [`super::msgpack`].

use super::event::{Event, Head, MAX_HASH, MAX_TEXT, Tokens};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::observation::{Block, BlockAction};
use serde_json::Value;

/// Reads the events of one line. The error is a reason to count. Events of a batch that are not readable are counted
/// by `bad`.
///
/// # Errors
/// With a reason when the line is no event and no batch.
pub fn read_line(line: &[u8], mut bad: impl FnMut(&'static str)) -> Result<(Head, Vec<Event>), &'static str> {
    let value: Value = serde_json::from_slice(line).map_err(|_| "no JSON")?;
    let Value::Object(mut fields) = value else { return Err("no KV event") };
    let topic = take_text(&mut fields, "topic").unwrap_or_default();
    let seq = fields.get("seq").and_then(Value::as_u64);
    let Some(payload) = fields.remove("payload") else {
        let publisher = publisher(&topic, fields.get("data_parallel_rank").or(fields.get("dp_rank")));
        let ts = fields.get("ts").and_then(Value::as_f64);
        return Ok((Head { ts, seq, publisher }, vec![read_map(fields)?]));
    };
    let Value::Array(batch) = payload else { return Err("no KV event") };
    let mut parts = batch.into_iter();
    let ts = parts.next().and_then(|ts| ts.as_f64()).or_else(|| fields.get("t").and_then(Value::as_f64));
    let Some(Value::Array(events)) = parts.next() else { return Err("no KV event") };
    let publisher = publisher(&topic, parts.next().as_ref());
    let mut found = Vec::with_capacity(events.len());
    for event in events {
        let read = match event {
            Value::Object(fields) => read_map(fields),
            Value::Array(items) => read_array(items),
            _ => Err("no KV event"),
        };
        match read {
            Ok(event) => found.push(event),
            Err(reason) => bad(reason),
        }
    }
    Ok((Head { ts, seq, publisher }, found))
}

/// An event as a line of a recording: content hashes in place of token ids.
pub fn write_event(block: &Block, wall: Option<WallTime>) -> Vec<u8> {
    let kind = match &block.action {
        Some(BlockAction::Removed) => "BlockRemoved",
        Some(BlockAction::Cleared) => "AllBlocksCleared",
        _ => "BlockStored",
    };
    let mut fields = Fields::new();
    let mut add = |name: &str, value: Value| {
        if !value.is_null() {
            fields.insert(name.to_owned(), value);
        }
    };
    add("ts", seconds(wall));
    add("seq", block.sequence.into());
    add("type", kind.into());
    add("block_hashes", block.hashes.clone().into());
    add("parent_block_hash", block.parent.clone().into());
    add("block_size", block.block_size.into());
    add("num_tokens", block.tokens.into());
    add("medium", block.medium.clone().into());
    add("lora_name", block.adapter.clone().into());
    add("extra_keys", block.extra_keys.into());
    if !block.content.is_empty() {
        add("content", block.content.clone().into());
        add("content_key", block.content_key.clone().into());
    }
    Value::Object(fields).to_string().into_bytes()
}

/// A batch that says nothing as a line of a recording.
pub fn write_empty_batch(seq: u64, wall: Option<WallTime>) -> Vec<u8> {
    serde_json::json!({"seq": seq, "payload": [seconds(wall), []]}).to_string().into_bytes()
}

/// Unix seconds. A time that was read from a 64-bit float becomes the same float.
fn seconds(wall: Option<WallTime>) -> Value {
    wall.map(|wall| wall.0 as f64 / SECOND as f64).into()
}

/// Whether a line has the shape of a KV event.
pub fn looks_like_event(line: &[u8]) -> bool {
    match serde_json::from_slice::<Value>(line) {
        Ok(Value::Object(fields)) => {
            let is_kind = |kind: &str| matches!(kind, "BlockStored" | "BlockRemoved" | "AllBlocksCleared");
            let named = fields.get("type").and_then(Value::as_str).is_some_and(is_kind);
            named || (fields.contains_key("topic") && fields.get("payload").is_some_and(Value::is_array))
        }
        _ => false,
    }
}

fn publisher(topic: &str, rank: Option<&Value>) -> String {
    Head::publisher(topic, rank.and_then(Value::as_u64))
}

type Fields = serde_json::Map<String, Value>;

fn take_text(fields: &mut Fields, name: &str) -> Option<String> {
    match fields.remove(name) {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn read_map(mut fields: Fields) -> Result<Event, &'static str> {
    let kind = take_text(&mut fields, "type").ok_or("KV event without a type")?;
    let adapter = take_text(&mut fields, "lora_name")
        .or_else(|| fields.get("lora_id").and_then(Value::as_i64).map(|id| id.to_string()));
    Ok(Event {
        hashes: hashes(fields.remove("block_hashes")),
        parent: fields.remove("parent_block_hash").and_then(hash_text),
        tokens: fields.remove("token_ids").and_then(tokens),
        content: texts(fields.remove("content")),
        content_key: take_text(&mut fields, "content_key"),
        num_tokens: fields.get("num_tokens").and_then(Value::as_u64),
        block_size: fields.get("block_size").and_then(Value::as_u64),
        medium: take_text(&mut fields, "medium"),
        extra_keys: adapter.is_some()
            || ["extra_keys", "cache_salt"].iter().any(|name| fields.get(*name).is_some_and(is_something)),
        adapter,
        kind,
    })
}

/// Fields in the order of vLLM up to 0.23; those at the end came later and may be absent.
fn read_array(items: Vec<Value>) -> Result<Event, &'static str> {
    let mut items = items.into_iter();
    let Some(Value::String(kind)) = items.next() else { return Err("KV event without a type") };
    let mut event = Event { kind, ..Event::default() };
    if event.kind == "AllBlocksCleared" {
        return Ok(event);
    }
    event.hashes = hashes(items.next());
    let text = |value: Option<Value>| match value {
        Some(Value::String(text)) if !text.is_empty() => Some(text),
        _ => None,
    };
    if event.kind == "BlockRemoved" {
        event.medium = text(items.next());
        return Ok(event);
    }
    event.parent = items.next().and_then(hash_text);
    event.tokens = items.next().and_then(tokens);
    event.block_size = items.next().as_ref().and_then(Value::as_u64);
    let number = items.next().as_ref().and_then(Value::as_i64).map(|id| id.to_string());
    event.medium = text(items.next());
    event.adapter = text(items.next()).or(number);
    event.extra_keys = event.adapter.is_some() || items.next().as_ref().is_some_and(is_something);
    Ok(event)
}

/// Whether extra keys hold anything: lists of nulls do not.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => items.iter().any(is_something),
        Value::Object(fields) => fields.values().any(is_something),
        Value::String(text) => !text.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    }
}

fn hashes(value: Option<Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items.into_iter().filter_map(hash_text).collect(),
        Some(other) => hash_text(other).into_iter().collect(),
        None => Vec::new(),
    }
}

fn texts(value: Option<Value>) -> Vec<String> {
    match value {
        Some(Value::Array(items)) => items
            .into_iter()
            .map(|item| match item {
                Value::String(text) => text,
                _ => String::new(),
            })
            .collect(),
        Some(Value::String(text)) => vec![text],
        _ => Vec::new(),
    }
}

/// A hash as text: a number in decimal, text as it is, raw bytes in hex.
fn hash_text(value: Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if !text.is_empty() && text.len() <= MAX_TEXT => Some(text),
        Value::Array(items) if !items.is_empty() && items.len() <= MAX_HASH => {
            let bytes: Option<Vec<u8>> =
                items.iter().map(|item| item.as_u64().and_then(|byte| u8::try_from(byte).ok())).collect();
            bytes.map(|bytes| kvprov_model::id::hex(&bytes))
        }
        _ => None,
    }
}

/// Token ids; what they leave behind in the value is overwritten.
fn tokens(value: Value) -> Option<Tokens> {
    let Value::Array(mut items) = value else { return None };
    let mut tokens = Tokens::with_capacity(items.len());
    for item in &mut items {
        tokens.push(item.as_u64().and_then(|id| u32::try_from(id).ok()));
        *item = Value::Null;
    }
    (!items.is_empty()).then_some(tokens)
}
