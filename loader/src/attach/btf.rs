//! Where the running kernel keeps the members of its structures, from its type information (BTF).
//!
//! Input: the bytes of `/sys/kernel/btf/vmlinux`. Only what the programs need is read: structures, unions, their
//! members. Damaged bytes give no answer, never a panic.

use std::collections::HashMap;

const MAGIC: u16 = 0xeb9f;
/// Anonymous structures within each other.
const DEPTH_MAX: usize = 16;

const STRUCT: u32 = 4;
const UNION: u32 = 5;
/// typedef, volatile, const, restrict, type tag: another name for a type.
const ALIASES: [u32; 5] = [8, 9, 10, 11, 18];

/// The types of a kernel.
#[derive(Debug)]
pub(crate) struct Types<'b> {
    types: &'b [u8],
    strings: &'b [u8],
    /// Where each type begins in `types`; the first is `void`.
    starts: Vec<usize>,
    /// Structures by name.
    structures: HashMap<&'b [u8], usize>,
}

/// The type information is damaged.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("the kernel's type information is damaged: {0}")]
pub struct Damaged(&'static str);

impl<'b> Types<'b> {
    /// Takes type information apart.
    pub(crate) fn parse(bytes: &'b [u8]) -> Result<Self, Damaged> {
        let magic = bytes.get(..2).and_then(|bytes| bytes.try_into().ok()).map(u16::from_le_bytes);
        if magic != Some(MAGIC) {
            return Err(Damaged("it does not begin with the magic number"));
        }
        let head = |at: usize| word(bytes, at).map(|word| word as usize).ok_or(Damaged("its head is cut"));
        let part = |from: usize, length: usize| {
            let begin = head(4)?.checked_add(from);
            let end = begin.and_then(|begin| begin.checked_add(length));
            begin
                .zip(end)
                .and_then(|(begin, end)| bytes.get(begin..end))
                .ok_or(Damaged("a part lies outside"))
        };
        let types = part(head(8)?, head(12)?)?;
        let strings = part(head(16)?, head(20)?)?;
        let mut found = Self { types, strings, starts: vec![0], structures: HashMap::new() };
        found.index()?;
        Ok(found)
    }

    fn index(&mut self) -> Result<(), Damaged> {
        let mut at = 0;
        while at < self.types.len() {
            let info = word(self.types, at + 4).ok_or(Damaged("a type is cut"))?;
            let (kind, count) = (kind(info), (info & 0xffff) as usize);
            if kind == STRUCT
                && let Some(name) = word(self.types, at).and_then(|name| self.string(name))
            {
                self.structures.entry(name).or_insert(self.starts.len());
            }
            self.starts.push(at);
            at += 12
                + match kind {
                    // int, variable, declaration tag
                    1 | 14 | 17 => 4,
                    // array
                    3 => 12,
                    // structure, union, section, enum of 64 bits
                    STRUCT | UNION | 15 | 19 => 12 * count,
                    // enum, prototype
                    6 | 13 => 8 * count,
                    // pointer, forward, typedef, volatile, const, restrict, function, float, type tag
                    2 | 7..=12 | 16 | 18 => 0,
                    _ => return Err(Damaged("a type is of an unknown kind")),
                };
        }
        Ok(())
    }

    /// Byte offset of a member, which may be named by way of others: `a.b`. Anonymous structures are looked through.
    pub(crate) fn offset(&self, structure: &str, member: &str) -> Option<u32> {
        let mut id = *self.structures.get(structure.as_bytes())?;
        let mut offset = 0u32;
        for name in member.split('.') {
            // Anonymous members have no name.
            if name.is_empty() {
                return None;
            }
            let (at, of) = self.member(self.resolve(id)?, name.as_bytes(), DEPTH_MAX)?;
            offset = offset.checked_add(at)?;
            id = of;
        }
        Some(offset)
    }

    /// Offset and type of a member.
    fn member(&self, id: usize, name: &[u8], depth: usize) -> Option<(u32, usize)> {
        let start = *self.starts.get(id)?;
        let info = word(self.types, start + 4)?;
        if id == 0 || !matches!(kind(info), STRUCT | UNION) || depth == 0 {
            return None;
        }
        for n in 0..(info & 0xffff) as usize {
            let at = start + 12 + 12 * n;
            let (member, of) = (self.string(word(self.types, at)?)?, word(self.types, at + 4)? as usize);
            // With the highest bit of `info`, the upper byte is the width of a bit field.
            let bits = word(self.types, at + 8)? & if info >> 31 == 1 { 0xff_ffff } else { u32::MAX };
            if member == name {
                return Some((bits / 8, of));
            }
            if member.is_empty()
                && let Some((inner, of)) = self.resolve(of).and_then(|of| self.member(of, name, depth - 1))
            {
                return Some(((bits / 8).checked_add(inner)?, of));
            }
        }
        None
    }

    /// The type that other names stand for.
    fn resolve(&self, mut id: usize) -> Option<usize> {
        for _ in 0..DEPTH_MAX {
            let start = *self.starts.get(id)?;
            if id == 0 || !ALIASES.contains(&kind(word(self.types, start + 4)?)) {
                return Some(id);
            }
            id = word(self.types, start + 8)? as usize;
        }
        None
    }

    fn string(&self, at: u32) -> Option<&'b [u8]> {
        let rest = self.strings.get(at as usize..)?;
        rest.get(..rest.iter().position(|byte| *byte == 0)?)
    }
}

