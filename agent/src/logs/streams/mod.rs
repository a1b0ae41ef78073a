//! Output as the kernel saw it: what a worker's processes write to a pipe or terminal, for which there is no file.
//!
//! [`Streams`] takes pieces of writes to descriptors 1 and 2. Ranks of one worker write to one pipe and their pieces
//! interleave, so that lines are put together for each process and descriptor, and each of these has a reader of its
//! own. Places come from where a piece stands in the kernel's ring, so that a piece taken twice gives the same ids.
//!
//! [`choose`] takes one source where a stream can be seen twice, [`runtime`] finds the files in which container
//! runtimes put output.
//!
//! Invariant: a line of which a part was not captured is not read; its bytes are counted as lost. Memory is bounded.

mod choose;
mod open_line;
pub mod runtime;
mod speaker;

pub use choose::{Choice, StreamKind, choose};

use crate::logs::{Carry, LineCounts, LogOptions, LogReader};
use crate::source::{Losses, Place, Sink, SourceContext};
use kvprov_model::clock::{SECOND, WallTime};
use kvprov_model::id::{NodeId, WorkerId};
use kvprov_model::observation::{Body, Loss, SourceKind};
use kvprov_packs::Packs;
use serde::{Deserialize, Serialize};
use speaker::Speaker;
use std::collections::BTreeMap;

/// Processes and descriptors of one worker that are read at once; the one silent longest makes room.
const MAX_SPEAKERS: usize = 64;
/// Outputs that ended whose recorded lines wait to be taken.
const MAX_RECORDED: usize = 4096;
/// What waits for a cause or a next line is waited for so long, in nanoseconds of the pieces' time.
const MAX_WAIT: i64 = 10 * SECOND;
/// Lost bytes are told together for so long.
const LOSS_EVERY: i64 = SECOND;

/// A piece of a write.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'b> {
    /// The process as the initial pid namespace numbers it.
    pub process: u32,
    /// 1 or 2.
    pub descriptor: i32,
    /// Where it stands in the ring; grows from piece to piece and is the same if the piece is taken again.
    pub position: u64,
    /// When it was written.
    pub wall: WallTime,
    /// The bytes.
    pub bytes: &'b [u8],
    /// Bytes of the write behind these that were not captured.
    pub skipped: u64,
}

/// Takes recorded lines: worker, process, descriptor, lines.
pub type EachRecorded<'a> = &'a mut dyn FnMut(&WorkerId, u32, i32, &[u8]);

/// Whose output.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Key {
    worker: WorkerId,
    process: u32,
    descriptor: i32,
}

/// Where the reading of one process's output can be taken up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamState {
    key: Key,
    carry: Carry,
    /// Pieces at or before it are not needed; 0 before the first.
    behind: u64,
}

/// Outputs of the workers of one node.
#[derive(Debug)]
pub struct Streams<'p> {
    node: NodeId,
    run: String,
    packs: &'p Packs,
    workers: BTreeMap<WorkerId, Template<'p>>,
    speakers: BTreeMap<Key, Speaker<'p>>,
    /// Of an earlier run.
    earlier: Vec<StreamState>,
    counts: LineCounts,
    losses: Losses,
    is_recording: bool,
    /// Lines of what ended, as they may be kept.
    recorded: Vec<(Key, Vec<u8>)>,
}

/// What is known of a worker's output.
#[derive(Debug)]
struct Template<'p> {
    reader: LogReader<'p>,
    options: LogOptions,
    lost: Option<Lost>,
}

/// Bytes that were not captured and not told yet.
#[derive(Debug, Clone, Copy)]
struct Lost {
    position: u64,
    descriptor: i32,
    wall: WallTime,
    bytes: u64,
}

// === impl Streams ===

impl<'p> Streams<'p> {
    /// Reads nothing yet. `run` names the ring of which positions are: another ring has another name.
    pub fn new(node: NodeId, run: String, packs: &'p Packs) -> Self {
        Self {
            node,
            run,
            packs,
            workers: BTreeMap::new(),
            speakers: BTreeMap::new(),
            earlier: Vec::new(),
            counts: LineCounts::default(),
            losses: Losses::default(),
            is_recording: false,
            recorded: Vec::new(),
        }
    }

