//! The first stage of matching: whether, where and which anchors stand in raw bytes.
//!
//! Wu and Manber's search: a window as long as the shortest anchor slides over the text; a table says by the last
//! three bytes of the window how far it may move on without missing an anchor. Over logs that hold no anchor it looks
//! at about every fifth byte, where an automaton looks at each, and its table stays in the first cache. Of each
//! anchor the window covers the part that shares least with common words. Anchors shorter than a window (keys of JSON
//! lines) are few and searched beside it.
//!
//! Invariant: it finds an anchor in exactly those lines in which a plain search would, and allocates nothing while
//! searching.

use crate::anchor::{COMMON, MIN_LEN};
use aho_corasick::{AhoCorasick, Input};
use memchr::memmem::Finder;

/// Bytes that index the table.
const BLOCK: usize = 3;
/// Bits of the index.
const BITS: u32 = 15;
/// Entries of the table.
const ENTRIES: usize = 1 << BITS;
/// How far the window moves when nothing in it belongs to an anchor.
const FAR: u8 = (MIN_LEN - BLOCK + 1) as u8;

/// A search for many anchors.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// By index: how far to move; 0 where an anchor may stand.
    moves: Box<[u8; ENTRIES]>,
    /// By index: where the anchors whose window ends so begin in `order`.
    starts: Vec<u32>,
    /// Anchors sorted by index.
    order: Vec<Windowed>,
    short: Option<AhoCorasick>,
    /// The short ones one by one, each with its place in the list of anchors.
    each_short: Vec<(Finder<'static>, usize)>,
}

/// An anchor and where the window lies over it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Windowed {
    index: usize,
    /// What the window covers; it tells most texts apart without a look at the rest.
    window: [u8; MIN_LEN],
    text: Box<[u8]>,
    offset: usize,
    /// Its place in the list of anchors.
    number: usize,
}

impl Scanner {
    /// A search for those of a list of anchors that are wanted.
    pub(crate) fn new(anchors: &[String], is_wanted: impl Fn(usize) -> bool) -> Self {
        let mut moves = Box::new([FAR; ENTRIES]);
        let common = common_blocks();
        let mut order = Vec::with_capacity(anchors.len());
        let wanted = || anchors.iter().enumerate().filter(|(number, _)| is_wanted(*number));
        for (number, anchor) in wanted().filter(|(_, anchor)| !is_short(anchor)) {
            let text = anchor.as_bytes();
            let offset = rarest_window(text, &common);
            let Some(window) = text[offset..].first_chunk::<MIN_LEN>() else { continue };
            for (at, block) in window.windows(BLOCK).enumerate() {
                let index = index_of(block);
                moves[index] = moves[index].min((MIN_LEN - BLOCK - at) as u8);
            }
            let index = index_of(&window[MIN_LEN - BLOCK..]);
            order.push(Windowed { index, window: *window, text: text.into(), offset, number });
        }
        order.sort_unstable();
        let mut starts = vec![0_u32; ENTRIES + 1];
        for anchor in &order {
            starts[anchor.index + 1] += 1;
        }
        for index in 0..ENTRIES {
            starts[index + 1] += starts[index];
        }
        let short: Vec<(usize, &String)> = wanted().filter(|(_, anchor)| is_short(anchor)).collect();
        let each_short = short
            .iter()
            .map(|(number, anchor)| (Finder::new(anchor.as_bytes()).into_owned(), *number))
            .collect();
        let short = if short.is_empty() {
            None
        } else {
            AhoCorasick::new(short.iter().map(|(_, anchor)| anchor)).ok()
        };
        Self { moves, starts, order, short, each_short }
    }

    /// Where an anchor begins that begins at or after `from`; it lies in the first line that holds one.
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

