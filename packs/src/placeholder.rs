//! Types of placeholders: how far each may reach in a message, and what is kept of it.
//!
//! Invariant: only what a type allows is kept. `text` keeps nothing; lists, dicts and settings keep bounded words.
//! Input is the message of a log line, possibly joined of several lines with `\n` between them.

use crate::pyrepr::{self, ReprValue, Seen, unwrapped};
use kvprov_model::content::{ContentChain, FleetKey, LINK};
use kvprov_model::id::hex;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Longest id, word or path that is kept, in bytes.
pub(crate) const MAX_ID: usize = 256;
/// Longest path that is kept, in bytes.
const MAX_PATH: usize = 1024;
/// Most entries of a list that are kept.
const MAX_LIST: usize = 4096;

/// The type of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlaceholderType {
    Id,
    Word,
    Int,
    Float,
    Size,
    Ids,
    Path,
    PyDict,
    Settings,
    TokenDigest,
    Digest,
    Text,
}

/// What was kept of a placeholder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Captured {
    /// An id, a word or a path.
    Text(String),
    /// A whole number; bytes for a size.
    Int(i64),
    /// A decimal number.
    Float(f64),
    /// A list of ids.
    List(Vec<String>),
    /// Values by dotted path.
    Map(BTreeMap<String, ReprValue>),
    /// Digests of token ids: of all of them and of the first alone. The ids themselves are gone.
    Tokens { all: String, first: String },
}

/// Where a placeholder may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Anywhere up to here, longest first; `soft` is the end when a hard wrap may be crossed.
    Shrinks { end: usize, soft: usize },
    /// Anywhere, shortest first.
    Grows,
    /// Exactly here.
    Fixed { end: usize, cut: bool },
}

impl PlaceholderType {
    /// The names of all types.
    pub(crate) const NAMES: &'static str =
        "id, word, int, float, size, ids, path, pydict, settings, token_digest, digest, text";

    /// Reads the name of a type.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "id" => Self::Id,
            "word" => Self::Word,
            "int" => Self::Int,
            "float" => Self::Float,
            "size" => Self::Size,
            "ids" => Self::Ids,
            "path" => Self::Path,
            "pydict" => Self::PyDict,
            "settings" => Self::Settings,
            "token_digest" => Self::TokenDigest,
            "digest" => Self::Digest,
            "text" => Self::Text,
            _ => return None,
        })
    }

    /// How far a placeholder that begins at `from` may reach; `None` when none begins there. `wraps`: hard wraps
    /// inside are allowed.
    pub(crate) fn extent(self, message: &str, from: usize, wraps: bool) -> Option<Extent> {
        let bytes = message.as_bytes();
        match self {
            Self::Id => run(bytes, from, wraps, |byte| !byte.is_ascii_whitespace()),
            Self::Path => path_extent(bytes, from, wraps),
            Self::Word => run(bytes, from, wraps, is_word_byte),
            Self::Int => fixed(int_end(bytes, from)?),
            Self::Float => fixed(float_end(bytes, from)?),
            Self::Size => fixed(size_end(bytes, from)?),
            Self::Ids => ids_extent(message, from),
            Self::PyDict => {
                if bytes.get(from) != Some(&b'{') {
                    return None;
                }
                repr_extent(message, from)
            }
            Self::Settings => {
                if bytes.get(from) == Some(&b'{') {
                    return repr_extent(message, from);
                }
                let end = pyrepr::read_pairs(message.get(from..)?, &mut |_, _| {}).at;
                (end > 0).then_some(Extent::Fixed { end: from + end, cut: false })
            }
            Self::TokenDigest => run(bytes, from, false, |byte| {
                byte.is_ascii_digit()
                    || byte.is_ascii_whitespace()
                    || matches!(byte, b',' | b'-' | b'[' | b']' | b'(' | b')')
            }),
            Self::Digest | Self::Text => Some(Extent::Grows),
        }
    }

    /// What is kept of the text that a placeholder covers, of a dict or of settings the wanted paths; `None` when it is
    /// nothing of this type.
    pub(crate) fn capture(
        self,
        covered: &str,
        key: &FleetKey,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Option<Captured> {
        match self {
            Self::Id => clean_id(covered).map(Captured::Text),
            Self::Word => {
                let word = unwrapped(covered);
                let word = word.trim_end_matches(['.', ':']);
                (!word.is_empty() && word.len() <= MAX_ID).then(|| Captured::Text(word.to_owned()))
            }
            Self::Path => {
                let path = unwrapped(covered);
                let path =
                    path.trim_matches(['\'', '"', '`', ',', ';', ')', ']', '}', '>', '(', '[', '{', '<']);
                let path = path.trim_end_matches(['.', ':']);
                (!path.is_empty() && path.len() <= MAX_PATH).then(|| Captured::Text(path.to_owned()))
            }
            Self::Int => without_commas(covered).parse().ok().map(Captured::Int),
            Self::Float => finite(&without_commas(covered)).map(Captured::Float),
            Self::Size => bytes_of(covered).map(Captured::Int),
            Self::Ids => Some(Captured::List(list_of(covered))),
            Self::PyDict | Self::Settings => {
                Some(Captured::Map(map_of(covered, wanted, self == Self::Settings)))
            }
            Self::TokenDigest => tokens_again(covered).or_else(|| tokens_of(covered, key)),
            Self::Digest if digest_again(covered).is_some() => {
                digest_again(covered).map(|digest| Captured::Text(digest.to_owned()))
            }
            Self::Digest => Some(Captured::Text(hex(&Sha256::digest(unwrapped(covered).as_bytes())[..8]))),
            Self::Text => None,
        }
    }
}

