//! One file's bytes on their way to observations, so that a reading that was broken off can be taken up.
//!
//! The reader of lines remembers: what repeats, what waits for its next line, which cause waits for its failure. To
//! come out the same after a restart it begins anew at *seams*, places that follow from the bytes alone: the first end
//! of a line behind a multiple of [`Cutting::grain`] bytes once [`Cutting::segment`] bytes were read and nothing waits.
//! What a pause of the writer sets free follows from time; it is noted as a *mark* before it is done. So a reading is
//! given by its last seam, its marks and the number of bytes, and reading those bytes again gives the same
//! observations; those that were handed over before are left out.

use crate::logs::{Carry, LogReader};
use kvprov_model::observation::Observation;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Where seams lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cutting {
    /// Distance of places that may be seams, in bytes.
    pub(super) grain: u64,
    /// Shortest distance of seams, in bytes. Behind four times as many a seam is made whatever waits.
    pub(super) segment: u64,
}

/// What a pause set free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pause {
    /// What waited for a next line.
    Short,
    /// Everything; a seam.
    Long,
}

/// A pause that was used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    /// Bytes before it.
    pub(super) at: u64,
    /// Which.
    pub(super) pause: Pause,
    /// What it set free was handed over.
    pub(super) told: bool,
}

/// Where a reading can be taken up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Taken {
    /// The last seam.
    pub(super) seam: Carry,
    /// Pauses behind it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) marks: Vec<Mark>,
    /// Bytes whose observations were handed over.
    pub(super) position: u64,
}

/// A reading.
#[derive(Debug)]
pub(super) struct Reading<'p> {
    reader: LogReader<'p>,
    cutting: Cutting,
    /// The reading as it is.
    now: Taken,
    /// Marks that are passed.
    passed: usize,
    next_grain: u64,
    /// Up to here observations were handed over by an earlier reading.
    told_to: u64,
    /// Observations that nobody took yet.
    out: VecDeque<Observation>,
    /// The reading as it was when everything had been taken.
    handed: Taken,
}

impl Default for Cutting {
    fn default() -> Self {
        Self { grain: 64 << 10, segment: 4 << 20 }
    }
}

// === impl Reading ===

impl<'p> Reading<'p> {
    /// Takes a reading up. `reader` stands behind `taken.seam`; the bytes from there on have to be pushed.
    pub(super) fn take_up(reader: LogReader<'p>, taken: Taken, cutting: Cutting) -> Self {
        let from = taken.seam.offset;
        let mut now = taken.clone();
        now.position = from;
        let mut reading = Self {
            reader,
            cutting,
            now,
            passed: 0,
            next_grain: next_grain(from, cutting.grain),
            told_to: taken.position,
            out: VecDeque::new(),
            handed: taken,
        };
        reading.pass_marks();
        reading
    }

    /// Bytes taken so far, in the file.
    pub(super) fn position(&self) -> u64 {
        self.now.position
    }

