//! Chooses the literal anchors of the first stage.
//!
//! An anchor is one to four neighbouring words of a template's literal text. A good one is rare in logs, so that
//! most lines are rejected by the automaton alone, and shared by many templates, so that the automaton stays small.
//! Rarity is judged by a list of common words (`common_words.txt`, counted over recorded logs). Templates that say
//! something come first and keep away from the words of those without meaning, so that a search for the former alone
//! passes over lines of the latter.
//!
//! Invariant: every template has an anchor that any complete print of its text contains. Quotes, backslashes and
//! bytes outside ASCII stand in no anchor, because wrappers escape them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

/// Shortest anchor where the text has one as long, in bytes: the longer all are, the faster the search.
pub(crate) const MIN_LEN: usize = 8;
/// Shortest anchor of a text that has no longer one, in bytes.
const SHORTEST: usize = 6;
/// Longest anchor, in bytes.
const MAX_LEN: usize = 64;
/// Most words of an anchor.
const MAX_WORDS: usize = 4;
/// Rarity from which an anchor is good enough; below it the rarest one is taken.
const GOOD: u32 = 10;

/// Words from the most common to less common ones, a line each.
pub(crate) const COMMON: &str = include_str!("common_words.txt");

/// What a template offers: its literals, and whether it may be wrapped between words.
pub(crate) struct Offer<'t> {
    pub(crate) literals: Vec<&'t str>,
    pub(crate) may_wrap: bool,
    /// A line of it means nothing.
    pub(crate) is_silent: bool,
}

/// Anchors and, by offer, the number of its anchor; `None` for an offer without a usable literal.
pub(crate) fn choose(offers: &[Offer<'_>]) -> (Vec<String>, Vec<Option<usize>>) {
    let ranks: HashMap<&str, usize> =
        COMMON.lines().enumerate().map(|(rank, word)| (word.trim(), rank)).collect();
    let mut candidates: Vec<BTreeMap<&str, u32>> =
        offers.iter().map(|offer| candidates_of(offer, &ranks)).collect();
    let (silent, telling): (Vec<usize>, Vec<usize>) =
        (0..offers.len()).partition(|offer| offers[*offer].is_silent);
    let without_meaning = Texts::of(silent.iter().flat_map(|offer| &offers[*offer].literals).copied());
    for offer in &telling {
        keep_away(&mut candidates[*offer], &without_meaning);
    }
    let mut anchors = Vec::new();
    let mut chosen = vec![None; offers.len()];
    cover(&candidates, &telling, &mut anchors, &mut chosen);
    // An anchor of theirs that stands in a line without meaning anyway serves it too.
    for offer in &silent {
        chosen[*offer] = anchors.iter().position(|anchor| candidates[*offer].contains_key(anchor.as_str()));
    }
    cover(&candidates, &silent, &mut anchors, &mut chosen);
    (anchors, chosen)
}

/// Drops candidates that stand in texts without meaning, as long as a good one is left.
fn keep_away(candidates: &mut BTreeMap<&str, u32>, without_meaning: &Texts) {
    let good_and_own = |(anchor, rarity): (&&str, &u32)| *rarity >= GOOD && !without_meaning.contain(anchor);
    if candidates.iter().any(good_and_own) {
        candidates.retain(|anchor, _| !without_meaning.contain(anchor));
    }
}

/// Texts in which many anchors are looked for.
struct Texts {
    /// One after the other, with a byte between them that stands in no anchor.
    joined: Vec<u8>,
    /// Every place, by the bytes that begin there.
    places: Vec<(u64, u32)>,
}

impl Texts {
    fn of<'t>(texts: impl Iterator<Item = &'t str>) -> Self {
        let mut joined = Vec::new();
        for text in texts {
            joined.extend_from_slice(text.as_bytes());
            joined.push(b'\n');
        }
        let mut places: Vec<(u64, u32)> =
            (0..joined.len()).map(|at| (beginning(&joined[at..], 0), at as u32)).collect();
        places.sort_unstable();
        Self { joined, places }
    }

    fn contain(&self, anchor: &str) -> bool {
        let (least, most) = (beginning(anchor.as_bytes(), 0), beginning(anchor.as_bytes(), u8::MAX));
        let from = self.places.partition_point(|(begin, _)| *begin < least);
        self.places[from..]
            .iter()
            .take_while(|(begin, _)| *begin <= most)
            .any(|(_, at)| self.joined[*at as usize..].starts_with(anchor.as_bytes()))
    }
}

/// The first eight bytes as a number that is ordered as they are.
fn beginning(bytes: &[u8], filler: u8) -> u64 {
    let mut begin = [filler; 8];
    for (to, from) in begin.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_be_bytes(begin)
}

