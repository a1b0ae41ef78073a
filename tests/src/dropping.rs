//! Input as a full disk, a limited journal or a slow collector leaves it: lines are missing, and nobody says which.

use crate::bundle::Bundle;
use crate::mutate::Random;

/// The bundle without so many of a hundred lines of its files.
pub fn without_lines(bundle: &Bundle, percent: usize, random: &mut Random) -> Bundle {
    let mut thinned = bundle.clone();
    for bytes in thinned.files.values_mut() {
        let kept: Vec<&[u8]> =
            bytes.split_inclusive(|byte| *byte == b'\n').filter(|_| random.below(100) >= percent).collect();
        *bytes = kept.concat();
    }
    thinned
}
