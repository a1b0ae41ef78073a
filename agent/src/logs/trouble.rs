//! Warnings and worse of KV modules that no template knows: they make drift of the packs visible.
//!
//! Privacy: only level, module and a hash of the message are kept. Words that hold a digit are dropped before
//! hashing, so that ids and counts do not make one message many.

use super::prefix::{Level, Prefix};
use kvprov_model::id::hex;
use kvprov_model::observation::{Body, Trouble};
use sha2::{Digest, Sha256};

/// Different troubles told of one source.
pub(super) const MAX_DISTINCT: usize = 200;

/// Whether a message goes on with what was said before: a traceback, its carets, its exception chain.
pub(super) fn is_continuation(message: &str) -> bool {
    const OPENINGS: [&str; 5] = [
        "Traceback (most recent",
        "During handling of the above",
        "The above exception",
        "^",
        "Exception ignored in",
    ];
    message.is_empty()
        || message.starts_with([' ', '\t', ')', '}', ']'])
        || OPENINGS.iter().any(|opening| message.starts_with(opening))
}

/// The trouble and the words for it.
pub(super) fn trouble(prefix: &Prefix<'_>, level: Level, message: &str) -> (Body, String) {
    let module = prefix.module.as_deref().map(plain_name).unwrap_or_default();
    let message_hash = message_hash(message);
    let says = format!("{} of {module} that no signature knows (message {message_hash})", level.as_str());
    let body = Trouble {
        level: Some(level.as_str().to_owned()),
        module: Some(module),
        message_hash: Some(message_hash),
        times: Some(1),
    };
    (Body::Trouble(body), says)
}

/// A name as it may be kept.
pub(super) fn plain_name_of(name: &str) -> String {
    name.chars().filter(|c| c.is_ascii_alphanumeric() || "._:/<>@#+-".contains(*c)).take(120).collect()
}

/// A name without anything that a name of a logger or file does not hold.
fn plain_name(module: &str) -> String {
    module.chars().filter(|c| c.is_ascii_alphanumeric() || "._:/-".contains(*c)).take(120).collect()
}

/// A hash in place of the message that it was made of.
pub(super) fn hashed(message: &str) -> String {
    format!("{HASHED}{})", message_hash(message))
}

/// Stands before a hash that a line holds in place of its message.
const HASHED: &str = "(message ";

fn hash_again(message: &str) -> Option<&str> {
    let hash = message.strip_prefix(HASHED)?.strip_suffix(')')?;
    (hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(hash)
}

fn message_hash(message: &str) -> String {
    if let Some(hash) = hash_again(message) {
        return hash.to_owned();
    }
    let mut hash = Sha256::new();
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    for word in message.split_inclusive(|c: char| !is_word(c)) {
        if !word.contains(|c: char| c.is_ascii_digit()) {
            hash.update(word.as_bytes());
        }
    }
    hex(&hash.finalize()[..8])
}
