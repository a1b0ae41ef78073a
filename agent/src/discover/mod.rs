//! Finds the engines on this node: which processes are a worker, what it was started with, when it is gone.
//!
//! Input is `/proc` through [`Processes`]; words of engines come from the packs. [`Discovery::scan`] looks at everything
//! every few seconds, [`Discovery::exec`] and [`Discovery::exited`] at one process as soon as the kernel tells.
//! Invariants: a worker is a process tree under one leader; its name depends on node, boot, leader and start alone, so that a
//! restarted agent finds the same workers. What cannot be read is unknown and named in [`FoundWorker::unread`], never a default.
//! Nothing of arguments and environment is kept but the settings that facts read.

pub mod container;
#[cfg(test)]
mod fake;
mod known;
mod live;
mod look;
mod node;
mod system;
#[cfg(test)]
mod tests;
mod tree;
mod version;
mod worker;

pub use container::Container;
pub use known::ScanReport;
pub use live::LiveProcesses;
pub use node::NodeIdentity;
pub(crate) use system::texts;
pub use system::{MAX_TEXT, Output, ProcessKey, Processes, Stat};
pub use worker::{Change, Exit, FoundProcess, FoundWorker};

use crate::containers::ContainerNames;
use known::Table;
use kvprov_model::clock::WallTime;
use kvprov_packs::Packs;
use look::{Look, inner_pid, look, output_of};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tree::{Forest, Root, grow, is_leader};

/// Looks after which a helper process counts: most are over sooner.
const LASTING: u32 = 2;
/// Looks at which descriptors 1 and 2 are read again: a new process may still be redirecting them.
const SETTLING: u32 = 3;
/// Scans that miss a worker before it is told gone without having heard how it ended.
const UNHEARD_SCANS: u32 = 2;
/// Ends that are kept for workers of which something still lives.
const MAX_EXITS: usize = 1024;
/// Processes of one worker that are told.
const MAX_TOLD: usize = 4096;

/// The workers of this node.
#[derive(Debug)]
pub struct Discovery<'p> {
    packs: &'p Packs,
    node: NodeIdentity,
    table: Table<'p>,
    workers: BTreeMap<ProcessKey, Tracked<'p>>,
    exits: BTreeMap<ProcessKey, (Exit, WallTime)>,
    /// Somebody calls [`Self::exited`].
    hears_exits: bool,
    /// Workers that are gone and whose end was not heard yet, with the scans since.
    unheard: BTreeMap<ProcessKey, u32>,
    report: ScanReport,
    /// What runtimes said of containers that workers are in, by id.
    names: BTreeMap<String, ContainerNames>,
}

/// A worker, and what is needed to see it change.
#[derive(Debug)]
struct Tracked<'p> {
    root: Root<'p>,
    told: FoundWorker,
    look: Look,
    processes: BTreeMap<ProcessKey, Seen>,
    looks: u32,
}

/// A process of a worker.
#[derive(Debug)]
struct Seen {
    process: FoundProcess,
    /// It called itself by a name of the engine's. A copy of the leader may be about to become a helper.
    is_named: bool,
    looks: u32,
}

// === impl Discovery ===

impl<'p> Discovery<'p> {
    /// Knows nothing yet. `scope`: only processes in this cgroup or below it.
    pub fn new(packs: &'p Packs, node: NodeIdentity, scope: Option<String>) -> Self {
        Self {
            packs,
            node,
            table: Table::new(packs, scope),
            workers: BTreeMap::new(),
            exits: BTreeMap::new(),
            hears_exits: false,
            unheard: BTreeMap::new(),
            report: ScanReport::default(),
            names: BTreeMap::new(),
        }
    }

    /// Ends of processes are told by [`Self::exited`], maybe a little after a scan misses the process.
    #[must_use]
    pub fn hearing_exits(self, hears_exits: bool) -> Self {
        Self { hears_exits, ..self }
    }

    /// A runtime said what a container is called: of its workers more is known now.
    pub fn learn(&mut self, container: &str, names: &ContainerNames) -> Vec<Change> {
        let is_in = |worker: &FoundWorker| worker.container.as_ref().is_some_and(|of| of.id == container);
        let mut changes = Vec::new();
        for tracked in self.workers.values_mut().filter(|tracked| is_in(&tracked.told)) {
            if tracked.told.names != *names {
                tracked.told.names.clone_from(names);
                changes.push(Change::Changed(tracked.told.clone()));
            }
        }
        let told =
            self.workers.values().filter_map(|tracked| Some(tracked.told.container.as_ref()?.id.as_str()));
        let there: BTreeSet<&str> = told.collect();
        self.names.retain(|id, _| there.contains(id.as_str()));
        if there.contains(container) {
            self.names.insert(container.to_owned(), names.clone());
        }
        changes
    }

    /// The node on which it looks.
    pub fn node(&self) -> &NodeIdentity {
        &self.node
    }