/// A digest in place of the text that it was made of.
pub(crate) fn digest_text(digest: &str) -> String {
    format!("{DIGEST}{digest}")
}

/// Stands before a digest that a message holds in place of text.
const DIGEST: &str = "digest:";

fn digest_again(covered: &str) -> Option<&str> {
    let digest = covered.strip_prefix(DIGEST)?;
    (digest.len() == 16 && digest.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

/// Digests in place of the token ids that they were made of, in the letters that token ids are printed in: their bytes
/// behind a sign that no list of token ids has.
pub(crate) fn tokens_text(all: &str, first: &str) -> String {
    let bytes = |digest: &str| {
        let pairs = digest.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
        let numbers: Vec<String> =
            pairs.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).map(|byte| byte.to_string()).collect();
        numbers.join(",")
    };
    format!("[-({})({})]", bytes(all), bytes(first))
}

fn tokens_again(covered: &str) -> Option<Captured> {
    let (all, first) = covered.strip_prefix("[-(")?.strip_suffix(")]")?.split_once(")(")?;
    let digest = |numbers: &str| -> Option<String> {
        let bytes: Option<Vec<u8>> = numbers.split(',').map(|number| number.parse().ok()).collect();
        bytes.map(|bytes| hex(&bytes))
    };
    Some(Captured::Tokens { all: digest(all)?, first: digest(first)? })
}

/// Digests of the integers in a text; `None` when there is none.
fn tokens_of(covered: &str, key: &FleetKey) -> Option<Captured> {
    let numbers = covered.split(|c: char| !c.is_ascii_digit()).filter(|run| !run.is_empty());
    let tokens: Vec<u32> = numbers.filter_map(|run| run.parse().ok()).collect();
    let first = *tokens.first()?;
    Some(Captured::Tokens { all: digest_of(&tokens, key), first: digest_of(&[first], key) })
}

/// A digest of any number of tokens under the fleet key: the chain over the tokens, their number and zeros up to the
/// end of a link.
fn digest_of(tokens: &[u32], key: &FleetKey) -> String {
    let mut chain = ContentChain::new(key);
    chain.extend(tokens.iter().copied());
    chain.extend([u32::try_from(tokens.len()).unwrap_or(u32::MAX)]);
    let filled = (tokens.len() + 1) % LINK;
    chain.extend(std::iter::repeat_n(0, (LINK - filled) % LINK));
    chain.current_hex().unwrap_or_default()
}

fn fixed(end: usize) -> Option<Extent> {
    Some(Extent::Fixed { end, cut: false })
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b':' | b'@')
}

