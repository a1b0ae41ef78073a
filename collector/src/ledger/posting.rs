//! A posting list: which records of one batch stand under one index key.
//!
//! Invariant: the groups are those of the batch's order (node, then undated before dated); within a group entries
//! follow their positions. The wall times stand beside the numbers, so that a view can be cut without reading what
//! it leaves out.
//!
//! Layout: the name; then for each node and lane its hash, lane and entries, each the distance of its number, and of its
//! wall time where it has one, from the entry before. Between two entries stands whether a new group begins.

use super::LedgerError;
use super::codec::{Reader, put_number, put_text, unzigzag, zigzag};
use super::key::NameHash;

const MORE: u8 = 1;
const END: u8 = 0;

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Posting {
    /// The node.
    pub(super) node: NameHash,
    /// Wall time in nanoseconds; `None` in the undated lane.
    pub(super) wall: Option<i64>,
    /// Number of the record in the batch.
    pub(super) index: u32,
}

/// A list in the making.
pub(super) struct ListWriter {
    bytes: Vec<u8>,
    /// Node and lane of the group that is open, and number and time of its last entry.
    group: Option<(NameHash, bool)>,
    last: (u32, i64),
}

// === impl ListWriter ===

impl ListWriter {
    pub(super) fn named(name: &str) -> Self {
        let mut bytes = Vec::with_capacity(name.len() + 64);
        put_text(name, &mut bytes);
        Self { bytes, group: None, last: (0, 0) }
    }

    /// Adds an entry behind the others.
    pub(super) fn push(&mut self, posting: Posting) {
        let group = Some((posting.node, posting.wall.is_some()));
        if self.group == group {
            self.bytes.push(MORE);
        } else {
            if self.group.is_some() {
                self.bytes.push(END);
            }
            self.bytes.extend(posting.node);
            self.bytes.push(u8::from(posting.wall.is_some()));
            (self.group, self.last) = (group, (0, 0));
        }
        put_number(u64::from(posting.index.wrapping_sub(self.last.0)), &mut self.bytes);
        self.last.0 = posting.index;
        if let Some(wall) = posting.wall {
            put_number(zigzag(wall.wrapping_sub(self.last.1)), &mut self.bytes);
            self.last.1 = wall;
        }
    }

    /// The list.
    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// The name and the entries of a list.
pub(super) fn read(bytes: &[u8]) -> Result<(&str, Vec<Posting>), LedgerError> {
    read_list(bytes).map_err(|reason| LedgerError::Corrupt { what: "index entry", reason: reason.to_owned() })
}

fn read_list(bytes: &[u8]) -> Result<(&str, Vec<Posting>), &'static str> {
    let mut reader = Reader { rest: bytes };
    let name = reader.str()?;
    let mut postings = Vec::new();
    while !reader.rest.is_empty() {
        let node = reader.array()?;
        let dated = reader.byte()? == 1;
        let (mut index, mut wall) = (0u32, 0i64);
        loop {
            index = index.wrapping_add(reader.number()? as u32);
            if dated {
                wall = wall.wrapping_add(unzigzag(reader.number()?));
            }
            postings.push(Posting { node, wall: dated.then_some(wall), index });
            if reader.rest.is_empty() || reader.byte()? != MORE {
                break;
            }
        }
    }
    Ok((name, postings))
}

/// The list without one entry; `None` when no entry is left.
pub(super) fn without(bytes: &[u8], index: u32) -> Result<Option<Vec<u8>>, LedgerError> {
    let (name, postings) = read(bytes)?;
    let mut writer = ListWriter::named(name);
    let mut left = false;
    for posting in postings.into_iter().filter(|posting| posting.index != index) {
        left = true;
        writer.push(posting);
    }
    Ok(left.then(|| writer.finish()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed test says enough")]
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written_and_loses_one_entry() {
        let posting = |node: u8, wall, index| Posting { node: [node; 16], wall, index };
        let written = [
            posting(1, None, 0),
            posting(1, Some(i64::MIN), 16),
            posting(1, Some(i64::MAX), 17),
            posting(2, Some(-5), 32),
        ];
        let mut writer = ListWriter::named("name");
        written.into_iter().for_each(|posting| writer.push(posting));
        let bytes = writer.finish();
        assert_eq!(read(&bytes).unwrap(), ("name", written.to_vec()));
        let less = without(&bytes, 16).unwrap().unwrap();
        assert_eq!(read(&less).unwrap().1, [written[0], written[2], written[3]]);
    }

    #[test]
    fn damaged_lists_give_an_error_and_no_panic() {
        for length in 0..60 {
            for fill in [0, 1, 8, 0x7f, 0xff] {
                let _ = read(&vec![fill; length]);
            }
        }
    }
}
