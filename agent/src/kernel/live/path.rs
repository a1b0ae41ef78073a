//! Paths of system calls made absolute and readable.
//!
//! `.`, `..` and repeated slashes are taken out by their letters alone, as the process wrote them; symbolic links are
//! not followed. Bytes that are no UTF-8 become characters of a private range, one each, so that two names stay two
//! and the bytes can be had back ([`to_bytes`]). A path that holds such characters itself is not representable.

use std::fmt::Write as _;

/// A byte of 0x80 to 0xff that is no UTF-8 becomes this character and its value.
const ESCAPE: u32 = 0x10_f700;
/// Longest path that is built, in bytes: a working directory and a path of a call.
const MAX: usize = 8192;

/// Why a path is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// Longer than is looked at.
    TooLong,
    /// Holds the characters that stand for bytes.
    Escapes,
    /// The directory it starts from is not absolute (deleted, unreachable).
    Base,
}

// === impl Unusable ===

impl Unusable {
    /// The reason to count.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "path too long",
            Self::Escapes => "path with characters of the escape range",
            Self::Base => "directory of a relative path not known",
        }
    }
}

/// Joins and normalises into `out`. `base` is absolute and normal already; it is not used for an absolute path.
pub(crate) fn absolute(base: &str, path: &[u8], out: &mut String) -> Result<(), Unusable> {
    out.clear();
    if base.len() + path.len() > MAX {
        return Err(Unusable::TooLong);
    }
    if path.first() != Some(&b'/') {
        if !base.starts_with('/') {
            return Err(Unusable::Base);
        }
        out.push_str(base.trim_end_matches('/'));
    } else if is_normal(path)
        && let Ok(text) = std::str::from_utf8(path)
        && (text.is_ascii() || !text.chars().any(is_escape))
    {
        out.push_str(text);
        return Ok(());
    }
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => out.truncate(out.rfind('/').unwrap_or(0)),
            part => {
                out.push('/');
                readable(part, out)?;
            }
        }
    }
    if out.is_empty() {
        out.push('/');
    }
    Ok(())
}

/// Whether an absolute path has no parts to take out.
fn is_normal(path: &[u8]) -> bool {
    memchr::memchr_iter(b'/', path).all(|slash| match &path[slash + 1..] {
        [] => path.len() == 1,
        [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..] => false,
        _ => true,
    })
}

fn is_escape(character: char) -> bool {
    (ESCAPE + 0x80..=ESCAPE + 0xff).contains(&u32::from(character))
}

fn readable(mut bytes: &[u8], out: &mut String) -> Result<(), Unusable> {
    loop {
        let (valid, rest) = match std::str::from_utf8(bytes) {
            Ok(text) => (text, &bytes[bytes.len()..]),
            Err(error) => {
                let (valid, rest) = bytes.split_at(error.valid_up_to());
                (std::str::from_utf8(valid).unwrap_or_default(), rest)
            }
        };
        if !valid.is_ascii() && valid.chars().any(is_escape) {
            return Err(Unusable::Escapes);
        }
        out.push_str(valid);
        let Some((first, after)) = rest.split_first() else { return Ok(()) };
        if let Some(character) = char::from_u32(ESCAPE + u32::from(*first)) {
            // Writing to a string does not fail.
            let _ = out.write_char(character);
        }
        bytes = after;
    }
}

/// The bytes of a path as the system knows it.
pub fn to_bytes(path: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(path.len());
    for character in path.chars() {
        match u8::try_from(u32::from(character).wrapping_sub(ESCAPE)) {
            Ok(byte) if is_escape(character) => bytes.push(byte),
            _ => bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn made(base: &str, path: &[u8]) -> Result<String, Unusable> {
        let mut out = String::from("left over");
        absolute(base, path, &mut out).map(|()| out)
    }

    #[test]
    fn a_path_is_joined_and_its_dots_are_taken_out() {
        for (base, path, expected) in [
            ("/w", "a", "/w/a"),
            ("/", "a", "/a"),
            ("/w/x", "../a/./b//c/", "/w/a/b/c"),
            ("/w", "../../../a", "/a"),
            ("/w", "/kv/.0a.tmp", "/kv/.0a.tmp"),
            ("/w", "/kv/..x/...", "/kv/..x/..."),
            ("/w", "/kv/./a", "/kv/a"),
            ("/w", "/kv/a/", "/kv/a"),
            ("/w", "/kv/a/.", "/kv/a"),
            ("/w", "/..", "/"),
            ("/w", "/", "/"),
            ("/w", "/kv/a\nb", "/kv/a\nb"),
        ] {
            assert_eq!(made(base, path.as_bytes()).as_deref(), Ok(expected), "{base} {path}");
        }
    }

    #[test]
    fn a_relative_path_without_a_known_directory_is_refused() {
        assert_eq!(made("(unreachable)/kv", b"a"), Err(Unusable::Base));
        assert_eq!(made("", b"a"), Err(Unusable::Base));
    }

    #[test]
    fn a_path_of_the_longest_length_is_read_and_a_longer_one_refused() {
        let longest = format!("/{}", "a/".repeat(2047) + "b");
        assert_eq!(longest.len(), 4096);
        assert_eq!(made("/w", longest.as_bytes()), Ok(longest));
        assert_eq!(made("/w", &[b'a'; 9000]), Err(Unusable::TooLong));
    }

    #[test]
    fn two_names_that_differ_in_one_bad_byte_stay_two() {
        let (a, b) = (made("/", b"/kv/\xff"), made("/", b"/kv/\xfe"));
        assert_ne!(a, b);
        assert_eq!(a.map(|path| to_bytes(&path)), Ok(b"/kv/\xff".to_vec()));
    }

    #[test]
    fn a_path_that_holds_the_escape_itself_is_refused_not_mixed_up() {
        let path = "/kv/\u{10f7ff}";
        assert_eq!(made("/", path.as_bytes()), Err(Unusable::Escapes));
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_normal_path_come_back(
            parts in proptest::collection::vec(proptest::collection::vec(1u8..=255, 1..20), 1..6)
        ) {
            let mut path = Vec::new();
            for part in &parts {
                path.push(b'/');
                path.extend(part.iter().map(|byte| if matches!(byte, b'/' | b'.') { b'x' } else { *byte }));
            }
            if let Ok(text) = made("/", &path) {
                prop_assert_eq!(to_bytes(&text), path);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(path in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(text) = made("/w", &path) {
                prop_assert!(text.starts_with('/'));
            }
        }
    }
}
