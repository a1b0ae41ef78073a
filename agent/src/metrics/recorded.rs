//! Many pages of one endpoint in one file, as a recording keeps them.
//!
//! Every page begins with a line that is a comment to whoever reads Prometheus' text format:
//!
//! ```text
//! # kvprov page vllm-metrics at 2026-08-16T08:00:00.000000000Z
//! ```
//!
//! A file without such a line is one page, as ever. Invariant: what is in memory is one page, at most [`MAX_PAGE`] of it.

use super::MAX_PAGE;
use kvprov_model::clock::WallTime;
use std::io::Write as _;

const MARK: &str = "# kvprov page ";
const AT: &str = " at ";
/// A line that may be a mark is shorter, in bytes.
const MAX_MARK: usize = 512;

/// What the mark of a page says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The endpoint.
    pub endpoint: String,
    /// When the page was read.
    pub at: WallTime,
}

/// A page in a file.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordedPage<'p> {
    /// Its mark; `None`: the file has none.
    pub mark: Option<&'p Mark>,
    /// Which one of the file it is, from 1.
    pub number: u64,
    /// Where in the file it begins, in bytes.
    pub offset: u64,
    /// Its text.
    pub text: &'p [u8],
}

/// Takes a file apart.
#[derive(Debug, Default)]
pub struct RecordedPages {
    mark: Option<Mark>,
    number: u64,
    begins: u64,
    offset: u64,
    text: Vec<u8>,
    /// The begin of a line that may be a mark.
    line: Vec<u8>,
    /// Inside of a line that is none.
    is_within: bool,
}

/// Writes a page.
pub fn write(endpoint: &str, at: WallTime, text: &str, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = writeln!(out, "{MARK}{endpoint}{AT}{}", at.to_rfc3339_nanos());
    out.extend_from_slice(text.as_bytes());
}

// === impl Mark ===

impl Mark {
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let (endpoint, at) = line.trim_end().strip_prefix(MARK)?.split_once(AT)?;
        Some(Self { endpoint: endpoint.to_owned(), at: WallTime::parse_rfc3339(at)? })
    }
}

// === impl RecordedPages ===

impl RecordedPages {
    /// Takes the next bytes and hands on the pages that end in them.
    pub fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(&RecordedPage<'_>)) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (piece, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
            bytes = rest;
            self.piece(piece, end.is_some(), &mut take);
        }
    }

    /// The last page.
    pub fn finish(mut self, mut take: impl FnMut(&RecordedPage<'_>)) {
        let line = std::mem::take(&mut self.line);
        self.keep(&line);
        self.hand_on(&mut take);
    }

    fn piece(&mut self, piece: &[u8], is_end: bool, take: &mut dyn FnMut(&RecordedPage<'_>)) {
        self.offset += piece.len() as u64;
        if self.is_within || self.line.len() + piece.len() > MAX_MARK {
            let line = std::mem::take(&mut self.line);
            self.keep(&line);
            self.keep(piece);
            self.is_within = !is_end;
            return;
        }
        self.line.extend_from_slice(piece);
        if !is_end {
            return;
        }
        let mut line = std::mem::take(&mut self.line);
        match Mark::parse(&line) {
            Some(mark) => {
                self.hand_on(take);
                self.mark = Some(mark);
                self.begins = self.offset - line.len() as u64;
            }
            None => self.keep(&line),
        }
        line.clear();
        self.line = line;
    }

    fn keep(&mut self, bytes: &[u8]) {
        // One byte more than is read, so that the cut shows.
        let room = (MAX_PAGE + 1).saturating_sub(self.text.len());
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    fn hand_on(&mut self, take: &mut dyn FnMut(&RecordedPage<'_>)) {
        if self.mark.is_none() && self.text.is_empty() {
            return;
        }
        self.number += 1;
        let mark = self.mark.as_ref();
        take(&RecordedPage { mark, number: self.number, offset: self.begins, text: &self.text });
        self.text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Seen = Vec<(Option<WallTime>, u64, u64, String)>;

    fn pages(file: &[u8], piece: usize) -> Seen {
        let mut seen = Vec::new();
        let mut take = |page: &RecordedPage<'_>| {
            let text = String::from_utf8_lossy(page.text).into_owned();
            seen.push((page.mark.map(|mark| mark.at), page.number, page.offset, text));
        };
        let mut pages = RecordedPages::default();
        file.chunks(piece).for_each(|piece| pages.feed(piece, &mut take));
        pages.finish(&mut take);
        seen
    }

    #[test]
    fn what_was_written_is_read_in_pieces_of_any_size() {
        let mut file = Vec::new();
        write("e-metrics", WallTime(1_796_000_000_123_456_789), "", &mut file);
        let second = file.len() as u64;
        write("e-metrics", WallTime(1_796_000_005_000_000_000), "a 1\nb 2\n", &mut file);
        for piece in [1, 7, 1000] {
            let expected = [
                (Some(WallTime(1_796_000_000_123_456_789)), 1, 0, String::new()),
                (Some(WallTime(1_796_000_005_000_000_000)), 2, second, "a 1\nb 2\n".to_owned()),
            ];
            assert_eq!(pages(&file, piece), expected, "in pieces of {piece}");
        }
    }

    #[test]
    fn a_file_without_a_mark_is_one_page() {
        let file = format!("# HELP a b\na{{x=\"{}\"}} 1\nb 2", "y".repeat(2000));
        for piece in [3, 5000] {
            assert_eq!(pages(file.as_bytes(), piece), [(None, 1, 0, file.clone())]);
        }
        assert!(pages(b"", 1).is_empty());
    }
}
