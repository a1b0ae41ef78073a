//! One file of a stream: open, read up to some place, perhaps renamed, deleted or truncated meanwhile.

use super::files::{FileStat, Files};
use super::identity::{BEFORE, HEAD, Inode, Print, instance};
use super::input::Input;
use super::positions::{Past, Saved};
use super::reading::{Reading, Taken};
use crate::logs::{Carry, LineCounts};
use kvprov_model::observation::Observation;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Truncations of one file that are remembered to know copies of it.
const MAX_PAST: usize = 8;

/// What reading some bytes gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// So many bytes were read.
    Read(usize),
    /// There are no more.
    AtEnd,
    /// The file holds something else now.
    Truncated,
}

/// A file.
#[derive(Debug)]
pub(super) struct Member<'p> {
    pub(super) inode: Inode,
    pub(super) path: PathBuf,
    pub(super) instance: String,
    pub(super) generation: u64,
    /// Its first bytes, where they were read.
    pub(super) head: Vec<u8>,
    pub(super) head_print: Print,
    pub(super) input: Option<Input>,
    pub(super) reading: Option<Reading<'p>>,
    /// Where it stands while nothing reads it.
    pub(super) rest: Taken,
    pub(super) done: bool,
    pub(super) is_copy: bool,
    /// Bytes it had when it was last looked at.
    pub(super) size: u64,
    /// The most bytes it had.
    pub(super) peak: u64,
    /// Last change as last seen.
    changed: i64,
    /// Last change as first seen.
    pub(super) modified: i64,
    pub(super) past: Vec<Past>,
    /// Bytes before the place up to which it was read, and before the place before that.
    before: [(u64, Vec<u8>); 2],
    before_print: Print,
    /// The file was compared with what was saved of it.
    pub(super) is_checked: bool,
    /// Seen in its directory.
    pub(super) is_linked: bool,
    pub(super) grew: Instant,
    pub(super) paused: Paused,
    /// A pause was noted and is to be used once that is on disk.
    pub(super) pause_noted: bool,
    /// Its end was told; it closes once that was taken.
    pub(super) is_ending: bool,
    pub(super) unlinked_since: Option<Instant>,
    /// A loss to be told together with the next observations.
    pub(super) told: Vec<Observation>,
}

/// What is known of the begin of a file that is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// It is known.
    Known,
    /// It was learnt just now.
    New,
    /// There is no whole line yet.
    None,
}

/// Pauses that were used since the file grew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Paused {
    No,
    Short,
    Long,
}

// === impl Member ===

impl<'p> Member<'p> {
    pub(super) fn new(
        inode: Inode,
        path: &Path,
        node: &str,
        head: Vec<u8>,
        stat: &FileStat,
        now: Instant,
    ) -> Self {
        let instance = instance(node, &inode, &head);
        Self {
            head_print: Print::of(&head),
            head,
            size: stat.size,
            peak: stat.size,
            changed: stat.modified,
            modified: stat.modified,
            ..Self::blank(inode, path.to_owned(), instance, now)
        }
    }

    /// A file of which nothing is known and nothing was read.
    fn blank(inode: Inode, path: PathBuf, instance: String, now: Instant) -> Self {
        Self {
            inode,
            path,
            instance,
            generation: 0,
            head: Vec::new(),
            head_print: Print::default(),
            input: None,
            reading: None,
            rest: Taken { seam: Carry::begin(), ..Taken::default() },
            done: false,
            is_copy: false,
            size: 0,
            peak: 0,
            changed: 0,
            modified: 0,
            past: Vec::new(),
            before: Default::default(),
            before_print: Print::default(),
            is_checked: true,
            is_linked: true,
            grew: now,
            paused: Paused::No,
            pause_noted: false,
            is_ending: false,
            unlinked_since: None,
            told: Vec::new(),
        }
    }

    pub(super) fn restore(saved: Saved, now: Instant) -> Self {
        Self {
            inode: saved.inode,
            path: saved.path,
            instance: saved.instance,
            generation: saved.generation,
            head: Vec::new(),
            head_print: saved.head,
            input: None,
            reading: None,
            rest: saved.taken,
            done: saved.done,
            is_copy: saved.is_copy,
            size: saved.size,
            peak: saved.size,
            changed: 0,
            modified: saved.modified,
            past: saved.past,
            before: Default::default(),
            before_print: saved.before,
            is_checked: false,
            is_linked: false,
            grew: now,
            paused: Paused::No,
            pause_noted: false,
            is_ending: false,
            unlinked_since: None,
            told: Vec::new(),
        }
    }

