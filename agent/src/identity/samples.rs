//! What can be said of a large file at once: its size, its begin, and a few ranges of it.
//!
//! A sample shows people that something was loaded and whether two files look alike. It proves nothing: files with equal
//! samples may differ in between. Where the file system keeps a digest of the file's blocks (fs-verity) that is told too; it is
//! over a tree of blocks, so that it never equals the sha256 of the content.

use super::pages::Pages;
use kvprov_model::id::hex;
use sha2::{Digest, Sha256};
use std::fs::File;

/// Bytes at the begin: the header of most formats, or much of it.
const HEAD: usize = 64 << 10;
/// Ranges behind it.
const RANGES: u64 = 16;
/// Bytes of a range.
const RANGE: usize = 4 << 10;
/// Bytes of a sample at most.
pub(super) const BYTES: u64 = HEAD as u64 + RANGES * RANGE as u64;

/// The algorithm of values that are samples.
pub(super) const ALGORITHM: &str = "samples-v1";
/// The algorithm of values that fs-verity gives, with its own behind it.
pub(super) const VERITY: &str = "fs-verity";

/// A sample of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sample {
    /// sha256 over the size (8 bytes, little-endian), the head and the ranges, in hex digits.
    pub digest: String,
    /// What fs-verity measured, as `algorithm:digest`.
    pub verity: Option<String>,
}

/// Takes a sample of a file of `size` bytes.
pub(super) fn of(file: &File, size: u64) -> std::io::Result<Sample> {
    let verity = kvprov_agent_common::verity::measure(file)
        .and_then(|measured| Some(format!("{}:{}", measured.algorithm()?, hex(&measured.digest))));
    let mut pages = Pages::new(file);
    let mut hash = Sha256::new();
    hash.update(size.to_le_bytes());
    take(&mut pages, 0, HEAD, &mut hash)?;
    for range in 0..RANGES {
        take(&mut pages, begin_of(range, size), RANGE, &mut hash)?;
    }
    Ok(Sample { digest: hex(&hash.finalize()), verity })
}

/// The last range ends where the file ends.
fn begin_of(range: u64, size: u64) -> u64 {
    let room = size.saturating_sub(RANGE as u64);
    let begin = u128::from(room) * u128::from(range + 1) / u128::from(RANGES);
    u64::try_from(begin).unwrap_or(room)
}

fn take(pages: &mut Pages<'_>, begin: u64, length: usize, hash: &mut Sha256) -> std::io::Result<()> {
    let mut buffer = vec![0; length];
    let mut have = 0;
    while have < length {
        match pages.read(&mut buffer[have..], begin + have as u64)? {
            0 => break,
            read => have += read,
        }
    }
    hash.update(&buffer[..have]);
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    fn sample(change: Option<u64>) -> String {
        let file = tempfile::tempfile().unwrap();
        file.set_len(200 << 20).unwrap();
        if let Some(at) = change {
            file.write_all_at(b"x", at).unwrap();
        }
        of(&file, 200 << 20).unwrap().digest
    }

    #[test]
    fn a_change_in_the_head_or_at_the_end_shows_and_one_between_ranges_does_not() {
        let plain = sample(None);
        assert_ne!(plain, sample(Some(0)));
        assert_ne!(plain, sample(Some((200 << 20) - 1)));
        assert_eq!(plain, sample(Some(1 << 20)));
    }

    #[test]
    fn ranges_stay_inside_the_file() {
        for size in [0, 1, 4096, 5000, u64::MAX] {
            for range in 0..RANGES {
                assert!(begin_of(range, size) <= size.saturating_sub(RANGE as u64), "{size}");
            }
        }
    }

    #[test]
    fn a_short_file_is_sampled_as_a_whole() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        assert_eq!(of(&file, 3).unwrap().digest.len(), 64);
    }
}