    pub(super) fn reader(&self) -> &LogReader<'p> {
        &self.reader
    }

    /// What may be written down: everything before it was handed over.
    pub(super) fn taken(&self) -> &Taken {
        &self.handed
    }

    /// No line was read yet.
    pub(super) fn is_at_begin(&self) -> bool {
        self.now.position == self.now.seam.offset && self.reader.carry().lines == 0
    }

    /// Still among bytes of an earlier reading.
    pub(super) fn is_behind(&self) -> bool {
        self.now.position < self.told_to
    }

    /// Jumps over bytes that hold nothing, before anything else was read.
    pub(super) fn skip_to(&mut self, offset: u64) {
        let Some(length) = offset.checked_sub(self.now.position) else { return };
        self.reader.leave_out(length);
        self.now.seam.offset = offset;
        self.now.position = offset;
        self.next_grain = next_grain(offset, self.cutting.grain);
        self.note_if_handed();
    }

    /// Takes the next bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let at = self.now.position;
            let mut length = bytes.len();
            if let Some(mark) = self.now.marks.get(self.passed) {
                length = length.min(mark.at.saturating_sub(at) as usize);
            }
            if at < self.told_to {
                length = length.min((self.told_to - at) as usize);
            }
            // The end of the first line that ends at or behind the next grain.
            let mut is_grain = false;
            if at + length as u64 >= self.next_grain {
                let from = self.next_grain.saturating_sub(at + 1) as usize;
                if let Some(end) = bytes.get(from..length).and_then(|rest| memchr::memchr(b'\n', rest)) {
                    length = from + end + 1;
                    is_grain = true;
                }
            }
            if length == 0 {
                // A mark that lies before what was read: the file is not the one that was marked.
                self.now.marks.truncate(self.passed);
                continue;
            }
            let (head, rest) = bytes.split_at(length);
            let silent = at < self.told_to;
            let Self { reader, out, .. } = self;
            reader.push(head, &mut |observation| keep(out, silent, observation));
            self.now.position += length as u64;
            bytes = rest;
            if is_grain {
                self.at_grain(silent);
            }
            self.pass_marks();
        }
        self.note_if_handed();
    }

    fn at_grain(&mut self, silent: bool) {
        self.next_grain = next_grain(self.now.position, self.cutting.grain);
        let length = self.now.position - self.now.seam.offset;
        let Cutting { segment, .. } = self.cutting;
        if length >= segment.saturating_mul(4) || (length >= segment && self.reader.at_rest()) {
            self.seam(silent);
        }
    }

    fn seam(&mut self, silent: bool) {
        let Self { reader, out, .. } = self;
        if let Some(carry) = reader.seam(&mut |observation| keep(out, silent, observation)) {
            self.now.seam = carry;
            self.now.marks.drain(..self.passed);
            self.passed = 0;
        }
    }

    /// Does again what marks at this place did.
    fn pass_marks(&mut self) {
        while let Some(mark) =
            self.now.marks.get(self.passed).copied().filter(|mark| mark.at == self.now.position)
        {
            self.passed += 1;
            self.pause(mark.pause, mark.told);
        }
    }

    fn pause(&mut self, pause: Pause, silent: bool) {
        match pause {
            Pause::Short => {
                let Self { reader, out, .. } = self;
                reader.idle(&mut |observation| keep(out, silent, observation));
            }
            Pause::Long => self.seam(silent),
        }
    }

    /// What a pause would set free now. It has to be noted, and what [`Self::taken`] gives to be on disk, before
    /// [`Self::use_pause`].
    pub(super) fn note_pause(&mut self, long: bool) -> bool {
        if !self.out.is_empty() || self.is_behind() || self.passed < self.now.marks.len() {
            return false;
        }
        let pause = match long {
            true if self.reader.is_unsettled() => Pause::Long,
            false if self.reader.waits() => Pause::Short,
            _ => return false,
        };
        self.now.marks.push(Mark { at: self.now.position, pause, told: false });
        self.handed = self.now.clone();
        true
    }

    /// Does what was noted.
    pub(super) fn use_pause(&mut self) {
        self.pass_marks();
        self.note_if_handed();
    }

    /// Ends the reading at the end of the file. What was learnt goes on into the next file.
    pub(super) fn finish(&mut self) -> Carry {
        let silent = self.is_behind();
        let Self { reader, out, .. } = self;
        reader.finish(&mut |observation| keep(out, silent, observation));
        reader.carry().onward()
    }

    /// The next observation that nobody took.
    pub(super) fn next(&mut self) -> Option<Observation> {
        self.out.pop_front()
    }

    /// Puts one back that was not taken after all.
    pub(super) fn put_back(&mut self, observation: Observation) {
        self.out.push_front(observation);
    }

    pub(super) fn has_out(&self) -> bool {
        !self.out.is_empty()
    }

    /// Notes that everything was taken, if it was.
    pub(super) fn note_if_handed(&mut self) {
        if !self.out.is_empty() || self.is_behind() {
            return;
        }
        for mark in &mut self.now.marks[..self.passed] {
            mark.told = true;
        }
        if self.handed != self.now {
            self.handed.clone_from(&self.now);
        }
    }
}

fn keep(out: &mut VecDeque<Observation>, silent: bool, observation: Observation) {
    if !silent {
        out.push_back(observation);
    }
}

fn next_grain(offset: u64, grain: u64) -> u64 {
    (offset / grain + 1) * grain
}
