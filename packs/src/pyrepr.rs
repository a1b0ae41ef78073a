//! A tolerant reader of Python reprs: dicts, lists, sets, calls such as `ServerArgs(model='x', tp=2)`.
//!
//! Logs hold reprs of arbitrary objects, cut anywhere. The reader never fails: it hands each scalar and each flat
//! list with its dotted path to a sink and stops where the text ends or its bounds are reached. Values are borrowed
//! from the text until the sink keeps them: of a start-up line with hundreds of settings only a few are kept.
//!
//! Invariant: depth, number of values and length of a value are bounded; every step moves forward.

use std::borrow::Cow;

/// Deepest nesting that is followed.
const MAX_DEPTH: usize = 24;
/// Most values that one repr may hold.
const MAX_VALUES: usize = 8192;
/// Longest value that is kept, in bytes.
const MAX_VALUE_LEN: usize = 4096;

/// Takes each value with its dotted path.
pub(crate) type Sink<'s> = &'s mut dyn FnMut(&str, Seen<'_>);

/// A value as it stands in the text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen<'t> {
    /// Text, number, flag or a name, unquoted.
    Scalar(Cow<'t, str>),
    /// A list, set or tuple of scalars.
    List(Vec<Cow<'t, str>>),
}

/// A value that is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ReprValue {
    /// Text, number, flag or a name, unquoted.
    Scalar(String),
    /// A list, set or tuple of scalars.
    List(Vec<String>),
}

// === impl Seen ===

impl Seen<'_> {
    /// The same, to be kept beyond the text.
    pub(crate) fn into_kept(self) -> ReprValue {
        match self {
            Self::Scalar(text) => ReprValue::Scalar(text.into_owned()),
            Self::List(items) => ReprValue::List(items.into_iter().map(Cow::into_owned).collect()),
        }
    }
}

/// How a repr ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// Where the text after it begins.
    pub(crate) at: usize,
    /// The text ended inside.
    pub(crate) cut: bool,
}

/// Reads one value (a dict, a list, a call, a scalar) at the begin of `text`.
pub(crate) fn read_value(text: &str, sink: Sink<'_>) -> End {
    let mut reader = Reader::new(text, sink);
    let value = reader.value(0);
    reader.emit(value);
    End { at: reader.pos, cut: reader.cut }
}

/// Reads `key=value, key=value …` without brackets around, until the text ends or no further pair follows.
pub(crate) fn read_pairs(text: &str, sink: Sink<'_>) -> End {
    let mut reader = Reader::new(text, sink);
    reader.arguments(0, None);
    End { at: reader.pos, cut: false }
}

struct Reader<'t, 's> {
    text: &'t str,
    bytes: &'t [u8],
    pos: usize,
    path: String,
    values: usize,
    cut: bool,
    sink: Sink<'s>,
}

