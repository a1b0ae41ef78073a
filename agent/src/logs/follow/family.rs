//! The files of one stream: the live one, those that rotation set aside, and those that are gone but still open.
//!
//! Files are known by what they are, not by their names, so that renaming, switching of links and creation anew need
//! no care. They are read from the oldest to the live one, each to its end before the next.

mod finding;
mod truncation;

use super::files::FileStat;
use super::follower::Context;
use super::identity::Inode;
use super::input::Input;
use super::member::{Head, Member, Paused, Step};
use super::names::Rotated;
use super::positions::Saved;
use super::reading::Reading;
use super::source::{Source, SourceId};
use crate::logs::{Carry, LineCounts, LogOptions, LogReader};
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Loss, Observation, SourceKind};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A copy that does not grow for so long is finished.
const COPIED_AFTER: Duration = Duration::from_secs(2);
/// What a call of [`Family::read`] came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Something was read or done.
    Some,
    /// There is nothing.
    None,
    /// Positions have to be saved before it goes on.
    SaveFirst,
}

/// The files of one stream.
#[derive(Debug)]
pub(super) struct Family<'p> {
    pub(super) id: SourceId,
    pub(super) source: Source,
    /// Oldest first.
    pub(super) members: Vec<Member<'p>>,
    live: Option<Inode>,
    seen: Vec<Seen>,
    /// Files beside it that may be growing copies: their size and since when they have it.
    growing: HashMap<Inode, (u64, Instant)>,
    /// Of the oldest file beside it of which is not known yet whether it is a copy.
    undecided: Option<usize>,
    directory: Option<(PathBuf, FileStat)>,
    again_at: Option<Instant>,
    listed: Option<Instant>,
    began: Option<Instant>,
    /// How long reading the directory took.
    list_cost: Duration,
    pub(super) trouble: Option<String>,
    /// Its source was removed: it ends when all is read.
    pub(super) is_leaving: bool,
    /// Bytes that the live file had when its source was removed; what follows is another's.
    leave_at: u64,
    /// Of files that were read to their ends.
    pub(super) counts: LineCounts,
    /// Recorded lines of files that were read to their ends.
    pub(super) recorded: Vec<u8>,
    template: LogReader<'p>,
}

/// A name in the directory.
#[derive(Debug, Clone)]
struct Seen {
    path: PathBuf,
    stat: FileStat,
    /// `None` for the live file.
    rotated: Option<Rotated>,
}

// === impl Seen ===

impl Seen {
    fn is_packed(&self) -> bool {
        self.rotated.as_ref().is_some_and(|rotated| rotated.packed)
    }
}

// === impl Family ===

impl<'p> Family<'p> {
    pub(super) fn new(id: SourceId, source: Source, context: &Context<'p>) -> Self {
        let speaks = SourceContext {
            node: source.node.clone(),
            worker: Some(source.speaker()),
            stream: String::new(),
            instance: String::new(),
            generation: 0,
        };
        let template = LogReader::new(speaks, source.options.clone(), context.matcher, context.packs);
        Self {
            id,
            source,
            members: Vec::new(),
            live: None,
            seen: Vec::new(),
            growing: HashMap::new(),
            undecided: None,
            directory: None,
            again_at: None,
            listed: None,
            began: None,
            list_cost: Duration::ZERO,
            trouble: None,
            is_leaving: false,
            leave_at: u64::MAX,
            counts: LineCounts::default(),
            recorded: Vec::new(),
            template,
        }
    }

    /// Its source was removed.
    pub(super) fn leave(&mut self, context: &Context<'p>) {
        self.is_leaving = true;
        if let Ok(stat) = context.files.stat(&self.source.path) {
            self.leave_at = stat.size;
        }
    }

    /// Nothing is left to read or to hand over.
    pub(super) fn has_ended(&self) -> bool {
        self.is_leaving && self.members.iter().all(|member| member.reading.is_none() && !member.has_out())
    }

    pub(super) fn is_followed(&self) -> bool {
        self.live.is_some_and(|live| {
            self.members.iter().any(|member| member.inode == live && member.input.is_some())
        })
    }

