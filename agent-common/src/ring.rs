//! The consumer of the ring: reads what the kernel programs wrote by mapping the ring's descriptor.
//!
//! No system call is needed to read, and no capability at all: whoever holds the descriptor can map it. A record is
//! handed out where it lies, and its room is given back in a second step, so that a reader may first put on disk what
//! it took. Invariants: one consumer at a time; a record is handed out once; what was not given back is handed out
//! again to the next consumer, at the same positions.

#![allow(unsafe_code, reason = "memory that the kernel writes is mapped and read in place")]

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes before every record: its length, and a number of the kernel's own.
const HEAD: u64 = 8;
/// The record is still being written.
const BUSY: u32 = 1 << 31;
/// The record is void.
const DISCARDED: u32 = 1 << 30;

/// The reading end of a ring.
#[derive(Debug)]
pub struct Ring {
    descriptor: OwnedFd,
    /// Bytes of records that fit, a power of two.
    capacity: u64,
    /// Position up to which room is given back; ours to write.
    consumer: Mapping,
    /// Position up to which room is taken, and behind it the records, mapped twice in a row, so that none is torn.
    producer: Mapping,
    page: usize,
    /// Position up to which records were handed out.
    next: u64,
}

impl Ring {
    /// Maps a ring of `capacity` bytes.
    ///
    /// # Errors
    /// The capacity is no power of two of at least a page, or the descriptor is no ring of that capacity.
    pub fn new(descriptor: OwnedFd, capacity: u64) -> io::Result<Self> {
        let page = rustix::param::page_size();
        if !capacity.is_power_of_two() || capacity < page as u64 || capacity > u64::from(u32::MAX) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a ring holds a power of two of bytes, from {page} to 2 GiB; {capacity} is none"),
            ));
        }
        let consumer = Mapping::new(&descriptor, page, ProtFlags::READ | ProtFlags::WRITE, 0)?;
        let producer = Mapping::new(&descriptor, page + 2 * capacity as usize, ProtFlags::READ, page as u64)?;
        let mut ring = Self { descriptor, capacity, consumer, producer, page, next: 0 };
        ring.next = ring.consumer_position().load(Ordering::Acquire);
        Ok(ring)
    }

    /// The descriptor; it becomes readable once enough waits. The programs wake nobody for less, so look at
    /// [`Self::pending`] every few milliseconds too.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Bytes that the ring can hold.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that wait to be handed out, heads included.
    pub fn pending(&self) -> u64 {
        self.producer_position().load(Ordering::Acquire).wrapping_sub(self.next)
    }

    /// Position up to which records were handed out.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Hands out at most `limit` records that are complete, each with its position and its bytes (aligned to eight),
    /// without giving their room back. Returns how many.
    ///
    /// # Errors
    /// The ring holds a length that cannot be.
    pub fn peek(&mut self, limit: usize, mut take: impl FnMut(u64, &[u8])) -> io::Result<usize> {
        let end = self.producer_position().load(Ordering::Acquire);
        let mask = self.capacity - 1;
        // SAFETY: the first page of the mapping holds the position, the records begin behind it.
        let records = unsafe { self.producer.start.cast::<u8>().add(self.page) };
        let mut count = 0;
        while count < limit && self.next < end {
            let offset = (self.next & mask) as usize;
            // SAFETY: below `capacity` and a multiple of eight. The kernel writes the word atomically.
            let head = unsafe { records.add(offset).cast::<AtomicU32>().as_ref() };
            let head = head.load(Ordering::Acquire);
            if head & BUSY != 0 {
                break;
            }
            let length = u64::from(head & !(BUSY | DISCARDED));
            let taken = (length + HEAD).next_multiple_of(8);
            if taken > self.capacity || taken > end - self.next {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a record of {length} bytes at {} does not fit into its ring", self.next),
                ));
            }
            if head & DISCARDED == 0 {
                // SAFETY: inside the doubled mapping, as was checked. The kernel leaves a complete record alone until
                // its room is given back, which needs `&mut self`.
                let bytes = unsafe {
                    std::slice::from_raw_parts(records.add(offset + HEAD as usize).as_ptr(), length as usize)
                };
                take(self.next, bytes);
                count += 1;
            }
            self.next += taken;
        }
        Ok(count)
    }

    /// Gives back the room of all that was handed out.
    pub fn release(&mut self) {
        self.consumer_position().store(self.next, Ordering::Release);
    }

    /// Gives back the room of what was handed out before a position: that of a record, or [`Self::position`]. Room that
    /// was given back stays so; at a position where no record can begin none is.
    pub fn release_up_to(&mut self, position: u64) {
        let given = self.consumer_position();
        let position = position.min(self.next);
        if position > given.load(Ordering::Acquire) && position.is_multiple_of(HEAD) {
            given.store(position, Ordering::Release);
        }
    }

    /// Bytes that were handed out and whose room is not given back.
    pub fn held(&self) -> u64 {
        self.next.wrapping_sub(self.consumer_position().load(Ordering::Acquire))
    }

    /// Takes back what was handed out and not released: it will be handed out again.
    pub fn rewind(&mut self) {
        self.next = self.consumer_position().load(Ordering::Acquire);
    }

    fn consumer_position(&self) -> &AtomicU64 {
        // SAFETY: the mapping begins with the position and lives as long as `self`.
        unsafe { self.consumer.start.cast::<AtomicU64>().as_ref() }
    }

    fn producer_position(&self) -> &AtomicU64 {
        // SAFETY: as above; an atomic load does not write.
        unsafe { self.producer.start.cast::<AtomicU64>().as_ref() }
    }
}

/// A part of the ring in memory.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Mapping {
    fn new(descriptor: &OwnedFd, length: usize, protection: ProtFlags, offset: u64) -> io::Result<Self> {
        // SAFETY: a new mapping where the kernel likes; nothing of ours lies there.
        let start = unsafe { mmap(null_mut(), length, protection, MapFlags::SHARED, descriptor, offset) }?;
        let start =
            NonNull::new(start).ok_or_else(|| io::Error::other("the ring was mapped at address 0"))?;
        Ok(Self { start, length })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody holds a reference any more. It fails only for addresses that are none.
        let _ = unsafe { munmap(self.start.as_ptr(), self.length) };
    }
}

// SAFETY: a mapping belongs to no thread; what lies in it is read through atomics or by the one consumer.
unsafe impl Send for Mapping {}
