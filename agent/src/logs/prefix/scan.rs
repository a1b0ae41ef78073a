//! The few steps from which every grammar of this folder is made. All take text and give what is left of it.

/// Takes a literal.
pub(super) fn eat<'a>(text: &'a str, literal: &str) -> Option<&'a str> {
    text.strip_prefix(literal)
}

/// Takes exactly `digits` digits, at most nine, as a number.
pub(super) fn number(text: &str, digits: usize) -> Option<(u32, &str)> {
    let mut number = 0;
    for byte in text.as_bytes().get(..digits)? {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u32::from(byte - b'0');
    }
    Some((number, &text[digits..]))
}

/// Takes every byte for which `belongs` is true; at least one, at most `limit`. `belongs` must hold for ASCII only.
pub(super) fn run(text: &str, limit: usize, belongs: impl Fn(u8) -> bool) -> Option<(&str, &str)> {
    let length = text.bytes().take(limit + 1).take_while(|byte| byte.is_ascii() && belongs(*byte)).count();
    (length > 0 && length <= limit).then(|| text.split_at(length))
}

/// Drops blanks.
pub(super) fn blanks(text: &str) -> &str {
    text.trim_start_matches(' ')
}

/// Drops one blank where there is one.
pub(super) fn one_blank(text: &str) -> &str {
    text.strip_prefix(' ').unwrap_or(text)
}

/// Takes at least one blank and all that follow it.
pub(super) fn some_blanks(text: &str) -> Option<&str> {
    text.strip_prefix([' ', '\t']).map(|rest| rest.trim_start_matches([' ', '\t']))
}

/// `path/to/file.py:123`: the path, the line and what follows. A path has no blanks, quotes or brackets.
pub(super) fn file_line(text: &str) -> Option<(&str, u32, &str)> {
    let (path, rest) = run(text, 256, |b| {
        b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/' | b'<' | b'>' | b'+')
    })?;
    let rest = eat(rest, ":")?;
    let (line, rest) = run(rest, 7, |b| b.is_ascii_digit())?;
    // A host and a port look the same, but a file has an ending that begins with a letter.
    let ending = path.rsplit_once('.').map(|(_, ending)| ending).unwrap_or_default();
    let is_file = ending.len() <= 4 && ending.starts_with(|c: char| c.is_ascii_alphabetic());
    if !is_file {
        return None;
    }
    Some((path, line.parse().ok()?, rest))
}

/// A dotted or `::` name of a logger or module.
pub(super) fn module_name(text: &str) -> Option<(&str, &str)> {
    let (name, rest) =
        run(text, 200, |b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-'))?;
    let trimmed = name.trim_end_matches(':');
    let rest = if trimmed.len() < name.len() { &text[trimmed.len()..] } else { rest };
    (!trimmed.is_empty() && !trimmed.starts_with(|c: char| c.is_ascii_digit())).then_some((trimmed, rest))
}