/// A run of bytes of one class; `soft` goes on over hard wraps.
fn run(bytes: &[u8], from: usize, wraps: bool, is_part: impl Fn(u8) -> bool) -> Option<Extent> {
    let run_end = |mut at: usize| {
        while bytes.get(at).is_some_and(|byte| is_part(*byte)) {
            at += 1;
        }
        at
    };
    let end = run_end(from);
    if end == from {
        return None;
    }
    let mut soft = end;
    // An id is wrapped at most a few times; more is not an id.
    for _ in 0..4 {
        if !wraps || bytes.get(soft) != Some(&b'\n') {
            break;
        }
        let next = skip_blanks(bytes, soft);
        let next_end = run_end(next);
        if next_end == next {
            break;
        }
        soft = next_end;
    }
    Some(Extent::Shrinks { end, soft })
}

fn path_extent(bytes: &[u8], from: usize, wraps: bool) -> Option<Extent> {
    let quote = *bytes.get(from)?;
    if matches!(quote, b'\'' | b'"') {
        let inside = &bytes[from + 1..];
        let length = memchr::memchr2(quote, b'\n', &inside[..inside.len().min(MAX_PATH)])?;
        if inside[length] == quote {
            return fixed(from + length + 2);
        }
    }
    run(bytes, from, wraps, |byte| !byte.is_ascii_whitespace())
}

pub(crate) fn skip_blanks(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_whitespace) {
        at += 1;
    }
    at
}

fn digits_end(bytes: &[u8], mut at: usize) -> usize {
    while bytes.get(at).is_some_and(u8::is_ascii_digit) {
        at += 1;
    }
    at
}

fn int_end(bytes: &[u8], from: usize) -> Option<usize> {
    let begin = if matches!(bytes.get(from), Some(b'+' | b'-')) { from + 1 } else { from };
    let mut end = digits_end(bytes, begin);
    if end == begin {
        return None;
    }
    // `1,024`: a comma belongs to the number only before exactly three digits.
    while bytes.get(end) == Some(&b',') && digits_end(bytes, end + 1) == end + 4 {
        end += 4;
    }
    Some(end)
}

fn float_end(bytes: &[u8], from: usize) -> Option<usize> {
    for word in [&b"inf"[..], b"nan"] {
        if bytes.get(from..).is_some_and(|rest| rest.starts_with(word)) {
            return Some(from + word.len());
        }
    }
    let mut end = match int_end(bytes, from) {
        Some(end) => end,
        None if bytes.get(from) == Some(&b'.') => from,
        None => return None,
    };
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits_end(bytes, end + 1);
        if fraction > end + 1 {
            end = fraction;
        }
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits_end(bytes, end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    (end > from).then_some(end)
}

fn size_end(bytes: &[u8], from: usize) -> Option<usize> {
    let number = float_end(bytes, from)?;
    let unit = skip_blanks(bytes, number);
    let mut end = unit;
    while end - unit < 6 && bytes.get(end).is_some_and(u8::is_ascii_alphabetic) {
        end += 1;
    }
    let is_unit = std::str::from_utf8(&bytes[unit..end]).is_ok_and(|word| unit_factor(word).is_some());
    Some(if is_unit && end > unit { end } else { number })
}

/// Bytes of one unit. Engines print `GB` for 2^30: Mooncake, LMCache, SGLang and vLLM all divide by 1024.
fn unit_factor(unit: &str) -> Option<f64> {
    let lower = unit.to_ascii_lowercase();
    let power = match lower.as_str() {
        "" | "b" | "byte" | "bytes" => 0,
        "k" | "kb" | "kib" => 1,
        "m" | "mb" | "mib" => 2,
        "g" | "gb" | "gib" => 3,
        "t" | "tb" | "tib" => 4,
        "p" | "pb" | "pib" => 5,
        _ => return None,
    };
    Some(1024_f64.powi(power))
}

fn bytes_of(covered: &str) -> Option<i64> {
    let end = float_end(covered.as_bytes(), 0)?;
    let number = finite(&without_commas(&covered[..end]))?;
    let bytes = number * unit_factor(covered[end..].trim())?;
    (bytes.is_finite() && bytes.abs() < 9.2e18).then(|| bytes.round() as i64)
}

/// `1,024` as `1024`.
fn without_commas(number: &str) -> Cow<'_, str> {
    if number.contains(',') { Cow::Owned(number.replace(',', "")) } else { Cow::Borrowed(number) }
}

