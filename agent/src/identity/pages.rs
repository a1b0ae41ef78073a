//! Reading a file and leaving the page cache as it was.
//!
//! A read that must not wait tells which pages were in memory before: those stay, and only pages that this reader brought in
//! are given back (`posix_fadvise(DONTNEED)`); read-ahead is off, or it would bring in pages of its own.

use rustix::fs::{Advice, SeekFrom};
use rustix::io::ReadWriteFlags;
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt};

/// A file that is being read.
#[derive(Debug)]
pub(super) struct Pages<'f> {
    file: &'f File,
    /// Parts of it have no blocks: they are zeros, which need not be read.
    is_sparse: bool,
    /// The next byte of a part with blocks, and the end of that part, where known.
    data: (u64, u64),
}

// === impl Pages ===

impl<'f> Pages<'f> {
    pub(super) fn new(file: &'f File) -> Self {
        // Advice is not needed for the result.
        let _ = rustix::fs::fadvise(file, 0, None, Advice::Random);
        let is_sparse = file.metadata().is_ok_and(|stat| stat.blocks().saturating_mul(512) < stat.size());
        Self { file, is_sparse, data: (0, 0) }
    }

    /// Reads what is at a place; 0 at the end of the file.
    pub(super) fn read(&mut self, buffer: &mut [u8], at: u64) -> std::io::Result<usize> {
        if self.is_sparse
            && let Some(zeros) = self.hole(at)
        {
            let length = usize::try_from(zeros).unwrap_or(usize::MAX).min(buffer.len());
            buffer[..length].fill(0);
            return Ok(length);
        }
        if let Some(read) = self.at_once(buffer, at) {
            return Ok(read);
        }
        let read = self.file.read_at(buffer, at)?;
        if let Some(length) = NonZeroU64::new(read as u64) {
            let _ = rustix::fs::fadvise(self.file, at, Some(length), Advice::DontNeed);
        }
        Ok(read)
    }

    /// Bytes of the hole at a place. `None`: there is none, or it cannot be told.
    fn hole(&mut self, at: u64) -> Option<u64> {
        if !(self.data.0..self.data.1).contains(&at) {
            let size = self.file.metadata().ok()?.size();
            if at >= size {
                return None;
            }
            let begin = match rustix::fs::seek(self.file, SeekFrom::Data(at)) {
                Ok(begin) => begin,
                Err(rustix::io::Errno::NXIO) => size,
                Err(_) => {
                    self.is_sparse = false;
                    return None;
                }
            };
            if begin > at {
                return Some(begin - at);
            }
            let end = rustix::fs::seek(self.file, SeekFrom::Hole(at)).ok()?;
            self.data = (at, end);
        }
        None
    }

    /// What is in memory already at a place. `None`: not in memory, or it cannot be told.
    fn at_once(&self, buffer: &mut [u8], at: u64) -> Option<usize> {
        let mut slices = [IoSliceMut::new(buffer)];
        // A zero may be the end, which the read that waits decides.
        rustix::io::preadv2(self.file, &mut slices, at, ReadWriteFlags::NOWAIT).ok().filter(|read| *read > 0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn read_all(file: &File) -> Vec<u8> {
        let mut pages = Pages::new(file);
        let (mut all, mut buffer) = (Vec::new(), vec![1; 100_000]);
        loop {
            let read = pages.read(&mut buffer, all.len() as u64).unwrap();
            if read == 0 {
                return all;
            }
            all.extend_from_slice(&buffer[..read]);
        }
    }

    #[test]
    fn holes_at_the_begin_in_the_middle_and_at_the_end_are_zeros() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"one", 1 << 20).unwrap();
        file.write_all_at(b"two", 3 << 20).unwrap();
        file.set_len(5 << 20).unwrap();
        let mut expected = vec![0; 5 << 20];
        expected[1 << 20..][..3].copy_from_slice(b"one");
        expected[3 << 20..][..3].copy_from_slice(b"two");
        assert!(read_all(&file) == expected);
    }

    #[test]
    fn an_empty_file_ends_at_once() {
        assert!(read_all(&tempfile::tempfile().unwrap()).is_empty());
    }
}