/// Chooses anchors for those of some offers that have none: a greedy cover, in which the anchor comes first that speaks
/// for most of them.
fn cover(
    candidates: &[BTreeMap<&str, u32>],
    offers: &[usize],
    anchors: &mut Vec<String>,
    chosen: &mut [Option<usize>],
) {
    // Who could use which anchor.
    let mut users: HashMap<&str, (u32, Vec<usize>)> = HashMap::new();
    for offer in offers.iter().copied().filter(|offer| chosen[*offer].is_none()) {
        for (text, rarity) in usable(&candidates[offer]) {
            users.entry(text).or_insert((rarity, Vec::new())).1.push(offer);
        }
    }
    // Of equals the clearly rarer, then the shorter, then by text, so that the choice does not hang on the order of a
    // map. A count in the heap may be too high, never too low: it is put right when it comes up.
    let mut heap: BinaryHeap<(usize, u32, Reverse<usize>, &str)> = users
        .iter()
        .map(|(text, (rarity, open))| (open.len(), *rarity / 4, Reverse(text.len()), *text))
        .collect();
    while let Some((count, rarity, length, text)) = heap.pop() {
        let Some((_, of_text)) = users.get(text) else { continue };
        let open = of_text.iter().filter(|offer| chosen[**offer].is_none()).count();
        if open == 0 {
            continue;
        }
        if open < count {
            heap.push((open, rarity, length, text));
            continue;
        }
        for offer in of_text {
            if chosen[*offer].is_none() {
                chosen[*offer] = Some(anchors.len());
            }
        }
        anchors.push(text.to_owned());
    }
}

/// Whether the template can be found by some anchor.
pub(crate) fn has_anchor(offer: &Offer<'_>) -> bool {
    !candidates_of(offer, &HashMap::new()).is_empty()
}

/// The anchors that are good enough, or else the rarest alone.
fn usable<'t>(candidates: &BTreeMap<&'t str, u32>) -> Vec<(&'t str, u32)> {
    let good: Vec<(&str, u32)> = candidates
        .iter()
        .filter(|(_, rarity)| **rarity >= GOOD)
        .map(|(text, rarity)| (*text, *rarity))
        .collect();
    if !good.is_empty() {
        return good;
    }
    candidates
        .iter()
        .max_by_key(|(text, rarity)| (**rarity, text.len()))
        .map(|(text, rarity)| (*text, *rarity))
        .into_iter()
        .collect()
}

/// Every run of words that may be an anchor, with its rarity.
fn candidates_of<'t>(offer: &Offer<'t>, ranks: &HashMap<&str, usize>) -> BTreeMap<&'t str, u32> {
    let mut found = BTreeMap::new();
    for literal in &offer.literals {
        for piece in literal.split(|c: char| !c.is_ascii() || c.is_ascii_control() || "'\"\\<>&".contains(c))
        {
            collect(piece, offer.may_wrap, ranks, &mut found);
        }
    }
    if offer.may_wrap && found.values().all(|rarity| *rarity < GOOD) {
        // No single word is rare enough: words together, which a wrap between them hides.
        for literal in &offer.literals {
            for piece in
                literal.split(|c: char| !c.is_ascii() || c.is_ascii_control() || "'\"\\<>&".contains(c))
            {
                collect(piece, false, ranks, &mut found);
            }
        }
    }
    if found.is_empty() {
        found = whole_pieces(offer);
    }
    found
}

fn collect<'t>(
    piece: &'t str,
    one_word: bool,
    ranks: &HashMap<&str, usize>,
    found: &mut BTreeMap<&'t str, u32>,
) {
    let words = words_of(piece);
    for begin in 0..words.len() {
        let mut rarity = 0;
        for (_, end, word) in words[begin..].iter().take(MAX_WORDS) {
            rarity += rarity_of(word, ranks);
            let text = widened(piece, words[begin].0, *end, one_word);
            // A run of blanks may be printed longer than the text has it.
            let wraps = one_word && text.trim().contains(' ');
            if text.len() > MAX_LEN || wraps || text.contains("  ") {
                break;
            }
            if text.len() >= MIN_LEN {
                found.insert(text, rarity);
            }
        }
    }
}

