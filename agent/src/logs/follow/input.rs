//! Bytes of a file by their offset, packed or not.

use super::files::FileStat;
use flate2::read::MultiGzDecoder;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;

/// An open file.
#[derive(Debug)]
pub(super) enum Input {
    /// As it is.
    Plain(File),
    /// Packed by gzip.
    Packed(Box<Packed>),
}

/// A packed file; reading backwards unpacks it anew.
#[derive(Debug)]
pub(super) struct Packed {
    file: File,
    decoder: MultiGzDecoder<File>,
    at: u64,
}

// === impl Input ===

impl Input {
    pub(super) fn new(file: File, packed: bool) -> io::Result<Self> {
        if !packed {
            return Ok(Self::Plain(file));
        }
        let decoder = MultiGzDecoder::new(file.try_clone()?);
        Ok(Self::Packed(Box::new(Packed { file, decoder, at: 0 })))
    }

    pub(super) fn stat(&self) -> io::Result<FileStat> {
        match self {
            Self::Plain(file) => FileStat::of(file),
            Self::Packed(packed) => FileStat::of(&packed.file),
        }
    }

    pub(super) fn is_packed(&self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Reads as much as there is, up to the length of the buffer.
    pub(super) fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let read = match self {
                Self::Plain(file) => file.read_at(&mut buffer[filled..], offset + filled as u64),
                Self::Packed(packed) => packed.read_at(offset + filled as u64, &mut buffer[filled..]),
            };
            match read {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) if filled > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }
}

// === impl Packed ===

impl Packed {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if offset < self.at {
            self.again()?;
        }
        let mut passed = [0; 16 << 10];
        while self.at < offset {
            let room = passed.len().min((offset - self.at) as usize);
            match self.read(&mut passed[..room])? {
                0 => return Ok(0),
                read => self.at += read as u64,
            }
        }
        let read = self.read(buffer)?;
        self.at += read as u64;
        Ok(read)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.decoder.read(buffer) {
            // Whoever packs it is not done; it is unpacked anew when it has grown.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
            other => other,
        }
    }

    /// Begins anew.
    fn again(&mut self) -> io::Result<()> {
        let mut file = self.file.try_clone()?;
        file.rewind()?;
        self.decoder = MultiGzDecoder::new(file);
        self.at = 0;
        Ok(())
    }
}