fn finite(text: &str) -> Option<f64> {
    text.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// A whole repr that begins at `from`.
fn repr_extent(message: &str, from: usize) -> Option<Extent> {
    let end = pyrepr::read_value(message.get(from..)?, &mut |_, _| {});
    Some(Extent::Fixed { end: from + end.at, cut: end.cut })
}

/// A list with brackets, or ids with commas between them.
fn ids_extent(message: &str, from: usize) -> Option<Extent> {
    let rest = message.get(from..)?;
    if begins_a_collection(rest) {
        return repr_extent(message, from);
    }
    let bytes = message.as_bytes();
    let mut at = from;
    loop {
        let Some(Extent::Shrinks { end, .. }) = run(bytes, at, false, |byte| !byte.is_ascii_whitespace())
        else {
            return (at > from).then_some(Extent::Shrinks { end: at, soft: at });
        };
        let next = skip_blanks(bytes, end);
        if bytes[end - 1] == b',' && next > end && next < bytes.len() {
            at = next;
        } else {
            return Some(Extent::Shrinks { end, soft: end });
        }
    }
}

fn begins_a_collection(text: &str) -> bool {
    text.starts_with(['[', '{', '('])
        || ["set(", "frozenset(", "deque(", "dict_keys(", "list(", "tuple("]
            .iter()
            .any(|word| text.starts_with(word))
}

fn list_of(covered: &str) -> Vec<String> {
    let mut ids = Vec::new();
    if begins_a_collection(covered) {
        pyrepr::read_value(covered, &mut |path, value| {
            if path.is_empty()
                && let Seen::List(items) = value
            {
                ids.extend(items.iter().take(MAX_LIST).filter_map(|item| clean_id(item)));
            }
        });
    } else {
        ids.extend(covered.split(',').take(MAX_LIST).filter_map(clean_id));
    }
    ids
}

/// The values of wanted paths; of equal paths the first. With `opens`, text that is a dict itself is read like one: an
/// argument as it was given.
fn map_of(covered: &str, wanted: &dyn Fn(&str) -> bool, opens: bool) -> BTreeMap<String, ReprValue> {
    let mut map = BTreeMap::new();
    let mut keep = |path: &str, value: Seen<'_>| {
        if wanted(path) {
            map.entry(path.to_owned()).or_insert_with(|| value.into_kept());
        } else if let Seen::Scalar(text) = value
            && opens
            && text.starts_with('{')
        {
            pyrepr::read_value(&text, &mut |inner, value| {
                let path = format!("{path}.{inner}");
                if wanted(&path) {
                    map.entry(path).or_insert_with(|| value.into_kept());
                }
            });
        }
    };
    if covered.starts_with('{') {
        pyrepr::read_value(covered, &mut keep);
    } else {
        pyrepr::read_pairs(covered, &mut keep);
    }
    map
}

