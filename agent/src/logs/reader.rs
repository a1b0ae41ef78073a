//! Bytes of a log in, observations out: the hot path.
//!
//! Chunks are searched as they come; a line in which nothing may matter is neither parsed nor copied, only counted.
//! Lines are looked at one by one only where the source wraps or splits them, or where a message may run on.
//! Invariant: any cutting of the same bytes into chunks gives the same observations, ids and counts. Memory is
//! bounded: of a line longer than [`MAX_LINE`] the head is kept and the rest passes by.

use super::assembly::{Assembly, Whole};
use super::candidates::{Candidates, Progress, line_end};
use super::carry::Carry;
use super::clock::Stamps;
use super::counts::{LineCounts, Outcome};
use super::emit::Telling;
use super::interpret::{Interpreter, Logical, Out};
use super::lookback::{self, Lookback};
use super::prefix::{self, Unwrapped};
use super::redact::Recorder;
use super::rejoin::{Copied, Rejoined, Rejoiner};
use super::wrapping::Wrapping;
use crate::source::{Place, Sink, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_packs::{Matcher, Packs, Reach};
use memchr::{memchr, memrchr};
use std::borrow::Cow;

/// Longest line that is read whole, in bytes.
pub const MAX_LINE: usize = 1 << 20;
/// Bytes that are searched at once. Not above [`MAX_LINE`], so that only a line over several of them is too long.
const SLICE: usize = 256 << 10;

/// Of so many lines in which nothing matters the clock of one is read.
const CLOCK_EVERY: u64 = 1024;

/// What is known about a log beforehand.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// Engine that writes it.
    pub engine: Option<String>,
    /// Version of the engine.
    pub version: Option<String>,
    /// Seconds by which the source's local clocks are east of UTC.
    pub timezone_seconds: i32,
    /// Year of the first line, for clocks without a year.
    pub year: Option<i16>,
    /// When the file was last written, for clocks without a year.
    pub mtime: Option<WallTime>,
    /// A person may have copied the text, so that its lines may be broken; only for sources that are read from begin to end.
    pub copied: Option<Copied>,
}

/// Reads one log.
#[derive(Debug)]
pub struct LogReader<'p> {
    context: SourceContext,
    candidates: Candidates<'p>,
    interpreter: Interpreter<'p>,
    wrapping: Wrapping,
    assembly: Assembly,
    rejoiner: Option<Rejoiner>,
    lookback: Lookback,
    counts: LineCounts,
    /// A line whose end was not seen, at most [`MAX_LINE`] bytes of it.
    tail: Vec<u8>,
    /// Bytes of that line beyond what was kept.
    passed_by: u64,
    /// Offset of the first byte that was not taken from a whole line.
    offset: u64,
    /// Lines before that byte.
    lines: u64,
    recorder: Option<Recorder>,
}

// === impl LogReader ===

impl<'p> LogReader<'p> {
    /// A reader at the begin of a source.
    pub fn new(context: SourceContext, options: LogOptions, matcher: &'p Matcher, packs: &'p Packs) -> Self {
        let candidates = Candidates::new(matcher, options.engine.as_deref());
        let rejoiner = options.copied.map(Rejoiner::of);
        Self { rejoiner, ..Self::with(candidates, Interpreter::new(matcher, packs, options), context) }
    }

    fn with(candidates: Candidates<'p>, interpreter: Interpreter<'p>, context: SourceContext) -> Self {
        Self {
            candidates,
            interpreter,
            context,
            wrapping: Wrapping::default(),
            assembly: Assembly::default(),
            rejoiner: None,
            lookback: Lookback::default(),
            counts: LineCounts::default(),
            tail: Vec::new(),
            passed_by: 0,
            offset: 0,
            lines: 0,
            recorder: None,
        }
    }

    /// A reader that goes on behind a seam.
    pub fn resume(
        context: SourceContext,
        options: LogOptions,
        carry: &Carry,
        matcher: &'p Matcher,
        packs: &'p Packs,
    ) -> Self {
        let mut reader = Self::new(context, options, matcher, packs);
        reader.go_on(carry);
        reader
    }

    /// A reader of another source of the same engine, behind what it carries. Cheaper than a new one.
    pub fn another(&self, context: SourceContext, options: LogOptions, carry: &Carry) -> Self {
        let Interpreter { matcher, packs, .. } = self.interpreter;
        let interpreter = Interpreter::new(matcher, packs, options);
        let mut reader = Self::with(self.candidates.clone(), interpreter, context);
        reader.go_on(carry);
        reader
    }