    /// Records from here on: [`Self::recorded`] gives every new line as it may be kept.
    pub fn record(&mut self) {
        self.is_recording = true;
        self.speakers.values_mut().for_each(|speaker| speaker.reader_mut().record());
    }

    /// Lines as they may be kept that came since the last call, by worker, process and descriptor: each is a log of its
    /// own. `all` also gives the last few, which may still turn out to belong to another message.
    pub fn recorded(&mut self, all: bool, each: EachRecorded<'_>) {
        for (key, lines) in std::mem::take(&mut self.recorded) {
            each(&key.worker, key.process, key.descriptor, &lines);
        }
        for (key, speaker) in &mut self.speakers {
            let mut lines = Vec::new();
            speaker.reader_mut().recorded(all, &mut lines);
            if !lines.is_empty() {
                each(&key.worker, key.process, key.descriptor, &lines);
            }
        }
    }

    /// Takes up readings of an earlier run over the same ring. To be called before the first piece.
    pub fn restore(&mut self, states: Vec<StreamState>) {
        self.earlier = states;
    }

    /// Reads the output of a worker from here on; what is known about it helps as it does for a file.
    pub fn add(&mut self, worker: WorkerId, options: LogOptions) {
        let context = self.context(&worker, 0, 1);
        let reader = LogReader::new(context, options.clone(), self.packs.matcher(), self.packs);
        self.workers.insert(worker, Template { reader, options, lost: None });
    }

    /// A worker is gone, or its output is read from a file: what was begun is told.
    pub fn remove(&mut self, worker: &WorkerId, sink: Sink<'_>) {
        let ended: Vec<Key> = self.speakers.keys().filter(|key| key.worker == *worker).cloned().collect();
        for key in ended {
            self.end(&key, sink);
        }
        self.tell_lost(worker, None, sink);
        self.workers.remove(worker);
    }

    /// Whether a worker's output is read here.
    pub fn reads(&self, worker: &WorkerId) -> bool {
        self.workers.contains_key(worker)
    }

    /// A process ended: so did its last line.
    pub fn process_ended(&mut self, worker: &WorkerId, process: u32, sink: Sink<'_>) {
        for descriptor in [1, 2] {
            self.end(&Key { worker: worker.clone(), process, descriptor }, sink);
        }
    }

    /// Takes a piece. That of a worker which was not added is left out.
    pub fn piece(&mut self, worker: &WorkerId, piece: Piece<'_>, sink: Sink<'_>) {
        if !self.workers.contains_key(worker) {
            return;
        }
        let key = Key { worker: worker.clone(), process: piece.process, descriptor: piece.descriptor };
        if !self.speakers.contains_key(&key) {
            self.make_room(worker, sink);
            self.begin(key.clone());
        }
        let Some(speaker) = self.speakers.get_mut(&key) else { return };
        if piece.position <= speaker.behind() {
            return;
        }
        speaker.take(&piece, &mut self.losses, sink);
        self.tell_lost(worker, Some(piece.wall), sink);
        if piece.skipped > 0 {
            self.losses.add("output bytes not captured", piece.skipped);
            if let Some(template) = self.workers.get_mut(worker) {
                let Piece { position, descriptor, wall, skipped, .. } = piece;
                let lost = template.lost.get_or_insert(Lost { position, descriptor, wall, bytes: 0 });
                lost.bytes = lost.bytes.saturating_add(skipped);
            }
        }
    }

    /// Nothing came for about a second: what waited for a next line is told.
    pub fn idle(&mut self, sink: Sink<'_>) {
        for speaker in self.speakers.values_mut() {
            speaker.reader_mut().idle(sink);
        }
        let workers: Vec<WorkerId> = self.workers.keys().cloned().collect();
        for worker in workers {
            self.tell_lost(&worker, None, sink);
        }
    }