/// What was read: handed on already (`Nested`), or to be placed by the caller.
enum Read<'t> {
    Nested,
    Nothing,
    Scalar(Cow<'t, str>),
    List(Vec<Cow<'t, str>>),
}

impl<'t, 's> Reader<'t, 's> {
    fn new(text: &'t str, sink: Sink<'s>) -> Self {
        Self { text, bytes: text.as_bytes(), pos: 0, path: String::new(), values: 0, cut: false, sink }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.pos).copied()
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.pos += 1;
        }
    }

    fn emit(&mut self, value: Read<'t>) {
        let value = match value {
            Read::Scalar(text) => Seen::Scalar(text),
            Read::List(items) => Seen::List(items),
            Read::Nested | Read::Nothing => return,
        };
        (self.sink)(&self.path, value);
    }

    fn bounded(&mut self) -> bool {
        self.values += 1;
        self.values <= MAX_VALUES
    }

    fn value(&mut self, depth: usize) -> Read<'t> {
        self.blanks();
        if depth > MAX_DEPTH || !self.bounded() {
            self.pos = self.bytes.len();
            return Read::Nothing;
        }
        match self.peek() {
            None => {
                self.cut = true;
                Read::Nothing
            }
            Some(b'\'' | b'"') => self.string(),
            Some(b'{') => self.braces(depth),
            Some(b'[') => self.sequence(depth, b']'),
            Some(b'(') => self.sequence(depth, b')'),
            Some(b'<') => self.angle(),
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => self.name(depth),
            Some(_) => self.bare(),
        }
    }

    fn string(&mut self) -> Read<'t> {
        let quote = self.bytes[self.pos];
        let begin = self.pos + 1;
        let mut at = begin;
        while let Some(&byte) = self.bytes.get(at) {
            match byte {
                b'\\' => at += 2,
                _ if byte == quote => {
                    self.pos = at + 1;
                    return self.kept(begin, at);
                }
                _ => at += 1,
            }
        }
        self.pos = self.bytes.len();
        self.cut = true;
        Read::Nothing
    }

    /// The text between two places without hard wraps; escapes stay as they are printed.
    fn kept(&self, begin: usize, end: usize) -> Read<'t> {
        let raw = self.text.get(begin..end).unwrap_or_default();
        if raw.len() > MAX_VALUE_LEN {
            return Read::Nothing;
        }
        Read::Scalar(unwrapped(raw))
    }

    fn name(&mut self, depth: usize) -> Read<'t> {
        let begin = self.pos;
        while self.peek().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.')) {
            self.pos += 1;
        }
        match self.peek() {
            // A prefix of a string: b'…', u'…', f'…'.
            Some(b'\'' | b'"') if self.pos - begin <= 2 => self.string(),
            Some(b'(') => {
                let word = self.text.get(begin..self.pos).unwrap_or_default();
                if matches!(
                    word,
                    "set" | "frozenset" | "list" | "tuple" | "deque" | "dict_keys" | "dict_values"
                ) {
                    return self.collection_call(depth);
                }
                self.pos += 1;
                self.arguments(depth + 1, Some(b')'));
                Read::Nested
            }
            _ => {
                self.pos = begin;
                self.bare()
            }
        }
    }

    /// `set()`, `frozenset({…})`, `deque([…], maxlen=3)`: the first argument is the value.
    fn collection_call(&mut self, depth: usize) -> Read<'t> {
        self.pos += 1;
        self.blanks();
        let value = if self.peek() == Some(b')') { Read::List(Vec::new()) } else { self.value(depth + 1) };
        while let Some(byte) = self.peek() {
            self.pos += 1;
            if byte == b')' {
                return value;
            }
        }
        self.cut = true;
        value
    }

    /// `{'a': 1}` or `{'a', 'b'}`.
    fn braces(&mut self, depth: usize) -> Read<'t> {
        self.pos += 1;
        let mut items = Vec::new();
        let mut is_dict = false;
        while self.comes_to_item(b'}') {
            let before = self.pos;
            let item = self.value(depth + 1);
            self.blanks();
            if self.peek() == Some(b':') {
                self.pos += 1;
                is_dict = true;
                let key = if let Read::Scalar(key) = item { key } else { Cow::Borrowed("") };
                self.placed(&key, depth);
            } else if let Read::Scalar(text) = item {
                items.push(text);
            }
            self.advance_past(before);
        }
        if is_dict { Read::Nested } else { Read::List(items) }
    }

    /// Whether there is one more item before `close`; passes over commas, and over `close` at the end.
    fn comes_to_item(&mut self, close: u8) -> bool {
        loop {
            self.blanks();
            match self.peek() {
                None => {
                    self.cut = true;
                    return false;
                }
                Some(byte) if byte == close => {
                    self.pos += 1;
                    return false;
                }
                Some(b',') => self.pos += 1,
                Some(_) => return true,
            }
        }
    }

    fn sequence(&mut self, depth: usize, close: u8) -> Read<'t> {
        self.pos += 1;
        let mut items = Vec::new();
        while self.comes_to_item(close) {
            let before = self.pos;
            match self.value(depth + 1) {
                Read::Scalar(text) => items.push(text),
                Read::List(more) => items.extend(more),
                Read::Nested | Read::Nothing => {}
            }
            self.advance_past(before);
        }
        Read::List(items)
    }

    /// `name=value` pairs up to `close`; positional values are skipped.
    fn arguments(&mut self, depth: usize, close: Option<u8>) {
        loop {
            self.blanks();
            match self.peek() {
                None => {
                    self.cut = close.is_some();
                    return;
                }
                Some(byte) if Some(byte) == close => {
                    self.pos += 1;
                    return;
                }
                Some(b',') => {
                    self.pos += 1;
                    continue;
                }
                Some(_) => {}
            }
            let before = self.pos;
            if let Some(key) = self.key_of_pair() {
                self.placed(key, depth);
            } else if close.is_some() {
                let _ = self.value(depth + 1);
            } else {
                return;
            }
            self.advance_past(before);
        }
    }

    /// Reads `name=` or `'name'=`; moves only when it is one.
    fn key_of_pair(&mut self) -> Option<&'t str> {
        let end = pair_key_end(self.bytes, self.pos)?;
        let key = self.text.get(self.pos..end)?;
        self.pos = end + 1;
        Some(key)
    }

    /// Reads a value under a key and hands it on.
    fn placed(&mut self, key: &str, depth: usize) {
        let outer = self.path.len();
        if !self.path.is_empty() {
            self.path.push('.');
        }
        self.path.push_str(key);
        let value = self.value(depth + 1);
        if !key.is_empty() {
            self.emit(value);
        }
        self.path.truncate(outer);
    }

    /// `<Mode.NONE: 0>`: skipped, with what nests in it.
    fn angle(&mut self) -> Read<'t> {
        let mut open = 0_usize;
        while let Some(byte) = self.peek() {
            self.pos += 1;
            match byte {
                b'<' => open += 1,
                b'>' => {
                    open -= 1;
                    if open == 0 {
                        return Read::Nothing;
                    }
                }
                _ => {}
            }
        }
        self.cut = true;
        Read::Nothing
    }

    /// A number, a name, or anything up to a delimiter.
    fn bare(&mut self) -> Read<'t> {
        let begin = self.pos;
        while let Some(byte) = self.peek() {
            match byte {
                b',' | b']' | b'}' | b')' => break,
                b':' if self.bytes.get(self.pos + 1).is_none_or(u8::is_ascii_whitespace) => break,
                _ if byte.is_ascii_whitespace() && pair_key_end(self.bytes, self.pos + 1).is_some() => break,
                _ => self.pos += 1,
            }
        }
        if self.peek().is_none() {
            self.cut = true;
        }
        let text = self.text.get(begin..self.pos).unwrap_or_default().trim();
        if matches!(text, "" | "None") || text.len() > MAX_VALUE_LEN {
            return Read::Nothing;
        }
        Read::Scalar(unwrapped(text))
    }

    /// Moves on where nothing could be read, so that every loop ends.
    fn advance_past(&mut self, before: usize) {
        if self.pos == before {
            self.pos += 1;
            while !self.text.is_char_boundary(self.pos) {
                self.pos += 1;
            }
        }
    }
}

