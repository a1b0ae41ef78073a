//! Input as a broken disk, a cut transfer or an attacker leaves it.
//!
//! Deterministic: a seed gives the same damage on every machine, so that a failure can be repeated.

use crate::bundle::Bundle;

/// A small generator of pseudo-random numbers (SplitMix64). Quality does not matter here, repeatability does.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`; 0 when the limit is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { (self.draw() % limit as u64) as usize }
    }

    /// Puts a list in another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for index in (1..list.len()).rev() {
            list.swap(index, self.below(index + 1));
        }
    }
}

/// Pieces that parsers stumble over.
const NASTY: [&[u8]; 16] = [
    b"\0",
    b"\xff\xfe",
    b"\xf0\x9f\xa6",
    b"\r\n\r\n",
    b"{{{{{{{{{{{{{{{{",
    b"[[[[[[[[[[[[[[[[",
    b"'\"'\"\\",
    b"99999999999999999999999999",
    b"-9223372036854775809",
    b"1e999",
    b"NaN",
    b"\x1b[31m",
    b"(EngineCore pid=",
    b"[repeated 999999999x across cluster]",
    b"2026-02-30 25:61:61",
    b"} {",
];

/// Damages every input file of a bundle; `incident.toml` stays usable in two of three cases.
pub fn damage(bundle: &Bundle, random: &mut Random) -> Bundle {
    let mut damaged = bundle.clone();
    for bytes in damaged.files.values_mut() {
        for _ in 0..=random.below(6) {
            damage_bytes(bytes, random);
        }
    }
    if random.below(3) == 0 {
        let mut text = bundle.incident.to_string().into_bytes();
        damage_bytes(&mut text, random);
        damaged.incident.clear();
        damaged.files.insert("incident.toml".to_owned(), text);
    }
    damaged
}

/// One change of some bytes.
pub fn damage_bytes(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    let until = (at + random.below(200)).min(bytes.len());
    match random.below(6) {
        0 => bytes.truncate(at),
        1 => drop(bytes.drain(at..until)),
        2 => drop(bytes.splice(at..at, NASTY[random.below(NASTY.len())].iter().copied())),
        3 => {
            let copy = bytes[at..until].to_vec();
            let to = random.below(bytes.len() + 1);
            drop(bytes.splice(to..to, copy));
        }
        4 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        _ => {
            // One line without an end.
            let long = vec![b'a' + random.below(26) as u8; random.below(1 << 16)];
            drop(bytes.splice(at..at, long));
        }
    }
}