/// An id without the quotes, commas and brackets at its ends. What only stands where an id would be is none.
pub(crate) fn clean_id(text: &str) -> Option<String> {
    let joined = unwrapped(text);
    let mut id = joined.trim_matches(|c: char| c.is_ascii_whitespace() || "'\"`,;()[]{}<>".contains(c));
    id = id.trim_end_matches(['.', ':']).trim_end_matches(['\'', '"', ')', ']']);
    if id.contains("...") {
        // A shortened id is an id still: logs are redacted that way.
        id = id.trim_end_matches('.');
    }
    let stands_for_none = matches!(id, "" | "None" | "null" | "N/A" | "unknown" | "chatcmpl" | "cmpl");
    let is_one_run = !id.bytes().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control());
    (!stands_for_none && id.len() <= MAX_ID && is_one_run).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;

    #[test]
    fn sizes_are_bytes_in_powers_of_1024() {
        for (text, bytes) in [("10.04 GB", 10_780_367_913), ("0 B", 0), ("64 MiB", 64 << 20), ("1,024", 1024)]
        {
            assert_eq!(
                PlaceholderType::Size.capture(text, &FleetKey::from_secret(b"test"), &|_| true),
                Some(Captured::Int(bytes)),
                "{text}"
            );
        }
    }

    #[test]
    fn a_setting_that_was_given_as_text_of_a_dict_is_read_like_one() {
        let text = r#"tp_size=8, extra='{"master": "192.0.2.44:50051", "secret": "s", "n": 7}', x='{cut', y='{"tp_size": 1}'"#;
        let wanted = |path: &str| matches!(path, "tp_size" | "extra.master" | "extra.n" | "x");
        let read = |kind: PlaceholderType| kind.capture(text, &FleetKey::from_secret(b"test"), &wanted);
        let map = |pairs: &[(&str, &str)]| {
            let kept =
                |(path, value): &(&str, &str)| ((*path).to_owned(), ReprValue::Scalar((*value).to_owned()));
            Some(Captured::Map(pairs.iter().map(kept).collect()))
        };
        let opened =
            [("tp_size", "8"), ("extra.master", "192.0.2.44:50051"), ("extra.n", "7"), ("x", "{cut")];
        assert_eq!(read(PlaceholderType::Settings), map(&opened));
        assert_eq!(read(PlaceholderType::PyDict), map(&[("tp_size", "8"), ("x", "{cut")]));
    }

    #[test]
    fn lists_of_every_python_kind_are_ids() {
        let ids = Some(Captured::List(vec!["a-1".to_owned(), "b".to_owned()]));
        for text in
            ["['a-1', 'b']", "{'a-1', 'b'}", "('a-1', \"b\")", "frozenset({'a-1', 'b'})", "a-1, b", "a-1,b"]
        {
            assert_eq!(
                PlaceholderType::Ids.capture(text, &FleetKey::from_secret(b"test"), &|_| true),
                ids,
                "{text}"
            );
        }
        assert_eq!(
            PlaceholderType::Ids.capture("set()", &FleetKey::from_secret(b"test"), &|_| true),
            Some(Captured::List(Vec::new()))
        );
    }

    #[test]
    fn an_id_is_freed_of_what_surrounds_it() {
        assert_eq!(clean_id("'cmpl-1',").as_deref(), Some("cmpl-1"));
        assert_eq!(clean_id("cmpl-1.").as_deref(), Some("cmpl-1"));
        assert_eq!(clean_id("ab\n  cd").as_deref(), Some("abcd"));
        for none in ["None", "''", "chatcmpl", "", &"x".repeat(300)] {
            assert_eq!(clean_id(none), None, "{none}");
        }
    }

    #[test]
    fn numbers_end_where_they_end() {
        assert_eq!(int_end(b"1,024,5", 0), Some(5));
        assert_eq!(int_end(b"-3.", 0), Some(2));
        assert_eq!(float_end(b"3.", 0), Some(1));
        assert_eq!(float_end(b"1.5e-3s", 0), Some(6));
        assert_eq!(float_end(b"x", 0), None);
    }
}