    /// The same without the short anchors.
    pub(crate) fn find_long(&self, haystack: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some((place, window)) = self.next_window(haystack, &mut at) {
            let mut anchors = self.ending_as(window);
            let found =
                anchors.find_map(|anchor| anchor.begin(haystack, place).filter(|begin| *begin >= from));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Calls `hit` with the number of every anchor that stands somewhere, at least once.
    pub(crate) fn each(&self, haystack: &[u8], mut hit: impl FnMut(usize)) {
        let mut at = 0;
        while let Some((place, window)) = self.next_window(haystack, &mut at) {
            for anchor in self.ending_as(window) {
                if anchor.begin(haystack, place).is_some() {
                    hit(anchor.number);
                }
            }
        }
        for (finder, number) in &self.each_short {
            if finder.find(haystack).is_some() {
                hit(*number);
            }
        }
    }

    /// The next window at or after `at` that may be one of an anchor, and its place; `at` moves behind it.
    #[inline]
    fn next_window<'h>(&self, haystack: &'h [u8], at: &mut usize) -> Option<(usize, &'h [u8; MIN_LEN])> {
        let mut begin = *at;
        while let Some(window) = haystack.get(begin..).and_then(<[u8]>::first_chunk::<MIN_LEN>) {
            let [.., a, b, c] = *window;
            let step = self.moves[index(a, b, c)];
            if step == 0 {
                *at = begin + 1;
                return Some((begin, window));
            }
            begin += usize::from(step);
        }
        *at = haystack.len();
        None
    }

    /// Anchors with this window.
    #[inline]
    fn ending_as(&self, window: &[u8; MIN_LEN]) -> impl Iterator<Item = &Windowed> {
        let index = index_of(&window[MIN_LEN - BLOCK..]);
        let ending_so = &self.order[self.starts[index] as usize..self.starts[index + 1] as usize];
        ending_so.iter().filter(move |anchor| anchor.window == *window)
    }
}

impl Windowed {
    /// Where the anchor begins that has its window at a place; `None` when it does not stand there.
    fn begin(&self, haystack: &[u8], window: usize) -> Option<usize> {
        let begin = window.checked_sub(self.offset)?;
        haystack[begin..].starts_with(&self.text).then_some(begin)
    }
}

/// Whether an anchor is shorter than the window.
pub(crate) fn is_short(anchor: &str) -> bool {
    anchor.len() < MIN_LEN
}

/// By index: how often blocks stand in common words, the more common the more.
fn common_blocks() -> Vec<u32> {
    let mut weights = vec![0; ENTRIES];
    for (rank, word) in COMMON.lines().enumerate() {
        let padded = format!(" {} ", word.trim());
        let weight = 1 + 64 / (rank as u32 + 1);
        for block in padded.as_bytes().windows(BLOCK) {
            weights[index_of(block)] += weight;
        }
    }
    weights
}

/// Where the window lies best over an anchor: its last block weighs most, for it stops the window.
fn rarest_window(anchor: &[u8], common: &[u32]) -> usize {
    let weight = |window: &[u8]| {
        let blocks: u32 = window.windows(BLOCK).map(|block| common[index_of(block)]).sum();
        blocks + 4 * common[index_of(&window[MIN_LEN - BLOCK..])]
    };
    anchor.windows(MIN_LEN).map(weight).enumerate().min_by_key(|(_, weight)| *weight).map_or(0, |(at, _)| at)
}

fn index_of(block: &[u8]) -> usize {
    index(block[0], block[1], block[2])
}

/// Spreads three bytes over the table; text uses five bits of a byte mostly, so that few collide.
#[inline]
fn index(first: u8, second: u8, third: u8) -> usize {
    let [first, second, third] = [first, second, third].map(usize::from);
    ((first << 10) ^ (second << 5) ^ third) & (ENTRIES - 1)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at a broken premise")]
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn places(anchors: &[String], haystack: &[u8], from: usize) -> Vec<(usize, usize)> {
        (from..=haystack.len())
            .flat_map(|at| (0..anchors.len()).map(move |number| (at, number)))
            .filter(|(at, number)| haystack[*at..].starts_with(anchors[*number].as_bytes()))
            .collect()
    }

    proptest! {
        #[test]
        fn an_anchor_is_found_where_a_plain_search_finds_it(
            anchors in proptest::collection::vec("[ab]{4,10}", 1..6),
            haystack in "[abc]{0,60}",
            from in 0_usize..60,
        ) {
            let scanner = Scanner::new(&anchors, |_| true);
            let from = from.min(haystack.len());
            let plain = places(&anchors, haystack.as_bytes(), from);
            match scanner.find(haystack.as_bytes(), from) {
                None => prop_assert!(plain.is_empty()),
                Some(found) => prop_assert!(plain.iter().any(|(at, _)| *at == found)),
            }
        }

        #[test]
        fn every_anchor_that_stands_somewhere_is_told(
            anchors in proptest::collection::vec("[ab]{6,10}", 1..6),
            haystack in "[abc]{0,60}",
        ) {
            let mut told = BTreeSet::new();
            Scanner::new(&anchors, |_| true).each(haystack.as_bytes(), |number| { told.insert(number); });
            let plain: BTreeSet<usize> =
                places(&anchors, haystack.as_bytes(), 0).into_iter().map(|(_, number)| number).collect();
            prop_assert_eq!(told, plain);
        }
    }

    #[test]
    fn without_anchors_nothing_is_found() {
        assert_eq!(Scanner::new(&[], |_| true).find(b"anything at all", 0), None);
    }

    #[test]
    fn a_later_begin_hides_an_earlier_anchor() {
        let scanner = Scanner::new(&["quux_pull".to_owned()], |_| true);
        assert!(scanner.find(b"the quux_pull of", 4).is_some());
        assert_eq!(scanner.find(b"the quux_pull of", 5), None);
        assert_eq!(scanner.find(b"", 7), None);
    }
}
