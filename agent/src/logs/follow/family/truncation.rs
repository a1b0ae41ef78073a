//! A file that was truncated under its reader.

use super::super::follower::Context;
use super::super::identity::Inode;
use super::super::input::Input;
use super::super::positions::Saved;
use super::{Family, Progress, Seen, loss};
use std::time::Instant;

impl<'p> Family<'p> {
    /// A file was truncated: what a copy of it still holds is read there, the rest is lost, and what it holds now is
    /// its next generation.
    pub(super) fn truncated(
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
    pub(super) fn copy_of(&self, context: &Context<'p>, at: usize) -> Option<(Seen, Input)> {
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
}