/// Where the name of a `name=value` pair ends, if one begins here. `==` is no pair.
fn pair_key_end(bytes: &[u8], begin: usize) -> Option<usize> {
    let first = *bytes.get(begin)?;
    if !(first.is_ascii_alphabetic() || first == b'_' || first == b'-') {
        return None;
    }
    let mut at = begin;
    while bytes.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    {
        at += 1;
        if at - begin > 128 {
            return None;
        }
    }
    (bytes.get(at) == Some(&b'=') && bytes.get(at + 1) != Some(&b'=')).then_some(at)
}

/// The text without hard wraps: a newline and the indentation after it are dropped.
pub(crate) fn unwrapped(text: &str) -> Cow<'_, str> {
    if memchr::memchr(b'\n', text.as_bytes()).is_none() {
        return Cow::Borrowed(text);
    }
    let mut joined = String::with_capacity(text.len());
    for (number, line) in text.split('\n').enumerate() {
        joined.push_str(if number == 0 { line } else { line.trim_start() });
    }
    Cow::Owned(joined)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type ReadFn = fn(&str, Sink<'_>) -> End;

    fn flat(read: ReadFn, text: &str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        read(text, &mut |path, value| {
            let shown = match value.into_kept() {
                ReprValue::Scalar(text) => text,
                ReprValue::List(items) => format!("[{}]", items.join("|")),
            };
            pairs.push((path.to_owned(), shown));
        });
        pairs
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_dict_is_flattened_with_dots() {
        let text =
            "{'a': 1, 'b': {'c': 'x, y', 'd': None}, 'e': ['p', \"q\"], 'f': {'s'}, 'g': Foo(h=True)} tail";
        let expected =
            [pair("a", "1"), pair("b.c", "x, y"), pair("e", "[p|q]"), pair("f", "[s]"), pair("g.h", "True")];
        assert_eq!(flat(read_value, text), expected);
    }

    #[test]
    fn pairs_without_brackets_are_read() {
        let text = "model='/m', spec=None, kv=KVTransferConfig(kv_connector='Nixl', extra={'k': 2}), mode=<M.N: 0>, \
                    dtype=torch.bfloat16, tp=2 pp=1";
        let expected = [
            pair("model", "/m"),
            pair("kv.kv_connector", "Nixl"),
            pair("kv.extra.k", "2"),
            pair("dtype", "torch.bfloat16"),
            pair("tp", "2"),
            pair("pp", "1"),
        ];
        assert_eq!(flat(read_pairs, text), expected);
    }

    #[test]
    fn a_cut_dict_keeps_what_is_whole() {
        let mut pairs = Vec::new();
        let end = read_value("{'a': 'x', 'b': 'cut", &mut |path, _| pairs.push(path.to_owned()));
        assert!(end.cut);
        assert_eq!(pairs, ["a"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_an_end(text in "[\\[\\](){}<>'\"=:, a-c\\\\\n1é]{0,200}") {
            let end = read_value(&text, &mut |_, _| {});
            prop_assert!(end.at <= text.len() && text.is_char_boundary(end.at));
            let end = read_pairs(&text, &mut |_, _| {});
            prop_assert!(end.at <= text.len() && text.is_char_boundary(end.at));
        }
    }
}
