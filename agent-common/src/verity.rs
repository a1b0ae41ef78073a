//! What fs-verity says of a file: the kernel's digest over the tree of its blocks.
//!
//! The file system checks it at every read, so that it needs no reading by us. Source: `include/uapi/linux/fsverity.h`,
//! `FS_IOC_MEASURE_VERITY`; Linux 5.4 and later, ext4, f2fs and btrfs.

#![allow(unsafe_code, reason = "the kernel writes what it measured into memory that is handed to it")]

use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, ioctl, opcode};
use std::ffi::c_void;
use std::os::fd::AsFd;

/// Longest digest: SHA-512.
const LONGEST: usize = 64;
/// Bytes before the digest: algorithm and size.
const HEAD: usize = 4;

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// `FS_VERITY_HASH_ALG_*`.
    pub number: u16,
    /// The digest.
    pub digest: Vec<u8>,
}

/// `struct fsverity_digest` with room for the digest.
struct Measure([u8; HEAD + LONGEST]);

/// The digest of a file. `None`: it has none, or it cannot be told.
pub fn measure(file: impl AsFd) -> Option<Measured> {
    let mut buffer = [0; HEAD + LONGEST];
    let [_, _, size @ ..] = &mut buffer;
    size[..2].copy_from_slice(&u16::try_from(LONGEST).ok()?.to_ne_bytes());
    // SAFETY: the type below passes a buffer of the size that it names, and nothing else.
    let measured = unsafe { ioctl(file, Measure(buffer)) }.ok()?;
    parse(&measured)
}

fn parse(bytes: &[u8]) -> Option<Measured> {
    let number = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let (algorithm, size) = (number(0)?, usize::from(number(2)?));
    let digest = bytes.get(HEAD..HEAD.checked_add(size)?)?.to_vec();
    let measured = Measured { number: algorithm, digest };
    (measured.algorithm().is_some() && size == measured.size()).then_some(measured)
}

// === impl Measured ===

impl Measured {
    /// The name of its algorithm, where known.
    pub fn algorithm(&self) -> Option<&'static str> {
        match self.number {
            1 => Some("sha256"),
            2 => Some("sha512"),
            _ => None,
        }
    }

    /// Bytes that a digest of its algorithm has.
    fn size(&self) -> usize {
        if self.number == 1 { 32 } else { LONGEST }
    }
}

// SAFETY: FS_IOC_MEASURE_VERITY reads the size at byte 2 of the buffer and writes at most four bytes more than that, which
// is what the buffer has; the pointer is to that buffer, which outlives the call.
unsafe impl Ioctl for Measure {
    type Output = [u8; HEAD + LONGEST];
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<[u16; 2]>(b'f', 134)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    unsafe fn output_from_ptr(_: IoctlOutput, pointer: *mut c_void) -> Result<Self::Output, Errno> {
        // SAFETY: the pointer is the one that `as_ptr` gave.
        Ok(unsafe { pointer.cast::<Self::Output>().read() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(number: u16, size: u16) -> Vec<u8> {
        let mut bytes = [number.to_ne_bytes(), size.to_ne_bytes()].concat();
        bytes.resize(HEAD + LONGEST, 7);
        bytes
    }

    #[test]
    fn a_digest_is_taken_as_the_kernel_writes_it() {
        assert_eq!(parse(&answer(1, 32)), Some(Measured { number: 1, digest: vec![7; 32] }));
        assert_eq!(parse(&answer(2, 64)).and_then(|measured| measured.algorithm()), Some("sha512"));
    }

    #[test]
    fn another_algorithm_or_length_is_not_taken() {
        for (number, size) in [(3, 32), (1, 31), (1, 64), (2, 32), (1, u16::MAX), (0, 0)] {
            assert_eq!(parse(&answer(number, size)), None, "{number} {size}");
        }
        assert_eq!(parse(&[1, 0, 32]), None);
    }

    #[test]
    fn the_call_is_the_one_of_the_header() {
        assert_eq!(Measure([0; HEAD + LONGEST]).opcode(), 0xc004_6686);
    }

    #[test]
    fn a_file_without_it_has_no_digest() {
        let file = std::fs::File::open("/proc/self/exe");
        assert!(file.is_ok_and(|file| measure(file).is_none()));
    }
}