    /// The workers as they were told last.
    pub fn workers(&self) -> impl Iterator<Item = &FoundWorker> {
        self.workers.values().map(|tracked| &tracked.told)
    }

    /// The worker that a process belonged to at the last look.
    pub fn worker_of(&self, pid: u32) -> Option<&FoundWorker> {
        let root = self.table.all.get(&pid)?.worker?;
        self.workers.get(&root).map(|tracked| &tracked.told)
    }

    /// What the last [`Self::scan`] met.
    pub fn report(&self) -> ScanReport {
        self.report
    }

    /// Looks at all processes.
    ///
    /// # Errors
    /// When processes cannot be listed at all. What is known stands.
    pub fn scan(&mut self, system: &dyn Processes, now: WallTime) -> io::Result<Vec<Change>> {
        self.report = self.table.scan(system)?;
        Ok(self.compare(system, now, true))
    }

    /// A process called exec, or was told to be of interest.
    pub fn exec(&mut self, system: &dyn Processes, pid: u32, now: WallTime) -> Vec<Change> {
        let was_engine = self.table.all.get(&pid).is_some_and(|known| known.signature.is_some());
        if !self.table.one(system, pid) {
            return Vec::new();
        }
        let known = self.table.all.get(&pid);
        if was_engine || known.is_some_and(|known| known.signature.is_some()) {
            return self.compare(system, now, false);
        }
        // A helper belongs where its parent does. It is told with the next scan: an engine may start many.
        let parent = known.and_then(|known| self.table.all.get(&known.parent));
        if let Some(worker) = parent.and_then(|parent| parent.worker)
            && let Some(known) = self.table.all.get_mut(&pid)
        {
            known.worker = Some(worker);
        }
        Vec::new()
    }

    /// A process ended, with all its threads.
    pub fn exited(&mut self, system: &dyn Processes, pid: u32, exit: Exit, at: WallTime) -> Vec<Change> {
        let Some(known) = self.table.all.get(&pid) else {
            let Some(key) = self.unheard.keys().find(|key| key.pid == pid).copied() else {
                return Vec::new();
            };
            self.exits.insert(key, (exit, at));
            return self.compare(system, at, false);
        };
        let key = known.key;
        // The number may have been used again before this was heard.
        let lives = system.stat(pid).is_ok_and(|stat| stat.start == key.start && !stat.is_over());
        if lives {
            return Vec::new();
        }
        let matters = known.signature.is_some() || self.workers.contains_key(&key);
        self.table.all.remove(&pid);
        if !matters {
            return Vec::new();
        }
        if self.workers.contains_key(&key) && self.exits.len() < MAX_EXITS {
            self.exits.insert(key, (exit, at));
        }
        self.compare(system, at, false)
    }