    pub(super) fn save(&self) -> Saved {
        let taken = self.reading.as_ref().map_or(&self.rest, Reading::taken).clone();
        let before = self.before.iter().find(|(at, _)| *at == taken.position && *at > 0);
        let before = match before {
            Some((_, bytes)) => Print::of(bytes),
            None if taken.position == self.rest.position => self.before_print.clone(),
            None => Print::default(),
        };
        Saved {
            inode: self.inode,
            path: self.path.clone(),
            instance: self.instance.clone(),
            generation: self.generation,
            head: self.head_print.clone(),
            before,
            taken,
            done: self.done,
            size: self.peak,
            modified: self.modified,
            past: self.past.clone(),
            is_copy: self.is_copy,
        }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.reading.as_ref().map_or(self.rest.position, Reading::position)
    }

    /// Nothing was read of it, ever.
    pub(super) fn is_untouched(&self) -> bool {
        self.reading.is_none() && self.rest.position == 0 && self.generation == 0
    }

    /// Bytes whose observations were told, perhaps by an earlier run.
    pub(super) fn reached(&self) -> u64 {
        self.position().max(self.rest.position)
    }

    /// Whether it may hold what was not read.
    pub(super) fn has_more(&self) -> bool {
        !self.is_copy && if self.is_packed() { !self.done } else { self.size != self.position() }
    }

    pub(super) fn is_packed(&self) -> bool {
        match &self.input {
            Some(input) => input.is_packed(),
            None => self.path.extension().is_some_and(|ending| ending == "gz"),
        }
    }

    pub(super) fn has_out(&self) -> bool {
        !self.told.is_empty() || self.reading.as_ref().is_some_and(Reading::has_out)
    }

    pub(super) fn set_size(&mut self, size: u64) {
        self.size = size;
        self.peak = self.peak.max(size);
    }

    /// Opens it where that was not done.
    pub(super) fn open(&mut self, files: &dyn Files, packed: bool) -> io::Result<()> {
        if self.input.is_some() {
            return Ok(());
        }
        let file = files.open(&self.path)?;
        let stat = FileStat::of(&file)?;
        if !stat.is_regular {
            return Err(io::Error::other("no regular file"));
        }
        if !packed && !Inode::of(&stat).may_be(&self.inode) {
            // It was renamed since its directory was read.
            return Err(io::Error::other("another file took its name"));
        }
        self.input = Some(Input::new(file, packed)?);
        if !packed {
            self.set_size(stat.size);
        }
        Ok(())
    }

    /// Whether the file holds what was saved of it; false once it was truncated.
    pub(super) fn is_as_saved(&mut self) -> io::Result<bool> {
        let Some(input) = &mut self.input else { return Ok(true) };
        let mut head = vec![0; HEAD];
        let length = input.read_at(0, &mut head)?;
        head.truncate(length);
        let position = self.rest.position;
        let mut same = self.head_print.begins(&head);
        if same && self.before_print.length > 0 && !input.is_packed() {
            let mut before = vec![0; self.before_print.length];
            let from = position.saturating_sub(before.len() as u64);
            let read = input.read_at(from, &mut before)?;
            same = read == before.len() && Print::of(&before) == self.before_print;
        }
        if same && !input.is_packed() {
            same = input.stat()?.size >= position;
        }
        if same {
            self.set_head(head);
        }
        self.is_checked = true;
        Ok(same)
    }

    /// Learns the begin of what was written after a truncation.
    pub(super) fn needs_head(&mut self, is_live: bool) -> io::Result<Head> {
        let Some(input) = &mut self.input else { return Ok(Head::None) };
        if self.head_print.length > 0 || self.rest.position > 0 {
            return Ok(Head::Known);
        }
        let head = head_of(input)?;
        if head.is_empty() || (is_live && head.len() < HEAD && !head.contains(&b'\n')) {
            return Ok(Head::None);
        }
        self.set_head(head);
        Ok(Head::New)
    }

