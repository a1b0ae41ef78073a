//! Requests get other ids, in every file at once.
//!
//! The ids that the findings name are put through a substitution of characters that keeps their form: digits stay
//! digits, hex letters stay hex letters, separators and the API's prefixes stay. Logs cut ids off and wrap them; a part of
//! at least [`MIN_PART`] characters is renamed like the whole, and what was wrapped is looked for close behind it.

use super::{Changed, edit_text};
use crate::bundle::Bundle;
use crate::verdict::Found;
use std::collections::{BTreeMap, BTreeSet};

/// A shorter beginning of an id is not taken for the id.
const MIN_PART: usize = 8;

/// How far behind a wrap the rest of an id is looked for, in bytes. Log wrappers repeat themselves in between.
const MAX_WRAP: usize = 300;

/// Shorter ids are ordinary words and numbers, not to be replaced in text.
const MIN_ID: usize = 6;

const PREFIXES: [&str; 3] = ["chatcmpl-", "cmpl-", "resp_"];

pub(super) fn rename(bundle: &Bundle, found: &[Found]) -> Option<Changed> {
    let named: BTreeSet<&str> = found.iter().flat_map(|found| &found.requests).map(String::as_str).collect();
    let ids: Vec<&str> = named.iter().map(|id| core(id)).filter(|id| id.len() >= MIN_ID).collect();
    if ids.is_empty() || ids.len() != named.len() {
        return None;
    }
    // The longest first, so that an id with a suffix is not taken for the one without.
    let mut ids: Vec<&str> = ids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
    ids.sort_by_key(|id| std::cmp::Reverse(id.len()));
    let changed = edit_text(bundle, |text| replace(text, &ids))?;
    let requests: BTreeMap<String, String> =
        named.iter().map(|id| ((*id).to_owned(), replace(id, &ids))).collect();
    Some(Changed { bundle: changed, requests })
}

fn core(id: &str) -> &str {
    PREFIXES.iter().find_map(|prefix| id.strip_prefix(prefix)).unwrap_or(id)
}

fn replace(text: &str, ids: &[&str]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut done = vec![false; bytes.len()];
    for id in ids {
        let id = id.as_bytes();
        let mut at = 0;
        while let Some(start) = find(text.as_bytes(), &id[..id.len().min(MIN_PART)], at) {
            let source = text.as_bytes();
            let common = source[start..].iter().zip(id).take_while(|(a, b)| a == b).count();
            at = start + 1;
            if done[start] {
                continue;
            }
            if common == id.len() {
                cipher(&mut bytes, &mut done, start, common);
            } else if source.get(start + common).is_none_or(|next| !is_id(*next)) {
                cipher(&mut bytes, &mut done, start, common);
                let from = start + common;
                let until = source.len().min(from + MAX_WRAP);
                if id.len() - common >= 4
                    && let Some(rest) = position(&source[from..until], &id[common..])
                {
                    cipher(&mut bytes, &mut done, from + rest, id.len() - common);
                }
            }
        }
    }
    // The substitution maps ASCII to ASCII, so the text stays UTF-8.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn find(source: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    position(source.get(from..)?, needle).map(|index| from + index)
}

fn position(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() { None } else { haystack.windows(needle.len()).position(|window| window == needle) }
}

fn cipher(bytes: &mut [u8], done: &mut [bool], start: usize, length: usize) {
    for index in start..start + length {
        if !done[index] {
            bytes[index] = substitute(bytes[index]);
            done[index] = true;
        }
    }
}

/// Keeps the class of a character; 0 stays, so that numbers do not begin with it.
fn substitute(byte: u8) -> u8 {
    let rotate = |first: u8, count: u8, by: u8| first + (byte - first + by) % count;
    match byte {
        b'1'..=b'9' => rotate(b'1', 9, 4),
        b'a'..=b'f' => rotate(b'a', 6, 1),
        b'g'..=b'z' => rotate(b'g', 20, 7),
        b'A'..=b'F' => rotate(b'A', 6, 1),
        b'G'..=b'Z' => rotate(b'G', 20, 7),
        other => other,
    }
}

fn is_id(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_an_id_stays() {
        assert_eq!(replace("cmpl-ab12-xyz-0-1a2b3c4d", &["ab12-xyz-0"]), "cmpl-bc56-klm-0-1a2b3c4d");
    }

    #[test]
    fn a_cut_id_is_renamed_as_far_as_it_goes() {
        assert_eq!(replace("id 12345678...", &["1234567890"]), "id 56789123...");
    }

    #[test]
    fn a_wrapped_id_is_renamed_in_both_parts() {
        assert_eq!(replace("id 12345678\n  90abcd.", &["1234567890abcd"]), "id 56789123\n  40bcde.");
    }

    #[test]
    fn another_id_with_the_same_beginning_stays() {
        assert_eq!(replace("lab-run-01 lab-run-02", &["lab-run-01"]), "sbc-yhu-05 lab-run-02");
    }
}