    /// Ends what was read so far and goes on as a reader made anew from what is given back; `None` inside a line.
    pub fn seam(&mut self, sink: Sink<'_>) -> Option<Carry> {
        if !self.tail.is_empty() {
            return None;
        }
        self.finish(sink);
        let carry = self.carry();
        self.interpreter.forget();
        self.go_on(&carry);
        Some(carry)
    }

    /// What was learnt, for a reader that goes on here or in the next file of the stream.
    pub fn carry(&self) -> Carry {
        Carry {
            offset: self.offset,
            lines: self.lines,
            one_by_one: self.wrapping.left(),
            ..self.interpreter.carry()
        }
    }

    fn go_on(&mut self, carry: &Carry) {
        self.offset = carry.offset;
        self.lines = carry.lines;
        self.wrapping = Wrapping::with_left(carry.one_by_one);
        self.lookback = Lookback::behind(carry.lines);
        self.interpreter.go_on(carry);
    }

    /// Leaves bytes out that hold no line; not inside a line.
    pub fn leave_out(&mut self, bytes: u64) {
        if self.tail.is_empty() {
            self.offset += bytes;
        }
    }

    /// Whether a line by itself is only counted: nothing in it may matter, and no wrapper may hide what does.
    pub fn passes_over(&self, line: &[u8]) -> bool {
        !Wrapping::wraps(line) && !self.candidates.may_matter(line, Reach::Telling)
    }

    /// Whether [`Self::idle`] would tell something.
    pub fn waits(&self) -> bool {
        self.interpreter.waits()
    }

    /// Whether a [`Self::seam`] is possible and would tell something.
    pub fn is_unsettled(&self) -> bool {
        self.tail.is_empty() && (self.interpreter.is_unsettled() || self.assembly.is_open())
    }

    /// Whether a seam here would part nothing that belongs together.
    pub fn at_rest(&self) -> bool {
        self.tail.is_empty() && !self.assembly.is_open() && self.interpreter.at_rest(self.lines)
    }

    /// Takes one whole line, with its end, from a source that is no file: `offset` is its place for the id, `taken` when it came, for
    /// lines without a clock. Not to be mixed with [`Self::push`].
    pub fn line(&mut self, line: &[u8], offset: u64, taken: WallTime, sink: Sink<'_>) {
        self.interpreter.taken_at(taken);
        self.offset = offset;
        let line = if line.len() > MAX_LINE {
            self.counts.too_long += 1;
            &line[..MAX_LINE]
        } else {
            line
        };
        self.region(line, sink);
    }

    /// Records from here on: [`Self::recorded`] gives every line as it may be kept.
    pub fn record(&mut self) {
        self.recorder = Some(Recorder::behind(self.lines));
    }

