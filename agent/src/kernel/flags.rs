//! Flags of an open as a set of bits; text only in recordings.
//!
//! The bits are those of the machine the program was built for, as the kernel programs see them. Recordings hold names,
//! so that one made on another architecture reads the same. Source of the numbers: `asm-generic/fcntl.h`, and
//! `arch/arm64/include/uapi/asm/fcntl.h` where they differ.

use serde::{Deserialize, Deserializer};

#[cfg(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64"))]
mod arch {
    pub(super) const O_DIRECTORY: u32 = 0o40000;
    pub(super) const O_NOFOLLOW: u32 = 0o100000;
    pub(super) const O_DIRECT: u32 = 0o200000;
    pub(super) const O_LARGEFILE: u32 = 0o400000;
}
#[cfg(not(any(target_arch = "aarch64", target_arch = "arm", target_arch = "powerpc64")))]
mod arch {
    pub(super) const O_DIRECT: u32 = 0o40000;
    pub(super) const O_LARGEFILE: u32 = 0o100000;
    pub(super) const O_DIRECTORY: u32 = 0o200000;
    pub(super) const O_NOFOLLOW: u32 = 0o400000;
}

const ACCESS: u32 = 0o3;
const O_WRONLY: u32 = 0o1;
const O_RDWR: u32 = 0o2;
const O_CREAT: u32 = 0o100;
const O_TRUNC: u32 = 0o1000;
const O_PATH: u32 = 0o10000000;
const TMPFILE_BIT: u32 = 0o20000000;

/// Names beside the access mode. Those of several bits stand before those of their parts.
const NAMES: [(u32, &str); 17] = [
    (O_CREAT, "O_CREAT"),
    (0o200, "O_EXCL"),
    (0o400, "O_NOCTTY"),
    (O_TRUNC, "O_TRUNC"),
    (0o2000, "O_APPEND"),
    (0o4000, "O_NONBLOCK"),
    (0o4010000, "O_SYNC"),
    (0o10000, "O_DSYNC"),
    (0o20000, "O_ASYNC"),
    (arch::O_DIRECT, "O_DIRECT"),
    (arch::O_LARGEFILE, "O_LARGEFILE"),
    (TMPFILE_BIT | arch::O_DIRECTORY, "O_TMPFILE"),
    (arch::O_DIRECTORY, "O_DIRECTORY"),
    (arch::O_NOFOLLOW, "O_NOFOLLOW"),
    (0o1000000, "O_NOATIME"),
    (0o2000000, "O_CLOEXEC"),
    (O_PATH, "O_PATH"),
];

/// Flags of an open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct OpenFlags(u32);

// === impl OpenFlags ===

impl OpenFlags {
    /// From the bits of `open(2)`; bits without a name here are left out.
    pub fn from_bits(bits: u32) -> Self {
        Self(NAMES.iter().fold(bits & ACCESS, |kept, (flag, _)| {
            if bits & flag == *flag { kept | flag } else { kept }
        }))
    }

    /// From names joined by `|`; names that are not known are left out.
    pub fn parse(text: &str) -> Self {
        Self(text.split('|').fold(0, |bits, one| match one.trim() {
            "O_WRONLY" => bits | O_WRONLY,
            "O_RDWR" => bits | O_RDWR,
            name => bits | NAMES.iter().find(|(_, known)| *known == name).map_or(0, |(flag, _)| *flag),
        }))
    }

    /// Writes the names, joined by `|`, the access mode first.
    pub fn write_to(self, out: &mut Vec<u8>) {
        let mode: &[u8] = match self.0 & ACCESS {
            0 => b"O_RDONLY",
            O_WRONLY => b"O_WRONLY",
            O_RDWR => b"O_RDWR",
            _ => b"O_WRONLY|O_RDWR",
        };
        out.extend_from_slice(mode);
        let mut left = self.0 & !ACCESS;
        for (flag, name) in NAMES {
            if left & flag == flag {
                left &= !flag;
                out.push(b'|');
                out.extend_from_slice(name.as_bytes());
            }
        }
    }

    /// Whether it may write.
    pub fn may_write(self) -> bool {
        self.0 & ACCESS != 0
    }

    /// Whether it may make the file or empties it.
    pub fn creates_or_truncates(self) -> bool {
        self.0 & (O_CREAT | O_TRUNC) != 0
    }

    /// Whether it empties the file.
    pub fn truncates(self) -> bool {
        self.0 & O_TRUNC != 0
    }

    /// Whether it opens no file to read or write: a directory, or a mere place.
    pub fn is_no_file(self) -> bool {
        self.0 & O_PATH != 0 || self.0 & (TMPFILE_BIT | arch::O_DIRECTORY) == arch::O_DIRECTORY
    }
}

impl<'de> Deserialize<'de> for OpenFlags {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer).map(|text| Self::parse(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(flags: OpenFlags) -> String {
        let mut out = Vec::new();
        flags.write_to(&mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn what_recordings_hold_reads_back_as_it_was() {
        for flags in [
            "O_RDONLY",
            "O_RDONLY|O_CLOEXEC",
            "O_WRONLY|O_CREAT|O_TRUNC|O_CLOEXEC",
            "O_RDWR|O_CREAT|O_EXCL|O_CLOEXEC",
            "O_RDWR|O_TMPFILE",
            "O_RDONLY|O_NONBLOCK|O_DIRECTORY|O_CLOEXEC",
        ] {
            assert_eq!(text(OpenFlags::parse(flags)), flags);
        }
    }

    #[test]
    fn a_temporary_file_without_a_name_is_no_directory() {
        assert!(!OpenFlags::parse("O_RDWR|O_TMPFILE").is_no_file());
        assert!(OpenFlags::parse("O_RDONLY|O_DIRECTORY").is_no_file());
        assert!(OpenFlags::parse("O_PATH").is_no_file());
    }

    proptest! {
        #[test]
        fn any_bits_survive_their_names(bits in any::<u32>()) {
            let flags = OpenFlags::from_bits(bits);
            prop_assert_eq!(OpenFlags::parse(&text(flags)), flags);
        }
    }
}