    /// Makes seams where nothing is parted by them, telling what was counted. `now` is the time of the newest piece.
    /// Gives the position before which no piece is needed after a restart with [`Self::states`]; `None` where none is
    /// needed at all. Call it once a second, hand everything over, save the states, then let the ring move on.
    pub fn settle(&mut self, now: WallTime, sink: Sink<'_>) -> Option<u64> {
        self.speakers.values_mut().filter_map(|speaker| speaker.settle(now, MAX_WAIT, sink)).min()
    }

    /// Where readings can be taken up. Holds no text.
    pub fn states(&self) -> Vec<StreamState> {
        let state = |(key, speaker): (&Key, &Speaker<'p>)| StreamState {
            key: key.clone(),
            carry: speaker.seam().clone(),
            behind: speaker.behind_seam(),
        };
        self.speakers.iter().map(state).collect()
    }

    /// What became of the lines so far.
    pub fn counts(&self) -> LineCounts {
        let mut counts = self.counts;
        self.speakers.values().for_each(|speaker| counts.add_all(speaker.reader().counts()));
        counts
    }

    /// What was lost so far.
    pub fn losses(&self) -> &Losses {
        &self.losses
    }

    fn context(&self, worker: &WorkerId, process: u32, descriptor: i32) -> SourceContext {
        let name = if descriptor == 2 { "stderr" } else { "stdout" };
        SourceContext {
            node: self.node.clone(),
            worker: Some(worker.clone()),
            stream: format!("{name} of process {process}"),
            instance: format!("{}/output/{}/{worker}/{descriptor}", self.node, self.run),
            generation: 0,
        }
    }

    fn begin(&mut self, key: Key) {
        let context = self.context(&key.worker, key.process, key.descriptor);
        let Some(template) = self.workers.get(&key.worker) else { return };
        let earlier = self.earlier.iter().position(|state| state.key == key);
        let (carry, behind) = match earlier.map(|at| self.earlier.swap_remove(at)) {
            Some(state) => (state.carry, state.behind),
            None => (Carry::begin(), 0),
        };
        let mut reader = template.reader.another(context, template.options.clone(), &carry);
        if self.is_recording {
            reader.record();
        }
        self.speakers.insert(key, Speaker::new(reader, carry, behind));
    }

    fn end(&mut self, key: &Key, sink: Sink<'_>) {
        let Some(speaker) = self.speakers.remove(key) else { return };
        let mut lines = Vec::new();
        let counts = speaker.finish(&mut lines, sink);
        self.counts.add_all(&counts);
        if !lines.is_empty() && self.recorded.len() < MAX_RECORDED {
            self.recorded.push((key.clone(), lines));
        }
    }

    fn make_room(&mut self, worker: &WorkerId, sink: Sink<'_>) {
        let own = self.speakers.iter().filter(|(key, _)| key.worker == *worker);
        if own.clone().count() < MAX_SPEAKERS {
            return;
        }
        let silent = own.min_by_key(|(_, speaker)| speaker.last()).map(|(key, _)| key.clone());
        if let Some(key) = silent {
            self.end(&key, sink);
        }
    }

    /// Tells bytes that were lost a while ago.
    fn tell_lost(&mut self, worker: &WorkerId, now: Option<WallTime>, sink: Sink<'_>) {
        let Some(template) = self.workers.get_mut(worker) else { return };
        let is_due = |lost: &Lost| now.is_none_or(|now| now.since(lost.wall) >= LOSS_EVERY);
        let Some(lost) = template.lost.take_if(|lost| is_due(lost)) else { return };
        let mut context = self.context(worker, 0, lost.descriptor);
        context.stream = "output".to_owned();
        let body = Loss {
            stage: Some("read".to_owned()),
            reason: Some("output was not captured".to_owned()),
            records: None,
            bytes: i64::try_from(lost.bytes).ok(),
        };
        let place = Place { position: 0, offset: offset_of(lost.position, 0) };
        sink(context.observe(SourceKind::Log, place, u32::MAX, Some(lost.wall), None, Body::Loss(body)));
    }
}

/// The place of a byte of a piece, for ids. Pieces are shorter than 16 KiB.
fn offset_of(position: u64, byte: usize) -> u64 {
    position.wrapping_shl(14) | (byte as u64).min((1 << 14) - 1)
}
