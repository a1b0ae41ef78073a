//! What is neither prefix nor message: colour codes (with their escape byte or without) and progress bars that end
//! without a line end, so that the next line hangs on to them.

use std::borrow::Cow;

/// A text without colours and without carriage returns at its end.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    match without_colours(text) {
        Cow::Borrowed(text) => Cow::Borrowed(text.trim_end_matches('\r')),
        Cow::Owned(mut text) => {
            text.truncate(text.trim_end_matches('\r').len());
            Cow::Owned(text)
        }
    }
}

/// Drops `ESC [ … letter`, and `[2m` and the like where the escape byte was lost.
pub fn without_colours(text: &str) -> Cow<'_, str> {
    let Some(escaped) = is_coloured(text.as_bytes()) else { return Cow::Borrowed(text) };
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(if escaped { '\u{1b}' } else { '[' }) {
        kept.push_str(&rest[..at]);
        let code = &rest[at..];
        let length = if escaped { escape_length(code) } else { lost_length(code) };
        match length {
            Some(length) => rest = &code[length..],
            None => {
                let first = code.chars().next().map_or(1, char::len_utf8);
                if !escaped {
                    kept.push_str(&code[..first]);
                }
                rest = &code[first..];
            }
        }
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

/// Whether the codes of a coloured text have their escape bytes; `None` for a text without colours. One pass, since
/// every line that matters is looked at.
fn is_coloured(text: &[u8]) -> Option<bool> {
    let mut lost = false;
    for at in memchr::memchr2_iter(0x1b, b'[', text) {
        if text[at] == 0x1b {
            return Some(true);
        }
        // Only text that also resets its colour is taken for coloured text.
        lost |= text[at + 1..].starts_with(b"0m");
    }
    lost.then_some(false)
}

fn escape_length(code: &str) -> Option<usize> {
    let body = code.strip_prefix("\u{1b}[")?;
    let parameters = body.bytes().take(32).take_while(|b| b.is_ascii_digit() || b";?:".contains(b)).count();
    body.as_bytes().get(parameters).filter(|b| b.is_ascii_alphabetic())?;
    Some(2 + parameters + 1)
}

fn lost_length(code: &str) -> Option<usize> {
    let body = code.strip_prefix('[')?;
    let parameters = body.bytes().take(12).take_while(|b| b.is_ascii_digit() || *b == b';').count();
    (parameters > 0 && body.as_bytes().get(parameters) == Some(&b'm')).then_some(2 + parameters)
}

/// What stands behind a carriage return or the end of a progress bar; `None` where a text has neither.
pub(super) fn behind_progress(text: &str) -> Option<&str> {
    memchr::memchr2(b'\r', b'%', text.as_bytes())?;
    let last = memchr::memrchr(b'\r', text.as_bytes()).map_or(text, |at| &text[at + 1..]);
    let behind = behind_bar(last).unwrap_or(last);
    (behind.len() < text.len()).then_some(behind)
}

fn behind_bar(text: &str) -> Option<&str> {
    // tqdm shows a percentage and ends with its rate in brackets.
    memchr::memchr(b'%', text.as_bytes())?;
    ["it/s]", "s/it]", "B/s]", "?it/s]"].iter().find_map(|end| {
        let at = text.rfind(end)?;
        let behind = text[at + end.len()..].trim_start();
        let before = &text[..at];
        (!behind.is_empty() && before.contains('%') && before.contains('[')).then_some(behind)
    })
}
