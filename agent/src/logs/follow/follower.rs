//! Follows any number of logs: the loop that looks, reads, hands over and saves.

use super::family::{Family, Progress};
use super::files::Files;
use super::identity::Inode;
use super::member::Member;
use super::pattern;
use super::positions::{MAX_FILES, Positions, Saved};
use super::reading::Cutting;
use super::source::{Source, SourceId, SourceReport};
use crate::logs::LineCounts;
use kvprov_model::observation::Observation;
use kvprov_packs::{Matcher, Packs};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes that are read at once.
const PIECE: usize = 256 << 10;
/// A [`Follower::poll`] ends after so long, even if there is more.
const TURN: Duration = Duration::from_millis(200);
/// Positions are saved so often.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Patterns are looked up so often.
const EXPAND_EVERY: Duration = Duration::from_secs(1);
/// Files that one pattern may name.
const MAX_MATCHES: usize = 1000;

/// Takes observations into a queue that survives. An observation that finds no room is given back and offered again.
pub type Take<'a> = &'a mut dyn FnMut(Observation) -> Result<(), Box<Observation>>;

/// After how long what is done.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// A source that was quiet for so long has ended its message.
    pub idle: Duration,
    /// A source that was quiet for so long has told everything: counts are told, causes do not wait any more.
    pub settle: Duration,
    /// A file that is no longer live ends when it was quiet for so long.
    pub linger: Duration,
    /// Directories are read at least so often.
    pub list_every: Duration,
    /// A file that did not grow for so long is no copy in the making.
    pub copied_after: Duration,
    /// Files that are gone are remembered for so long.
    pub remembered: Duration,
}

/// What a turn came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// All there was is read and handed over: wait, then call again.
    Rest,
    /// There is more: call again.
    More,
    /// Nobody took an observation: call again once there is room.
    Full,
}

/// What everything of a follower shares.
pub(super) struct Context<'p> {
    pub(super) files: Box<dyn Files>,
    pub(super) packs: &'p Packs,
    pub(super) matcher: &'p Matcher,
    pub(super) cutting: Cutting,
    pub(super) timing: Timing,
    pub(super) is_recording: bool,
}

/// The follower.
pub struct Follower<'p> {
    context: Context<'p>,
    positions: Positions,
    families: Vec<Family<'p>>,
    patterns: BTreeMap<SourceId, Source>,
    /// Of earlier runs and of sources that are gone.
    known: Vec<Saved>,
    next_id: u64,
    buffer: Vec<u8>,
    saved_at: Option<Instant>,
    saved: Vec<Saved>,
    /// Something waits for positions to be on disk.
    must_save: bool,
    expanded_at: Option<Instant>,
    counts: LineCounts,
    /// Observations of times before their worker.
    foreign: u64,
    /// Lines to be kept of sources that have ended.
    recorded: Vec<(Source, Vec<u8>)>,
    /// Where the last turn stopped, so that nobody waits for ever.
    turn: usize,
}

impl std::fmt::Debug for Follower<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("families", &self.families.len()).finish_non_exhaustive()
    }
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(1),
            settle: Duration::from_secs(10),
            linger: Duration::from_secs(5),
            list_every: Duration::from_secs(5),
            copied_after: Duration::from_secs(2),
            remembered: Duration::from_secs(600),
        }
    }
}

// === impl Follower ===

impl<'p> Follower<'p> {
    /// A follower that keeps its positions below `directory`. Nothing is followed before [`Self::add`].
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(files: Box<dyn Files>, directory: &Path, packs: &'p Packs) -> io::Result<Self> {
        let positions = Positions::new(directory)?;
        let known = positions.load();
        let context = Context {
            files,
            packs,
            matcher: packs.matcher(),
            cutting: Cutting::default(),
            timing: Timing::default(),
            is_recording: false,
        };
        Ok(Self {
            context,
            positions,
            families: Vec::new(),
            patterns: BTreeMap::new(),
            saved: known.clone(),
            known,
            next_id: 0,
            buffer: vec![0; PIECE],
            saved_at: None,
            must_save: false,
            expanded_at: None,
            counts: LineCounts::default(),
            foreign: 0,
            recorded: Vec::new(),
            turn: 0,
        })
    }

