//! Which files a stream has: looks at names, knows files by what they are, tells new ones from copies.

use super::super::follower::Context;
use super::super::identity::{HEAD, Inode};
use super::super::input::Input;
use super::super::member::Member;
use super::super::names::{Rotated, is_packed_otherwise};
use super::super::positions::Saved;
use super::{COPIED_AFTER, Family, Seen, loss};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A directory is read again so long after it changed, for clocks that do not tell two changes apart.
const AGAIN_AFTER: Duration = Duration::from_millis(30);
/// A directory is read at least so often, for file systems that tell changes late.
const LIST_EVERY: Duration = Duration::from_secs(5);
/// A directory that takes longer to read is slow.
const SLOW_LIST: Duration = Duration::from_millis(20);
/// Reading a directory takes at most one part in so many of the time.
const LIST_SHARE: u32 = 100;
/// Files that are gone are remembered so long, in case they come back packed.
const REMEMBERED: Duration = Duration::from_secs(600);
/// Files of one stream that are open at once.
const MAX_OPEN: usize = 64;

impl<'p> Family<'p> {
    /// Looks for files. `others` knows those of other streams, `known` those of earlier runs.
    pub(in super::super) fn look(
        &mut self,
        context: &Context<'p>,
        known: &mut Vec<Saved>,
        others: &dyn Fn(&Inode) -> bool,
        now: Instant,
    ) {
        let mut is_due = self.listed.is_none();
        let mut is_new_live = is_due;
        match context.files.stat(&self.source.path) {
            Ok(stat) if stat.is_regular => {
                let inode = Inode::of(&stat);
                is_new_live |= self.live != Some(inode);
                is_due |= is_new_live;
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
        let list_every = LIST_EVERY.min(context.timing.list_every).max(self.list_cost * LIST_SHARE);
        is_due |= self.listed.is_some_and(|at| at + list_every <= now);
        // A directory that is slow to read is not read at every change of what else is in it.
        let is_slow = self.list_cost > SLOW_LIST;
        let is_soon = self.listed.is_some_and(|at| at + self.list_cost * LIST_SHARE > now);
        if is_due && (is_new_live || !(is_slow && is_soon)) {
            self.scan(context, known, others, now);
        }
    }

    pub(super) fn scan(
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
        self.find_in_copies(context);
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
        self.began.get_or_insert(now);
        let (Some(parent), Some(live)) = (real.parent(), real.file_name().map(|name| name.to_string_lossy()))
        else {
            return false;
        };
        let stat = files.stat(parent).ok();
        let began = Instant::now();
        let names = files.list(parent).unwrap_or_default();
        self.list_cost = began.elapsed();
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
            let packed = member.is_packed();
            if !member.is_copy && !member.done && member.open(&*context.files, packed).is_ok() {
                let _ = member.learn_head();
            }
        }
    }

    /// Files that are gone and were not read to their ends: what was known as a copy stands for them.
    fn find_in_copies(&mut self, context: &Context<'p>) {
        for at in 0..self.members.len() {
            let member = &self.members[at];
            if member.is_copy || member.done || member.is_linked || member.input.is_some() {
                continue;
            }
            let is_known_copy = |seen: &&Seen| {
                let inode = Inode::of(&seen.stat);
                self.members.iter().any(|member| member.is_copy && member.inode == inode)
            };
            let found = self.seen.iter().filter(is_known_copy).find_map(|seen| {
                let file = context.files.open(&seen.path).ok()?;
                let mut input = Input::new(file, seen.is_packed()).ok()?;
                let stat = input.stat().ok()?;
                let is_copy = member.is_copied_by(&mut input, stat.size).ok()? == Some(true);
                (is_copy && Inode::of(&stat) == Inode::of(&seen.stat)).then(|| (seen.clone(), input))
            });
            let Some((seen, input)) = found else { continue };
            let inode = Inode::of(&seen.stat);
            if let Some(copy) = self.members.iter_mut().find(|member| member.is_copy && member.inode == inode)
            {
                // It goes with the others that are nothing any more.
                copy.inode = Inode { device: 0, inode: 0, born: None };
                copy.is_linked = false;
            }
            if let Err(error) = self.members[at].become_copy(inode, &seen.path, input, seen.stat.size) {
                self.trouble = Some(format!("{}: {error}", seen.path.display()));
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
        let copied_after = COPIED_AFTER.min(context.timing.copied_after);
        let age = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as i128
            - i128::from(stat.modified);
        let rests = unchanged_for >= copied_after || age >= copied_after.as_nanos() as i128;
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
                    let input = Input::new(context.files.open(&seen.path)?, seen.is_packed())?;
                    member.become_copy(inode, &seen.path, input, stat.size)?;
                    return Ok(true);
                }
            }
            let mut is_present = false;
            for member in self.members.iter_mut().filter(|member| !member.is_copy) {
                copied = copied || member.was_copied_by(&mut input, stat.size)?;
                is_present = is_present || member.holds_now(&head)?;
            }
            if is_present && !copied {
                // A file was truncated and holds this now: it is a copy once that file is read so.
                return wait(self);
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
    pub(super) fn sort(&mut self) {
        let ranks: HashMap<Inode, usize> =
            self.seen.iter().enumerate().map(|(rank, seen)| (Inode::of(&seen.stat), rank + 1)).collect();
        self.members.sort_by_key(|member| ranks.get(&member.inode).copied().unwrap_or(0));
    }

    pub(super) fn rank_of(&self, at: usize) -> usize {
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
                let packed = member.is_packed();
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
}

/// Whether a path is the live file or a rotation of it.
fn is_of(live: &Path, path: &Path) -> bool {
    let (Some(live), Some(name)) = (live.file_name(), path.file_name()) else { return false };
    let (live, name) = (live.to_string_lossy(), name.to_string_lossy());
    live == name || Rotated::parse(&live, &name).is_some()
}
