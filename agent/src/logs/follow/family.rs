//! The files of one stream: the live one, those that rotation set aside, and those that are gone but still open.
//!
//! Files are known by what they are, not by their names, so that renaming, switching of links and creation anew need
//! no care. They are read from the oldest to the live one, each to its end before the next.

use super::files::FileStat;
use super::follower::Context;
use super::identity::{HEAD, Inode};
use super::input::Input;
use super::member::{Head, Member, Paused, Step};
use super::names::{Rotated, is_packed_otherwise};
use super::positions::Saved;
use super::reading::Reading;
use super::source::{Source, SourceId};
use crate::logs::{Carry, LineCounts, LogOptions, LogReader};
use crate::source::{Place, SourceContext};
use kvprov_model::clock::WallTime;
use kvprov_model::observation::{Body, Loss, Observation, SourceKind};
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A directory is read again so long after it changed, for clocks that do not tell two changes apart.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// A directory is read at least so often, for file systems that tell changes late.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// A copy that does not grow for so long is finished.
const COPIED_AFTER: Duration = Duration::from_secs(2);
/// Files that are gone are remembered so long, in case they come back packed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Files of one stream that are open at once.
const MAX_OPEN: usize = 64;

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
    pub(super) trouble: Option<String>,
    /// Its source was removed: it ends when all is read.
    pub(super) is_leaving: bool,
    /// Bytes that the live file had when its source was removed; what follows is another's.
    leave_at: u64,
    /// Of files that were read to their ends.
    pub(super) counts: LineCounts,
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
            worker: source.worker.clone(),
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
            trouble: None,
            is_leaving: false,
            leave_at: u64::MAX,
            counts: LineCounts::default(),
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

    // --- which files there are ---

    /// Looks for files. `others` knows those of other streams, `known` those of earlier runs.
    pub(super) fn look(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        now: Instant,
    ) {
        let mut is_due = self.listed.is_none();
        match context.files.stat(&self.source.path) {
            Ok(stat) if stat.is_regular => {
                let inode = Inode::of(&stat);
                is_due |= self.live != Some(inode);
                self.live = Some(inode);
                match self.members.iter_mut().find(|member| member.inode == inode) {
                    Some(member) => {
                        member.set_size(stat.size);
                        self.trouble = None;
                    }
                    None => is_due |= stat.size > 0 && !others(&inode),
                }
            }
            Ok(_) => {
                self.live = None;
                self.trouble = Some("no regular file".to_owned());
            }
            Err(error) => {
                is_due |= self.live.is_some();
                self.live = None;
                self.trouble = Some(error.to_string());
            }
        }
        let directory = self.directory.as_ref().map(|(path, stat)| (context.files.stat(path).ok(), *stat));
        if let Some((stat, before)) = directory
            && stat != Some(before)
        {
            is_due = true;
        }
        is_due |= self.again_at.is_some_and(|at| at <= now);
        is_due |= self.listed.is_some_and(|at| at + LIST_EVERY.min(context.timing.list_every) <= now);
        if is_due {
            self.scan(context, known, others, now);
        }
    }

    fn scan(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        now: Instant,
    ) {
        let is_change = self.list(context, now);
        self.again_at = is_change.then_some(now + AGAIN_AFTER);
        for member in &mut self.members {
            member.is_linked = false;
        }
        let mut unknown = Vec::new();
        for (rank, seen) in self.seen.clone().into_iter().enumerate() {
            let inode = Inode::of(&seen.stat);
            if others(&inode) {
                continue;
            }
            self.adopt(&inode, known, now);
            match self.members.iter_mut().find(|member| member.inode.may_be(&inode)) {
                Some(member) => {
                    member.inode = inode;
                    member.is_linked = true;
                    member.unlinked_since = None;
                    member.path = seen.path;
                    if member.input.as_ref().is_none_or(|input| !input.is_packed()) {
                        member.set_size(seen.stat.size);
                    }
                }
                None => unknown.push((rank, seen)),
            }
        }
        self.find_moved(context, known, now);
        self.undecided = None;
        // The live one first: what is set aside may be its copy.
        let (live, set_aside): (Vec<_>, Vec<_>) =
            unknown.into_iter().partition(|(_, seen)| seen.rotated.is_none());
        for (rank, seen) in live.into_iter().chain(set_aside) {
            match self.meet(context, &seen, now) {
                Ok(true) => {}
                Ok(false) => self.undecided = self.undecided.or(Some(rank)),
                Err(error) => {
                    self.trouble = Some(format!("{}: {error}", seen.path.display()));
                    self.again_at = Some(now + AGAIN_AFTER);
                }
            }
        }
        self.sort();
        self.open(context);
        self.forget(context, now);
        let there: Vec<Inode> = self.seen.iter().map(|seen| Inode::of(&seen.stat)).collect();
        self.growing.retain(|inode, _| there.contains(inode));
    }

    /// Reads the directory; whether it changed since.
    fn list(&mut self, context: &Context<'p>, now: Instant) -> bool {
        let files = &context.files;
        let real = files.real(&self.source.path);
        self.seen.clear();
        self.listed = Some(now);
        let (Some(parent), Some(live)) = (real.parent(), real.file_name().map(|name| name.to_string_lossy()))
        else {
            return false;
        };
        let stat = files.stat(parent).ok();
        let names = files.list(parent).unwrap_or_default();
        let before = self.directory.take();
        self.directory = stat.map(|stat| (parent.to_owned(), stat));
        for name in names {
            let text = name.to_string_lossy();
            if is_packed_otherwise(&live, &text) {
                self.trouble.get_or_insert_with(|| format!("{text} is packed in a way that is not read"));
            }
            let Some(rotated) = Rotated::parse(&live, &text) else { continue };
            let path = parent.join(&name);
            if let Ok(stat) = files.stat(&path)
                && stat.is_regular
                && stat.size > 0
            {
                self.seen.push(Seen { path, stat, rotated: Some(rotated) });
            }
        }
        self.seen.sort_by(|a, b| match (&a.rotated, &b.rotated) {
            (Some(a), Some(b)) => a.cmp_age(b),
            _ => std::cmp::Ordering::Equal,
        });
        if let Ok(stat) = files.stat(&self.source.path)
            && stat.is_regular
        {
            self.live = Some(Inode::of(&stat));
            self.seen.push(Seen { path: self.source.path.clone(), stat, rotated: None });
        }
        self.directory != before
    }

    /// Takes over what an earlier run knew of a file.
    fn adopt(&mut self, inode: &Inode, known: &mut Vec<Saved>, now: Instant) {
        if self.members.iter().any(|member| member.inode.may_be(inode)) {
            return;
        }
        if let Some(at) = known.iter().position(|saved| saved.inode.may_be(inode)) {
            self.members.push(Member::restore(known.swap_remove(at), now));
        }
    }

    /// Files that an earlier run knew in this directory and that no name leads to any more: they may be found under
    /// names of their own, or packed, or copied.
    fn find_moved(&mut self, context: &Context<'p>, known: &mut Vec<Saved>, now: Instant) {
        let Some((directory, _)) = &self.directory else { return };
        let live = self.source.path.clone();
        let own = |saved: &Saved| {
            saved.path == live || saved.path.parent() == Some(directory) && is_of(&live, &saved.path)
        };
        let mut at = 0;
        while at < known.len() {
            if own(&known[at]) {
                self.members.push(Member::restore(known.swap_remove(at), now));
            } else {
                at += 1;
            }
        }
        for member in self.members.iter_mut().filter(|member| !member.is_linked && member.input.is_none()) {
            if let Ok(stat) = context.files.stat(&member.path)
                && Inode::of(&stat).may_be(&member.inode)
            {
                member.is_linked = true;
                member.set_size(stat.size);
            }
        }
        for member in self.members.iter_mut().filter(|member| member.is_linked && member.head.is_empty()) {
            // What it was is needed to know its copies.
            let packed = member.path.extension().is_some_and(|ending| ending == "gz");
            if !member.is_copy && !member.done && member.open(&*context.files, packed).is_ok() {
                let _ = member.learn_head();
            }
        }
    }

    /// Meets a file of which nothing is known; false where it has to be looked at again.
    fn meet(&mut self, context: &Context<'p>, seen: &Seen, now: Instant) -> io::Result<bool> {
        let inode = Inode::of(&seen.stat);
        let mut input = Input::new(context.files.open(&seen.path)?, seen.is_packed())?;
        let stat = input.stat()?;
        if !stat.is_regular || Inode::of(&stat) != inode {
            self.again_at = Some(now);
            return Ok(false);
        }
        let mut head = vec![0; HEAD];
        let length = input.read_at(0, &mut head)?;
        head.truncate(length);
        let is_live = seen.rotated.is_none();
        let unchanged_for = {
            let (size, since) = self.growing.entry(inode).or_insert((stat.size, now));
            if *size != stat.size {
                (*size, *since) = (stat.size, now);
            }
            now.saturating_duration_since(*since)
        };
        let rests = unchanged_for >= COPIED_AFTER.min(context.timing.copied_after);
        let wait = |family: &mut Self| {
            family.again_at = Some(now + AGAIN_AFTER);
            Ok(false)
        };
        if head.is_empty() {
            self.again_at = Some(now + AGAIN_AFTER);
            return Ok(true);
        }
        if head.len() < HEAD && !head.contains(&b'\n') && (is_live || !rests) {
            return if is_live { Ok(true) } else { wait(self) };
        }
        if !is_live {
            let mut copied = false;
            for member in self.members.iter_mut().filter(|member| !member.is_copy) {
                match member.is_copied_by(&mut input, stat.size)? {
                    Some(true) => {}
                    // Whoever copies it is not done.
                    None if !rests => return wait(self),
                    _ => continue,
                }
                copied = true;
                if !member.done && member.input.is_none() && !member.is_linked {
                    member.input = Some(Input::new(context.files.open(&seen.path)?, seen.is_packed())?);
                    member.path.clone_from(&seen.path);
                    member.is_linked = true;
                    member.learn_head()?;
                    break;
                }
            }
            for member in self.members.iter_mut().filter(|member| !member.is_copy) {
                copied = copied || member.was_copied_by(&mut input, stat.size)? || member.holds_now(&head)?;
            }
            if copied {
                let mut copy = Member::new(inode, &seen.path, self.source.node.as_str(), head, &stat, now);
                copy.is_copy = true;
                self.members.push(copy);
                return Ok(true);
            }
            if self.source.not_before.is_some_and(|begin| stat.modified < begin.0) {
                // Set aside before the worker began.
                return Ok(true);
            }
        }
        self.growing.remove(&inode);
        let mut member = Member::new(inode, &seen.path, self.source.node.as_str(), head, &stat, now);
        member.input = Some(input);
        self.members.push(member);
        Ok(true)
    }

    /// Oldest first: what has no name any more, what was set aside, the live file.
    fn sort(&mut self) {
        let ranks: HashMap<Inode, usize> =
            self.seen.iter().enumerate().map(|(rank, seen)| (Inode::of(&seen.stat), rank + 1)).collect();
        self.members.sort_by_key(|member| ranks.get(&member.inode).copied().unwrap_or(0));
    }

    fn rank_of(&self, at: usize) -> usize {
        let inode = self.members[at].inode;
        self.seen.iter().position(|seen| Inode::of(&seen.stat) == inode).unwrap_or(0)
    }

    /// Opens what may have to be read, before its name goes.
    fn open(&mut self, context: &Context<'p>) {
        let mut open = 0;
        for member in &mut self.members {
            if member.input.is_none()
                && member.is_linked
                && (member.has_more() || !member.done)
                && !member.is_copy
            {
                let packed = member.path.extension().is_some_and(|ending| ending == "gz");
                if let Err(error) = member.open(&*context.files, packed) {
                    self.trouble = Some(format!("{}: {error}", member.path.display()));
                }
            }
            open += usize::from(member.input.is_some());
            if open >= MAX_OPEN {
                break;
            }
        }
    }

    /// Forgets files that are gone; what was unread is lost.
    fn forget(&mut self, context: &Context<'p>, now: Instant) {
        let mut lost = Vec::new();
        for member in &mut self.members {
            if member.is_linked {
                continue;
            }
            member.unlinked_since.get_or_insert(now);
            let is_closed = member.input.is_none() && member.reading.is_none();
            let unread = member.peak.saturating_sub(member.reached());
            if is_closed && !member.done && !member.is_copy {
                // It may come back under another name, or packed.
                let due = member.unlinked_since.unwrap_or(now) + context.timing.copied_after * 2;
                if due > now {
                    self.again_at = Some(self.again_at.map_or(due, |at| at.min(due)));
                    continue;
                }
                if unread > 0 {
                    member.told.push(loss(&self.source, member, unread, "deleted before it was read"));
                }
                member.done = true;
                lost.push(member.path.clone());
            }
        }
        if !lost.is_empty() {
            tracing::debug!(?lost, "log files are gone");
        }
        let remembered = REMEMBERED.min(context.timing.remembered);
        self.members.retain(|member| {
            let is_gone = member.unlinked_since.is_some_and(|since| since + remembered <= now);
            !(is_gone && (member.done || member.is_copy) && member.input.is_none() && !member.has_out())
        });
    }

    // --- reading ---

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
                if member.is_untouched() && self.undecided.is_some_and(|rank| self.rank_of(at) > rank) {
                    // An older one may have to be read before it.
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
        member.reading = Some(Reading::take_up(reader, member.rest.clone(), context.cutting));
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

    /// A file was truncated: what a copy of it still holds is read there, the rest is lost, and what it holds now is
    /// its next generation.
    fn truncated(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        at: usize,
        now: Instant,
    ) -> Progress {
        let inode = self.members[at].inode;
        let generation = self.members[at].generation;
        self.scan(context, known, others, now);
        let found =
            self.members.iter().position(|member| member.inode == inode && member.generation == generation);
        let Some(at) = found else { return Progress::Some };
        let kept = self.members[at].kept_begin();
        let copy = match kept {
            Some(_) => None,
            None => self.copy_of(context, at),
        };
        let old = &mut self.members[at];
        let mut input = old.input.take();
        let carry =
            old.reading.as_ref().map_or_else(|| old.rest.seam.clone(), |reading| reading.reader().carry());
        let mut new = old.next_generation(kept.unwrap_or(0), carry.onward(), now);
        new.input = input.take();
        if let Some(input) = &new.input
            && let Ok(stat) = input.stat()
        {
            new.set_size(stat.size);
        }
        let reached = old.reached();
        match copy {
            Some((seen, input)) => {
                let size = seen.stat.size;
                let unread = old.peak.saturating_sub(size.max(reached));
                old.inode = Inode::of(&seen.stat);
                old.path = seen.path;
                old.size = size;
                old.peak = size;
                old.input = Some(input);
                if unread > 0 {
                    old.told.push(loss(&self.source, old, unread, "truncated before it was read"));
                }
                let inode = old.inode;
                self.members.retain(|member| !(member.is_copy && member.inode == inode));
            }
            None => {
                let unread = old.peak.saturating_sub(reached);
                old.inode = Inode { device: 0, inode: 0, born: None };
                old.is_linked = false;
                if kept.is_none() || unread > 0 {
                    old.told.push(loss(&self.source, old, unread, "truncated before it was read"));
                }
                match &mut old.reading {
                    Some(reading) => {
                        reading.finish();
                        old.is_ending = true;
                    }
                    None => old.done = true,
                }
            }
        }
        self.members.push(new);
        self.sort();
        Progress::SaveFirst
    }

    /// A file beside a truncated one that holds what that one held.
    fn copy_of(&self, context: &Context<'p>, at: usize) -> Option<(Seen, Input)> {
        let member = &self.members[at];
        let rotated = self.seen.iter().rev().filter(|seen| seen.rotated.is_some());
        rotated.filter(|seen| Inode::of(&seen.stat) != member.inode).find_map(|seen| {
            let file = context.files.open(&seen.path).ok()?;
            let mut input = Input::new(file, seen.is_packed()).ok()?;
            let size = input.stat().ok()?.size;
            let is_copy = member.is_copied_by(&mut input, size).ok()? == Some(true);
            (is_copy && (seen.is_packed() || size >= member.reached())).then(|| (seen.clone(), input))
        })
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

/// Whether a path is the live file or a rotation of it.
fn is_of(live: &Path, path: &Path) -> bool {
    let (Some(live), Some(name)) = (live.file_name(), path.file_name()) else { return false };
    let (live, name) = (live.to_string_lossy(), name.to_string_lossy());
    live == name || Rotated::parse(&live, &name).is_some()
}

fn speaks(source: &Source, member: &Member<'_>) -> SourceContext {
    SourceContext {
        node: source.node.clone(),
        worker: source.worker.clone(),
        stream: source.path.to_string_lossy().into_owned(),
        instance: member.instance.clone(),
        generation: member.generation,
    }
}

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