fn kind(info: u32) -> u32 {
    (info >> 24) & 0x1f
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Type information of: `struct outer { int a; struct { int b; } ; struct inner c; }`, `struct inner { int d; int e; }`.
    fn sample() -> Vec<u8> {
        let strings = b"\0int\0outer\0a\0b\0inner\0c\0d\0e\0";
        let name = |wanted: &str| {
            let wanted = [b"\0", wanted.as_bytes(), b"\0"].concat();
            strings.windows(wanted.len()).position(|part| part == wanted).map_or(0, |at| at as u32 + 1)
        };
        let mut types = Vec::new();
        let mut put = |words: &[u32]| types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        put(&[name("int"), 1 << 24, 4, 32]);
        put(&[name("outer"), STRUCT << 24 | 3, 16]);
        put(&[name("a"), 1, 0, 0, 3, 32, name("c"), 5, 64]);
        put(&[0, STRUCT << 24 | 1, 4, name("b"), 1, 0]);
        put(&[name("inner"), STRUCT << 24 | 2, 8, name("d"), 1, 0, name("e"), 1, 32]);
        put(&[name("inner"), 8 << 24, 4]);
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([1, 0]);
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_member_is_found_directly_through_anonymous_structures_and_by_way_of_others() {
        let bytes = sample();
        let types = Types::parse(&bytes).unwrap();
        assert_eq!(types.offset("outer", "a"), Some(0));
        assert_eq!(types.offset("outer", "b"), Some(4));
        assert_eq!(types.offset("outer", "c"), Some(8));
        assert_eq!(types.offset("outer", "c.e"), Some(12));
    }

    #[test]
    fn what_is_not_there_has_no_offset() {
        let bytes = sample();
        let types = Types::parse(&bytes).unwrap();
        for (structure, member) in
            [("outer", "z"), ("none", "a"), ("outer", "a.b"), ("int", "a"), ("outer", "")]
        {
            assert_eq!(types.offset(structure, member), None, "{structure}.{member}");
        }
    }

    #[test]
    fn damage_gives_no_panic() {
        let bytes = sample();
        for end in 0..bytes.len() {
            if let Ok(types) = Types::parse(&bytes[..end]) {
                types.offset("outer", "c.e");
            }
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Ok(types) = Types::parse(&damaged) {
                    types.offset("outer", "b");
                    types.offset("outer", "c.e");
                }
            }
        }
    }
}