    /// Is read in its copy, also after a restart.
    pub(super) fn become_copy(
        &mut self,
        inode: Inode,
        path: &Path,
        input: Input,
        size: u64,
    ) -> io::Result<()> {
        if !input.is_packed() {
            self.set_size(size);
        }
        self.input = Some(input);
        self.inode = inode;
        self.path = path.to_owned();
        self.is_linked = true;
        self.unlinked_since = None;
        self.learn_head()
    }

    /// Learns the begin of a file of which only a hash was known, if it is the same.
    pub(super) fn learn_head(&mut self) -> io::Result<()> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let head = head_of(input)?;
        if self.head.is_empty() && self.head_print.length > 0 && self.head_print.begins(&head) {
            self.set_head(head);
        }
        Ok(())
    }

    fn set_head(&mut self, head: Vec<u8>) {
        self.head_print = Print::of(&head);
        self.head = head;
    }

    /// Reads the next bytes. `buffer` gives how many at most.
    pub(super) fn step(&mut self, buffer: &mut [u8], now: Instant) -> io::Result<Step> {
        let reached = self.reached();
        let (Some(input), Some(reading)) = (&mut self.input, &mut self.reading) else {
            return Ok(Step::AtEnd);
        };
        let at = reading.position();
        let packed = input.is_packed();
        if !packed {
            let stat = input.stat()?;
            if stat.size < reached.max(self.head.len() as u64) {
                return Ok(Step::Truncated);
            }
            let is_same = stat.size == at && stat.modified == self.changed;
            self.size = stat.size;
            self.peak = self.peak.max(stat.size);
            self.changed = stat.modified;
            if is_same {
                return Ok(Step::AtEnd);
            }
        }
        let mut length = input.read_at(at, buffer)?;
        // What stood before is compared after reading, so that what was read belongs to it.
        let (before_at, before) = &self.before[0];
        if !packed && !before.is_empty() && *before_at == at {
            let mut there = [0; BEFORE];
            let there = &mut there[..before.len()];
            let read = input.read_at(at - before.len() as u64, there)?;
            if read < before.len() || there != before.as_slice() {
                return Ok(Step::Truncated);
            }
        }
        if length == 0 {
            return Ok(Step::AtEnd);
        }
        let bytes = &buffer[..length];
        if at == 0 && !bytes.starts_with(&self.head[..self.head.len().min(length)]) {
            // It was truncated since its begin was looked at.
            return Ok(Step::Truncated);
        }
        if reading.is_at_begin() {
            // A writer that goes on where it was before a truncation leaves a hole.
            let hole = bytes.iter().position(|byte| *byte != 0).unwrap_or(length);
            if hole > 0 {
                reading.skip_to(at + hole as u64);
                if hole == length {
                    return Ok(Step::Read(length));
                }
            }
            length -= hole;
            let bytes = &bytes[hole..];
            self.take(bytes, at + hole as u64, now);
            return Ok(Step::Read(length));
        }
        let bytes = &buffer[..length];
        self.take(bytes, at, now);
        Ok(Step::Read(length))
    }

    fn take(&mut self, bytes: &[u8], at: u64, now: Instant) {
        if at == 0 {
            self.head.clear();
        }
        let known = self.head.len();
        if known < HEAD && at <= known as u64 {
            let more = bytes.get(known - at as usize..).unwrap_or_default();
            self.head.extend_from_slice(&more[..more.len().min(HEAD - known)]);
            self.head_print = Print::of(&self.head);
        }
        if let Some(reading) = &mut self.reading {
            reading.push(bytes);
        }
        let end = at + bytes.len() as u64;
        let mut before = Vec::with_capacity(BEFORE);
        if bytes.len() < BEFORE && self.before[0].0 == at {
            let earlier = &self.before[0].1;
            before.extend_from_slice(&earlier[earlier.len().saturating_sub(BEFORE - bytes.len())..]);
        }
        before.extend_from_slice(&bytes[bytes.len().saturating_sub(BEFORE)..]);
        self.before.swap(0, 1);
        self.before[0] = (end, before);
        self.grew = now;
        self.paused = Paused::No;
        self.done = false;
    }

    /// Whether another file holds what this one holds, as far as it was read. `None`: it is still too short to tell.
    pub(super) fn is_copied_by(&self, other: &mut Input, size: u64) -> io::Result<Option<bool>> {
        let head = head_of(other)?;
        if self.head_print.length == 0 || head.is_empty() {
            return Ok(Some(false));
        }
        if head.len() < self.head_print.length {
            let is_prefix = self.head.is_empty() || self.head.starts_with(&head);
            return Ok(if is_prefix { None } else { Some(false) });
        }
        if !self.head_print.begins(&head) {
            return Ok(Some(false));
        }
        let (at, before) = self.before_reached();
        holds(other, size, at, &before).map(Some)
    }

    /// Whether another file holds what this one held before it was truncated.
    pub(super) fn was_copied_by(&self, other: &mut Input, size: u64) -> io::Result<bool> {
        let head = head_of(other)?;
        for past in &self.past {
            if past.head.length > 0
                && past.head.begins(&head)
                && holds(other, size, past.position, &past.before)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether another file begins as this one does now: it may have been truncated since it was read.
    pub(super) fn holds_now(&mut self, other: &[u8]) -> io::Result<bool> {
        let Some(input) = &mut self.input else { return Ok(false) };
        let head = head_of(input)?;
        let is_whole = head.len() == HEAD || head.contains(&b'\n');
        Ok(is_whole && other.starts_with(&head))
    }

    fn before_reached(&self) -> (u64, Print) {
        let (at, before) = &self.before[0];
        if before.is_empty() || *at < self.rest.position {
            (self.rest.position, self.before_print.clone())
        } else {
            (*at, Print::of(before))
        }
    }

    /// How much of a truncated file is as it was: all of it, where only its end was cut off.
    pub(super) fn kept_begin(&mut self) -> Option<u64> {
        let head_print = self.head_print.clone();
        let reached = self.reached();
        let input = self.input.as_mut().filter(|input| !input.is_packed())?;
        let size = input.stat().ok()?.size;
        let head = head_of(input).ok()?;
        // A few equal bytes are no proof: lines begin alike.
        let is_kept = head_print.length == HEAD && head_print.begins(&head);
        (size < reached && is_kept).then_some(size)
    }

    /// The same inode with what was written into it after a truncation, from a place on.
    pub(super) fn next_generation(&self, from: u64, carry: Carry, now: Instant) -> Self {
        let (position, before) = self.before_reached();
        let mut past = self.past.clone();
        past.push(Past { head: self.head_print.clone(), before, position });
        if past.len() > MAX_PAST {
            past.remove(0);
        }
        let seam = Carry { offset: from, ..carry };
        Self {
            generation: self.generation + 1,
            head: if from > 0 { self.head.clone() } else { Vec::new() },
            head_print: if from > 0 { self.head_print.clone() } else { Print::default() },
            rest: Taken { seam, marks: Vec::new(), position: from },
            size: from,
            peak: from,
            modified: self.modified,
            past,
            ..Self::blank(self.inode, self.path.clone(), self.instance.clone(), now)
        }
    }

    /// Ends it: nothing reads it from here on unless it grows.
    pub(super) fn close(&mut self) -> LineCounts {
        let Some(reading) = self.reading.take() else { return LineCounts::default() };
        let position = reading.position();
        let seam = Carry { offset: position, ..reading.reader().carry() };
        if let Some((_, bytes)) = self.before.iter().find(|(at, _)| *at == position) {
            self.before_print = Print::of(bytes);
        }
        self.rest = Taken { seam, marks: Vec::new(), position };
        self.done = true;
        self.is_ending = false;
        self.is_checked = false;
        self.input = None;
        self.before = Default::default();
        *reading.reader().counts()
    }
}

fn head_of(other: &mut Input) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let length = other.read_at(0, &mut head)?;
    head.truncate(length);
    Ok(head)
}

/// Whether a file holds these bytes before a place; true where it is packed or ends before, since that proves nothing.
fn holds(other: &mut Input, size: u64, at: u64, before: &Print) -> io::Result<bool> {
    if other.is_packed() || before.length == 0 || size < at {
        return Ok(true);
    }
    let mut there = vec![0; before.length];
    let read = other.read_at(at.saturating_sub(before.length as u64), &mut there)?;
    Ok(read == there.len() && Print::of(&there) == *before)
}