    /// The same with other times; for tests and for sources that are looked at rarely.
    #[must_use]
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.context.timing = timing;
        self
    }

    /// The same with other places for seams: every `grain` bytes one may be, at least `segment` bytes apart. Must not
    /// change while positions are kept.
    #[must_use]
    pub fn with_seams(mut self, grain: u64, segment: u64) -> Self {
        self.context.cutting = Cutting { grain: grain.max(1), segment };
        self
    }

    /// Records from here on: [`Self::recorded`] gives every new line as it may be kept.
    pub fn record(&mut self) {
        self.context.is_recording = true;
        let members = self.families.iter_mut().flat_map(|family| &mut family.members);
        members.filter_map(|member| member.reading.as_mut()).for_each(super::reading::Reading::record);
    }

    /// Lines as they may be kept that came since the last call, by source; `all` also gives the last few, which may
    /// still turn out to belong to another message, as at the end of a recording.
    pub fn recorded(&mut self, all: bool, each: &mut dyn FnMut(&Source, &[u8])) {
        for (source, lines) in std::mem::take(&mut self.recorded) {
            each(&source, &lines);
        }
        let mut lines = Vec::new();
        for family in &mut self.families {
            lines.append(&mut family.recorded);
            for reading in family.members.iter_mut().filter_map(|member| member.reading.as_mut()) {
                reading.recorded(all, &mut lines);
            }
            if !lines.is_empty() {
                each(&family.source, &lines);
                lines.clear();
            }
        }
    }

    /// Follows a source from here on. A path that is followed already keeps its first source.
    pub fn add(&mut self, source: Source) -> SourceId {
        self.next_id += 1;
        let id = SourceId(self.next_id);
        if source.is_pattern() {
            self.patterns.insert(id, source);
            self.expanded_at = None;
        } else {
            self.families.push(Family::new(id, source, &self.context));
        }
        id
    }

    /// Follows a source no longer; what is there is still read.
    pub fn remove(&mut self, id: SourceId) {
        self.patterns.remove(&id);
        for family in self.families.iter_mut().filter(|family| family.id == id) {
            family.leave(&self.context);
        }
    }

    /// One turn: looks for files, reads what there is, hands over, saves. Call it every 250 ms or when a hint comes,
    /// at once after [`Turn::More`].
    ///
    /// # Errors
    /// Positions cannot be saved; nothing that depends on them was done, and the next call tries again.
    pub fn poll(&mut self, now: Instant, take: Take<'_>) -> io::Result<Turn> {
        if self.must_save {
            self.save(now)?;
        }
        if !self.hand_over(take) {
            self.save_if_due(now)?;
            return Ok(Turn::Full);
        }
        self.expand(now);
        self.look(now);
        let began = Instant::now();
        let turn = loop {
            let mut is_rest = true;
            for _ in 0..self.families.len() {
                self.turn = (self.turn + 1) % self.families.len();
                let at = self.turn;
                match self.read(at, now) {
                    Progress::Some => is_rest = false,
                    Progress::SaveFirst => {
                        is_rest = false;
                        self.must_save = true;
                        self.save(now)?;
                    }
                    Progress::None => continue,
                }
                if !self.hand_over_one(at, take) {
                    self.save_if_due(now)?;
                    return Ok(Turn::Full);
                }
            }
            if is_rest {
                break Turn::Rest;
            }
            if began.elapsed() >= TURN {
                break Turn::More;
            }
        };
        self.drop_ended();
        self.save_if_due(now)?;
        Ok(turn)
    }

    /// Saves positions, as on an orderly stop.
    ///
    /// # Errors
    /// Those of writing.
    pub fn save(&mut self, now: Instant) -> io::Result<()> {
        self.saved_at = Some(now);
        let members = self.families.iter().flat_map(|family| &family.members);
        let is_kept = |member: &&Member<'_>| member.inode.inode != 0;
        let mut files: Vec<Saved> = members.filter(is_kept).map(Member::save).collect();
        files.extend(self.known.iter().cloned());
        files.truncate(MAX_FILES);
        if files != self.saved {
            self.positions.save(files.clone())?;
            self.saved = files;
        }
        self.must_save = false;
        Ok(())
    }

    /// How sources fare.
    pub fn report(&self) -> Vec<SourceReport> {
        let report = |family: &Family<'_>| SourceReport {
            id: family.id,
            path: family.source.path.clone(),
            worker: family.source.worker.clone(),
            is_followed: family.is_followed(),
            trouble: family.trouble.clone(),
            behind: family.behind(),
        };
        self.families.iter().filter(|family| !family.is_leaving).map(report).collect()
    }

    /// What became of the lines. After `kill -9` those behind the last seam are counted again.
    pub fn counts(&self) -> LineCounts {
        let mut counts = self.counts;
        self.families.iter().for_each(|family| counts.add_all(&family.counts));
        let readings = self
            .families
            .iter()
            .flat_map(|family| &family.members)
            .filter_map(|member| member.reading.as_ref());
        for reading in readings {
            counts.add_all(reading.reader().counts());
        }
        counts
    }

    /// Observations that were not told because they are dated before their worker.
    pub fn foreign(&self) -> u64 {
        self.foreign
    }

    /// Directories and files to wait for.
    pub fn watched(&self) -> Vec<PathBuf> {
        self.families
            .iter()
            .filter(|family| !family.is_leaving)
            .map(|family| family.source.path.clone())
            .collect()
    }

    fn save_if_due(&mut self, now: Instant) -> io::Result<()> {
        match self.saved_at {
            Some(at) if now.saturating_duration_since(at) < SAVE_EVERY => Ok(()),
            _ => self.save(now),
        }
    }

    fn expand(&mut self, now: Instant) {
        if self.patterns.is_empty()
            || self.expanded_at.is_some_and(|at| now.saturating_duration_since(at) < EXPAND_EVERY)
        {
            return;
        }
        self.expanded_at = Some(now);
        for (id, source) in self.patterns.clone() {
            for path in pattern::expand(&*self.context.files, &source.path, MAX_MATCHES) {
                if self.families.iter().any(|family| family.source.path == path) {
                    continue;
                }
                self.families.push(Family::new(id, Source { path, ..source.clone() }, &self.context));
            }
        }
    }

    fn look(&mut self, now: Instant) {
        for at in 0..self.families.len() {
            let (before, rest) = self.families.split_at_mut(at);
            let Some((family, behind)) = rest.split_first_mut() else { continue };
            let others = |inode: &Inode| owns(before, inode) || owns(behind, inode);
            family.look(&self.context, &mut self.known, &others, now);
        }
    }

    fn read(&mut self, at: usize, now: Instant) -> Progress {
        let (before, rest) = self.families.split_at_mut(at);
        let Some((family, behind)) = rest.split_first_mut() else { return Progress::None };
        let others = |inode: &Inode| owns(before, inode) || owns(behind, inode);
        family.read(&self.context, &mut self.known, &others, &mut self.buffer, now)
    }

    /// Hands over everything; false when there is no room.
    fn hand_over(&mut self, take: Take<'_>) -> bool {
        (0..self.families.len()).all(|at| self.hand_over_one(at, take))
    }

    fn hand_over_one(&mut self, at: usize, take: Take<'_>) -> bool {
        let Some(family) = self.families.get_mut(at) else { return true };
        let begin = family.source.not_before;
        for member in &mut family.members {
            while let Some(loss) = member.told.pop() {
                if let Err(back) = take(loss) {
                    member.told.push(*back);
                    return false;
                }
            }
            let Some(reading) = &mut member.reading else { continue };
            while let Some(observation) = reading.next() {
                if begin.is_some_and(|begin| observation.envelope.wall.is_some_and(|wall| wall < begin)) {
                    self.foreign += 1;
                    continue;
                }
                if let Err(back) = take(observation) {
                    reading.put_back(*back);
                    return false;
                }
            }
            if !member.is_ending {
                reading.note_if_handed();
            }
        }
        true
    }

    /// Sources that were removed and read to their ends.
    fn drop_ended(&mut self) {
        let mut at = 0;
        while at < self.families.len() {
            if self.families[at].has_ended() {
                let mut family = self.families.swap_remove(at);
                self.counts.add_all(&family.counts);
                if self.context.is_recording {
                    for reading in family.members.iter_mut().filter_map(|member| member.reading.as_mut()) {
                        reading.recorded(true, &mut family.recorded);
                    }
                    self.recorded.push((family.source.clone(), std::mem::take(&mut family.recorded)));
                }
                self.known
                    .extend(family.members.iter().filter(|member| member.inode.inode != 0).map(Member::save));
                let surplus = self.known.len().saturating_sub(MAX_FILES / 2);
                self.known.drain(..surplus);
            } else {
                at += 1;
            }
        }
    }
}

fn owns(families: &[Family<'_>], inode: &Inode) -> bool {
    families.iter().flat_map(|family| &family.members).any(|member| member.inode == *inode)
}
