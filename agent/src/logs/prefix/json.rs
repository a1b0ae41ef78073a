//! Lines that are JSON objects: container runtimes and journald (a wrapper), formatters of loggers (a record, by
//! whichever names its fields go), and data (router hops), which is no log line at all.

use super::{Level, Prefix, Process, Stamp, stamp};
use aho_corasick::AhoCorasick;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::sync::LazyLock;

/// What a JSON object is.
#[derive(Debug, Clone, PartialEq)]
pub enum JsonLine {
    /// A runtime's line around another.
    Wrapper(Wrapper),
    /// A logger's record.
    Record(Record),
    /// Data.
    Object(Map<String, Value>),
}

/// A runtime's line around another.
#[derive(Debug, Clone, PartialEq)]
pub struct Wrapper {
    /// When the runtime took it.
    pub stamp: Option<Stamp>,
    /// Priority, where it has one.
    pub level: Option<Level>,
    /// Whether it came from standard error.
    pub is_stderr: bool,
    /// Whether it goes on.
    pub partial: bool,
    /// What it holds.
    pub message: String,
}

/// A logger's record.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    stamp: Option<Stamp>,
    level: Option<Level>,
    module: Option<String>,
    process: Option<Process<'static>>,
    /// The message, with the record's other plain fields behind it as `key=value`.
    pub(super) message: String,
}

const MESSAGE: [&str; 4] = ["message", "msg", "event", "body"];
const LEVEL: [&str; 7] = ["levelname", "level", "severity", "log.level", "loglevel", "lvl", "severity_text"];
const TIME: [&str; 8] = ["asctime", "time", "timestamp", "ts", "@timestamp", "t", "datetime", "created"];
const MODULE: [&str; 7] = ["name", "logger", "target", "module", "logger_name", "filename", "caller"];
const NOT_MESSAGE: [&str; 12] = [
    "processName",
    "process",
    "pid",
    "thread",
    "threadName",
    "lineno",
    "pathname",
    "funcName",
    "span",
    "spans",
    "stacktrace",
    "line_number",
];

// === impl Record ===

impl Record {
    /// Adds what the record says to a prefix.
    pub(super) fn fill(&mut self, prefix: &mut Prefix<'_>) {
        prefix.spoken = true;
        if self.stamp.is_some() {
            prefix.engine = self.stamp;
        }
        if self.level.is_some() {
            prefix.level = self.level;
        }
        if self.module.is_some() {
            prefix.module = self.module.take().map(Cow::Owned);
        }
        if self.process.is_some() {
            prefix.process = self.process.take();
        }
    }
}

/// Reads an object; a line that was cut inside its last text is read as far as it goes.
pub(super) fn open(text: &str) -> Option<JsonLine> {
    if !text.starts_with('{') {
        return None;
    }
    let text = text.trim_end();
    if text.len() < 2 {
        return None;
    }
    let object = match serde_json::from_str::<Map<String, Value>>(text) {
        Ok(object) => object,
        Err(error) if error.is_eof() => serde_json::from_str(&format!("{text}\"}}")).ok()?,
        Err(_) => return None,
    };
    Some(classify(object))
}

/// The error that an engine's answer carries, if the object is one: an abort is told in its finish reason or its error,
/// which stands in an object of its own, or flat in the answer.
pub fn error_of_answer(object: &Map<String, Value>) -> Option<&str> {
    const PLACES: [&[&str]; 7] = [
        &["meta_info", "finish_reason", "message"],
        &["finish_reason", "message"],
        &["error", "message"],
        &["detail", "message"],
        &["message"],
        &["error"],
        &["detail"],
    ];
    PLACES.iter().find_map(|place| {
        let (last, above) = place.split_last()?;
        let holder = above.iter().try_fold(object, |held, key| held.get(*key)?.as_object())?;
        holder.get(*last)?.as_str()
    })
}

fn classify(mut object: Map<String, Value>) -> JsonLine {
    if let Some(Value::String(_)) = object.get("log")
        && ["stream", "time", "kubernetes", "attrs", "container_name"]
            .iter()
            .any(|key| object.contains_key(*key))
    {
        return JsonLine::Wrapper(docker(&mut object));
    }
    if object.contains_key("MESSAGE") {
        return JsonLine::Wrapper(journald(&mut object));
    }
    match record(&object) {
        Some(record) => JsonLine::Record(record),
        None => match shipped(&object) {
            Some(wrapper) => JsonLine::Wrapper(wrapper),
            None => JsonLine::Object(object),
        },
    }
}

/// Under which names shippers and stores of logs keep a line: fluent-bit, Google Cloud Logging, Loki.
const SHIPPED_AS: [&str; 4] = ["message", "log", "textPayload", "line"];
/// Objects in which a line stands one level deeper: Google Cloud Logging, Elasticsearch, Datadog.
const SHIPPED_IN: [&str; 3] = ["jsonPayload", "_source", "content"];

/// What a shipper of logs makes of a line: the line and when it took it, and nothing of what a logger knows.
fn shipped(object: &Map<String, Value>) -> Option<Wrapper> {
    let inner = SHIPPED_IN.iter().find_map(|key| object.get(*key)?.as_object());
    let holders = || [Some(object), inner].into_iter().flatten();
    let message =
        holders().find_map(|holder| SHIPPED_AS.iter().find_map(|key| holder.get(*key)?.as_str()))?;
    let time = |holder| first(holder, &TIME).or_else(|| first(holder, &["date"]));
    let (_, time) = holders().find_map(time)?;
    Some(Wrapper {
        stamp: Some(read_time(time)?),
        level: None,
        is_stderr: object.get("stream").and_then(Value::as_str) == Some("stderr"),
        partial: false,
        message: message.trim_end_matches(['\n', '\r']).to_owned(),
    })
}

