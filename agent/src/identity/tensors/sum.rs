//! The sum of lines: the same lines in any order, over any number of files, give the same sum.
//!
//! LtHash (Bellare and Micciancio 1997; with these parameters Lewi and others 2019): every line becomes 1,024 numbers of 16
//! bits, which are added place by place. Two different sets of lines with one sum cannot be found in practice, and a file
//! takes two kilobytes however many tensors it has. The numbers of a line are sha256 of a counter (4 bytes, little-endian) and
//! the sha256 of the line, for counters 0 to 63, read as little-endian.

use kvprov_model::id::hex;
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Numbers of a sum.
const PLACES: usize = 1024;
/// Digests of sha256 that they take.
const BLOCKS: u32 = 64;

/// A sum of lines. A copy shares its memory.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct TensorSum(Arc<[u16; PLACES]>);

// === impl TensorSum ===

impl Default for TensorSum {
    fn default() -> Self {
        Self(Arc::new([0; PLACES]))
    }
}

impl std::fmt::Debug for TensorSum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TensorSum({})", self.digest())
    }
}

impl TensorSum {
    /// Adds a line by its sha256.
    pub(in super::super) fn add(&mut self, line: &[u8; 32]) {
        let mut places = Arc::make_mut(&mut self.0).iter_mut();
        for counter in 0..BLOCKS {
            let mut hash = Sha256::new();
            hash.update(counter.to_le_bytes());
            hash.update(line);
            let block: [u8; 32] = hash.finalize().into();
            for (pair, place) in block.chunks_exact(2).zip(&mut places) {
                *place = place.wrapping_add(u16::from_le_bytes([pair[0], pair[1]]));
            }
        }
    }

    /// Adds the lines of another sum.
    pub(in super::super) fn merge(&mut self, other: &Self) {
        for (place, more) in Arc::make_mut(&mut self.0).iter_mut().zip(other.0.iter()) {
            *place = place.wrapping_add(*more);
        }
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|place| place.to_le_bytes()).collect()
    }

    /// sha256 of the sum, in hex digits.
    pub(in super::super) fn digest(&self) -> String {
        hex(&Sha256::digest(self.bytes()))
    }

    /// The whole sum, in 4,096 hex digits.
    pub(in super::super) fn to_hex(&self) -> String {
        hex(&self.bytes())
    }

    /// From all of its hex digits.
    pub(in super::super) fn from_hex(text: &str) -> Option<Self> {
        if text.len() != 4 * PLACES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut places = [0; PLACES];
        for (index, place) in places.iter_mut().enumerate() {
            *place = u16::from_str_radix(text.get(4 * index..4 * index + 4)?, 16).ok()?.swap_bytes();
        }
        Some(Self(Arc::new(places)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(lines: &[u8]) -> TensorSum {
        let mut sum = TensorSum::default();
        lines.iter().for_each(|line| sum.add(&[*line; 32]));
        sum
    }

    #[test]
    fn order_and_spread_do_not_matter_and_every_line_does() {
        let all = sum(&[1, 2, 3]);
        assert_eq!(all, sum(&[3, 1, 2]));
        let mut spread = sum(&[2]);
        spread.merge(&sum(&[3, 1]));
        assert_eq!(all, spread);
        for other in [&[1, 2][..], &[1, 2, 3, 3], &[1, 2, 4], &[]] {
            assert_ne!(all.digest(), sum(other).digest());
        }
    }

    #[test]
    fn a_sum_survives_as_text() {
        let all = sum(&[1, 2, 3]);
        assert_eq!(TensorSum::from_hex(&all.to_hex()), Some(all.clone()));
        assert_eq!(TensorSum::from_hex(&all.to_hex()[1..]), None);
        assert_eq!(TensorSum::from_hex(&"g".repeat(4096)), None);
    }
}
