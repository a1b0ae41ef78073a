//! Searches raw bytes for the anchors of the templates, faster than an automaton over hundreds of them.
//!
//! Wu and Manber: a window as long as the shortest anchor slides over the text; a table tells from its last three
//! bytes how far it may jump before an anchor could end in it. The table stays in the first cache, an automaton of
//! this size does not. Anchors too short for a window (keys of JSON objects) are left to a search for short words.
//!
//! Invariant: together they find an anchor in exactly those lines in which the automaton of the packs would.

use kvprov_packs::Matcher;

/// Length of the window: no anchor is shorter.
const WINDOW: usize = 6;
/// Bytes that the table looks at.
const BLOCK: usize = 3;
/// Entries of the table.
const ENTRIES: usize = 1 << 15;

/// Words of which logs are full: a window is laid over the part of an anchor that shares least with them, so that
/// it jumps far in lines that do not matter. Only speed depends on the choice.
const COMMON: &str = "INFO DEBUG pid= EngineCore APIServer Worker_TP0 request requests transfer transferred failed \
    connector connection with from cache cached block blocks token tokens GPU usage prefix hit rate: Running Waiting \
    reqs throughput generation prompt engine server process metadata remote local num_ scheduler worker HTTP/1.1 POST \
    GET /v1/completions metrics version config model loading loaded memory size received finished started update \
    kv_transfer kv_connector nixl distributed engine_id request_id state for the and ing ion ted ter ent able .py: \
    [core.py scheduler.py launcher.py Route: Methods: notify event batch num_tokens Poller loop active message";

/// Anchors, by how their window ends.
#[derive(Debug)]
pub(super) struct AnchorSearch<'p> {
    matcher: &'p Matcher,
    /// How far the window may jump, by the hash of its last bytes; 0 where an anchor may end it. Empty: use the
    /// automaton.
    jump: Vec<u8>,
    /// Where 0: the list of anchors, counted from 1.
    list: Vec<u16>,
    lists: Vec<Vec<(&'p [u8], usize)>>,
    short: Vec<&'p str>,
}

/// Short anchors that a search for words takes over; with more of them the automaton searches for all.
const MAX_SHORT: usize = 24;

// === impl AnchorSearch ===

impl<'p> AnchorSearch<'p> {
    /// A search for the anchors of a matcher.
    pub(super) fn new(matcher: &'p Matcher) -> Self {
        let mut search =
            Self { matcher, jump: Vec::new(), list: Vec::new(), lists: Vec::new(), short: Vec::new() };
        let (anchors, short): (Vec<&str>, Vec<&str>) =
            matcher.anchors().iter().map(String::as_str).partition(|anchor| anchor.len() >= WINDOW);
        if short.len() > MAX_SHORT || anchors.len() >= usize::from(u16::MAX) {
            return search;
        }
        search.short = short;
        search.jump = vec![(WINDOW - BLOCK + 1) as u8; ENTRIES];
        search.list = vec![0; ENTRIES];
        for anchor in anchors {
            let anchor = anchor.as_bytes();
            let offset = rarest_window(anchor);
            let window = &anchor[offset..offset + WINDOW];
            for (at, block) in window.windows(BLOCK).enumerate() {
                let jump = (WINDOW - BLOCK - at) as u8;
                let entry = hash(block[0], block[1], block[2]);
                search.jump[entry] = search.jump[entry].min(jump);
                if jump == 0 {
                    if search.list[entry] == 0 {
                        search.lists.push(Vec::new());
                        search.list[entry] = search.lists.len() as u16;
                    }
                    search.lists[usize::from(search.list[entry]) - 1].push((anchor, offset));
                }
            }
        }
        search
    }

    /// Anchors that [`Self::find`] does not find.
    pub(super) fn short(&self) -> &[&'p str] {
        &self.short
    }

    /// A place at or after `from` inside the first line that holds an anchor.
    pub(super) fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        if self.jump.is_empty() {
            return self.matcher.next_candidate(text, from);
        }
        let mut end = from.checked_add(WINDOW)?;
        while end <= text.len() {
            let block = &text[end - BLOCK..end];
            let entry = hash(block[0], block[1], block[2]);
            let jump = usize::from(self.jump[entry]);
            if jump > 0 {
                end += jump;
                continue;
            }
            let begin = end - WINDOW;
            let anchors = &self.lists[usize::from(self.list[entry]) - 1];
            let holds = |anchor: &[u8], offset: usize| {
                begin >= from + offset && text[begin - offset..].starts_with(anchor)
            };
            if anchors.iter().any(|(anchor, offset)| holds(anchor, *offset)) {
                return Some(begin);
            }
            end += 1;
        }
        None
    }
}

/// Where the window lies best over an anchor: its last block weighs most, for it stops the window.
fn rarest_window(anchor: &[u8]) -> usize {
    let common = |block: &[u8]| COMMON.as_bytes().windows(BLOCK).filter(|other| *other == block).count();
    let weight = |window: &[u8]| {
        let blocks: usize = window.windows(BLOCK).map(common).sum();
        blocks + 4 * common(&window[WINDOW - BLOCK..])
    };
    anchor.windows(WINDOW).map(weight).enumerate().min_by_key(|(_, weight)| *weight).map_or(0, |(at, _)| at)
}

/// Mixes three bytes into an entry; text uses five bits of a byte mostly, so that few collide.
fn hash(a: u8, b: u8, c: u8) -> usize {
    ((usize::from(a) << 10) ^ (usize::from(b) << 5) ^ usize::from(c)) & (ENTRIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvprov_packs::Packs;

    #[test]
    fn every_anchor_is_found_wherever_it_stands() {
        let matcher = Packs::builtin().matcher();
        let search = AnchorSearch::new(matcher);
        for anchor in matcher.anchors().iter().filter(|anchor| !search.short().contains(&anchor.as_str())) {
            for before in ["", "x", "ERROR 05-05 10:00:00 [x.py:1] "] {
                let text = format!("{before}{anchor} and more");
                assert!(
                    search.find(text.as_bytes(), 0).is_some_and(|at| at < before.len() + anchor.len()),
                    "{text}"
                );
                let alone = format!("{before}{anchor}");
                assert!(search.find(alone.as_bytes(), 0).is_some(), "{alone}");
            }
            let cut = &anchor[..anchor.len() - 1];
            assert!(search.find(cut.as_bytes(), 0).is_none() || matcher.may_matter(cut.as_bytes()), "{cut}");
        }
        assert_eq!(search.find(b"INFO 05-05 10:00:00 nothing of interest", 0), None);
        assert_eq!(search.find(b"", 7), None);
    }
}