fn docker(object: &mut Map<String, Value>) -> Wrapper {
    let mut message = match object.remove("log") {
        Some(Value::String(log)) => log,
        _ => String::new(),
    };
    let partial = !message.ends_with('\n') && !message.is_empty();
    while message.ends_with(['\n', '\r']) {
        message.pop();
    }
    Wrapper {
        stamp: object.get("time").and_then(read_time),
        level: None,
        is_stderr: object.get("stream").and_then(Value::as_str) == Some("stderr"),
        partial,
        message,
    }
}

fn journald(object: &mut Map<String, Value>) -> Wrapper {
    let message = match object.remove("MESSAGE") {
        Some(Value::String(text)) => text,
        // journald exports what is not UTF-8 or holds control characters as an array of bytes.
        Some(Value::Array(bytes)) => {
            let bytes: Vec<u8> = bytes
                .iter()
                .filter_map(|byte| byte.as_u64().and_then(|byte| u8::try_from(byte).ok()))
                .collect();
            String::from_utf8_lossy(&bytes).into_owned()
        }
        _ => String::new(),
    };
    let micros = ["_SOURCE_REALTIME_TIMESTAMP", "__REALTIME_TIMESTAMP"]
        .iter()
        .find_map(|key| object.get(*key))
        .and_then(|value| {
            value.as_str().and_then(|text| text.parse::<f64>().ok()).or_else(|| value.as_f64())
        });
    let priority = object
        .get("PRIORITY")
        .and_then(|value| value.as_str().and_then(|p| p.parse().ok()).or_else(|| as_u32(value)));
    Wrapper {
        stamp: micros.and_then(stamp::epoch),
        level: priority.map(Level::from_priority),
        is_stderr: false,
        partial: false,
        message,
    }
}

fn as_u32(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok())
}

/// Whether bytes may hold a record or a wrapper: one of the keys under which they keep what was said stands in them.
pub(in crate::logs) fn may_be_record(bytes: &[u8]) -> bool {
    static KEYS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
        let keys = MESSAGE.iter().chain(&["log", "MESSAGE"]).map(|key| format!("\"{key}\""));
        AhoCorasick::new(keys).ok()
    });
    KEYS.as_ref().is_none_or(|keys| keys.is_match(bytes))
}

fn first<'a>(object: &'a Map<String, Value>, keys: &[&'static str]) -> Option<(&'static str, &'a Value)> {
    keys.iter().find_map(|key| object.get(*key).map(|value| (*key, value)))
}

/// A record has a message and at least one thing that only loggers add.
fn record(object: &Map<String, Value>) -> Option<Record> {
    // tracing-subscriber puts the message among its fields.
    let fields = object.get("fields").and_then(Value::as_object);
    let message_of = |map: &Map<String, Value>| {
        first(map, &MESSAGE).and_then(|(_, value)| value.as_str().map(str::to_owned))
    };
    let message = message_of(object).or_else(|| fields.and_then(message_of))?;
    let level = first(object, &LEVEL).and_then(|(_, value)| match value {
        Value::String(word) => Level::from_word(word.trim()),
        Value::Number(_) => value.as_i64().and_then(numeric_level),
        _ => None,
    });
    let stamp = first(object, &TIME).and_then(|(_, value)| read_time(value));
    let module = first(object, &MODULE).and_then(|(_, value)| value.as_str()).map(str::to_owned);
    if level.is_none() && (stamp.is_none() || module.is_none()) {
        return None;
    }
    let pid = ["process", "pid"].iter().find_map(|key| object.get(*key)).and_then(as_u32);
    let name = object.get("processName").and_then(Value::as_str).map(str::to_owned);
    let process = match (name, pid) {
        (None, None) => None,
        (name, pid) => Some(Process { name: Cow::Owned(name.unwrap_or_default()), pid }),
    };
    let mut message = message;
    for (key, value) in fields.into_iter().flatten().chain(object.iter()) {
        append_field(&mut message, key, value);
    }
    if let Some(trace) = object.get("exc_info").and_then(Value::as_str) {
        message.push('\n');
        message.push_str(trace);
    }
    Some(Record { stamp, level, module, process, message })
}

fn append_field(message: &mut String, key: &str, value: &Value) {
    use std::fmt::Write as _;
    let known =
        MESSAGE.iter().chain(&LEVEL).chain(&TIME).chain(&MODULE).chain(&NOT_MESSAGE).any(|name| *name == key);
    if known || key == "exc_info" {
        return;
    }
    let _ = match value {
        Value::String(text) if !text.contains('\n') => write!(message, " {key}={text}"),
        Value::Number(number) => write!(message, " {key}={number}"),
        Value::Bool(flag) => write!(message, " {key}={flag}"),
        _ => Ok(()),
    };
}

/// Levels of Python (10 to 50) and of bunyan and pino (10 to 60, info 30).
fn numeric_level(level: i64) -> Option<Level> {
    match level {
        10 => Some(Level::Debug),
        20 | 30 => Some(Level::Info),
        40 => Some(Level::Warning),
        50 => Some(Level::Error),
        60 => Some(Level::Critical),
        _ => None,
    }
}

fn read_time(value: &Value) -> Option<Stamp> {
    match value {
        Value::String(text) => stamp::dated(text)
            .map(|(stamp, _)| stamp)
            .or_else(|| text.parse::<f64>().ok().and_then(stamp::epoch)),
        Value::Number(number) => number.as_f64().filter(|seconds| *seconds > 1e8).and_then(stamp::epoch),
        _ => None,
    }
}