/// A run of words, with so much of what stands beside it that it is long enough. A blank may be printed as several, so
/// that it stands at an end or nowhere.
fn widened(piece: &str, mut begin: usize, mut end: usize, may_wrap: bool) -> &str {
    let bytes = piece.as_bytes();
    while end - begin < MIN_LEN {
        let is_beside = |at: usize| {
            let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || (may_wrap && *byte == b' ');
            bytes.get(at).is_some_and(|byte| !is_part(byte))
        };
        if is_beside(end) && bytes[end - 1] != b' ' {
            end += 1;
        } else if begin > 0 && is_beside(begin - 1) && bytes[begin] != b' ' {
            begin -= 1;
        } else {
            break;
        }
    }
    &piece[begin..end]
}

/// The pieces as they are, punctuation and blanks included, for a text whose words are too short.
fn whole_pieces<'t>(offer: &Offer<'t>) -> BTreeMap<&'t str, u32> {
    let pieces = offer.literals.iter().flat_map(|literal| {
        literal.split(|c: char| !c.is_ascii() || c.is_ascii_control() || "'\"\\".contains(c))
    });
    let mut found = BTreeMap::new();
    for piece in pieces {
        let trimmed = piece.trim();
        if (SHORTEST..=MAX_LEN).contains(&trimmed.len()) && !trimmed.contains("  ") {
            found.insert(trimmed, 2);
        } else if (SHORTEST..=MAX_LEN).contains(&piece.len()) && !trimmed.is_empty() {
            // Blanks that must be printed as they stand, as in a banner.
            found.insert(piece, 1);
        }
    }
    found
}

/// Words with their places.
fn words_of(piece: &str) -> Vec<(usize, usize, &str)> {
    let mut words = Vec::new();
    let mut begin = None;
    for (at, byte) in piece.bytes().enumerate().chain([(piece.len(), b' ')]) {
        let is_word = byte.is_ascii_alphanumeric() || byte == b'_';
        match (is_word, begin) {
            (true, None) => begin = Some(at),
            (false, Some(from)) => {
                words.push((from, at, &piece[from..at]));
                begin = None;
            }
            _ => {}
        }
    }
    words
}

/// About how many doublings rarer than every line a word is.
fn rarity_of(word: &str, ranks: &HashMap<&str, usize>) -> u32 {
    if word.len() < 3 {
        return 0;
    }
    let is_name = |word: &str| {
        let inner_capital = word.bytes().skip(1).any(|byte| byte.is_ascii_uppercase());
        inner_capital || word.contains('_') || word.bytes().any(|byte| byte.is_ascii_digit())
    };
    match ranks.get(word) {
        Some(rank) if *rank < 24 => 1,
        Some(rank) if *rank < 80 => 3,
        Some(_) => 4,
        None if word.len() < 5 => 4,
        // A name of code stands in few lines; a word of English in many.
        None if is_name(word) => 10,
        None => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(literal: &str) -> Offer<'_> {
        Offer { literals: vec![literal], may_wrap: false, is_silent: false }
    }

    #[test]
    fn what_means_nothing_shares_no_anchor_with_what_does() {
        let silent = Offer { is_silent: true, ..offer("zz_grobble of the quux_blob done") };
        let offers = [silent, offer("zz_grobble of a mumble_frotz"), offer("zz_grobble of the foo_barr")];
        let (anchors, chosen) = choose(&offers);
        for telling in &chosen[1..] {
            assert!(!offers[0].literals[0].contains(&anchors[telling.unwrap_or(9)]), "{anchors:?}");
        }
    }

    #[test]
    fn what_means_nothing_is_found_by_its_only_words_too() {
        let silent = Offer { is_silent: true, ..offer("zz_grobble") };
        assert_eq!(
            choose(&[silent, offer("zz_grobble: {")]),
            (vec!["zz_grobble".to_owned()], vec![Some(0); 2])
        );
    }

    #[test]
    fn templates_share_an_anchor_where_they_can() {
        let offers = [offer("Marking quux_blob"), offer("with quuxed quux_blob"), offer("zz_grobble")];
        let (anchors, chosen) = choose(&offers);
        assert_eq!(anchors.len(), 2);
        assert_eq!(chosen[0], chosen[1]);
        assert!(offers[0].literals[0].contains(&anchors[chosen[0].unwrap_or(9)]));
    }

    #[test]
    fn a_common_word_alone_is_no_anchor() {
        let (anchors, _) = choose(&[offer("INFO zz_grobble")]);
        assert_eq!(anchors, ["zz_grobble"]);
    }

    #[test]
    fn quotes_stand_in_no_anchor() {
        let (anchors, _) = choose(&[offer("key 'zzgrobble' failed")]);
        assert!(anchors.iter().all(|anchor| !anchor.contains('\'')), "{anchors:?}");
    }

    #[test]
    fn a_text_without_six_literal_bytes_has_none() {
        assert_eq!(choose(&[offer("a: ")]).1, [None]);
    }
}
