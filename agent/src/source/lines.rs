//! Cuts a byte stream into lines, whatever the chunks in which it comes.
//!
//! For sources of one record a line (kernel records, KV events). Invariant: at most [`MAX_LINE`] bytes are held; a
//! longer line is skipped and counted, and the lines after it keep their numbers and offsets.

use crate::source::Place;

/// Longest line that is read, in bytes. A KV event of a prompt of a million tokens fits.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// The cutter.
#[derive(Debug, Default)]
pub struct Lines {
    buffer: Vec<u8>,
    skipping: bool,
    overlong: u64,
    offset: u64,
    line_start: u64,
    number: u64,
}

// === impl Lines ===

impl Lines {
    /// A cutter at the begin of a stream.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next chunk and hands out every line that ended in it, without its line end.
    pub fn feed(&mut self, chunk: &[u8], mut sink: impl FnMut(Place, &[u8])) {
        let mut rest = chunk;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let piece = &rest[..end];
            rest = &rest[end + 1..];
            self.offset += end as u64 + 1;
            self.number += 1;
            let place = Place { position: self.number, offset: self.line_start };
            self.line_start = self.offset;
            if std::mem::take(&mut self.skipping) || self.buffer.len() + piece.len() > MAX_LINE {
                self.overlong += 1;
            } else if self.buffer.is_empty() {
                sink(place, without_carriage_return(piece));
            } else {
                self.buffer.extend_from_slice(piece);
                sink(place, without_carriage_return(&self.buffer));
            }
            self.buffer.clear();
        }
        self.offset += rest.len() as u64;
        if self.skipping || self.buffer.len() + rest.len() > MAX_LINE {
            self.skipping = true;
            self.buffer = Vec::new();
        } else {
            self.buffer.extend_from_slice(rest);
        }
    }

    /// Hands out the last line where no line end closes it, and gives the number of lines that were too long.
    pub fn finish(mut self, mut sink: impl FnMut(Place, &[u8])) -> u64 {
        let place = Place { position: self.number + 1, offset: self.line_start };
        if self.skipping {
            self.overlong += 1;
        } else if !self.buffer.is_empty() {
            sink(place, without_carriage_return(&self.buffer));
        }
        self.overlong
    }
}

fn without_carriage_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cut(chunks: &[&[u8]]) -> Vec<(u64, u64, Vec<u8>)> {
        let mut found = Vec::new();
        let mut lines = Lines::new();
        let mut sink = |place: Place, line: &[u8]| found.push((place.position, place.offset, line.to_vec()));
        for chunk in chunks {
            lines.feed(chunk, &mut sink);
        }
        lines.finish(&mut sink);
        found
    }

    #[test]
    fn a_line_knows_its_number_and_offset() {
        assert_eq!(
            cut(&[b"a\r\n\nbc"]),
            vec![(1, 0, b"a".to_vec()), (2, 3, Vec::new()), (3, 4, b"bc".to_vec())]
        );
    }

    #[test]
    fn a_line_that_is_too_long_is_counted_and_the_next_one_read() {
        let long = vec![b'x'; MAX_LINE];
        let mut lines = Lines::new();
        let mut found = Vec::new();
        lines.feed(&long, |_, _| {});
        lines.feed(b"x\nok\n", |place, line| found.push((place.position, line.to_vec())));
        assert_eq!(found, vec![(2, b"ok".to_vec())]);
        assert_eq!(lines.finish(|_, _| {}), 1);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_lines(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200),
            sizes in proptest::collection::vec(1usize..9, 1..40),
        ) {
            let mut chunks: Vec<&[u8]> = Vec::new();
            let mut rest = text.as_slice();
            for size in sizes.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*size).min(rest.len()));
                chunks.push(head);
                rest = tail;
            }
            prop_assert_eq!(cut(&chunks), cut(&[&text]));
        }
    }
}