    /// Sorts processes into workers and tells what is another than before. `is_scan`: a look that counts as one.
    fn compare(&mut self, system: &dyn Processes, now: WallTime, is_scan: bool) -> Vec<Change> {
        let before = self.workers.iter().map(|(key, tracked)| (*key, tracked.root)).collect();
        let mut forest = grow(system, self.packs, &self.table, &before);
        let table = &self.table;
        // A worker lives while its leader or another process of the engine does; helpers alone are none.
        forest.roots.retain(|key, root| {
            let is_engine =
                |member: &ProcessKey| table.get(*member).is_some_and(|known| known.signature.is_some());
            let others = forest.members.get(key);
            let lives = table.get(*key).is_some() || others.is_some_and(|all| all.iter().any(is_engine));
            // A leader that called exec and is no engine now takes its worker with it.
            lives && (!root.started_as || table.get(*key).is_none_or(|known| known.signature.is_some()))
        });
        let mut changes = Vec::new();
        let is_gone = |key: &ProcessKey, tracked: &Tracked<'p>| {
            forest.roots.get(key).is_none_or(|root| root.signature.engine != tracked.told.engine)
        };
        let gone: Vec<ProcessKey> =
            self.workers.iter().filter(|(key, tracked)| is_gone(key, tracked)).map(|(key, _)| *key).collect();
        for key in gone {
            let exit = self.exits.remove(&key);
            if exit.is_none() && self.hears_exits && self.table.get(key).is_none() {
                let scans = self.unheard.entry(key).or_default();
                *scans += u32::from(is_scan);
                if *scans < UNHEARD_SCANS {
                    continue;
                }
            }
            self.unheard.remove(&key);
            let Some(tracked) = self.workers.remove(&key) else { continue };
            let at = exit.map_or(now, |(_, at)| at);
            changes.push(Change::Gone { worker: tracked.told.id, exit: exit.map(|(exit, _)| exit), at });
        }
        self.remember(&forest);
        for (key, root) in &forest.roots {
            let members = forest.members.get(key).cloned().unwrap_or_default();
            changes.extend(self.update(system, *key, *root, &members, is_scan));
        }
        changes
    }

    /// Notes for every process which worker it is in, for the time when its parents are gone.
    fn remember(&mut self, forest: &Forest<'p>) {
        for known in self.table.all.values_mut() {
            known.worker = None;
        }
        for (root, members) in &forest.members {
            for key in members.iter().filter(|_| forest.roots.contains_key(root)) {
                if let Some(known) = self.table.all.get_mut(&key.pid) {
                    known.worker = Some(*root);
                }
            }
        }
    }

    fn update(
        &mut self,
        system: &dyn Processes,
        key: ProcessKey,
        root: Root<'p>,
        members: &BTreeSet<ProcessKey>,
        is_scan: bool,
    ) -> Option<Change> {
        let leader = self.table.get(key);
        let leader_lives = leader.is_some();
        // A leader that is dead or overwrote its arguments shows less than it did.
        let shows = leader.is_some_and(|known| !root.started_as || known.signature.is_some_and(is_leader));
        let mut tracked = self.workers.remove(&key);
        let is_new = tracked.is_none();
        let must_look = match &mut tracked {
            None => true,
            Some(tracked) => {
                tracked.looks += u32::from(is_scan);
                let is_incomplete = tracked.look.engine_version.is_none() || !tracked.look.unread.is_empty();
                let is_due = is_scan && is_incomplete && tracked.looks.is_power_of_two();
                shows && (tracked.root.print != root.print || is_due)
            }
        };
        let mut processes =
            tracked.as_mut().map(|old| std::mem::take(&mut old.processes)).unwrap_or_default();
        processes.retain(|process, _| members.contains(process));
        for member in members {
            self.meet(system, *member, &mut processes, is_scan);
        }
        let look = match &tracked {
            Some(tracked) if !must_look => tracked.look.clone(),
            _ => {
                let others: Vec<ProcessKey> =
                    members.iter().copied().filter(|member| *member != key).collect();
                look(system, self.packs, root.signature, key, root.started_as, &others)
            }
        };
        let told = self.told(key, root, leader_lives, &look, &processes);
        let change = match &tracked {
            None => Some(Change::Found(told.clone())),
            Some(old) => (old.told != told).then(|| Change::Changed(told.clone())),
        };
        let looks = tracked.map_or(u32::from(is_scan), |old| old.looks);
        debug_assert!(!is_new || matches!(change, Some(Change::Found(_))), "a new worker is told");
        self.workers.insert(key, Tracked { root, told, look, processes, looks });
        change
    }

    fn meet(
        &self,
        system: &dyn Processes,
        member: ProcessKey,
        processes: &mut BTreeMap<ProcessKey, Seen>,
        is_scan: bool,
    ) {
        let Some(known) = self.table.get(member) else { return };
        let signature = known.signature.map(|signature| signature.id.clone());
        let seen = processes.entry(member).or_insert_with(|| Seen {
            process: FoundProcess {
                key: member,
                parent: known.parent,
                thread_name: String::new(),
                signature: None,
                inner_pid: inner_pid(system, member.pid),
                output: [Output::Nowhere, Output::Nowhere],
            },
            is_named: false,
            looks: 0,
        });
        seen.is_named = known.signature.is_some_and(|signature| !is_leader(signature));
        let process = &mut seen.process;
        let is_other = process.thread_name != known.thread_name || process.signature != signature;
        if is_other || seen.looks < SETTLING && is_scan {
            process.output = output_of(system, member.pid);
        }
        process.parent = known.parent;
        process.thread_name.clone_from(&known.thread_name);
        process.signature = signature;
        seen.looks = seen.looks.saturating_add(u32::from(is_scan));
    }

    fn told(
        &self,
        key: ProcessKey,
        root: Root<'p>,
        leader_lives: bool,
        look: &Look,
        processes: &BTreeMap<ProcessKey, Seen>,
    ) -> FoundWorker {
        let counts = |seen: &&Seen| seen.process.key == key || seen.is_named || seen.looks >= LASTING;
        let mut shown: Vec<FoundProcess> =
            processes.values().filter(counts).take(MAX_TOLD).map(|seen| seen.process.clone()).collect();
        shown.sort_by_key(|process| (process.key != key, process.key.pid));
        let engine = root.signature.engine.clone();
        let names = look.container.as_ref().and_then(|container| self.names.get(&container.id));
        FoundWorker {
            id: self.node.worker(&engine, key),
            engine,
            engine_version: look.engine_version.clone(),
            role: look.role.clone(),
            leader: key,
            leader_lives,
            started: self.node.start_of(key),
            processes: shown,
            settings: look.settings.clone(),
            facts: look.facts.clone(),
            fact_origins: look.fact_origins.clone(),
            cgroup: look.cgroup.clone(),
            container: look.container.clone(),
            pod: look.pod.clone(),
            names: names.cloned().unwrap_or_default(),
            unread: look.unread.clone(),
        }
    }
}