    /// Reads one piece, or does one thing else that is due.
    pub(super) fn read(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        buffer: &mut [u8],
        now: Instant,
    ) -> Progress {
        let mut carry: Option<Carry> = None;
        for at in 0..self.members.len() {
            let member = &mut self.members[at];
            if member.is_copy {
                continue;
            }
            if member.is_ending {
                if !member.has_out() {
                    if let Some(reading) = &mut member.reading {
                        reading.recorded(true, &mut self.recorded);
                    }
                    self.counts.add_all(&member.close());
                    return Progress::Some;
                }
                return Progress::None;
            }
            if member.pause_noted {
                member.pause_noted = false;
                if let Some(reading) = &mut member.reading {
                    reading.use_pause();
                }
                return Progress::Some;
            }
            if member.input.is_some() && member.reading.is_none() && (!member.done || member.has_more()) {
                match member.needs_head(Some(member.inode) == self.live) {
                    Ok(Head::Known) => {}
                    // What it begins with has to be on disk before it is read, so that it is known again if packed.
                    Ok(Head::New) => return Progress::SaveFirst,
                    Ok(Head::None) => continue,
                    Err(error) => {
                        self.trouble = Some(format!("{}: {error}", member.path.display()));
                        continue;
                    }
                }
                let member = &mut self.members[at];
                let is_young = self.began.is_some_and(|began| began + COPIED_AFTER > now);
                if is_young
                    && member.is_untouched()
                    && self.undecided.is_some_and(|rank| self.rank_of(at) > rank)
                {
                    // What was set aside while nobody looked is read first, if that is known soon.
                    return Progress::None;
                }
                return self.begin(context, known, others, at, carry, now);
            }
            let mut room = buffer.len() as u64;
            if Some(member.inode) == self.live {
                room = room.min(self.leave_at.saturating_sub(member.position()));
            }
            match member.step(&mut buffer[..room as usize], now) {
                Ok(Step::Read(_)) => return Progress::Some,
                Ok(Step::Truncated) => return self.truncated(context, known, others, at, now),
                Ok(Step::AtEnd) => {
                    if let Some(progress) = self.at_end(context, at, now) {
                        return progress;
                    }
                }
                Err(error) => {
                    self.trouble = Some(format!("{}: {error}", member.path.display()));
                    // A file system may have gone under it: it is opened anew where its name still leads to it.
                    let packed = member.input.take().is_some_and(|input| input.is_packed());
                    if packed {
                        // What is damaged stays so.
                        member.is_linked = false;
                    }
                    self.again_at.get_or_insert(now + COPIED_AFTER);
                }
            }
            let Member { reading, rest, .. } = &self.members[at];
            let learnt =
                reading.as_ref().map_or_else(|| rest.seam.clone(), |reading| reading.reader().carry());
            carry = Some(learnt.onward());
        }
        Progress::None
    }

    /// Begins to read a file, or takes its reading up.
    fn begin(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        at: usize,
        carry: Option<Carry>,
        now: Instant,
    ) -> Progress {
        let member = &mut self.members[at];
        if !member.is_checked {
            match member.is_as_saved() {
                Ok(true) => {}
                Ok(false) => return self.truncated(context, known, others, at, now),
                Err(error) => {
                    self.trouble = Some(format!("{}: {error}", member.path.display()));
                    member.input = None;
                    return Progress::None;
                }
            }
        }
        let is_new = member.is_untouched() && member.rest.seam == Carry::begin();
        if let Some(carry) = carry.filter(|_| is_new) {
            member.rest.seam = carry;
        }
        let speaks = speaks(&self.source, member);
        let options = LogOptions { mtime: Some(WallTime(member.modified)), ..self.source.options.clone() };
        let reader = self.template.another(speaks, options, &member.rest.seam);
        let mut reading = Reading::take_up(reader, member.rest.clone(), context.cutting);
        if context.is_recording {
            reading.record();
        }
        member.reading = Some(reading);
        member.done = false;
        member.grew = now;
        if is_new { Progress::SaveFirst } else { Progress::Some }
    }

    /// The end of a file: pauses, and the end of what is no longer written.
    fn at_end(&mut self, context: &Context<'p>, at: usize, now: Instant) -> Option<Progress> {
        let live = self.live;
        let is_leaving = self.is_leaving;
        let member = &mut self.members[at];
        let is_live = Some(member.inode) == live && !is_leaving;
        let quiet = now.saturating_duration_since(member.grew);
        let timing = &context.timing;
        let packed = member.input.as_ref().is_some_and(Input::is_packed);
        // Whoever deleted the live file may go on writing into it.
        let linger = if live.is_none() && !is_leaving { timing.remembered } else { timing.linger };
        let is_left = is_leaving && member.position() >= self.leave_at;
        let is_cut_off = member.input.is_none() && member.reading.is_some();
        let unread = member.peak.saturating_sub(member.reached());
        if !is_live && quiet >= linger && is_cut_off && unread > 0 {
            member.told.push(loss(&self.source, member, unread, "could not be read to its end"));
        }
        let reading = member.reading.as_mut()?;
        if !is_live && (is_left || quiet >= linger || packed && quiet >= timing.idle) {
            reading.finish();
            member.is_ending = true;
            return Some(Progress::Some);
        }
        let (due, pause) = match member.paused {
            Paused::No => (timing.idle, Paused::Short),
            Paused::Short => (timing.settle, Paused::Long),
            Paused::Long => return None,
        };
        if quiet < due {
            return None;
        }
        member.paused = pause;
        if reading.note_pause(pause == Paused::Long) {
            member.pause_noted = true;
            return Some(Progress::SaveFirst);
        }
        None
    }

    /// Bytes that are still to be read.
    pub(super) fn behind(&self) -> u64 {
        let of = |member: &Member<'_>| match member.done || member.is_copy {
            true => 0,
            false => member.size.saturating_sub(member.reached()),
        };
        self.members.iter().map(of).sum()
    }
}

/// Who speaks in a file.
fn speaks(source: &Source, member: &Member<'_>) -> SourceContext {
    SourceContext {
        node: source.node.clone(),
        worker: Some(source.speaker()),
        stream: source.path.to_string_lossy().into_owned(),
        instance: member.instance.clone(),
        generation: member.generation,
    }
}

/// Bytes of a file that nobody reads any more.
fn loss(source: &Source, member: &Member<'_>, bytes: u64, reason: &str) -> Observation {
    let place = Place { position: member.rest.seam.lines, offset: member.reached() };
    let body = Loss {
        stage: Some("read".to_owned()),
        reason: Some(reason.to_owned()),
        records: None,
        bytes: i64::try_from(bytes).ok(),
    };
    speaks(source, member).observe(SourceKind::Log, place, u32::MAX, None, None, Body::Loss(body))
}
