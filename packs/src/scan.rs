//! The first stage of matching: whether and where an anchor stands in raw bytes.
//!
//! Wu and Manber's search: a window as long as the shortest anchor slides over the text; a table says by the last
//! three bytes of the window how far it may move on without missing an anchor. Over logs that hold no anchor it looks
//! at about every fourth byte, where an automaton looks at each. Anchors shorter than a window (keys of JSON lines)
//! are few and searched beside it.
//!
//! Invariant: it finds an anchor exactly where a plain search would, and allocates nothing while searching.

use crate::anchor::MIN_LEN;
use aho_corasick::{AhoCorasick, Input};

/// Bytes that index the table.
const BLOCK: usize = 3;
/// Bits of the index.
const BITS: u32 = 15;
/// How far the window moves when its end begins no anchor's end.
const FAR: u8 = (MIN_LEN - BLOCK + 1) as u8;

/// A search for many anchors.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// By index: how far to move; 0 where an anchor may stand.
    moves: Vec<u8>,
    /// By index: where the anchors with this window end begin in `order`.
    starts: Vec<u32>,
    /// Anchors sorted by index.
    order: Vec<Box<[u8]>>,
    short: Option<AhoCorasick>,
}

impl Scanner {
    pub(crate) fn new(anchors: &[String]) -> Self {
        let size = 1 << BITS;
        let mut moves = vec![FAR; size];
        let (long, short): (Vec<&[u8]>, Vec<&[u8]>) =
            anchors.iter().map(String::as_bytes).partition(|anchor| anchor.len() >= MIN_LEN);
        let mut ends: Vec<(usize, &[u8])> = Vec::with_capacity(long.len());
        for anchor in long {
            for end in BLOCK..=MIN_LEN {
                let index = index_of(&anchor[end - BLOCK..end]);
                moves[index] = moves[index].min((MIN_LEN - end) as u8);
            }
            ends.push((index_of(&anchor[MIN_LEN - BLOCK..MIN_LEN]), anchor));
        }
        ends.sort_unstable();
        let mut starts = vec![0_u32; size + 1];
        for (index, _) in &ends {
            starts[index + 1] += 1;
        }
        for index in 0..size {
            starts[index + 1] += starts[index];
        }
        let order = ends.into_iter().map(|(_, anchor)| anchor.into()).collect();
        let short = if short.is_empty() { None } else { AhoCorasick::new(short).ok() };
        Self { moves, starts, order, short }
    }

    /// Where the first anchor at or after `from` begins.
    pub(crate) fn find(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let long = self.find_long(haystack, from);
        let Some(short) = &self.short else { return long };
        // A short anchor counts only before the long one, so that repeated calls stay linear.
        let end = long.map_or(haystack.len(), |at| (at + MIN_LEN).min(haystack.len()));
        let input = Input::new(haystack).span(from.min(end)..end);
        match short.find(input).map(|found| found.start()) {
            Some(at) => Some(long.map_or(at, |long| long.min(at))),
            None => long,
        }
    }

    fn find_long(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(window) = haystack.get(at..at + MIN_LEN) {
            let index = index_of(&window[MIN_LEN - BLOCK..]);
            let step = self.moves[index];
            if step > 0 {
                at += usize::from(step);
                continue;
            }
            let (begin, end) = (self.starts[index] as usize, self.starts[index + 1] as usize);
            let rest = &haystack[at..];
            if self.order[begin..end].iter().any(|anchor| rest.starts_with(anchor)) {
                return Some(at);
            }
            at += 1;
        }
        None
    }
}

/// Spreads three bytes over the table.
fn index_of(block: &[u8]) -> usize {
    let [first, second, third] = [block[0], block[1], block[2]].map(u32::from);
    (((first << 10) ^ (second << 5) ^ third) & ((1 << BITS) - 1)) as usize
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;
    use proptest::prelude::*;

    fn plain(anchors: &[String], haystack: &[u8], from: usize) -> Option<usize> {
        (from..=haystack.len())
            .find(|at| anchors.iter().any(|anchor| haystack[*at..].starts_with(anchor.as_bytes())))
    }

    proptest! {
        #[test]
        fn an_anchor_is_found_where_a_plain_search_finds_it(
            anchors in proptest::collection::vec("[ab]{4,9}", 1..6),
            haystack in "[abc]{0,60}",
            from in 0_usize..60,
        ) {
            let scanner = Scanner::new(&anchors);
            let from = from.min(haystack.len());
            prop_assert_eq!(scanner.find(haystack.as_bytes(), from), plain(&anchors, haystack.as_bytes(), from));
        }
    }

    #[test]
    fn without_anchors_nothing_is_found() {
        assert_eq!(Scanner::new(&[]).find(b"anything at all", 0), None);
    }
}