    /// Lines as they may be kept, in order; `all` also gives those that may still change, as at the end.
    pub fn recorded(&mut self, all: bool, out: &mut Vec<u8>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.write(self.lines, all, out);
        }
    }

    /// Lines that could not be kept as they are understood, by template.
    pub fn not_recorded(&self) -> Vec<(String, u64)> {
        self.recorder.as_ref().map(Recorder::refused).unwrap_or_default()
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8], sink: Sink<'_>) {
        for slice in bytes.chunks(SLICE) {
            self.slice(slice, sink);
        }
    }

    /// Nothing came for a while: what waited for a next line is told.
    pub fn idle(&mut self, sink: Sink<'_>) {
        let Self { context, interpreter, counts, candidates, recorder, .. } = self;
        let mut tell = |telling: Telling| sink(telling.observe(context));
        interpreter.idle(&mut Out { tell: &mut tell, counts, candidates, record: recorder.as_mut() });
    }

    /// Ends the source: a last line without its end, and what waited for more lines.
    pub fn finish(&mut self, sink: Sink<'_>) {
        if !self.tail.is_empty() {
            self.take_tail(sink);
        }
        if let Some(line) = self.rejoiner.as_mut().and_then(Rejoiner::finish) {
            self.rejoined(&line, sink);
        }
        let open: Vec<Whole> = self.assembly.finish().collect();
        for whole in open {
            self.logical(whole, None, sink);
        }
        let Self { context, interpreter, counts, candidates, recorder, .. } = self;
        let mut tell = |telling: Telling| sink(telling.observe(context));
        interpreter.finish(&mut Out { tell: &mut tell, counts, candidates, record: recorder.as_mut() });
        self.counts.partial_dropped = self.assembly.dropped;
    }

    /// What became of the lines so far; lines that wait for others are not in it before [`Self::finish`].
    pub fn counts(&self) -> &LineCounts {
        &self.counts
    }

    fn slice(&mut self, slice: &[u8], sink: Sink<'_>) {
        let mut rest = slice;
        if !self.tail.is_empty() {
            let Some(end) = memchr(b'\n', rest) else {
                self.keep(rest);
                return;
            };
            self.keep(&rest[..=end]);
            rest = &rest[end + 1..];
            self.take_tail(sink);
        }
        if let Some(end) = memrchr(b'\n', rest) {
            let (lines, open) = rest.split_at(end + 1);
            self.region(lines, sink);
            self.offset += lines.len() as u64;
            rest = open;
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MAX_LINE.saturating_sub(self.tail.len()).min(bytes.len());
        self.tail.extend_from_slice(&bytes[..room]);
        self.passed_by += (bytes.len() - room) as u64;
    }

    /// Reads the kept line.
    fn take_tail(&mut self, sink: Sink<'_>) {
        let tail = std::mem::take(&mut self.tail);
        if self.passed_by > 0 {
            self.counts.too_long += 1;
        }
        self.region(&tail, sink);
        self.offset += tail.len() as u64 + self.passed_by;
        self.passed_by = 0;
        // The allocation serves the next line, unless this one was extraordinary.
        if tail.capacity() <= SLICE {
            self.tail = tail;
            self.tail.clear();
        }
    }

    /// Reads whole lines.
    fn region(&mut self, region: &[u8], sink: Sink<'_>) {
        let binary = memchr(0, region).is_some();
        let mut progress = Progress::default();
        let mut at = 0;
        while at < region.len() {
            let each = self.rejoiner.is_some()
                || self.wrapping.needs_every_line()
                || self.interpreter.wants_next_line()
                || self.assembly.is_open();
            if each || binary {
                let end = line_end(region, at);
                let reach = if each { Reach::Every } else { self.reach() };
                self.one_line(region, at, end, reach, sink);
                at = end + 1;
                continue;
            }
            let reach = self.reach();
            let Some(start) = self.candidates.next_line(region, at, reach, &mut progress) else {
                self.skip(&region[at..]);
                break;
            };
            self.skip(&region[at..start]);
            let end = line_end(region, start);
            at = end + 1;
            if self.again(region, start, end, sink) {
                at = self.flood(region, at, sink);
            } else {
                self.physical(region, start, end, sink);
            }
        }
        self.lookback.end_of_region(region, self.lines);
    }

    /// How far the search for lines has to reach: what is kept for a replay holds also what means nothing.
    fn reach(&self) -> Reach {
        if self.recorder.is_some() { Reach::Every } else { self.interpreter.reach() }
    }

    /// Takes the lines from `at` on that repeat earlier ones. Returns where the first other line begins.
    fn flood(&mut self, region: &[u8], mut at: usize, sink: Sink<'_>) -> usize {
        while at < region.len() {
            let end = line_end(region, at);
            if !self.again(region, at, end, sink) {
                break;
            }
            at = end + 1;
        }
        at
    }

    /// Takes a line if it repeats an earlier one.
    fn again(&mut self, region: &[u8], start: usize, end: usize, sink: Sink<'_>) -> bool {
        let line = &region[start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let place = Place { position: self.lines + 1, offset: self.offset + start as u64 };
        let Self { context, interpreter, counts, candidates, recorder, .. } = self;
        let mut tell = |telling: Telling| sink(telling.observe(context));
        let mut out = Out { tell: &mut tell, counts, candidates, record: recorder.as_mut() };
        if !interpreter.again(line, place, &mut out) {
            return false;
        }
        self.wrapping.look_at(line);
        self.lines += 1;
        self.counts.total += 1;
        self.lookback.passed(self.lines);
        true
    }

    /// Counts lines in which nothing matters. Of every so many the clock is read, so that a clock without year or zone is
    /// placed behind months of silence too.
    fn skip(&mut self, lines: &[u8]) {
        let mut number = self.lines + 1;
        let mut to_read = number.next_multiple_of(CLOCK_EVERY);
        self.count_ignored(lines);
        let mut start = 0;
        let mut ends = memchr::memchr_iter(b'\n', lines);
        while to_read <= self.lines {
            if let Some(between) = (to_read - number).checked_sub(1) {
                start = ends.nth(between as usize).map_or(lines.len(), |end| end + 1);
            }
            if let Some(stamps) = lookback::clock_of(&lines[start..line_end(lines, start)]) {
                self.interpreter.passed(stamps);
            }
            number = to_read;
            to_read += CLOCK_EVERY;
        }
    }

    fn count_ignored(&mut self, lines: &[u8]) {
        let ends = memchr::memchr_iter(b'\n', lines).count() as u64;
        let open = u64::from(lines.last().is_some_and(|last| *last != b'\n'));
        self.lines += ends + open;
        self.counts.total += ends + open;
        self.counts.ignored += ends + open;
    }

    /// A line where lines are looked at one by one. Where each is, what a line without meaning says of clocks is learnt.
    fn one_line(&mut self, region: &[u8], start: usize, end: usize, reach: Reach, sink: Sink<'_>) {
        let line = &region[start..end];
        if memchr(0, line).is_some() {
            self.lines += 1;
            self.counts.total += 1;
            self.counts.add(Outcome::Unparsed, 1);
            return;
        }
        // Only lines that are looked at one by one however the source is cut may teach how it is wrapped.
        let hidden = self.wrapping.needs_every_line() && self.wrapping.hides(line);
        let wanted = hidden
            || self.rejoiner.is_some()
            || self.interpreter.wants_next_line()
            || self.assembly.is_open()
            || self.candidates.may_matter(line, reach);
        if wanted {
            self.physical(region, start, end, sink);
        } else {
            self.skip(&region[start..(end + 1).min(region.len())]);
        }
    }

    /// A physical line that may matter.
    fn physical(&mut self, region: &[u8], start: usize, end: usize, sink: Sink<'_>) {
        self.lines += 1;
        self.counts.total += 1;
        let raw = &region[start..end];
        let raw = raw.strip_suffix(b"\r").unwrap_or(raw);
        let place = Place { position: self.lines, offset: self.offset + start as u64 };
        self.wrapping.look_at(raw);
        let text = match std::str::from_utf8(raw) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => {
                self.counts.not_utf8 += 1;
                String::from_utf8_lossy(raw)
            }
        };
        if let Some(rejoiner) = &mut self.rejoiner {
            let interpreter = &mut self.interpreter;
            if let Some(line) = rejoiner.add(&text, place, &mut |message| interpreter.known_of(message)) {
                self.rejoined(&line, sink);
            }
            self.lookback.passed(self.lines);
            return;
        }
        let plain = prefix::without_colours(&text);
        let unwrapped = self.unwrapped(&text, &plain);
        let mut before = None;
        let whole = if unwrapped.partial || self.assembly.is_open() {
            before = self.lookback.before(&region[..start], self.lines);
            self.assembly.add(unwrapped, place, 1)
        } else {
            let Unwrapped { prefix, payload, .. } = unwrapped;
            let Self { context, interpreter, counts, candidates, lookback, lines, recorder, .. } = self;
            let mut tell = |telling: Telling| sink(telling.observe(context));
            let before = || lookback.before(&region[..start], *lines);
            let above = || lookback.above(&region[..start], place);
            let logical = Logical { prefix, text: &payload, place, lines: 1, before: &before, above: &above };
            interpreter
                .line(logical, &mut Out { tell: &mut tell, counts, candidates, record: recorder.as_mut() });
            None
        };
        if let Some(whole) = whole {
            self.logical(whole, before, sink);
        }
        self.lookback.passed(self.lines);
    }

    /// A line without its wrapper. Of a part of a line the colours are kept: a runtime may cut inside the code of one.
    fn unwrapped<'l>(&self, text: &'l str, plain: &'l str) -> Unwrapped<'l> {
        let unwrapped = prefix::unwrap(plain);
        if plain.len() < text.len() && (unwrapped.partial || self.assembly.is_open()) {
            let coloured = prefix::unwrap(text);
            if coloured.partial == unwrapped.partial && coloured.prefix.wrapper == unwrapped.prefix.wrapper {
                return coloured;
            }
        }
        unwrapped
    }

    /// A line as it was before a terminal broke it.
    fn rejoined(&mut self, line: &Rejoined, sink: Sink<'_>) {
        let plain = prefix::without_colours(&line.text);
        let unwrapped = self.unwrapped(&line.text, &plain);
        let whole = if unwrapped.partial || self.assembly.is_open() {
            self.assembly.add(unwrapped, line.place, line.lines)
        } else {
            Some(Whole::of(unwrapped, line.place, line.lines))
        };
        if let Some(whole) = whole {
            self.logical(whole, None, sink);
        }
    }

    fn logical(&mut self, whole: Whole, before: Option<Stamps>, sink: Sink<'_>) {
        let Whole { prefix, place, text, lines, .. } = whole;
        let Self { context, interpreter, counts, candidates, recorder, .. } = self;
        let mut tell = |telling: Telling| sink(telling.observe(context));
        let before = || before;
        let logical = Logical { prefix, text: &text, place, lines, before: &before, above: &Vec::new };
        interpreter
            .line(logical, &mut Out { tell: &mut tell, counts, candidates, record: recorder.as_mut() });
    }
}
